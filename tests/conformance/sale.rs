//! Flash sales: never more than there is, and no order lost.

mod database;

use std::time::Duration;

use leasehold::kit::sale::{
    Answer, Begun, Ledger, Payment, Rebuild, Reservation, ReservationId, Sale, Standing, Terms,
};
use leasehold::{Client, Error, Family, Name};
use tokio::task::JoinSet;

use self::database::{Database, Order};
use crate::bench::{Ground, ms, refuses, soon, until};
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "sale",
        sales,
        [
            a_sale_that_is_not_there_says_so,
            it_is_open_for_its_time,
            a_buyer_gets_no_more_than_the_limit,
            it_sells_out_exactly,
            the_last_unit_is_found_in_any_shard,
            asking_again_takes_nothing_twice,
            reservations_become_orders_and_are_paid,
            what_nobody_pays_for_comes_back,
            a_payment_and_an_expiry_have_one_winner,
            a_payment_that_the_database_knows_of_counts,
            a_cancelled_order_is_never_placed_late,
            what_the_database_refuses_comes_back,
            what_fails_again_and_again_is_a_dead_letter,
            a_worker_is_followed_by_another,
            a_rebuilt_sale_goes_on_from_the_database,
            servers_that_restart_cost_no_order,
            sold_out_can_be_remembered,
            a_cell_of_something_else_is_no_sale,
        ]
    )
}

/// The ground, if its engine has cells; if not, it must refuse sales.
async fn sales(mut ground: Ground) -> Option<Ground> {
    if ground.promises().cells {
        return Some(ground);
    }
    refuses(ground.client().await.sale("x"));
    None
}

fn sale(client: &Client) -> Sale {
    client.sale("x").expect("a name")
}

async fn opened(client: &Client, terms: &Terms) -> Sale {
    let sale = sale(client);
    assert_eq!(sale.open(terms).await.expect("an answer"), Begun::Now);
    sale
}

fn id() -> ReservationId {
    ReservationId::random().expect("a number")
}

async fn reserve(sale: &Sale, buyer: &str, quantity: u32) -> Answer {
    sale.reserve(buyer, quantity, id()).await.expect("an answer")
}

#[track_caller]
fn reserved(answer: Answer) -> Reservation {
    match answer {
        Answer::Reserved(reservation) => reservation,
        other => panic!("{other:?}"),
    }
}

async fn standing(sale: &Sale, id: ReservationId) -> Option<Standing> {
    sale.find(id).await.expect("an answer").map(|found| found.standing)
}

/// What must hold at any moment of a sale of so many units.
async fn check(sale: &Sale, stock: u64) {
    let now = sale.figures().await.expect("an answer").expect("a sale");
    let held = now.reserved + now.ordered + now.paid + now.ending + now.dead;
    assert_eq!((now.stock, now.available + held), (stock, stock), "{now:?}");
    assert_eq!(now.taken, held + now.returned, "{now:?}");
}

/// Works until nothing is left to do.
async fn work(sale: &Sale, database: &Database) {
    until("all work is done", async || {
        sale.worker().run_once(database).await.expect("an answer");
        let now = sale.figures().await.expect("an answer").expect("a sale");
        now.reserved + now.ending == 0
    })
    .await;
}

