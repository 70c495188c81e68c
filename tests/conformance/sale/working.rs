//! Workers: orders, payments, expiries and dead letters.

use leasehold::kit::sale::{Answer, Ledger, Payment, Standing, Terms};
use tokio::task::JoinSet;

use super::database::{Database, Order};
use super::{check, opened, reserve, reserved, sale, sales, standing, work};
use crate::bench::{Ground, ms, soon, until};
use crate::{Group, cases};

pub(super) fn group() -> Group {
    cases!(
        "sale",
        sales,
        [
            reservations_become_orders_and_are_paid,
            what_nobody_pays_for_comes_back,
            a_payment_and_an_expiry_have_one_winner,
            a_payment_that_the_database_knows_of_counts,
            a_cancelled_order_is_never_placed_late,
            an_order_that_has_ended_meanwhile_stays_ended,
            two_workers_that_end_the_same_order_return_it_once,
            what_the_database_refuses_comes_back,
            what_fails_again_and_again_is_a_dead_letter,
            a_call_that_hangs_holds_nobody_up,
            a_worker_is_followed_by_another,
        ]
    )
}

async fn reservations_become_orders_and_are_paid(mut ground: Ground) {
    const STOCK: u32 = 40;
    let client = ground.client().await;
    let sale = opened(&client, &Terms::new(STOCK)).await;
    let database = Database::new(STOCK);
    let mut ids = Vec::new();
    for number in 0..STOCK {
        ids.push(reserved(reserve(&sale, &format!("b{number}"), 1).await).id);
    }
    assert_eq!(sale.pay(ids[0]).await.expect("an answer"), Payment::TooEarly);
    // Two workers at once, which know nothing of each other.
    let second = super::sale(&ground.client().await);
    let workers = (sale.worker(), second.worker());
    let (one, two) = tokio::join!(workers.0.run_once(&database), workers.1.run_once(&database));
    let placed = one.expect("an answer").placed + two.expect("an answer").placed;
    assert_eq!(placed, u64::from(STOCK));
    assert_eq!(database.left(), 0);
    for id in &ids {
        assert_eq!(database.order(*id), Some(Order::Unpaid));
        assert_eq!(sale.pay(*id).await.expect("an answer"), Payment::Paid);
    }
    assert_eq!(second.pay(ids[0]).await.expect("an answer"), Payment::Paid, "paid before");
    assert_eq!(sale.cancel(ids[0]).await.expect("an answer"), Some(Standing::Paid));
    let now = sale.figures().await.expect("an answer").expect("a sale");
    assert_eq!((now.paid, now.available, now.returned), (STOCK.into(), 0, 0));
    check(&sale, STOCK.into()).await;
    let ledger = Ledger { left: 0, unpaid: 0, paid: STOCK.into() };
    let difference = sale.reconcile(&ledger).await.expect("an answer").expect("a sale");
    assert!(difference.is_explained() && difference.in_flight == 0, "{difference:?}");
    let ledger = Ledger { left: 2, ..ledger };
    let difference = sale.reconcile(&ledger).await.expect("an answer").expect("a sale");
    assert!(!difference.is_explained() && difference.left == -2, "{difference:?}");
}

async fn what_nobody_pays_for_comes_back(mut ground: Ground) {
    let client = ground.client().await;
    let sale = opened(&client, &Terms::new(2).shards(2).pay_within(ms(1500))).await;
    let database = Database::new(2);
    let first = [reserve(&sale, "a", 1).await, reserve(&sale, "b", 1).await].map(reserved);
    // One of them is an order by then, and one is not.
    assert_eq!(reserve(&sale, "c", 1).await, Answer::SoldOut { left: 0 });
    until("it comes back", async || {
        sale.worker().run_once(&database).await.expect("an answer");
        sale.figures().await.expect("an answer").expect("a sale").returned == 2
    })
    .await;
    for reservation in &first {
        assert_eq!(standing(&sale, reservation.id).await, Some(Standing::Released));
        let paid = sale.pay(reservation.id).await.expect("an answer");
        assert_eq!(paid, Payment::Ended(Standing::Released));
        assert_eq!(database.order(reservation.id), Some(Order::Expired));
    }
    assert_eq!(database.left(), 2);
    reserved(reserve(&sale, "c", 1).await);
    reserved(reserve(&sale, "a", 1).await);
    check(&sale, 2).await;
}

