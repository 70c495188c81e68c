//! Callers of one process that ask at the same time, and share steps.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold::engine::{CellValue, Swap, Write};
use leasehold::kit::sale::{Answer, ReservationId, Sale, Terms};
use leasehold::{Error, Family, Name};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::{check, id, opened, reserved, sales};
use crate::bench::{Ground, ms, soon, until};
use crate::wire::{Fault, Wire};
use crate::{Group, cases};

const CALLERS: u32 = 60;
const STOCK: u32 = 500;
/// Enough for all of them on a busy machine.
const PATIENT: Duration = ms(9000);
const LIMIT: Duration = ms(2000);
/// Shorter than the time of a call that hangs, and long for a few that do not.
const SOON: Duration = ms(7000);

pub(super) fn group() -> Group {
    cases!(
        "sale",
        sales,
        [
            each_of_many_is_told_its_own_answer,
            a_caller_that_leaves_takes_nobody_along,
            a_caller_that_is_not_polled_is_in_nobodys_way,
            a_step_that_fails_is_tried_for_each_alone,
            many_that_are_not_answered_ask_again,
            a_step_that_nobody_waits_for_is_given_up,
            a_sale_outlives_the_runtime_of_its_client,
            a_forked_child_can_not_reserve,
        ]
    )
}

/// A sale whose calls take longer than it takes another caller to come.
async fn slow_sale(ground: &mut Ground, limit: Duration) -> (Sale, Arc<Wire>) {
    let _opened = opened(&ground.client().await, &Terms::new(STOCK).limit(2)).await;
    let options = ground.options().call_limit(limit);
    let (client, wire) = ground.client_on_wire(options).await;
    let sale = super::sale(&client);
    // From now on it knows how the sale is laid out.
    assert!(sale.find(id()).await.expect("an answer").is_none());
    wire.set(Fault::Stutter);
    (sale, wire)
}

fn quantity(number: u32) -> u32 {
    1 + number % 3
}

async fn each_of_many_is_told_its_own_answer(mut ground: Ground) {
    let (sale, wire) = slow_sale(&mut ground, PATIENT).await;
    // The cell of one buyer is something else.
    let name = Name::new(Family::Cell, "sale/{x}/buyer/b7").expect("a name");
    let write = Write::Put(CellValue { bytes: b"something else".to_vec(), lives: ms(60_000) });
    let spoiled = ground.engine().await.swap(vec![Swap { name, version: 0, write }]).await;
    spoiled.expect("an answer");
    let before = wire.calls();
    let mut tasks = JoinSet::new();
    for number in 0..CALLERS {
        let sale = sale.clone();
        tasks.spawn(async move {
            let id = id();
            (number, id, sale.reserve(format!("b{number}"), quantity(number), id).await)
        });
    }
    let answers = soon("all are answered", tasks.join_all()).await;
    let calls = wire.calls() - before;
    assert!(calls * 2 < CALLERS as usize, "{calls} calls");
    let mut taken = 0;
    for (number, id, answer) in answers {
        let there = sale.find(id).await.expect("an answer");
        match answer {
            Err(Error::Engine { .. }) if number == 7 => assert!(there.is_none()),
            Ok(Answer::LimitReached { left: 2 }) if quantity(number) == 3 => assert!(there.is_none()),
            Ok(Answer::Reserved(told)) if number != 7 && quantity(number) < 3 => {
                let found = there.expect("it was reserved");
                assert_eq!(
                    (found.id, &*found.buyer, found.quantity),
                    (id, &*format!("b{number}"), quantity(number))
                );
                assert_eq!((told.id, told.buyer, told.quantity), (found.id, found.buyer, found.quantity));
                taken += u64::from(told.quantity);
            }
            other => panic!("caller {number}: {other:?}"),
        }
    }
    assert_eq!(sale.figures().await.expect("an answer").expect("a sale").taken, taken);
    check(&sale, STOCK.into()).await;
}

async fn a_caller_that_leaves_takes_nobody_along(mut ground: Ground) {
    let (sale, wire) = slow_sale(&mut ground, PATIENT).await;
    wire.set(Fault::Delay(ms(20)));
    let mut stay = JoinSet::new();
    let mut leave = Vec::new();
    for number in 0..CALLERS {
        let (sale, buyer) = (sale.clone(), format!("b{number}"));
        if number % 3 == 0 {
            stay.spawn(async move { sale.reserve(buyer, 1, id()).await });
        } else {
            leave.push(tokio::spawn(async move { sale.reserve(buyer, 1, id()).await }));
        }
    }
    // In the middle of the second round some wait, and some have taken others along.
    tokio::time::sleep(ms(30)).await;
    leave.iter().for_each(JoinHandle::abort);
    let answers = soon("those who stay are answered", stay.join_all()).await;
    assert_eq!(answers.len(), CALLERS as usize / 3);
    for answer in answers {
        reserved(answer.expect("an answer"));
    }
    // Nobody is left in the way of whoever comes now.
    wire.set(Fault::None);
    for number in 0..10 {
        reserved(super::reserve(&sale, &format!("late/{number}"), 1).await);
    }
    check(&sale, STOCK.into()).await;
}

