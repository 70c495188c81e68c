//! Orders in a real database: the code that users copy, on a PostgreSQL server.

#[allow(dead_code, reason = "the shop uses more of it")]
#[path = "../../../examples/flash-sale/src/postgres.rs"]
mod postgres;

use leasehold::engine::Reach;
use leasehold::kit::sale::{Begun, Expired, Orders as _, Placed, Rebuild, Terms};

use self::postgres::PostgresOrders;
use super::{check, opened, reserve, reserved, sale, sales, standing, work};
use crate::bench::{Ground, ms, until};
use crate::servers::Postgres;
use crate::{Group, cases};

pub(super) fn group() -> Group {
    let group = cases!("sale", sales, [orders_in_postgresql]);
    Group { missing: Postgres::missing(), ..group }
}

async fn orders_in_postgresql(mut ground: Ground) {
    const STOCK: u32 = 30;
    if ground.promises().reach == Reach::Process {
        // The server's answers take real time.
        tokio::time::resume();
    }
    let server = Postgres::start();
    let orders = PostgresOrders::open(&server.url(), "x", STOCK).await.expect("a database");
    let rows = |state: &str| -> u32 {
        let count = server.query(&format!("select count(*) from orders where state = '{state}'"));
        count.parse().expect("a number")
    };
    let left = || server.query("select n from sales");
    let first = opened(&ground.client().await, &Terms::new(STOCK).pay_within(ms(4000))).await;
    let mut ids = Vec::new();
    for number in 0..20 {
        ids.push(reserved(reserve(&first, &format!("b{number}"), 1).await));
    }
    // Two workers place the same reservations at the same time.
    let second = sale(&ground.client().await);
    let (workers, both) = ((first.worker(), second.worker()), (&orders, &orders));
    let (one, two) = tokio::join!(workers.0.run_once(both.0), workers.1.run_once(both.1));
    assert_eq!(one.expect("an answer").placed + two.expect("an answer").placed, 20);
    assert_eq!((rows("unpaid"), left()), (20, "10".to_owned()), "each of them once");
    // Twelve are paid, of which the sale is told of six.
    for (number, reservation) in ids[..12].iter().enumerate() {
        assert!(orders.pay(reservation.id).await.expect("the database"));
        if number % 2 == 0 {
            first.pay(reservation.id).await.expect("an answer");
        }
    }
    until("the others are over", async || {
        first.worker().run_once(&orders).await.expect("an answer");
        let now = first.figures().await.expect("an answer").expect("a sale");
        (now.paid, now.returned) == (12, 8)
    })
    .await;
    assert_eq!((rows("paid"), rows("expired"), left()), (12, 8, "18".to_owned()));
    check(&first, STOCK.into()).await;
    // Whatever comes late changes nothing.
    assert!(!orders.pay(ids[19].id).await.expect("the database"));
    assert_eq!(orders.place(&ids[19]).await.expect("the database"), Placed::Refused);
    assert_eq!(orders.place(&ids[0]).await.expect("the database"), Placed::Yes);
    assert_eq!(orders.expire(&ids[0]).await.expect("the database"), Expired::Paid);
    assert_eq!(orders.expire(&ids[19]).await.expect("the database"), Expired::Yes);
    assert_eq!(left(), "18");
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
    for number in 0..18 {
        reserved(reserve(&second, &format!("c{number}"), 1).await);
    }
    work(&second, &orders).await;
    assert_eq!((rows("unpaid") + rows("paid"), left()), (STOCK, "0".to_owned()));
    assert_eq!(standing(&second, stale.id).await, None);
    check(&second, STOCK.into()).await;
}