async fn a_payment_and_an_expiry_have_one_winner(mut ground: Ground) {
    const ROUNDS: u32 = 12;
    let client = ground.client().await;
    let terms = Terms::new(ROUNDS).limit(ROUNDS).pay_within(ms(2000));
    let sale = opened(&client, &terms).await;
    let database = Database::new(ROUNDS);
    let mut ids = Vec::new();
    for _ in 0..ROUNDS {
        ids.push(reserved(reserve(&sale, "a", 1).await).id);
    }
    sale.worker().run_once(&database).await.expect("an answer");
    let mut tasks = JoinSet::new();
    for (number, id) in ids.iter().copied().enumerate() {
        // From well before to well after the moment.
        let (sale, wait) = (sale.clone(), ms(1200 + 120 * number as u64));
        tasks.spawn(async move {
            tokio::time::sleep(wait).await;
            (id, sale.pay(id).await.expect("an answer"))
        });
    }
    let mut paid = 0;
    let working = async {
        loop {
            sale.worker().run_once(&database).await.expect("an answer");
            tokio::time::sleep(ms(5)).await;
        }
    };
    let answers = tokio::select! {
        answers = tasks.join_all() => answers,
        () = working => unreachable!("it works until it is stopped"),
    };
    work(&sale, &database).await;
    for (id, payment) in answers {
        match payment {
            Payment::Paid => {
                paid += 1;
                assert_eq!(standing(&sale, id).await, Some(Standing::Paid));
                assert_eq!(database.order(id), Some(Order::Unpaid), "the engine decided");
            }
            Payment::Ended(_) => {
                until("it is released", async || {
                    sale.worker().run_once(&database).await.expect("an answer");
                    standing(&sale, id).await == Some(Standing::Released)
                })
                .await;
                assert_eq!(database.order(id), Some(Order::Expired));
            }
            other => panic!("{other:?}"),
        }
    }
    let now = sale.figures().await.expect("an answer").expect("a sale");
    assert_eq!((now.paid, now.returned), (paid, u64::from(ROUNDS) - paid));
    check(&sale, ROUNDS.into()).await;
}

async fn a_payment_that_the_database_knows_of_counts(mut ground: Ground) {
    let client = ground.client().await;
    let sale = opened(&client, &Terms::new(1).pay_within(ms(3000))).await;
    let database = Database::new(1);
    let id = reserved(reserve(&sale, "a", 1).await).id;
    sale.worker().run_once(&database).await.expect("an answer");
    // The sale is not told, and its time is over.
    database.pay(id);
    until("it is noticed", async || {
        sale.worker().run_once(&database).await.expect("an answer");
        standing(&sale, id).await == Some(Standing::Paid)
    })
    .await;
    assert_eq!((database.order(id), database.left()), (Some(Order::Paid), 0));
    check(&sale, 1).await;
}

