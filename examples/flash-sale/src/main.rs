//! A shop with a flash sale, and a page to watch it.
//!
//! ```text
//! cargo run --release -p flash-sale             # the shop: open http://127.0.0.1:8080/
//! cargo run --release -p flash-sale -- load     # and a crowd, in another terminal
//! ```
//!
//! Without options it needs no server: the sale and the orders are in a directory that goes with
//! the program. With `--on redis://HOST/ --orders postgres://USER:PASSWORD@HOST/DATABASE` Redis
//! sells and PostgreSQL decides, and any number of shops can run at the same time.
//!
//! `shop` is the service, `orders` and `postgres` are the database, `history` is what the page
//! shows, and `load` is the crowd.

mod history;
mod http;
mod load;
mod orders;
mod postgres;
mod shop;

use clap::{Parser, Subcommand};

/// What goes wrong here ends the program, or the request.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

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
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.command {
        None => shop::run(&arguments.shop).await,
        Some(Command::Load(settings)) => load::run(&settings).await,
    }
}
