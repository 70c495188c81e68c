//! What the pages of leasehold show with sqlx, as a program: see `shop.rs`.
//!
//! It is started with the URL of a database. It says `ready`, and then answers each line with one:
//!
//! | line | answer |
//! | --- | --- |
//! | `take LEASE` | `held`: it has `stock/42`, for so many milliseconds if it is not renewed |
//! | `sell` | `sold`, `refused` if the database said so, or what else went wrong |
//! | `sell late` | `late`; the sale goes on at the next line, with the statement that it has by then |
//! | `order KEY` | `new`, `replayed`, `busy`, or `failed` and why |

mod mysql;
mod postgres;

/// What a shop has to say when it does not sell.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) const REFUSED: &str = "refused";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let url = std::env::args().nth(1).expect("a URL");
    let ended = match url.starts_with("postgres:") {
        true => postgres::serve(&url).await,
        false => mysql::serve(&url).await,
    };
    ended.expect("a database that works");
}