async fn a_cancelled_order_is_never_placed_late(mut ground: Ground) {
    let client = ground.client().await;
    let sale = opened(&client, &Terms::new(1)).await;
    let database = Database::new(1);
    let reservation = reserved(reserve(&sale, "a", 1).await);
    // A worker is slow: it has read the reservation, and places it when all is over.
    let gate = database.close_gate();
    let slow = tokio::spawn({
        let (sale, database) = (super::sale(&ground.client().await), database.clone());
        async move { sale.worker().run_once(&database).await }
    });
    until("it is about to be placed", async || database.waiting() == 1).await;
    assert_eq!(sale.cancel(reservation.id).await.expect("an answer"), Some(Standing::Ending));
    until("it is released", async || {
        sale.worker().run_once(&database.past_gate()).await.expect("an answer");
        standing(&sale, reservation.id).await == Some(Standing::Released)
    })
    .await;
    drop(gate);
    soon("the slow worker", slow).await.expect("no panic").expect("an answer");
    assert_eq!((database.order(reservation.id), database.left()), (Some(Order::Expired), 1));
    assert_eq!(standing(&sale, reservation.id).await, Some(Standing::Released));
    check(&sale, 1).await;
}

async fn an_order_that_has_ended_meanwhile_stays_ended(mut ground: Ground) {
    let client = ground.client().await;
    let sale = opened(&client, &Terms::new(1)).await;
    let database = Database::new(1);
    let reservation = reserved(reserve(&sale, "a", 1).await);
    // A worker is slow: it has placed the order, and tells the sale when all is over.
    let gate = database.close_gate();
    let slow = tokio::spawn({
        let (sale, database) = (super::sale(&ground.client().await), database.answering_late());
        async move { sale.worker().run_once(&database).await }
    });
    until("it is placed", async || database.waiting() == 1).await;
    assert_eq!(database.order(reservation.id), Some(Order::Unpaid));
    sale.cancel(reservation.id).await.expect("an answer");
    work(&sale, &database.past_gate()).await;
    drop(gate);
    soon("the slow worker", slow).await.expect("no panic").expect("an answer");
    assert_eq!((database.order(reservation.id), database.left()), (Some(Order::Expired), 1));
    assert_eq!(standing(&sale, reservation.id).await, Some(Standing::Released));
    check(&sale, 1).await;
}

async fn two_workers_that_end_the_same_order_return_it_once(mut ground: Ground) {
    let client = ground.client().await;
    let sale = opened(&client, &Terms::new(3)).await;
    let database = Database::new(3);
    let ids = [reserve(&sale, "a", 1).await, reserve(&sale, "b", 1).await].map(|told| reserved(told).id);
    work(&sale, &database).await;
    for id in ids {
        assert_eq!(sale.cancel(id).await.expect("an answer"), Some(Standing::Ending));
    }
    // Both have read them, and tell the database, before one of them tells the sale.
    let gate = database.close_gate();
    let mut workers = JoinSet::new();
    for _ in 0..2 {
        let (sale, database) = (super::sale(&ground.client().await), database.clone());
        workers.spawn(async move { sale.worker().run_once(&database).await.expect("an answer").released });
    }
    until("both are about to end both", async || database.waiting() == 4).await;
    drop(gate);
    let released = soon("the workers", workers.join_all()).await;
    assert_eq!(released.into_iter().sum::<u64>(), 2);
    let now = sale.figures().await.expect("an answer").expect("a sale");
    assert_eq!((now.available, now.returned, database.left()), (3, 2, 3), "{now:?}");
    check(&sale, 3).await;
}

async fn what_the_database_refuses_comes_back(mut ground: Ground) {
    let client = ground.client().await;
    let sale = opened(&client, &Terms::new(3).limit(3)).await;
    // The database has fewer than the sale believes.
    let database = Database::new(1);
    database.refuse("b");
    let refused = reserved(reserve(&sale, "b", 1).await);
    work(&sale, &database).await;
    assert_eq!(standing(&sale, refused.id).await, Some(Standing::Refused));
    check(&sale, 3).await;
    reserved(reserve(&sale, "a", 1).await);
    work(&sale, &database).await;
    let missing = reserved(reserve(&sale, "a", 2).await);
    work(&sale, &database).await;
    assert_eq!(standing(&sale, missing.id).await, Some(Standing::Refused));
    // Nobody is told again that those are there.
    assert_eq!(reserve(&sale, "c", 1).await, Answer::SoldOut { left: 0 });
    check(&sale, 1).await;
}