async fn a_sale_that_is_not_there_says_so(mut ground: Ground) {
    let client = ground.client().await;
    let sale = sale(&client);
    assert_eq!(reserve(&sale, "a", 1).await, Answer::NoSale);
    assert_eq!(sale.figures().await.expect("an answer"), None);
    assert_eq!(sale.pay(id()).await.expect("an answer"), Payment::Unknown);
    assert_eq!(sale.cancel(id()).await.expect("an answer"), None);
    assert_eq!(sale.open(&Terms::new(3)).await.expect("an answer"), Begun::Now);
    assert_eq!(sale.open(&Terms::new(9)).await.expect("an answer"), Begun::Before { epoch: 1 });
    reserved(reserve(&sale, "a", 1).await);
    assert!(matches!(sale.reserve("b", 0, id()).await, Err(Error::Invalid { .. })));
    assert!(matches!(sale.reserve("b".repeat(201), 1, id()).await, Err(Error::Invalid { .. })));
    check(&sale, 3).await;
    // Other names, and any letters, are other sales.
    for name in ["", "x/head/0", "{x}", "é"] {
        let other = client.sale(name).expect("a name");
        assert_eq!(other.open(&Terms::new(1)).await.expect("an answer"), Begun::Now, "{name}");
        reserved(reserve(&other, "{a}/é ", 1).await);
    }
    assert!(!sale.forget(2).await.expect("an answer"));
    assert!(sale.forget(1).await.expect("an answer"));
    assert_eq!(reserve(&sale, "a", 1).await, Answer::NoSale);
}

async fn it_is_open_for_its_time(mut ground: Ground) {
    let client = ground.client().await;
    let terms = Terms::new(100).opens_in(ms(1500)).open_for(ms(2500)).limit(100);
    let sale = opened(&client, &terms).await;
    let Answer::NotOpen { opens_in } = reserve(&sale, "a", 1).await else { panic!("it has not begun") };
    assert!(opens_in <= ms(1500), "{opens_in:?}");
    let first = id();
    until("it opens", async || {
        matches!(sale.reserve("a", 1, first).await.expect("an answer"), Answer::Reserved(_))
    })
    .await;
    until("it closes", async || reserve(&sale, "a", 1).await == Answer::Over).await;
    // Whoever had asked is told the same.
    reserved(sale.reserve("a", 1, first).await.expect("an answer"));
}

async fn a_buyer_gets_no_more_than_the_limit(mut ground: Ground) {
    let terms = Terms::new(100).limit(3).shards(2);
    let _kept = opened(&ground.client().await, &terms).await;
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let sale = sale(&ground.client().await);
        for _ in 0..6 {
            let sale = sale.clone();
            tasks.spawn(async move { matches!(reserve(&sale, "a", 1).await, Answer::Reserved(_)) });
        }
    }
    let won = soon("all are answered", tasks.join_all()).await;
    assert_eq!(won.into_iter().filter(|won| *won).count(), 3);
    let sale = sale(&ground.client().await);
    assert_eq!(reserve(&sale, "a", 1).await, Answer::LimitReached { left: 0 });
    assert_eq!(reserve(&sale, "b", 4).await, Answer::LimitReached { left: 3 });
    // What is cancelled can be bought again.
    let taken = sale.reservations().await.expect("an answer");
    assert_eq!(taken.len(), 3);
    assert_eq!(sale.cancel(taken[0].id).await.expect("an answer"), Some(Standing::Ending));
    assert_eq!(reserve(&sale, "a", 1).await, Answer::LimitReached { left: 0 }, "not before it is back");
    work(&sale, &Database::new(100)).await;
    reserved(reserve(&sale, "a", 1).await);
    check(&sale, 100).await;
}

async fn it_sells_out_exactly(mut ground: Ground) {
    const STOCK: u32 = 60;
    let _kept = opened(&ground.client().await, &Terms::new(STOCK).shards(4).limit(3)).await;
    let mut tasks = JoinSet::new();
    for client in 0..3 {
        let sale = sale(&ground.client().await);
        for task in 0..15 {
            let sale = sale.clone();
            tasks.spawn(async move {
                let quantity = 1 + task % 3;
                match reserve(&sale, &format!("{client}/{task}"), quantity).await {
                    Answer::Reserved(reservation) => reservation.quantity,
                    Answer::SoldOut { left } if left < quantity => 0,
                    other => panic!("{other:?}"),
                }
            });
        }
    }
    let sold: u32 = soon("all are answered", tasks.join_all()).await.into_iter().sum();
    let sale = sale(&ground.client().await);
    let left = sale.figures().await.expect("an answer").expect("a sale").available;
    assert_eq!(u64::from(sold) + left, u64::from(STOCK));
    // 90 were wanted; whoever wants one gets what is left, and nobody gets more.
    for number in 0..left {
        reserved(reserve(&sale, &format!("late/{number}"), 1).await);
    }
    assert_eq!(reserve(&sale, "too late", 1).await, Answer::SoldOut { left: 0 });
    check(&sale, STOCK.into()).await;
}

