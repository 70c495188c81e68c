//! Waiting: in order, woken and not polling, and never forgotten.

use std::time::Duration;

use leasehold::Family;

use crate::bench::{Ground, ms, soon, until};
use crate::child;
use crate::history::{self, Rules, Section};
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "waiting",
        [
            a_waiter_is_woken_by_the_release,
            a_waiter_that_hears_nothing_asks_again,
            no_wake_up_is_lost_between_asking_and_waiting,
            a_wake_up_that_overtakes_the_answer_is_kept,
            waiters_are_served_in_order,
            nobody_starves_among_processes,
            two_crowds_get_their_turns_alike,
            a_waiter_that_gave_up_holds_up_nobody,
            a_waiter_survives_when_the_name_is_broken,
            a_stopped_store_is_an_error_and_not_a_hang,
            a_lost_guard_that_nobody_drops_holds_up_nobody,
            thousands_of_local_waiters_are_one_waiter_in_the_engine,
        ]
    )
}

async fn a_waiter_is_woken_by_the_release(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let options = ground.options();
    let (waiter, wire) = ground.client_on_wire(options).await;
    drop(two);
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let held = one.mutex("x").expect("a name").lock().await.expect("free");
        let mutex = waiter.mutex("x").expect("a name");
        let waiting = tokio::spawn(async move {
            let guard = mutex.lock().await.expect("granted");
            (tokio::time::Instant::now(), guard)
        });
        until("it waits", async || one.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
        let released = tokio::time::Instant::now();
        held.release().await.expect("held");
        let (granted, guard) = soon("the waiter", waiting).await.expect("no panic");
        quickest = quickest.min(granted - released);
        guard.release().await.expect("held");
    }
    assert!(quickest < ms(100), "the quickest wake-up took {quickest:?}");
    // Two questions for each turn: one to join, one when called. A poll would be more.
    let asked = wire.acquires.load(std::sync::atomic::Ordering::Acquire);
    assert!(asked <= 15, "{asked} questions for 5 turns");
}

