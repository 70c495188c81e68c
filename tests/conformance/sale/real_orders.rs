//! Orders in a real database.

#[cfg(feature = "postgres")]
#[allow(dead_code, reason = "the shop uses more of it")]
#[path = "../../../examples/flash-sale/src/postgres.rs"]
mod postgres;

use std::fmt::Debug;

use leasehold::engine::Reach;
use leasehold::kit::sale::{Begun, Expired, Orders, Placed, Rebuild, ReservationId, Standing, Terms};

use super::{check, opened, reserve, reserved, sale, sales, standing, work};
use crate::bench::{Ground, ms, until};
use crate::{Group, cases};

/// An order that is not paid, or is.
pub(super) struct RealOrder {
    pub(super) id: ReservationId,
    pub(super) buyer: String,
    pub(super) quantity: u32,
    pub(super) paid: bool,
}

/// What a shop does with its database beside what a worker does.
pub(super) trait RealOrders: Orders<Error: Debug> {
    /// True if it is paid, now or before.
    async fn pay(&self, id: ReservationId) -> Result<bool, Self::Error>;

    /// Begins another epoch, in which orders of earlier ones are refused: its number, what is left,
    /// and the orders that there are.
    async fn next_epoch(&self) -> Result<(u32, u32, Vec<RealOrder>), Self::Error>;
}

#[cfg(feature = "postgres")]
impl RealOrders for postgres::PostgresOrders {
    async fn pay(&self, id: ReservationId) -> Result<bool, Self::Error> {
        self.pay(id).await
    }

    async fn next_epoch(&self) -> Result<(u32, u32, Vec<RealOrder>), Self::Error> {
        let (epoch, left, orders) = self.next_epoch().await?;
        let order = |order: postgres::Order| {
            let postgres::Order { id, buyer, quantity, paid } = order;
            RealOrder { id, buyer, quantity, paid }
        };
        Ok((epoch, left, orders.into_iter().map(order).collect()))
    }
}

const STOCK: u32 = 30;

#[cfg(feature = "postgres")]
pub(super) fn in_postgresql() -> Group {
    use self::postgres::PostgresOrders;
    use crate::servers::Postgres;

    /// The code that users copy.
    async fn orders_in_postgresql(ground: Ground) {
        let server = start(&ground, Postgres::start);
        let orders = PostgresOrders::open(&server.url(), "x", STOCK).await.expect("a database");
        orders_are_placed_once(ground, [&orders, &orders], |statement| server.query(statement)).await;
    }

    Group { missing: Postgres::missing(), ..cases!("sale", sales, [orders_in_postgresql]) }
}

#[cfg(feature = "mysql")]
pub(super) fn in_mariadb() -> Group {
    use super::mariadb::MariaDbOrders;
    use crate::servers::MariaDb;

    async fn orders_in_mariadb(ground: Ground) {
        let server = start(&ground, MariaDb::start);
        let orders = MariaDbOrders::open(&server.url(), "x", STOCK).await.expect("a database");
        // As the drivers of other programs are set.
        let counts_found = format!("{}?client_found_rows=true", server.url());
        let other = MariaDbOrders::open(&counts_found, "x", STOCK).await.expect("a database");
        orders_are_placed_once(ground, [&orders, &other], |statement| server.query(statement)).await;
    }

    Group { missing: MariaDb::missing(), ..cases!("sale", sales, [orders_in_mariadb]) }
}

fn start<S>(ground: &Ground, server: impl FnOnce() -> S) -> S {
    if ground.promises().reach == Reach::Process {
        // The server's answers take real time.
        tokio::time::resume();
    }
    server()
}

