//! Where the orders are: a file of this machine, or PostgreSQL.

#[path = "../../order_file/mod.rs"]
mod order_file;

use std::path::Path;
use std::time::Duration;

use leasehold::kit::sale::{Expired, Ledger, Orders, Placed, Rebuild, Reservation, ReservationId, Terms};

use self::order_file::{OrderFile, State};
use crate::postgres::PostgresOrders;
use crate::{Result, with_causes};

/// What the database says of the sale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Books {
    pub(crate) epoch: u32,
    pub(crate) stock: u32,
    pub(crate) ledger: Ledger,
    /// Orders that were ever placed.
    pub(crate) placed: u64,
}

#[derive(Clone)]
pub(crate) enum Database {
    File(OrderFile),
    Postgres(PostgresOrders),
}

impl Database {
    pub(crate) fn in_file(path: &Path, stock: u32) -> Result<Database> {
        let file = if path.exists() { OrderFile::open(path) } else { OrderFile::create(path, stock) };
        Ok(Database::File(file?))
    }

    pub(crate) async fn in_postgres(url: &str, sale: &str, stock: u32) -> Result<Database> {
        Ok(Database::Postgres(PostgresOrders::open(url, sale, stock).await?))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Database::File(_) => "file",
            Database::Postgres(_) => "postgres",
        }
    }

    /// The payment is decided here: true if it is paid, now or before.
    pub(crate) async fn pay(&self, id: ReservationId) -> Result<bool> {
        Ok(match self {
            Database::File(file) => file.pay(id)?,
            Database::Postgres(postgres) => postgres.pay(id).await?,
        })
    }

    pub(crate) async fn books(&self) -> Result<Books> {
        Ok(match self {
            Database::File(file) => {
                let (epoch, (stock, ledger, placed)) = (file.epoch()?, file.ledger()?);
                Books { epoch, stock, ledger, placed }
            }
            Database::Postgres(postgres) => {
                let (epoch, stock, ledger, placed) = postgres.ledger().await?;
                Books { epoch, stock, ledger, placed }
            }
        })
    }

    /// What a sale is rebuilt from whose store was lost. `terms` are for what is left.
    pub(crate) async fn rebuild(
        &self,
        terms: impl Fn(u32) -> Terms,
        pay_within: Duration,
    ) -> Result<Rebuild> {
        match self {
            Database::File(file) => {
                let (epoch, left, orders) = file.next_epoch()?;
                let from = Rebuild::new(terms(left).epoch(epoch));
                Ok(orders.into_iter().fold(from, |from, order| match order.state {
                    State::Unpaid => from.unpaid(order.id, order.buyer, order.quantity, pay_within),
                    State::Paid => from.paid(order.id, order.buyer, order.quantity),
                    State::Expired | State::NoStock => from,
                }))
            }
            Database::Postgres(postgres) => {
                let (epoch, left, orders) = postgres.next_epoch().await?;
                let from = Rebuild::new(terms(left).epoch(epoch));
                Ok(orders.into_iter().fold(from, |from, order| match order.paid {
                    false => from.unpaid(order.id, order.buyer, order.quantity, pay_within),
                    true => from.paid(order.id, order.buyer, order.quantity),
                }))
            }
        }
    }

    /// Forgets all orders: the epoch of the sale that begins.
    pub(crate) async fn start_again(&self, stock: u32) -> Result<u32> {
        Ok(match self {
            Database::File(file) => file.start_again(stock)?,
            Database::Postgres(postgres) => postgres.start_again(stock).await?,
        })
    }
}

impl Orders for Database {
    type Error = String;

    async fn place(&self, reservation: &Reservation) -> Result<Placed, String> {
        match self {
            Database::File(file) => file.place(reservation).await.map_err(|error| with_causes(&error)),
            Database::Postgres(postgres) => {
                postgres.place(reservation).await.map_err(|error| with_causes(&error))
            }
        }
    }

    async fn expire(&self, reservation: &Reservation) -> Result<Expired, String> {
        match self {
            Database::File(file) => file.expire(reservation).await.map_err(|error| with_causes(&error)),
            Database::Postgres(postgres) => {
                postgres.expire(reservation).await.map_err(|error| with_causes(&error))
            }
        }
    }
}