async fn a_waiter_that_hears_nothing_asks_again(mut ground: Ground) {
    let one = ground.client().await;
    let options = ground.options();
    let (deaf, wire) = ground.client_on_wire(options).await;
    wire.deafen();
    let held = one.mutex("x").expect("a name").lock().await.expect("free");
    let mutex = deaf.mutex("x").expect("a name");
    let waiting = tokio::spawn(async move { mutex.lock().await.map(|guard| guard.token()) });
    until("it waits", async || one.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    held.release().await.expect("held");
    soon("the deaf waiter", waiting).await.expect("no panic").expect("granted");
}

async fn no_wake_up_is_lost_between_asking_and_waiting(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    // Every section of one is as short as can be, so that releases fall into every gap of the
    // other.
    let sections = async |client: leasehold::Client| {
        let mutex = client.mutex("x").expect("a name");
        let start = tokio::time::Instant::now();
        for _ in 0..300 {
            let guard = mutex.lock().await.expect("granted");
            guard.release().await.expect("held");
            tokio::task::yield_now().await;
        }
        start.elapsed()
    };
    let (a, b) = tokio::join!(sections(one), sections(two));
    assert!(a.max(b) < ms(60_000), "{a:?} {b:?}: wake-ups were lost and the poll had to help");
}

async fn a_wake_up_that_overtakes_the_answer_is_kept(mut ground: Ground) {
    let one = ground.client().await;
    let options = ground.options();
    let (waiter, wire) = ground.client_on_wire(options).await;
    let held = one.mutex("x").expect("a name").lock().await.expect("free");
    // The answer "you are in the queue" takes longer than the release and its message.
    wire.set(Fault::Delay(ms(200)));
    let mutex = waiter.mutex("x").expect("a name");
    let before = tokio::time::Instant::now();
    let waiting = tokio::spawn(async move { mutex.lock().await.map(|guard| guard.token()) });
    until("it waits", async || one.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    held.release().await.expect("held");
    soon("the waiter", waiting).await.expect("no panic").expect("granted");
    assert!(
        before.elapsed() < ms(900),
        "{:?}: the message was lost and the poll had to help",
        before.elapsed()
    );
}

async fn waiters_are_served_in_order(mut ground: Ground) {
    let first = ground.client().await;
    let start = tokio::time::Instant::now();
    let held = first.mutex("x").expect("a name").lock().await.expect("free");
    let mut waiting = Vec::new();
    for worker in 0..8 {
        // Strictly in the engine's order: the local queue is off.
        let options = ground.options().hand_over(Duration::ZERO, 0);
        let client = ground.client_with(options).await;
        let mutex = client.mutex("x").expect("a name");
        let asked = u64::try_from(start.elapsed().as_micros()).expect("a short test");
        waiting.push(tokio::spawn(async move {
            let guard = mutex.lock().await.expect("granted");
            let granted = u64::try_from(start.elapsed().as_micros()).expect("a short test");
            tokio::time::sleep(ms(2)).await;
            let released = u64::try_from(start.elapsed().as_micros()).expect("a short test");
            let token = guard.token().get();
            guard.release().await.expect("held");
            Section { worker, asked, granted, released, token, weight: 1 }
        }));
        until("it waits", async || {
            first.look(Family::Lock, "x").await.expect("a view").waiting
                == u32::try_from(worker).expect("few") + 1
        })
        .await;
    }
    held.release().await.expect("held");
    let mut sections = Vec::new();
    for task in waiting {
        sections.push(soon("everybody's turn", task).await.expect("no panic"));
    }
    // Without a promise of order everybody is served all the same, one by one.
    let fair = ground.promises().fair;
    let rules = Rules { capacity: 1, rising_beyond: 0, fifo_beyond: fair.then_some(0) };
    history::check(&sections, rules).expect("a good history");
    assert!(!fair || sections.is_sorted_by_key(|section| section.granted), "{sections:?}");
}

async fn nobody_starves_among_processes(mut ground: Ground) {
    const PROCESSES: usize = 8;
    const EACH: usize = 250;
    let client = ground.client().await;
    if ground.child().await.is_none() {
        assert_eq!(client.guarantees().reach, leasehold::engine::Reach::Process);
        return;
    }
    let summary = child::take_turns(ground.url(), PROCESSES, EACH).await;
    assert_eq!((summary.fewest, summary.most), (EACH, EACH));
    assert!(summary.longest_wait < 10_000_000, "{summary:?}");
}

/// Two clients of 16 tasks each. Each hands the name round inside for its budget; then the other
/// one comes, and its budget must be as long.
async fn two_crowds_get_their_turns_alike(mut ground: Ground) {
    const TASKS: usize = 16;
    let clients = [ground.client().await, ground.client().await];
    if !ground.promises().fair {
        assert!(!clients[0].guarantees().fair, "an order that is promised after all");
        return;
    }
    let end = tokio::time::Instant::now() + ms(2500);
    let mut crowds = Vec::new();
    for client in &clients {
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let mutex = client.mutex("x").expect("a name");
                tokio::spawn(async move {
                    let mut turns = 0_u32;
                    while tokio::time::Instant::now() < end {
                        let guard = mutex.lock().await.expect("granted");
                        tokio::time::sleep(ms(1)).await;
                        guard.release().await.expect("held");
                        turns += 1;
                    }
                    turns
                })
            })
            .collect();
        crowds.push(tasks);
    }
    let mut turns = Vec::new();
    for crowd in crowds {
        let mut sum = 0;
        for task in crowd {
            sum += soon("the last turn", task).await.expect("no panic");
        }
        turns.push(sum);
    }
    let (most, fewest) = (turns[0].max(turns[1]), turns[0].min(turns[1]));
    assert!(most <= 2 * fewest, "the turns of the two: {turns:?}");
}

