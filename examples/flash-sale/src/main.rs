//! A shop with a flash sale, and a page to watch it.
//!
//! ```text
//! cargo run --release -p flash-sale             # the shop: open http://127.0.0.1:8080/
//! cargo run --release -p flash-sale -- load     # and a crowd, in another terminal
//! ```
//!
//! Without options it needs no server: the sale and the orders are in a directory that goes with
//! the program. On servers Redis sells and PostgreSQL decides, and any number of shops can run at
//! the same time:
//!
//! ```text
//! cargo run --release -p flash-sale -- --on redis://127.0.0.1/ --orders postgres://postgres@127.0.0.1/postgres
//! ```
//!
//! `shop` is the service, `orders` and `postgres` are the database, `history` is what the page
//! shows, and `load` is the crowd.

mod history;
mod http;
mod load;
mod orders;
mod postgres;
mod shop;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What goes wrong here ends the program, or the request.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// A shop with a flash sale, and a page to watch it.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    shop: shop::Settings,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send a crowd of buyers to a shop, and check what it has sold.
    Load(load::Settings),
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        None => shop::run(&arguments.shop).await,
        Some(Command::Load(settings)) => load::run(&settings).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flash-sale: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

/// An error and what has caused it: some drivers say no more than `db error` themselves.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let because = cause.to_string();
        if !text.contains(&because) {
            text = format!("{text}: {because}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Told(&'static str, Option<Box<Told>>);

    impl std::fmt::Display for Told {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Told {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn causes_are_told_once() {
        let refused = || Some(Box::new(Told("refused", None)));
        assert_eq!(with_causes(&Told("db error", refused())), "db error: refused");
        assert_eq!(with_causes(&Told("no answer: refused", refused())), "no answer: refused");
    }
}
