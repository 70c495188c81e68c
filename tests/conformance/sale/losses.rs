//! Stores that lose a sale, and servers that restart.

use std::time::Duration;

use leasehold::Error;
use leasehold::kit::sale::{Answer, Begun, Payment, Rebuild, ReservationId, Sale, Standing, Terms};

use super::database::{Database, Order};
use super::{check, id, opened, reserve, reserved, sales, work};
use crate::bench::{Ground, ms, soon, until};
use crate::{Group, cases};

pub(super) fn group() -> Group {
    cases!("sale", sales, [a_rebuilt_sale_goes_on_from_the_database, servers_that_restart_cost_no_order,])
}

/// What a program does whose store has lost the sale.
async fn rebuild(sale: &Sale, database: &Database, limit: u32) -> Result<Begun, Error> {
    let (epoch, left) = database.next_epoch();
    let mut from = Rebuild::new(Terms::new(left).epoch(epoch).limit(limit).shards(3));
    for (id, order, buyer, quantity) in database.orders() {
        from = match order {
            Order::Unpaid => from.unpaid(id, buyer, quantity, Duration::from_secs(60)),
            Order::Paid => from.paid(id, buyer, quantity),
            Order::Expired | Order::NoStock => from,
        };
    }
    sale.rebuild(&from).await
}

async fn a_rebuilt_sale_goes_on_from_the_database(mut ground: Ground) {
    let (sale, other) =
        (opened(&ground.client().await, &Terms::new(10).limit(3)).await, ground.client().await);
    let other = super::sale(&other);
    let database = Database::new(10);
    let paid = reserved(reserve(&sale, "a", 2).await).id;
    let unpaid = reserved(reserve(&other, "b", 3).await).id;
    work(&sale, &database).await;
    database.pay(paid);
    assert_eq!(sale.pay(paid).await.expect("an answer"), Payment::Paid);
    // One that is no order when the sale is rebuilt, and whose worker is slow.
    let stale = reserved(reserve(&other, "c", 3).await).id;
    let gate = database.close_gate();
    let slow = tokio::spawn({
        let (sale, database) = (other.clone(), database.clone());
        async move { sale.worker().run_once(&database).await }
    });
    until("it is about to be placed", async || database.waiting() == 1).await;
    assert_eq!(rebuild(&sale, &database, 3).await.expect("an answer"), Begun::Now);
    drop(gate);
    soon("the slow worker", slow).await.expect("no panic").expect("an answer");
    assert_eq!(database.order(stale), None, "the database refuses orders of earlier epochs");
    let now = other.figures().await.expect("an answer").expect("a sale");
    assert_eq!((now.epoch, now.shards, now.rebuilding), (2, 3, false));
    assert_eq!((now.available, now.ordered, now.paid, now.reserved), (5, 3, 2, 0));
    check(&sale, 10).await;
    assert_eq!(other.pay(stale).await.expect("an answer"), Payment::Unknown);
    assert_eq!(other.pay(unpaid).await.expect("an answer"), Payment::Paid);
    // Whoever asks again for what is paid is told so, and takes nothing.
    let again = reserved(other.reserve("a", 2, paid).await.expect("an answer"));
    assert_eq!(
        (again.standing, other.figures().await.expect("an answer").expect("a sale").available),
        (Standing::Paid, 5)
    );
    // What buyers have counts.
    assert_eq!(reserve(&other, "a", 2).await, Answer::LimitReached { left: 1 });
    assert_eq!(reserve(&other, "b", 1).await, Answer::LimitReached { left: 0 });
    for buyer in ["c", "d"] {
        reserved(reserve(&other, buyer, 2).await);
    }
    reserved(reserve(&sale, "e", 1).await);
    assert_eq!(reserve(&sale, "f", 1).await, Answer::SoldOut { left: 0 });
    work(&sale, &database).await;
    assert_eq!(database.left(), 0);
    check(&sale, 10).await;
    // Not twice with one epoch.
    let again = Rebuild::new(Terms::new(5).epoch(2));
    assert_eq!(sale.rebuild(&again).await.expect("an answer"), Begun::Before { epoch: 2 });
    check(&sale, 10).await;
}

/// A connection may be lost once more after a server has come back.
async fn until_told<T>(mut ask: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let asked = tokio::time::Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_retryable() && asked.elapsed() < ms(30_000), "{error}"),
        }
    }
}

/// The same id is asked for again.
async fn ask_until_told(sale: &Sale, buyer: &str, id: ReservationId) -> Answer {
    until_told(async || sale.reserve(buyer, 1, id).await).await
}

async fn servers_that_restart_cost_no_order(mut ground: Ground) {
    const STOCK: u32 = 30;
    let options = ground.options();
    let client = ground.client_with(options.call_limit(ms(3000))).await;
    let sale = opened(&client, &Terms::new(STOCK)).await;
    let database = Database::new(STOCK);
    for number in 0..10 {
        reserved(reserve(&sale, &format!("b{number}"), 1).await);
    }
    work(&sale, &database).await;
    let working = tokio::spawn({
        let (worker, database) = (sale.worker().poll(ms(10)).lease(ms(1500)), database.clone());
        async move { worker.run(database).await }
    });
    let servers = ground.servers();
    servers.iter().for_each(|server| server.kill());
    let during = id();
    if !servers.is_empty() {
        let asked = sale.reserve("during", 1, during).await;
        assert!(matches!(asked, Err(Error::Unavailable { .. })), "{asked:?}");
    }
    servers.iter().for_each(|server| server.restart());
    if until_told(async || sale.figures().await).await.is_none() {
        // These servers keep nothing.
        assert_eq!(ask_until_told(&sale, "after", id()).await, Answer::NoSale);
        // With the next epoch each time.
        assert_eq!(until_told(async || rebuild(&sale, &database, 1).await).await, Begun::Now);
    }
    // It had no answer: asking again tells.
    reserved(ask_until_told(&sale, "during", during).await);
    let mut sold = 1;
    for number in 0..STOCK + 5 {
        // The first ten have theirs already.
        match ask_until_told(&sale, &format!("b{number}"), id()).await {
            Answer::Reserved(_) => sold += 1,
            Answer::LimitReached { left: 0 } => assert!(number < 10, "{number}"),
            Answer::SoldOut { left: 0 } => assert!(number >= STOCK - 1, "{number}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sold, STOCK - 10);
    until("all are orders", async || database.left() == 0).await;
    assert_eq!(database.orders().len(), STOCK as usize);
    check(&sale, STOCK.into()).await;
    working.abort();
}