async fn the_last_unit_is_found_in_any_shard(mut ground: Ground) {
    let client = ground.client().await;
    let sale = opened(&client, &Terms::new(17).shards(16).limit(9)).await;
    // No shard has more than two.
    reserved(reserve(&sale, "a", 9).await);
    assert_eq!(reserve(&sale, "b", 9).await, Answer::SoldOut { left: 8 });
    for number in 0..8 {
        reserved(reserve(&sale, &format!("c{number}"), 1).await);
    }
    assert_eq!(reserve(&sale, "d", 1).await, Answer::SoldOut { left: 0 });
    check(&sale, 17).await;
}

async fn asking_again_takes_nothing_twice(mut ground: Ground) {
    let other = opened(&ground.client().await, &Terms::new(5).limit(2).shards(2)).await;
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let (sale, asked) = (sale(&client), id());
    assert_eq!(standing(&sale, asked).await, None);
    wire.set(Fault::LoseAnswer);
    for _ in 0..3 {
        let lost = sale.reserve("a", 2, asked).await;
        assert!(matches!(lost, Err(Error::Unavailable { .. })), "{lost:?}");
    }
    wire.set(Fault::None);
    for sale in [&sale, &other] {
        let told = reserved(sale.reserve("a", 2, asked).await.expect("an answer"));
        assert_eq!((told.id, told.quantity, told.standing), (asked, 2, Standing::Reserved));
        assert_eq!(sale.find(asked).await.expect("an answer").map(|found| found.buyer), Some("a".into()));
    }
    assert!(matches!(sale.reserve("a", 1, asked).await, Err(Error::Invalid { .. })), "another quantity");
    assert!(matches!(sale.reserve("b", 2, asked).await, Err(Error::Invalid { .. })), "another buyer");
    assert_eq!(sale.figures().await.expect("an answer").expect("a sale").taken, 2);
    // Whatever has become of it.
    let database = Database::new(5);
    work(&sale, &database).await;
    assert_eq!(reserved(sale.reserve("a", 2, asked).await.expect("an answer")).standing, Standing::Ordered);
    sale.cancel(asked).await.expect("an answer");
    work(&sale, &database).await;
    let ended = sale.reserve("a", 2, asked).await.expect("an answer");
    assert!(matches!(ended, Answer::Ended(told) if told.standing == Standing::Released));
    check(&sale, 5).await;
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
    let second = self::sale(&ground.client().await);
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
    let sale = opened(&client, &Terms::new(1).pay_within(ms(1000))).await;
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
        let (sale, database) = (self::sale(&ground.client().await), database.clone());
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

/// What a program does whose store has lost the sale.
async fn rebuild(sale: &Sale, database: &Database, limit: u32) -> Begun {
    let (epoch, left) = database.next_epoch();
    let mut from = Rebuild::new(Terms::new(left).epoch(epoch).limit(limit).shards(3));
    for (id, order, buyer, quantity) in database.orders() {
        from = match order {
            Order::Unpaid => from.unpaid(id, buyer, quantity, Duration::from_secs(60)),
            Order::Paid => from.bought(buyer, quantity),
            Order::Expired => from,
        };
    }
    sale.rebuild(&from).await.expect("an answer")
}

async fn a_rebuilt_sale_goes_on_from_the_database(mut ground: Ground) {
    let (sale, other) =
        (opened(&ground.client().await, &Terms::new(10).limit(3)).await, ground.client().await);
    let other = self::sale(&other);
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
    assert_eq!(rebuild(&sale, &database, 3).await, Begun::Now);
    drop(gate);
    soon("the slow worker", slow).await.expect("no panic").expect("an answer");
    assert_eq!(database.order(stale), None, "the database refuses orders of earlier epochs");
    let now = other.figures().await.expect("an answer").expect("a sale");
    assert_eq!((now.epoch, now.shards, now.rebuilding), (2, 3, false));
    assert_eq!((now.available, now.ordered, now.paid, now.reserved), (5, 3, 2, 0));
    check(&sale, 10).await;
    assert_eq!(other.pay(stale).await.expect("an answer"), Payment::Unknown);
    assert_eq!(other.pay(unpaid).await.expect("an answer"), Payment::Paid);
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

async fn servers_that_restart_cost_no_order(mut ground: Ground) {
    const STOCK: u32 = 30;
    let options = ground.options();
    let client = ground.client_with(options.call_limit(ms(1000))).await;
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
    if !servers.is_empty() {
        let asked = sale.reserve("during", 1, id()).await;
        assert!(matches!(asked, Err(Error::Unavailable { .. })), "{asked:?}");
    }
    servers.iter().for_each(|server| server.restart());
    let back = tokio::time::Instant::now();
    let found = loop {
        match sale.figures().await {
            Ok(found) => break found,
            Err(error) => assert!(error.is_retryable() && back.elapsed() < ms(30_000), "{error}"),
        }
    };
    if found.is_none() {
        // These servers keep nothing.
        assert_eq!(reserve(&sale, "after", 1).await, Answer::NoSale);
        assert_eq!(rebuild(&sale, &database, 1).await, Begun::Now);
    }
    let mut sold = 0;
    for number in 0..STOCK + 5 {
        // The first ten have theirs already.
        match sale.reserve(format!("b{number}"), 1, id()).await.expect("an answer") {
            Answer::Reserved(_) => sold += 1,
            Answer::LimitReached { left: 0 } => assert!(number < 10, "{number}"),
            Answer::SoldOut { left: 0 } => assert!(number >= STOCK, "{number}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sold, STOCK - 10);
    until("all are orders", async || database.left() == 0).await;
    assert_eq!(database.orders().len(), STOCK as usize);
    check(&sale, STOCK.into()).await;
    working.abort();
}

async fn sold_out_can_be_remembered(mut ground: Ground) {
    let sale = opened(&ground.client().await, &Terms::new(1).pay_within(ms(60_000))).await;
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let impatient = self::sale(&client).remember_sold_out(ms(1000));
    let first = reserved(reserve(&impatient, "a", 1).await);
    assert_eq!(reserve(&impatient, "b", 1).await, Answer::SoldOut { left: 0 });
    wire.set(Fault::Refuse);
    assert_eq!(reserve(&impatient, "b", 1).await, Answer::SoldOut { left: 0 }, "nobody is asked");
    let forgotten = async || matches!(impatient.reserve("b", 1, id()).await, Err(Error::Unavailable { .. }));
    until("it is forgotten", forgotten).await;
    wire.set(Fault::None);
    sale.cancel(first.id).await.expect("an answer");
    work(&sale, &Database::new(1)).await;
    reserved(reserve(&impatient, "b", 1).await);
}

async fn a_cell_of_something_else_is_no_sale(mut ground: Ground) {
    let client = ground.client().await;
    let engine = ground.engine().await;
    let name = Name::new(Family::Cell, "sale/{x}/head/0").expect("a name");
    let write = leasehold::engine::Write::Put(leasehold::engine::CellValue {
        bytes: b"something else".to_vec(),
        lives: ms(60_000),
    });
    engine.swap(vec![leasehold::engine::Swap { name, version: 0, write }]).await.expect("an answer");
    let sale = sale(&client);
    assert!(matches!(sale.reserve("a", 1, id()).await, Err(Error::Engine { .. })));
    assert!(matches!(sale.open(&Terms::new(1)).await, Err(Error::Engine { .. })));
    assert!(matches!(sale.figures().await, Err(Error::Engine { .. })));
    assert!(matches!(sale.work(()).await, Err(Error::Engine { .. })));
}
