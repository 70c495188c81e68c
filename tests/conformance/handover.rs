//! The hand-over inside a process: what goes from task to task without a word to the engine, and
//! what must not.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use leasehold::{Client, Error, Event, Events, Family, Guard, Options, Result, Standing, Token};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::bench::{Ground, ms, not_within, soon, until};
use crate::lease::Suspended;
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "handover",
        [
            a_crowd_lets_others_have_the_mutex,
            the_budget_of_a_crowd_begins_with_its_grant,
            a_crowd_lets_others_have_permits,
            a_crowd_of_readers_lets_a_writer_in,
            a_lost_guard_is_not_handed_on,
            a_guard_in_doubt_is_not_handed_on,
            what_is_lost_on_its_way_to_the_next_is_not_taken_over,
            a_downgraded_writer_lets_its_own_readers_in,
            a_downgraded_writer_makes_nobody_else_the_writer,
            tokens_of_a_permit_that_was_given_back_are_not_used,
            tokens_below_those_of_a_newer_permit_are_not_used,
            tokens_below_that_of_an_upgrade_are_not_used,
            a_release_that_is_sent_again_says_what_was_used,
            a_reader_that_may_become_the_writer_is_not_handed_on,
        ]
    )
}

/// So many tokens that only time ends the hand-over.
fn by_time(options: Options) -> Options {
    options.hand_over(ms(50), 1_000_000)
}

/// So much time that nothing of it ends in this case.
fn at_leisure(options: Options) -> Options {
    options.hand_over(ms(60_000), 64)
}

/// Begins something that has to wait, and returns when it stands in the local line or has asked the
/// engine.
async fn begun<T>(work: impl Future<Output = T>) -> Pin<Box<impl Future<Output = T>>> {
    let mut work = Box::pin(work);
    let waits = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context).is_pending()));
    assert!(waits.await, "it has to wait");
    work
}

/// The same for a task of its own.
async fn in_line<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(begun(work).await)
}

/// Tasks that take their turns for ever, and count them, until the result is dropped.
async fn crowd<F>(tasks: usize, task: impl Fn(Arc<AtomicUsize>) -> F) -> JoinSet<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let turns = Arc::new(AtomicUsize::new(0));
    let mut crowd = JoinSet::new();
    for _ in 0..tasks {
        crowd.spawn(task(Arc::clone(&turns)));
    }
    until("all take their turns", async || turns.load(Ordering::Acquire) > 3 * tasks).await;
    crowd
}

/// Waits for a turn beside a crowd whose budget is 50 ms.
async fn beside_the_crowd<T>(what: &str, turn: impl Future<Output = Result<T>>) -> T {
    let begun = Instant::now();
    let turn = soon(what, turn).await.expect("granted");
    assert!(begun.elapsed() < ms(3000), "{what} came after {:?}", begun.elapsed());
    turn
}

async fn a_crowd_lets_others_have_the_mutex(mut ground: Ground) {
    let options = by_time(ground.options());
    let (client, other) = (ground.client_with(options).await, ground.client().await);
    let _crowd = crowd(8, |turns| {
        let mutex = client.mutex("x").expect("a name");
        async move {
            loop {
                let guard = mutex.lock().await.expect("granted");
                tokio::time::sleep(ms(1)).await;
                guard.release().await.expect("held");
                turns.fetch_add(1, Ordering::AcqRel);
            }
        }
    })
    .await;
    let mutex = other.mutex("x").expect("a name");
    drop(beside_the_crowd("the other's turn", mutex.lock()).await);
}

