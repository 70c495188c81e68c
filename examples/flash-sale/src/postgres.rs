//! Orders in PostgreSQL. This is the part of the shop that is worth copying.
//!
//! Three things make calls harmless that come twice, late, or from several workers: a unique
//! reservation, a stock that does not go below zero, and the marks that `expire` leaves and a
//! `place` that finds no stock.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold::kit::sale::{Expired, Ledger, Orders, Placed, Reservation, ReservationId};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::{Client, Error, NoTls};

const TABLES: &str = "
create table if not exists sales (
  name text primary key,
  epoch int not null,
  stock int not null,
  n int not null check (n >= 0)         -- what is left of the stock
);
create table if not exists orders (
  reservation bytea primary key,
  sale text not null,
  buyer text not null,
  quantity int not null,
  state text not null,                  -- 'unpaid', 'paid', 'expired' or 'no stock'
  placed boolean not null,              -- or it has ended before
  epoch int not null                    -- of the reservation
);
create index if not exists orders_of_sale on orders (sale, state);
";

/// Connections at the same time: those of the worker (`Worker::at_once`), and a few for payments.
const CONNECTIONS: usize = 20;

/// The orders of one sale.
#[derive(Clone)]
pub(crate) struct PostgresOrders {
    pool: Arc<Pool>,
    sale: String,
}

/// An order that is not paid, or is.
pub(crate) struct Order {
    pub(crate) id: ReservationId,
    pub(crate) buyer: String,
    pub(crate) quantity: u32,
    pub(crate) paid: bool,
}

impl PostgresOrders {
    /// Opens the database at a URL, and makes the tables and the sale if they are not there.
    pub(crate) async fn open(url: &str, sale: &str, stock: u32) -> Result<PostgresOrders, Error> {
        let (idle, places) = (Mutex::default(), Semaphore::new(CONNECTIONS));
        let pool = Arc::new(Pool { url: url.to_owned(), idle, places });
        let orders = PostgresOrders { pool, sale: sale.to_owned() };
        let mut client = orders.pool.get().await?;
        let transaction = client.transaction().await?;
        // Two shops that start together would make the same tables.
        transaction.batch_execute("select pg_advisory_xact_lock(732150)").await?;
        transaction.batch_execute(TABLES).await?;
        transaction
            .execute(
                "insert into sales values ($1, 1, $2, $2) on conflict do nothing",
                &[&sale, &stock.cast_signed()],
            )
            .await?;
        transaction.commit().await?;
        drop(client);
        Ok(orders)
    }

    /// True if it is paid, now or before.
    pub(crate) async fn pay(&self, id: ReservationId) -> Result<bool, Error> {
        let client = self.pool.get().await?;
        let statement =
            "update orders set state = 'paid' where reservation = $1 and state in ('unpaid', 'paid')";
        Ok(client.execute(statement, &[&key(id)]).await? == 1)
    }

    /// Begins another epoch, in which orders of earlier ones are refused: its number, what is left,
    /// and the orders that there are.
    pub(crate) async fn next_epoch(&self) -> Result<(u32, u32, Vec<Order>), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        // Whoever places an order waits for this row, and then finds another epoch.
        let sale = transaction
            .query_one("update sales set epoch = epoch + 1 where name = $1 returning epoch, n", &[&self.sale])
            .await?;
        let statement = "select reservation, buyer, quantity, state = 'paid' from orders \
                         where sale = $1 and state in ('unpaid', 'paid')";
        let orders = transaction.query(statement, &[&self.sale]).await?;
        transaction.commit().await?;
        let orders = orders.iter().map(|row| Order {
            id: ReservationId(row.get::<_, &[u8]>(0).try_into().map_or(0, u128::from_be_bytes)),
            buyer: row.get(1),
            quantity: row.get::<_, i32>(2).cast_unsigned(),
            paid: row.get(3),
        });
        let number = |column: usize| sale.get::<_, i32>(column).cast_unsigned();
        Ok((number(0), number(1), orders.collect()))
    }

    /// Forgets all orders and begins another epoch with a stock: its number.
    pub(crate) async fn start_again(&self, stock: u32) -> Result<u32, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        // Whoever ends an order has its row, and wants that of the sale.
        transaction.batch_execute("lock table orders in share row exclusive mode").await?;
        let statement =
            "update sales set epoch = epoch + 1, stock = $2, n = $2 where name = $1 returning epoch";
        let sale = transaction.query_one(statement, &[&self.sale, &stock.cast_signed()]).await?;
        transaction.execute("delete from orders where sale = $1", &[&self.sale]).await?;
        transaction.commit().await?;
        Ok(sale.get::<_, i32>(0).cast_unsigned())
    }

    /// The epoch, the stock, what has become of it, and how many orders were ever placed.
    pub(crate) async fn ledger(&self) -> Result<(u32, u32, Ledger, u64), Error> {
        let statement = "select s.epoch, s.stock, s.n, \
               coalesce(sum(quantity) filter (where state = 'unpaid'), 0), \
               coalesce(sum(quantity) filter (where state = 'paid'), 0), \
               count(*) filter (where placed) \
             from sales s left join orders o on o.sale = s.name where s.name = $1 group by s.name";
        let row = self.pool.get().await?.query_one(statement, &[&self.sale]).await?;
        let number = |column: usize| row.get::<_, i32>(column).cast_unsigned();
        let wide = |column: usize| row.get::<_, i64>(column).cast_unsigned();
        let ledger = Ledger { left: number(2).into(), unpaid: wide(3), paid: wide(4) };
        Ok((number(0), number(1), ledger, wide(5)))
    }
}