async fn a_waiter_that_gave_up_holds_up_nobody(mut ground: Ground) {
    let (one, two, three) = (ground.client().await, ground.client().await, ground.client().await);
    let held = one.mutex("x").expect("a name").lock().await.expect("free");
    let gives_up = two.mutex("x").expect("a name");
    let gone = tokio::spawn(async move { gives_up.lock_for(ms(100)).await.map(|guard| guard.is_none()) });
    let stays = three.mutex("x").expect("a name");
    until("the first waits", async || one.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    let waiting = tokio::spawn(async move { stays.lock().await.map(|guard| guard.token()) });
    assert!(gone.await.expect("no panic").expect("an answer"));
    let before = tokio::time::Instant::now();
    held.release().await.expect("held");
    soon("the second", waiting).await.expect("no panic").expect("granted");
    assert!(before.elapsed() < ms(2000), "{:?}", before.elapsed());
}

async fn a_waiter_survives_when_the_name_is_broken(mut ground: Ground) {
    let (one, two, operator) = (ground.client().await, ground.client().await, ground.client().await);
    let held = one.mutex("x").expect("a name").lock().await.expect("free");
    let mutex = two.mutex("x").expect("a name");
    let waiting = tokio::spawn(async move { mutex.lock().await.map(|guard| guard.token()) });
    until("it waits", async || one.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    let broken = operator.break_claims(Family::Lock, "x").await.expect("broken");
    assert_eq!(broken[0].token, held.token().get());
    assert!(soon("the waiter", waiting).await.expect("no panic").expect("granted") > held.token());
}

async fn a_stopped_store_is_an_error_and_not_a_hang(mut ground: Ground) {
    let client = ground.client().await;
    let guard = client.mutex("x").expect("a name").lease(ms(2000)).lock().await.expect("free");
    let Some(paused) = ground.pause() else {
        // A table in this process can not be stopped alone.
        assert_eq!(client.guarantees().reach, leasehold::engine::Reach::Process);
        return;
    };
    let before = tokio::time::Instant::now();
    let error = soon("an answer", client.mutex("y").expect("a name").lock())
        .await
        .expect_err("the store stands still");
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains(&ground.culprit()), "{error}");
    assert!(before.elapsed() < ms(8000), "{:?}", before.elapsed());
    soon("the loss", guard.lost()).await;
    let child = ground.child_refused().await;
    assert!(child.contains(&ground.culprit()), "{child}");
    drop(paused);
    drop(guard);
    until("the store is as good as new", async || {
        let guard = client.mutex("y").expect("a name").try_lock().await;
        guard.is_ok_and(|guard| guard.is_some())
    })
    .await;
    until("nothing is left behind", async || {
        client.look(Family::Lock, "x").await.is_ok_and(|view| view.claims.is_empty())
    })
    .await;
}

async fn a_lost_guard_that_nobody_drops_holds_up_nobody(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let mutex = client.mutex("x").expect("a name").lease(ms(300));
    let guard = mutex.lock().await.expect("free");
    // A task of the same process stands in the local line, behind work that hangs.
    let waiting = tokio::spawn(async move { mutex.lock().await.map(|guard| guard.token()) });
    tokio::time::sleep(ms(20)).await;
    other.break_claims(Family::Lock, "x").await.expect("broken");
    assert!(soon("the task", waiting).await.expect("no panic").expect("granted") > guard.token());
}

async fn thousands_of_local_waiters_are_one_waiter_in_the_engine(mut ground: Ground) {
    const TASKS: usize = 2000;
    let (other, client) = (ground.client().await, ground.client().await);
    let held = other.mutex("x").expect("a name").lock().await.expect("free");
    let mutex = client.mutex("x").expect("a name");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let mutex = mutex.clone();
        tasks.spawn(async move { mutex.lock().await.expect("granted").release().await });
    }
    until("they wait", async || other.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    held.release().await.expect("held");
    while let Some(done) = soon("the next", tasks.join_next()).await {
        done.expect("no panic").expect("held");
    }
}
