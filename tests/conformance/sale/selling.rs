//! Reservations: who gets one, and who does not.

use leasehold::kit::sale::{Answer, Begun, Payment, Rebuild, Standing, Terms};
use leasehold::{Error, Family, Name};
use tokio::task::JoinSet;

use super::database::Database;
use super::{check, id, opened, reserve, reserved, sale, sales, standing, work};
use crate::bench::{Ground, ms, soon, until};
use crate::wire::Fault;
use crate::{Group, cases};

pub(super) fn group() -> Group {
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
            sold_out_can_be_remembered,
            a_cell_of_something_else_is_no_sale,
            what_was_forgotten_does_not_come_back,
        ]
    )
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
    let hour = ms(3_600_000);
    let later = client.sale("later").expect("a name");
    later.open(&Terms::new(1).opens_in(hour)).await.expect("an answer");
    let Answer::NotOpen { opens_in } = reserve(&later, "a", 1).await else { panic!("it has not begun") };
    assert!(opens_in <= hour && opens_in > hour / 2, "{opens_in:?}");
    let terms = Terms::new(100).opens_in(ms(300)).open_for(ms(5000)).limit(100);
    let sale = opened(&client, &terms).await;
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

async fn sold_out_can_be_remembered(mut ground: Ground) {
    let sale = opened(&ground.client().await, &Terms::new(1).pay_within(ms(60_000))).await;
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let impatient = super::sale(&client).remember_sold_out(ms(5000));
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

async fn what_was_forgotten_does_not_come_back(mut ground: Ground) {
    let sale = opened(&ground.client().await, &Terms::new(1)).await;
    let lost = reserved(reserve(&sale, "alice", 1).await).id;
    assert!(sale.forget(1).await.expect("an answer"));
    assert!(!sale.forget(1).await.expect("an answer"), "it was forgotten before");
    assert_eq!(standing(&sale, lost).await, None);
    assert_eq!(sale.pay(lost).await.expect("an answer"), Payment::Unknown);
    assert_eq!(sale.figures().await.expect("an answer"), None);
    assert!(sale.reservations().await.expect("an answer").is_empty());
    // What alice has had would be a part of a sale with the same epoch.
    for begun in [sale.open(&Terms::new(1)).await, sale.rebuild(&Rebuild::new(Terms::new(1))).await] {
        let said = begun.expect_err("the epoch was used").to_string();
        assert!(said.contains("epoch 1 was forgotten") && said.contains("`Terms::epoch(2)`"), "{said}");
    }
    let other = super::sale(&ground.client().await);
    assert_eq!(other.open(&Terms::new(1).epoch(2)).await.expect("an answer"), Begun::Now);
    let sold = reserved(reserve(&other, "bob", 1).await).id;
    assert_eq!(reserve(&sale, "alice", 1).await, Answer::SoldOut { left: 0 });
    let database = Database::new(1);
    database.next_epoch();
    work(&sale, &database).await;
    let placed: Vec<_> = database.orders().into_iter().map(|(id, ..)| id).collect();
    assert_eq!((placed, database.left()), (vec![sold], 0));
    check(&sale, 1).await;
}