/// What a crowd waits for others does not count, or those who waited longest would have the fewest
/// turns.
async fn the_budget_of_a_crowd_begins_with_its_grant(mut ground: Ground) {
    const BUDGET: Duration = ms(700);
    /// Less than the time after which a waiter asks again.
    const WAIT: Duration = ms(900);
    let options = ground.options().hand_over(BUDGET, 64);
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    if !ground.promises().fair {
        assert!(!other.guarantees().fair, "an order that is promised after all");
        return;
    }
    for round in 1.. {
        let name = format!("x{round}");
        let lock = |client: &Client| {
            let mutex = client.mutex(&name).expect("a name");
            async move { mutex.lock().await }
        };
        let one_waits = async || {
            until("one waits", async || other.look(Family::Lock, &name).await.expect("a view").waiting == 1)
                .await;
        };
        let held = soon("the lock", lock(&client)).await.expect("free");
        let elsewhere = in_line(lock(&other)).await;
        one_waits().await;
        let (first, second) = (in_line(lock(&client)).await, in_line(lock(&client)).await);
        tokio::time::sleep(BUDGET).await;
        held.release().await.expect("held");
        let elsewhere = soon("the other's turn", elsewhere).await.expect("no panic").expect("granted");
        one_waits().await;
        tokio::time::sleep(WAIT).await;
        elsewhere.release().await.expect("held");
        let first = soon("the first turn", first).await.expect("no panic").expect("granted");
        let asked = wire.acquires.load(Ordering::Acquire);
        first.release().await.expect("held");
        let second = soon("the second turn", second).await.expect("no panic").expect("granted");
        let handed_on = wire.acquires.load(Ordering::Acquire) == asked;
        second.release().await.expect("held");
        if handed_on {
            return;
        }
        // The machine may have stood still for as long as the budget.
        assert!(round < 5, "each had to ask although the budget had only begun");
    }
}

async fn a_crowd_lets_others_have_permits(ground: Ground) {
    let Some(mut ground) = crate::bench::counts(ground).await else { return };
    let options = by_time(ground.options());
    let (client, other) = (ground.client_with(options).await, ground.client().await);
    let _crowd = crowd(12, |turns| {
        let semaphore = client.semaphore("x", 3).expect("a name");
        async move {
            loop {
                let guard = semaphore.acquire().await.expect("granted");
                tokio::time::sleep(ms(1)).await;
                guard.release().await.expect("held");
                turns.fetch_add(1, Ordering::AcqRel);
            }
        }
    })
    .await;
    let semaphore = other.semaphore("x", 3).expect("a name");
    drop(beside_the_crowd("one permit", semaphore.acquire()).await);
    drop(beside_the_crowd("all permits", semaphore.acquire_many(3)).await);
}

async fn a_crowd_of_readers_lets_a_writer_in(mut ground: Ground) {
    let options = by_time(ground.options());
    let (client, other) = (ground.client_with(options).await, ground.client().await);
    let (start, started) = tokio::sync::watch::channel(false);
    let read_for_ever = || {
        let (lock, mut started) = (client.rwlock("x").expect("a name"), started.clone());
        async move {
            loop {
                let guard = lock.read().await.expect("granted");
                started.wait_for(|started| *started).await.expect("the case goes on");
                tokio::time::sleep(ms(1)).await;
                guard.release().await.expect("held");
            }
        }
    };
    let mut crowd: JoinSet<()> = JoinSet::new();
    let mut events = client.events();
    let view = async || other.look(Family::Lock, "x").await.expect("a view");
    // Readers that stood in line behind a writer have tokens for others.
    let writer = other.rwlock("x").expect("a name").write().await.expect("free");
    for _ in 0..12 {
        crowd.spawn(begun(read_for_ever()).await);
    }
    waits(&mut events).await;
    writer.release().await.expect("held");
    until("all read", async || view().await.claims.len() == 12).await;
    let lock = other.rwlock("x").expect("a name");
    let writing = tokio::spawn(async move { lock.write().await });
    until("a writer waits", async || view().await.waiting == 1).await;
    // Some of these stand in line behind the writer, and can take over from those who read.
    let mut events = client.events();
    for _ in 0..12 {
        crowd.spawn(begun(read_for_ever()).await);
    }
    waits(&mut events).await;
    start.send(true).expect("they listen");
    let writing = async { writing.await.expect("no panic") };
    drop(beside_the_crowd("the writer's turn", writing).await);
}