async fn what_fails_again_and_again_is_a_dead_letter(mut ground: Ground) {
    let client = ground.client().await;
    let sale = opened(&client, &Terms::new(2).limit(2)).await;
    let database = Database::new(2);
    let id = reserved(reserve(&sale, "a", 1).await).id;
    let worker = sale.worker().attempts(3).pause(ms(1)).poll(ms(5));
    database.fail(true);
    let working = tokio::spawn({
        let (worker, database) = (worker.clone(), database.clone());
        async move { worker.run(database).await }
    });
    until("it is given up", async || standing(&sale, id).await == Some(Standing::Dead)).await;
    let letters = sale.dead_letters().await.expect("an answer");
    assert_eq!(letters.iter().map(|letter| letter.id).collect::<Vec<_>>(), [id]);
    assert_eq!(sale.pay(id).await.expect("an answer"), Payment::TooEarly);
    assert_eq!(reserve(&sale, "b", 2).await, Answer::SoldOut { left: 1 }, "it is still taken");
    database.fail(false);
    assert_eq!(sale.retry(id).await.expect("an answer"), Some(Standing::Reserved));
    until("it is placed", async || standing(&sale, id).await == Some(Standing::Ordered)).await;
    // The same when it ends.
    database.fail(true);
    sale.cancel(id).await.expect("an answer");
    until("it is given up", async || standing(&sale, id).await == Some(Standing::Dead)).await;
    database.fail(false);
    assert_eq!(sale.retry(id).await.expect("an answer"), Some(Standing::Ending));
    until("it is released", async || standing(&sale, id).await == Some(Standing::Released)).await;
    assert!(sale.dead_letters().await.expect("an answer").is_empty());
    assert_eq!(database.left(), 2);
    check(&sale, 2).await;
    working.abort();
}

async fn a_call_that_hangs_holds_nobody_up(mut ground: Ground) {
    let client = ground.client().await;
    let sale = opened(&client, &Terms::new(10).shards(2)).await;
    let database = Database::new(10);
    database.hang(Some("slow"));
    let slow = reserved(reserve(&sale, "slow", 1).await).id;
    let worker = sale.worker().call_limit(ms(300)).pause(ms(1)).poll(ms(5));
    let working = tokio::spawn({
        let database = database.clone();
        async move { worker.run(database).await }
    });
    until("a call counts as failed", async || {
        sale.find(slow).await.expect("an answer").expect("it is there").attempts > 0
    })
    .await;
    for number in 0..5 {
        let id = reserved(reserve(&sale, &format!("b{number}"), 1).await).id;
        until("others are placed", async || standing(&sale, id).await == Some(Standing::Ordered)).await;
    }
    assert_eq!(database.order(slow), None);
    database.hang(None);
    until("a later call places it", async || standing(&sale, slow).await == Some(Standing::Ordered)).await;
    assert_eq!(database.left(), 4);
    check(&sale, 10).await;
    working.abort();
}

async fn a_worker_is_followed_by_another(mut ground: Ground) {
    let database = Database::new(50);
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let worker = sale(&ground.client().await).worker().lease(ms(1500)).poll(ms(10));
        let database = database.clone();
        nodes.push(tokio::spawn(async move { worker.run(database).await }));
    }
    let client = ground.client().await;
    // The workers have waited for the sale.
    let sale = opened(&client, &Terms::new(50).shards(2).limit(50)).await;
    for node in nodes {
        let ids: Vec<_> = [reserve(&sale, "a", 1).await, reserve(&sale, "a", 1).await]
            .map(|answer| reserved(answer).id)
            .into();
        until("they are placed", async || ids.iter().all(|id| database.order(*id) == Some(Order::Unpaid)))
            .await;
        node.abort();
    }
    check(&sale, 50).await;
}