async fn orders_are_placed_once<O: RealOrders>(
    mut ground: Ground,
    [orders, other]: [&O; 2],
    query: impl Fn(&str) -> String,
) {
    let rows = |state: &str| -> u32 {
        let count = query(&format!("select count(*) from orders where state = '{state}'"));
        count.parse().expect("a number")
    };
    let left = || query("select n from sales");
    let first = opened(&ground.client().await, &Terms::new(STOCK).pay_within(ms(4000))).await;
    let mut ids = Vec::new();
    for number in 0..20 {
        ids.push(reserved(reserve(&first, &format!("b{number}"), 1).await));
    }
    // Two workers place the same reservations at the same time.
    let second = sale(&ground.client().await);
    let workers = (first.worker(), second.worker());
    let (one, two) = tokio::join!(workers.0.run_once(orders), workers.1.run_once(other));
    assert_eq!(one.expect("an answer").placed + two.expect("an answer").placed, 20);
    assert_eq!((rows("unpaid"), left()), (20, "10".to_owned()), "each of them once");
    // Twelve are paid, of which the sale is told of six.
    for (number, reservation) in ids[..12].iter().enumerate() {
        assert!(orders.pay(reservation.id).await.expect("the database"));
        if number % 2 == 0 {
            first.pay(reservation.id).await.expect("an answer");
        }
    }
    assert!(other.pay(ids[0].id).await.expect("the database"), "paid before");
    // Two workers end the same orders at the same time.
    until("the others are over", async || {
        let (one, two) = tokio::join!(workers.0.run_once(orders), workers.1.run_once(other));
        assert_eq!((one.expect("an answer").failed, two.expect("an answer").failed), (0, 0));
        let now = first.figures().await.expect("an answer").expect("a sale");
        (now.paid, now.returned) == (12, 8)
    })
    .await;
    assert_eq!((rows("paid"), rows("expired"), left()), (12, 8, "18".to_owned()));
    check(&first, STOCK.into()).await;
    // Whatever comes late changes nothing.
    for orders in [orders, other] {
        assert!(!orders.pay(ids[19].id).await.expect("the database"));
        assert_eq!(orders.place(&ids[19]).await.expect("the database"), Placed::Refused);
        assert_eq!(orders.place(&ids[0]).await.expect("the database"), Placed::Yes);
        assert_eq!(orders.expire(&ids[0]).await.expect("the database"), Expired::Paid);
        assert_eq!(orders.expire(&ids[19]).await.expect("the database"), Expired::Yes);
        assert_eq!(left(), "18");
    }
    // A reservation that is no order when the sale is rebuilt is not placed any more.
    let stale = reserved(reserve(&first, "stale", 1).await);
    let (epoch, available, found) = orders.next_epoch().await.expect("the database");
    assert_eq!((epoch, available, found.len()), (2, 18, 12));
    let from = Rebuild::new(Terms::new(available).epoch(epoch));
    let from = found.into_iter().fold(from, |from, order| match order.paid {
        true => from.paid(order.id, order.buyer, order.quantity),
        false => from.unpaid(order.id, order.buyer, order.quantity, ms(4000)),
    });
    assert_eq!(first.rebuild(&from).await.expect("an answer"), Begun::Now);
    assert_eq!(orders.place(&stale).await.expect("the database"), Placed::NoStock);
    assert_eq!(left(), "18");
    // The rest is sold to the last one, and the database has no more.
    let mut rest = Vec::new();
    for number in 0..18 {
        rest.push(reserved(reserve(&second, &format!("c{number}"), 1).await));
    }
    work(&second, other).await;
    assert_eq!((rows("unpaid") + rows("paid"), left()), (STOCK, "0".to_owned()));
    assert_eq!(standing(&second, stale.id).await, None);
    check(&second, STOCK.into()).await;
    // A worker finds no stock for a reservation, and dies. Before the next comes, there is some.
    let more = ground.client().await.sale("more").expect("a name");
    more.open(&Terms::new(2).epoch(epoch)).await.expect("an answer");
    let missing = reserved(reserve(&more, "d", 1).await);
    assert_eq!(orders.place(&missing).await.expect("the database"), Placed::NoStock);
    assert_eq!(other.expire(&rest[0]).await.expect("the database"), Expired::Yes);
    work(&more, other).await;
    assert_eq!(standing(&more, missing.id).await, Some(Standing::Refused));
    assert!(!orders.pay(missing.id).await.expect("the database"));
    assert_eq!((rows("unpaid") + rows("paid"), left()), (STOCK - 1, "1".to_owned()));
    check(&more, 1).await;
    // In the next epoch it is a reservation like any other.
    let mut again = missing;
    again.epoch = orders.next_epoch().await.expect("the database").0;
    for orders in [other, orders] {
        assert_eq!(orders.place(&again).await.expect("the database"), Placed::Yes);
        assert_eq!((rows("unpaid") + rows("paid"), left()), (STOCK, "0".to_owned()));
    }
}
