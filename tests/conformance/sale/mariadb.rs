//! Orders in MariaDB, with the statements of docs/sale.md.
//!
//! `insert ignore` takes only a shared lock on an existing row, so two workers that end the same
//! order deadlock. `insert … on duplicate key update` locks the row as one that it writes, and
//! counts it or not, as the connection is set (CLIENT_FOUND_ROWS): so the state is read, not the
//! count. Updates that change what they find count 1 either way.

use leasehold::kit::sale::{Expired, Orders, Placed, Reservation, ReservationId};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Error, Pool, Transaction, TxOpts};

use super::real_orders::{RealOrder, RealOrders};

const TABLES: [&str; 2] = [
    "create table if not exists sales (
       name varchar(200) primary key,
       epoch int unsigned not null,
       n int unsigned not null)",
    "create table if not exists orders (
       reservation binary(16) primary key,
       sale varchar(200) not null,
       buyer varchar(200) not null,
       quantity int unsigned not null,
       state varchar(10) not null,
       epoch int unsigned not null)",
];

const INSERT: &str =
    "insert into orders values (?, ?, ?, ?, ?, ?) on duplicate key update reservation = reservation";

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
        connection.exec_drop("insert ignore into sales values (?, 1, ?)", (sale, stock)).await?;
        drop(connection);
        Ok(MariaDbOrders { pool, sale: sale.to_owned() })
    }

    async fn begin(&self) -> Result<Transaction<'static>, Error> {
        self.pool.start_transaction(TxOpts::default()).await
    }

    /// Makes the row, unless it is there, and reads its state.
    async fn insert(
        &self,
        transaction: &mut Transaction<'_>,
        reservation: &Reservation,
        new: &str,
    ) -> Result<(String, u32), Error> {
        let Reservation { id, buyer, quantity, epoch, .. } = reservation;
        transaction.exec_drop(INSERT, (key(*id), &self.sale, buyer, quantity, new, epoch)).await?;
        Ok(state(transaction, *id).await?.unwrap_or_default())
    }
}

/// The state of an order, and the epoch of its reservation.
async fn state(transaction: &mut Transaction<'_>, id: ReservationId) -> Result<Option<(String, u32)>, Error> {
    let found = "select state, epoch from orders where reservation = ? for update";
    transaction.exec_first(found, (key(id),)).await
}

async fn is_paid(transaction: &mut Transaction<'_>, id: ReservationId) -> Result<bool, Error> {
    Ok(state(transaction, id).await?.is_some_and(|(state, _)| state == "paid"))
}

impl Orders for MariaDbOrders {
    type Error = Error;

    async fn place(&self, reservation: &Reservation) -> Result<Placed, Error> {
        let mut transaction = self.begin().await?;
        // A state that is never committed.
        let (state, of) = self.insert(&mut transaction, reservation, "new").await?;
        let before = match &*state {
            "new" => None,
            // If there were no units in an earlier epoch, there may be some in this one.
            "no stock" if of < reservation.epoch => None,
            "no stock" => Some(Placed::NoStock),
            "expired" => Some(Placed::Refused),
            _ => Some(Placed::Yes),
        };
        if let Some(before) = before {
            transaction.rollback().await?;
            return Ok(before);
        }
        let Reservation { id, quantity, epoch, .. } = *reservation;
        let take = "update sales set n = n - ? where name = ? and n >= ? and epoch = ?";
        transaction.exec_drop(take, (quantity, &self.sale, quantity, epoch)).await?;
        let taken = transaction.affected_rows() == 1;
        let state = if taken { "unpaid" } else { "no stock" };
        let note = "update orders set state = ?, epoch = ? where reservation = ?";
        transaction.exec_drop(note, (state, epoch, key(id))).await?;
        transaction.commit().await?;
        Ok(if taken { Placed::Yes } else { Placed::NoStock })
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
        let paid = is_paid(&mut transaction, reservation.id).await?;
        transaction.commit().await?;
        Ok(if paid { Expired::Paid } else { Expired::Yes })
    }
}

impl RealOrders for MariaDbOrders {
    async fn pay(&self, id: ReservationId) -> Result<bool, Error> {
        let mut transaction = self.begin().await?;
        let pay = "update orders set state = 'paid' where reservation = ? and state = 'unpaid'";
        transaction.exec_drop(pay, (key(id),)).await?;
        let paid = is_paid(&mut transaction, id).await?;
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
                    where sale = ? and state in ('unpaid', 'paid')";
        let order = |(id, buyer, quantity, paid): (Vec<u8>, String, u32, bool)| {
            let id = ReservationId(u128::from_be_bytes(id.try_into().expect("16 bytes")));
            RealOrder { id, buyer, quantity, paid }
        };
        let orders = transaction.exec_map(live, (&self.sale,), order).await?;
        transaction.commit().await?;
        Ok((epoch, left, orders))
    }
}