async fn a_lost_guard_is_not_handed_on(mut ground: Ground) {
    let options = at_leisure(ground.options());
    let (client, other, operator) =
        (ground.client_with(options).await, ground.client().await, ground.client().await);
    let mutex = client.mutex("x").expect("a name").lease(ms(900));
    let lock = || {
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    };
    let first = lock().await.expect("free");
    let second = in_line(lock()).await;
    first.release().await.expect("held");
    // It asked while others stood in line, so it has tokens for them.
    let guard = soon("the second", second).await.expect("no panic").expect("granted");
    let others = other.mutex("x").expect("a name");
    let theirs = tokio::spawn(async move { others.lock().await });
    until("it waits", async || operator.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    let (mut third, mut fourth) = (in_line(lock()).await, in_line(lock()).await);
    operator.break_claims(Family::Lock, "x").await.expect("broken");
    soon("the loss", guard.lost()).await;
    if !ground.promises().fair {
        // Whoever asks next may come first, and that is not a hand-over.
        let error = guard.release().await.expect_err("it was lost");
        assert!(matches!(error, Error::Lost { .. }), "{error}");
        return;
    }
    let theirs = soon("the other's turn", theirs).await.expect("no panic").expect("granted");
    until("the third asks", async || operator.look(Family::Lock, "x").await.expect("a view").waiting == 1)
        .await;
    let error = guard.release().await.expect_err("it was lost");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    not_within(ms(300), "somebody took over what was lost", async {
        tokio::select! {
            _ = &mut third => {}
            _ = &mut fourth => {}
        }
    })
    .await;
    let token = theirs.token();
    theirs.release().await.expect("held");
    for waiting in [third, fourth] {
        let guard = soon("the turns of the others", waiting).await.expect("no panic").expect("granted");
        assert!(guard.token() > token);
        guard.release().await.expect("held");
    }
}

/// Its renewals fail, so the next in line would have little time left: a new claim is better.
async fn a_guard_in_doubt_is_not_handed_on(mut ground: Ground) {
    let options = at_leisure(ground.options());
    let (client, wire) = ground.client_on_wire(options).await;
    let mutex = client.mutex("x").expect("a name").lease(ms(3000));
    let lock = || {
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    };
    let first = lock().await.expect("free");
    let second = in_line(lock()).await;
    first.release().await.expect("held");
    let guard = soon("the second", second).await.expect("no panic").expect("granted");
    let third = in_line(lock()).await;
    wire.hang_renewals_of(ms(3000));
    assert_eq!(soon("the doubt", guard.endangered()).await, Standing::InDoubt);
    let released = wire.releases.load(Ordering::Acquire);
    guard.release().await.expect("held");
    assert_eq!(wire.releases.load(Ordering::Acquire), released + 1, "it was handed on");
    soon("the third", third).await.expect("no panic").expect("granted").release().await.expect("held");
}

/// The machine sleeps just after a guard went to the next in line.
async fn what_is_lost_on_its_way_to_the_next_is_not_taken_over(mut ground: Ground) {
    let other = ground.client().await;
    let clock = Suspended::default();
    let options = at_leisure(Options::new()).clock(clock.clone());
    let (client, wire) = ground.client_on_wire(options).await;
    let mutex = client.mutex("x").expect("a name");
    let lock = || {
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    };
    let first = lock().await.expect("free");
    let second = in_line(lock()).await;
    first.release().await.expect("held");
    let second = soon("the second", second).await.expect("no panic").expect("granted");
    let (token, released) = (second.token(), wire.releases.load(Ordering::Acquire));
    let third = begun(lock()).await;
    second.release().await.expect("held");
    assert_eq!(wire.releases.load(Ordering::Acquire), released, "it was handed on");
    // Not too far: an engine with sessions counts from the start of the machine, which may be near.
    clock.push(ms(60_000));
    let guard = soon("the third", third).await.expect("granted");
    assert_eq!(guard.standing(), Standing::Held, "it was given what was lost");
    assert!(guard.token() > token);
    assert!(other.mutex("x").expect("a name").try_lock().await.expect("an answer").is_none());
}

async fn a_downgraded_writer_lets_its_own_readers_in(mut ground: Ground) {
    let client = ground.client().await;
    let lock = client.rwlock("x").expect("a name");
    let writer = lock.write().await.expect("free");
    let waiting = in_line({
        let lock = lock.clone();
        async move { lock.read().await }
    })
    .await;
    let reader = writer.downgrade().await.expect("still held");
    let second = soon("the reader that waited", waiting).await.expect("no panic").expect("shared");
    let third = soon("a reader that came later", lock.read()).await.expect("shared");
    for reader in [reader, second, third] {
        reader.release().await.expect("held");
    }
}

/// Another writer of the process asked for what the writer had, and not for what the reader has
/// now.
async fn a_downgraded_writer_makes_nobody_else_the_writer(mut ground: Ground) {
    let options = at_leisure(ground.options());
    let (client, other) = (ground.client_with(options).await, ground.client().await);
    let lock = client.rwlock("x").expect("a name");
    let write = || {
        let lock = lock.clone();
        async move { lock.write().await }
    };
    let first = write().await.expect("free");
    let second = in_line(write()).await;
    first.release().await.expect("held");
    let writer = soon("the second", second).await.expect("no panic").expect("granted");
    let reader = writer.downgrade().await.expect("still held");
    let theirs = soon("the other's read", other.rwlock("x").expect("a name").read()).await.expect("shared");
    let mut third = in_line(write()).await;
    until("it waits", async || other.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    let mut fourth = in_line(write()).await;
    reader.release().await.expect("held");
    not_within(ms(300), "somebody writes beside a reader", async {
        tokio::select! {
            _ = &mut third => {}
            _ = &mut fourth => {}
        }
    })
    .await;
    theirs.release().await.expect("held");
    for waiting in [third, fourth] {
        let writer = soon("the turns of the writers", waiting).await.expect("no panic").expect("granted");
        writer.release().await.expect("held");
    }
}

/// Two permits, both held by a client: the second with tokens for those who take over.
struct Permits {
    client: Client,
    events: Events,
    other: Client,
    first: Guard,
    second: Guard,
}

impl Permits {
    async fn new(ground: &mut Ground) -> Permits {
        let options = at_leisure(ground.options());
        let client = ground.client_with(options).await;
        Permits::of(client, ground).await
    }

    async fn of(client: Client, ground: &mut Ground) -> Permits {
        let other = ground.client().await;
        let mut events = client.events();
        let theirs = other.semaphore("x", 2).expect("a name");
        let held = [theirs.acquire().await.expect("free"), theirs.acquire().await.expect("free")];
        let first = in_line(acquire(&client)).await;
        waits(&mut events).await;
        let second = in_line(acquire(&client)).await;
        let [one, two] = held;
        one.release().await.expect("held");
        let first = soon("the first", first).await.expect("no panic").expect("granted");
        // It asks now. Others stood in line, so it reserves tokens.
        waits(&mut events).await;
        two.release().await.expect("held");
        let second = soon("the second", second).await.expect("no panic").expect("granted");
        Permits { client, events, other, first, second }
    }
}

fn acquire(client: &Client) -> impl Future<Output = Result<Guard>> + Send + 'static {
    let semaphore = client.semaphore("x", 2).expect("a name");
    async move { semaphore.acquire().await }
}

/// Waits until a caller knows that it waits at the engine: those who come after it stand in line.
async fn waits(events: &mut Events) {
    while !matches!(soon("a caller waits", events.next()).await, Some(Event::Waiting { .. })) {}
}

/// Has two callers wait, one at the engine and one in line, gives a permit back, and expects that
/// who gets it has a higher token than `above`.
async fn next_is_above(client: &Client, mut events: Events, freed: Guard, above: Token) {
    let mut asks = in_line(acquire(client)).await;
    waits(&mut events).await;
    let mut stands = in_line(acquire(client)).await;
    freed.release().await.expect("held");
    let next = soon("the next", async {
        tokio::select! {
            next = &mut asks => next,
            next = &mut stands => next,
        }
    })
    .await;
    let token = next.expect("no panic").expect("granted").token();
    assert!(token > above, "{token:?} was given after {above:?}");
    asks.abort();
    stands.abort();
}

/// The engine gives the rest of a block to others, once the claim is given back that it came with.
async fn tokens_of_a_permit_that_was_given_back_are_not_used(ground: Ground) {
    let Some(mut ground) = crate::bench::counts(ground).await else { return };
    let Permits { client, events, other, first, second } = Permits::new(&mut ground).await;
    second.release().await.expect("held");
    let theirs = other.semaphore("x", 2).expect("a name").acquire().await.expect("free");
    next_is_above(&client, events, first, theirs.token()).await;
}

async fn tokens_below_those_of_a_newer_permit_are_not_used(ground: Ground) {
    let Some(mut ground) = crate::bench::counts(ground).await else { return };
    let Permits { client, events, first, second, .. } = Permits::new(&mut ground).await;
    first.release().await.expect("held");
    let newer = client.semaphore("x", 2).expect("a name").try_acquire().await.expect("an answer");
    let newer = newer.expect("one is free");
    assert!(newer.token() > second.token());
    next_is_above(&client, events, second, newer.token()).await;
}

/// A reader whose claim was broken, and that has not heard of it, is released while another reader
/// of its process has become the writer.
async fn tokens_below_that_of_an_upgrade_are_not_used(ground: Ground) {
    let Some(mut ground) = crate::bench::upgrades(ground).await else { return };
    let options = at_leisure(ground.options());
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let lock = client.rwlock("x").expect("a name");
    let read = || {
        let lock = lock.clone();
        async move { lock.read().await }
    };
    let broken = read().await.expect("free");
    wire.deafen();
    other.break_claims(Family::Lock, "x").await.expect("broken");
    let theirs = other.rwlock("x").expect("a name").write().await.expect("free");
    let mut events = client.events();
    let first = in_line(read()).await;
    waits(&mut events).await;
    // It asks when others have stood in line, so it reserves tokens.
    let second = in_line(read()).await;
    theirs.release().await.expect("held");
    let first = soon("the first", first).await.expect("no panic").expect("granted");
    let second = soon("the second", second).await.expect("no panic").expect("granted");
    first.release().await.expect("held");
    let writer = soon("the upgrade", second.upgrade()).await.expect("alone");
    let mut third = in_line(read()).await;
    waits(&mut events).await;
    let mut fourth = in_line(read()).await;
    let gone = broken.release().await;
    assert!(matches!(gone, Err(Error::Lost { .. })), "{gone:?}");
    not_within(ms(300), "somebody reads beside the writer", async {
        tokio::select! {
            _ = &mut third => {}
            _ = &mut fourth => {}
        }
    })
    .await;
    let token = writer.token();
    writer.release().await.expect("held");
    for waiting in [third, fourth] {
        let reader = soon("the readers", waiting).await.expect("no panic").expect("granted");
        assert!(reader.token() > token);
        reader.release().await.expect("held");
    }
}

/// All who share a name use the tokens of one block. If the engine were told that fewer were used,
/// it would give some of them again.
async fn a_release_that_is_sent_again_says_what_was_used(ground: Ground) {
    let Some(mut ground) = crate::bench::counts(ground).await else { return };
    let options = at_leisure(ground.options()).call_limit(ms(1000));
    let (client, wire) = ground.client_on_wire(options).await;
    let Permits { client, mut events, first, second, .. } = Permits::of(client, &mut ground).await;
    let asks = in_line(acquire(&client)).await;
    waits(&mut events).await;
    let stands = in_line(acquire(&client)).await;
    first.release().await.expect("held");
    let heir = soon("the one in line", stands).await.expect("no panic").expect("granted");
    assert!(heir.token() > second.token(), "it has a token of the block that came with the second");
    wire.said_to_be_used();
    wire.set(Fault::Refuse);
    let error = soon("the release", second.release()).await.expect_err("nothing is heard");
    assert!(error.is_retryable(), "{error}");
    let mut said = wire.said_to_be_used();
    wire.set(Fault::None);
    // Kept, for its own release says something else.
    let _last = soon("the one that waits", asks).await.expect("no panic").expect("given back after all");
    said.extend(wire.said_to_be_used());
    let used = heir.token().get();
    assert!(said.len() > 1 && said.iter().all(|said| *said == used), "{used} was used, and it says {said:?}");
}

/// The engine may turn it into the writer although nobody asks for that any more. As long as it is
/// held then, nobody else reads.
async fn a_reader_that_may_become_the_writer_is_not_handed_on(ground: Ground) {
    let Some(mut ground) = crate::bench::upgrades(ground).await else { return };
    let options = at_leisure(ground.options());
    let (client, other) = (ground.client_with(options).await, ground.client().await);
    let lock = client.rwlock("x").expect("a name");
    let theirs = other.rwlock("x").expect("a name");
    let read = || {
        let lock = lock.clone();
        async move { lock.read().await }
    };
    let mut events = client.events();
    let writer = theirs.write().await.expect("free");
    let first = in_line(read()).await;
    waits(&mut events).await;
    // It asks when others have stood in line, so it reserves tokens.
    let second = in_line(read()).await;
    writer.release().await.expect("held");
    let first = soon("the first", first).await.expect("no panic").expect("granted");
    let second = soon("the second", second).await.expect("no panic").expect("granted");
    let upgrading = tokio::spawn(first.upgrade());
    until("an upgrade waits", async || theirs.try_read().await.expect("an answer").is_none()).await;
    let asks = in_line(read()).await;
    waits(&mut events).await;
    let stands = in_line(read()).await;
    upgrading.abort();
    let reader = soon("the one in line", stands).await.expect("no panic").expect("granted");
    second.release().await.expect("held");
    let beside = soon("the one that waits", asks).await.expect("no panic").expect("granted");
    let other = soon("another process", theirs.read()).await.expect("granted");
    for reader in [reader, beside, other] {
        reader.release().await.expect("held");
    }
}