impl Orders for PostgresOrders {
    type Error = Error;

    async fn place(&self, reservation: &Reservation) -> Result<Placed, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let (id, quantity) = (key(reservation.id), reservation.quantity.cast_signed());
        let epoch = reservation.epoch.cast_signed();
        // A second call for the same reservation waits here until the first has ended. If there
        // were no units in an earlier epoch, there may be some in this one.
        let inserted = transaction
            .execute(
                "insert into orders values ($1, $2, $3, $4, 'unpaid', true, $5) \
                 on conflict (reservation) do update set state = 'unpaid', placed = true, epoch = $5 \
                 where orders.state = 'no stock' and orders.epoch < $5",
                &[&id, &self.sale, &reservation.buyer, &quantity, &epoch],
            )
            .await?;
        if inserted == 0 {
            let found = "select state from orders where reservation = $1";
            return Ok(match transaction.query_one(found, &[&id]).await?.get(0) {
                "expired" => Placed::Refused,
                "no stock" => Placed::NoStock,
                _ => Placed::Yes,
            });
        }
        let taken = transaction
            .execute(
                "update sales set n = n - $1 where name = $2 and n >= $1 and epoch = $3",
                &[&quantity, &self.sale, &epoch],
            )
            .await?;
        if taken == 0 {
            // The mark keeps another worker from placing it when there are units again: the sale
            // has refused it by then. One of an earlier epoch gets none either way.
            transaction
                .execute(
                    "update orders set state = 'no stock', placed = false where reservation = $1",
                    &[&id],
                )
                .await?;
        }
        transaction.commit().await?;
        Ok(if taken == 0 { Placed::NoStock } else { Placed::Yes })
    }

    async fn expire(&self, reservation: &Reservation) -> Result<Expired, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let (id, quantity) = (key(reservation.id), reservation.quantity.cast_signed());
        // If there is no order, the mark keeps a late worker from placing it.
        transaction
            .execute(
                "insert into orders values ($1, $2, $3, $4, 'expired', false, $5) on conflict do nothing",
                &[&id, &self.sale, &reservation.buyer, &quantity, &reservation.epoch.cast_signed()],
            )
            .await?;
        let ended = transaction
            .execute(
                "update orders set state = 'expired' where reservation = $1 and state = 'unpaid'",
                &[&id],
            )
            .await?;
        if ended == 1 {
            transaction
                .execute("update sales set n = n + $1 where name = $2", &[&quantity, &self.sale])
                .await?;
        }
        let found = "select state = 'paid' from orders where reservation = $1";
        let paid = transaction.query_one(found, &[&id]).await?.get(0);
        transaction.commit().await?;
        Ok(if paid { Expired::Paid } else { Expired::Yes })
    }
}

fn key(id: ReservationId) -> Vec<u8> {
    id.0.to_be_bytes().to_vec()
}

/// Connections that are used by one call at a time.
struct Pool {
    url: String,
    idle: Mutex<Vec<Client>>,
    places: Semaphore,
}

impl Pool {
    async fn get(&self) -> Result<Pooled<'_>, Error> {
        // It is never closed.
        let place = self.places.acquire().await.ok();
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        while let Some(client) = idle() {
            if !client.is_closed() {
                return Ok(Pooled { client: Some(client), pool: self, _place: place });
            }
        }
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Pooled { client: Some(client), pool: self, _place: place })
    }
}

/// A connection that goes back to the pool. A transaction that was dropped in it is rolled back
/// before the next statement.
struct Pooled<'a> {
    client: Option<Client>,
    pool: &'a Pool,
    _place: Option<SemaphorePermit<'a>>,
}

impl Deref for Pooled<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect("it is here until it is dropped")
    }
}

impl DerefMut for Pooled<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        self.client.as_mut().expect("it is here until it is dropped")
    }
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        let client = self.client.take();
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(client);
    }
}