async fn a_caller_that_is_not_polled_is_in_nobodys_way(mut ground: Ground) {
    let (sale, _wire) = slow_sale(&mut ground, PATIENT).await;
    let mut parked = Vec::new();
    // As in `select!`, or in a stream of futures whose items are worked on one after the other.
    for number in 0..CALLERS {
        let mut asking = Box::pin(sale.reserve(format!("b{number}"), 1, id()));
        match poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await {
            Poll::Pending => parked.push(asking),
            Poll::Ready(answer) => drop(reserved(answer.expect("an answer"))),
        }
    }
    for number in 0..10 {
        reserved(soon("a turn", super::reserve(&sale, &format!("late/{number}"), 1)).await);
    }
    for asking in parked {
        reserved(soon("an answer", asking).await.expect("an answer"));
    }
    check(&sale, STOCK.into()).await;
}

async fn a_step_that_fails_is_tried_for_each_alone(mut ground: Ground) {
    let (sale, wire) = slow_sale(&mut ground, PATIENT).await;
    // The head of the shard, a buyer and a bucket.
    wire.refuse_more_cells_than(3);
    let mut tasks = JoinSet::new();
    for number in 0..CALLERS {
        let sale = sale.clone();
        tasks.spawn(async move { sale.reserve(format!("b{number}"), 1, id()).await });
    }
    for answer in soon("all are answered", tasks.join_all()).await {
        reserved(answer.expect("an answer"));
    }
    check(&sale, STOCK.into()).await;
}

async fn many_that_are_not_answered_ask_again(mut ground: Ground) {
    let (sale, wire) = slow_sale(&mut ground, LIMIT).await;
    let ids: Vec<ReservationId> = (0..CALLERS).map(|_| id()).collect();
    let ask_all = |sale: &Sale| {
        let mut tasks = JoinSet::new();
        for (number, id) in ids.iter().copied().enumerate() {
            let sale = sale.clone();
            tasks.spawn(async move { sale.reserve(format!("b{number}"), 1, id).await });
        }
        soon("all are told", tasks.join_all())
    };
    for fault in [Fault::LoseAnswer, Fault::HangAnswer, Fault::Refuse, Fault::Hang] {
        wire.set(fault);
        let asked = Instant::now();
        for answer in ask_all(&sale).await {
            assert!(matches!(answer, Err(Error::Unavailable { .. })), "{fault:?}: {answer:?}");
        }
        assert!(asked.elapsed() < 2 * LIMIT, "{fault:?}: nobody waits for the time of others, too");
    }
    wire.set(Fault::None);
    // They have more patience now.
    let options = ground.options().call_limit(PATIENT);
    let patient = super::sale(&ground.client_with(options).await);
    for answer in ask_all(&patient).await {
        reserved(answer.expect("an answer"));
    }
    reserved(sale.reserve("b0", 1, ids[0]).await.expect("an answer"));
    let taken = sale.figures().await.expect("an answer").expect("a sale").taken;
    assert_eq!(taken, u64::from(CALLERS));
    check(&sale, STOCK.into()).await;
}

/// Long before the time of its call is over.
async fn a_step_that_nobody_waits_for_is_given_up(mut ground: Ground) {
    let (sale, wire) = slow_sale(&mut ground, PATIENT).await;
    wire.set(Fault::Hang);
    let before = wire.calls();
    let mut leave = JoinSet::new();
    for number in 0..CALLERS {
        let sale = sale.clone();
        leave.spawn(async move { sale.reserve(format!("b{number}"), 1, id()).await });
    }
    // As many as there may be of one process.
    until("steps are on their way", async || wire.calls() >= before + 4).await;
    leave.shutdown().await;
    wire.set(Fault::None);
    let asked = Instant::now();
    for number in 0..10 {
        reserved(soon("a turn", super::reserve(&sale, &format!("late/{number}"), 1)).await);
    }
    assert!(asked.elapsed() < SOON, "{:?} for those who have gone", asked.elapsed());
    check(&sale, STOCK.into()).await;
}

/// Where the steps were taken: whoever asks has a runtime of its own.
async fn a_sale_outlives_the_runtime_of_its_client(mut ground: Ground) {
    // The connections of other engines end with it.
    if ground.word() != "memory" {
        return;
    }
    let _opened = opened(&ground.client().await, &Terms::new(STOCK)).await;
    let url = ground.url().to_owned();
    let elsewhere = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(leasehold::connect(&url)).expect("an engine")
    });
    let client = elsewhere.join().expect("no panic");
    let sale = super::sale(&client);
    for number in 0..10 {
        let asked = Instant::now();
        reserved(soon("an answer", super::reserve(&sale, &format!("b{number}"), 1)).await);
        assert!(asked.elapsed() < LIMIT, "it was waited for somebody who has gone");
    }
    check(&sale, STOCK.into()).await;
}

/// Where no task of its parent runs.
async fn a_forked_child_can_not_reserve(ground: Ground) {
    let Some(mut child) = ground.child().await else { return };
    let answer = child.ask("fork-sale x").await;
    assert!(answer.starts_with("refused") && answer.contains("before a fork"), "{answer}");
}
