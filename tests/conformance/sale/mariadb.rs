//! Orders in MariaDB, with the statements of docs/sale.md.
//!
//! `insert … on duplicate key update` locks the row that it finds as one that it writes. `insert
//! ignore` only shares it, and two calls that want to end the same order would be a deadlock.

use leasehold::kit::sale::{Expired, Orders, Placed, Reservation, ReservationId};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Error, Pool, Transaction, TxOpts};

use super::real_orders::{RealOrder, RealOrders};

const TABLES: [&str; 2] = [
    "create table sales (
       name varchar(200) primary key,
       epoch int unsigned not null,
       n int unsigned not null)",
    "create table orders (
       reservation binary(16) primary key,
       sale varchar(200) not null,
       buyer varchar(200) not null,
       quantity int unsigned not null,
       state varchar(10) not null)",
];

const INSERT: &str =
    "insert into orders values (?, ?, ?, ?, ?) on duplicate key update reservation = reservation";

/// The orders of one sale.
pub(super) struct MariaDbOrders {
    pool: Pool,
    sale: String,
}

fn key(id: ReservationId) -> Vec<u8> {
    id.0.to_be_bytes().to_vec()
}

impl MariaDbOrders {
    pub(super) async fn open(url: &str, sale: &str, stock: u32) -> Result<MariaDbOrders, Error> {
        let pool = Pool::from_url(url)?;
        let mut connection = pool.get_conn().await?;
        for table in TABLES {
            connection.query_drop(table).await?;
        }
        connection.exec_drop("insert into sales values (?, 1, ?)", (sale, stock)).await?;
        drop(connection);
        Ok(MariaDbOrders { pool, sale: sale.to_owned() })
    }

    async fn begin(&self) -> Result<Transaction<'static>, Error> {
        self.pool.start_transaction(TxOpts::default()).await
    }

    /// Whether the row was not there.
    async fn insert(
        &self,
        transaction: &mut Transaction<'_>,
        reservation: &Reservation,
        state: &str,
    ) -> Result<bool, Error> {
        let Reservation { id, buyer, quantity, .. } = reservation;
        transaction.exec_drop(INSERT, (key(*id), &self.sale, buyer, quantity, state)).await?;
        Ok(transaction.affected_rows() == 1)
    }
}

/// The state of an order whose row this transaction has locked.
async fn state(transaction: &mut Transaction<'_>, id: ReservationId) -> Result<Option<String>, Error> {
    let found = "select state from orders where reservation = ? for update";
    transaction.exec_first(found, (key(id),)).await
}

impl Orders for MariaDbOrders {
    type Error = Error;

    async fn place(&self, reservation: &Reservation) -> Result<Placed, Error> {
        let mut transaction = self.begin().await?;
        if !self.insert(&mut transaction, reservation, "unpaid").await? {
            let expired = state(&mut transaction, reservation.id).await?.as_deref() == Some("expired");
            transaction.rollback().await?;
            return Ok(if expired { Placed::Refused } else { Placed::Yes });
        }
        let quantity = reservation.quantity;
        let take = "update sales set n = n - ? where name = ? and n >= ? and epoch = ?";
        transaction.exec_drop(take, (quantity, &self.sale, quantity, reservation.epoch)).await?;
        if transaction.affected_rows() == 0 {
            transaction.rollback().await?;
            return Ok(Placed::NoStock);
        }
        transaction.commit().await?;
        Ok(Placed::Yes)
    }

    async fn expire(&self, reservation: &Reservation) -> Result<Expired, Error> {
        let mut transaction = self.begin().await?;
        // If there is no order, the mark keeps a late worker from placing it.
        self.insert(&mut transaction, reservation, "expired").await?;
        let end = "update orders set state = 'expired' where reservation = ? and state = 'unpaid'";
        transaction.exec_drop(end, (key(reservation.id),)).await?;
        if transaction.affected_rows() == 1 {
            let give_back = "update sales set n = n + ? where name = ?";
            transaction.exec_drop(give_back, (reservation.quantity, &self.sale)).await?;
        }
        let paid = state(&mut transaction, reservation.id).await?.as_deref() == Some("paid");
        transaction.commit().await?;
        Ok(if paid { Expired::Paid } else { Expired::Yes })
    }
}

impl RealOrders for MariaDbOrders {
    async fn pay(&self, id: ReservationId) -> Result<bool, Error> {
        let mut transaction = self.begin().await?;
        let pay = "update orders set state = 'paid' where reservation = ? and state = 'unpaid'";
        transaction.exec_drop(pay, (key(id),)).await?;
        let paid = state(&mut transaction, id).await?.as_deref() == Some("paid");
        transaction.commit().await?;
        Ok(paid)
    }

    async fn next_epoch(&self) -> Result<(u32, u32, Vec<RealOrder>), Error> {
        let mut transaction = self.begin().await?;
        // Whoever places an order waits for this row, and then finds another epoch.
        transaction.exec_drop("update sales set epoch = epoch + 1 where name = ?", (&self.sale,)).await?;
        let sale = transaction.exec_first("select epoch, n from sales where name = ?", (&self.sale,)).await?;
        let (epoch, left) = sale.unwrap_or_default();
        let live = "select reservation, buyer, quantity, state = 'paid' from orders \
                    where sale = ? and state <> 'expired'";
        let order = |(id, buyer, quantity, paid): (Vec<u8>, String, u32, bool)| {
            let id = ReservationId(u128::from_be_bytes(id.try_into().expect("16 bytes")));
            RealOrder { id, buyer, quantity, paid }
        };
        let orders = transaction.exec_map(live, (&self.sale,), order).await?;
        transaction.commit().await?;
        Ok((epoch, left, orders))
    }
}
