//! Time limits, and what is kept while the engine is away.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use leasehold::engine::{Connection, Hint};
use leasehold::{Client, Clock, Error, Event, Family, Loss, Moment, Standing, TokioClock};
use tokio::time::Instant;

use crate::bench::{Ground, ms, soon, until};
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "limits",
        [
            a_callers_limit_binds_every_kind_of_request,
            a_release_takes_no_longer_than_one_call,
            closing_takes_no_longer_than_one_call,
            a_second_close_waits_for_the_first,
            a_grant_that_arrives_after_the_close_is_given_back,
            a_close_in_the_middle_of_a_request_leaves_nothing_held,
            a_closed_client_refuses_everything,
            callers_that_give_up_leave_a_bounded_pile,
            more_callers_than_that_leave_no_larger_pile,
            a_release_that_is_given_up_holds_up_nobody,
            a_request_that_may_have_been_sent_after_all_is_undone,
            a_waiter_waits_through_an_outage,
            run_gives_the_value_although_the_release_fails,
            a_guard_may_outlive_its_runtime,
            a_label_that_is_too_long_is_refused,
        ]
    )
}

/// How long something may take that has a limit, on a machine that does other things too.
fn about(limit: Duration) -> Duration {
    limit + ms(1000)
}

async fn unavailable<T>(what: &str, limit: Duration, work: impl Future<Output = leasehold::Result<T>>) {
    let begun = Instant::now();
    let error = soon(what, work).await.err().unwrap_or_else(|| panic!("{what}: no error"));
    assert!(matches!(error, Error::Unavailable { .. }), "{what}: {error}");
    assert!(begun.elapsed() < about(limit), "{what} took {:?}", begun.elapsed());
}

async fn a_callers_limit_binds_every_kind_of_request(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let limit = ms(300);
    wire.set(Fault::Hang);
    unavailable("lock_for", limit, client.mutex("m").expect("a name").lock_for(limit)).await;
    let owned = client.mutex("o").expect("a name").owned_by(&leasehold::Owner::new());
    unavailable("lock_for of an owner", limit, owned.lock_for(limit)).await;
    let lock = client.rwlock("l").expect("a name");
    unavailable("read_for", limit, lock.read_for(limit)).await;
    unavailable("write_for", limit, lock.write_for(limit)).await;
    let multi = client.multi(["a", "b"]).expect("names");
    unavailable("lock_for of several", limit, multi.lock_for(limit)).await;
    if ground.promises().counts {
        let semaphore = client.semaphore("s", 3).expect("a name");
        unavailable("acquire_for", limit, semaphore.acquire_for(limit)).await;
    }
    if ground.promises().elects {
        let election = client.election("e").expect("a name");
        unavailable("campaign_for", limit, election.campaign_for("me", limit)).await;
    }
    if ground.promises().cells {
        let latch = client.latch("c", 1).expect("a name");
        unavailable("wait_for", limit, latch.wait_for(limit)).await;
    }
    wire.set(Fault::None);
    let free = soon("the lock", client.mutex("m").expect("a name").lock()).await.expect("free");
    free.release().await.expect("held");
}

async fn a_release_takes_no_longer_than_one_call(mut ground: Ground) {
    let limit = ms(500);
    let options = ground.options().call_limit(limit);
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    for fault in [Fault::Hang, Fault::Refuse] {
        let guard = client.mutex("x").expect("a name").lock().await.expect("free");
        wire.set(fault);
        unavailable("the release", limit, guard.release()).await;
        // The lease would stand for half a minute; the release goes on in the background.
        wire.set(Fault::None);
        drop(soon("the next holder", other.mutex("x").expect("a name").lock()).await.expect("free"));
    }
}

async fn closing_takes_no_longer_than_one_call(mut ground: Ground) {
    let limit = ms(600);
    let options = ground.options().call_limit(limit);
    let (client, wire) = ground.client_on_wire(options).await;
    let mut guards = Vec::new();
    for number in 0..8 {
        guards.push(client.mutex(format!("n{number}")).expect("a name").lock().await.expect("free"));
    }
    wire.set(Fault::Hang);
    drop(guards.pop());
    drop(client.mutex("m").expect("a name").lock_for(ms(1)).await);
    let begun = Instant::now();
    let error = soon("the close", client.close()).await.expect_err("the engine has not heard");
    assert!(begun.elapsed() < about(limit), "closing took {:?}", begun.elapsed());
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("`n"), "it names what was not given back: {error}");
    let again = soon("the second close", client.close()).await.expect_err("the same");
    assert_eq!(again.to_string(), error.to_string());
    assert!(guards.iter().all(|guard| guard.standing() == Standing::Lost));
}

async fn a_second_close_waits_for_the_first(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let guard = client.mutex("x").expect("a name").lock().await.expect("free");
    wire.set(Fault::Slow(ms(300)));
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.close().await }
    });
    until("closing has begun", async || guard.standing() == Standing::Lost).await;
    soon("the second close", client.close()).await.expect("closed");
    assert_eq!(
        wire.releases.load(Ordering::Acquire),
        1,
        "it was given back before the second close returned"
    );
    soon("the first close", first).await.expect("no panic").expect("closed");
}

async fn a_grant_that_arrives_after_the_close_is_given_back(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    wire.set(Fault::Delay(ms(400)));
    let locking = tokio::spawn({
        let mutex = client.mutex("x").expect("a name");
        async move { mutex.lock().await.map(|guard| guard.standing()) }
    });
    until("it is granted", async || !other.look(Family::Lock, "x").await.expect("a view").claims.is_empty())
        .await;
    soon("the close", client.close()).await.expect("closed");
    let error = soon("the caller", locking).await.expect("no panic").expect_err("the client is closed");
    assert!(error.to_string().contains("closed"), "{error}");
    let free = other.mutex("x").expect("a name").try_lock().await.expect("an answer");
    assert!(free.is_some(), "the late grant was given back before the close returned");
}

/// A clock on which a client is closed when a thread reads it for the nth time: between any two
/// steps of a request. From then on that thread takes its time at each step, so that whatever else
/// the client does comes in between.
#[derive(Clone, Debug)]
struct Closing {
    clock: TokioClock,
    left: Arc<AtomicUsize>,
    closes: Arc<Mutex<Option<(ThreadId, Client)>>>,
}

impl Clock for Closing {
    fn now(&self) -> Moment {
        let closes = self.closes.lock().expect("no panic").clone();
        if let Some((thread, client)) = closes
            && thread == std::thread::current().id()
        {
            let left =
                self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
            if left == Ok(1) {
                // The rest goes on in the background; where there are more threads, it finds what
                // is held now.
                let _ = pin!(client.close()).poll(&mut Context::from_waker(Waker::noop()));
            }
            if matches!(left, Ok(1) | Err(_)) {
                std::thread::sleep(ms(30));
            }
        }
        self.clock.now()
    }
}

async fn a_close_in_the_middle_of_a_request_leaves_nothing_held(mut ground: Ground) {
    let other = ground.client().await;
    for reading in 1..=8 {
        let clock = Closing {
            clock: TokioClock::new(),
            left: Arc::new(AtomicUsize::new(reading)),
            closes: Arc::default(),
        };
        let options = ground.options().clock(clock.clone());
        let client = ground.client_with(options).await;
        *clock.closes.lock().expect("no panic") = Some((std::thread::current().id(), client.clone()));
        let locked = soon("the lock", client.mutex("x").expect("a name").lock()).await;
        clock.closes.lock().expect("no panic").take();
        soon("the close", client.close()).await.expect("closed");
        if let Ok(guard) = &locked {
            assert_eq!(guard.standing(), Standing::Lost, "closed at reading {reading}, and held still");
        }
        let free = other.mutex("x").expect("a name").try_lock().await.expect("an answer");
        free.unwrap_or_else(|| panic!("closed at reading {reading}, and not given back"))
            .release()
            .await
            .expect("held");
    }
}

async fn a_closed_client_refuses_everything(mut ground: Ground) {
    let client = ground.client().await;
    let lock = client.rwlock("x").expect("a name");
    client.close().await.expect("closed");
    let closed = |what: &str, error: Option<Error>| {
        let error = error.unwrap_or_else(|| panic!("{what} was not refused"));
        assert!(error.to_string().contains("closed"), "{what}: {error}");
    };
    closed("lock", client.mutex("x").expect("a name").lock().await.err());
    closed("read", lock.try_read().await.err());
    closed("look", client.look(Family::Lock, "x").await.err());
    closed("list", client.list(Family::Lock, None, 1).await.err());
    closed("break", client.break_claims(Family::Lock, "x").await.err());
    if ground.promises().elects {
        closed("leader", client.election("x").expect("a name").leader().await.err());
        closed("observe", client.election("x").expect("a name").observe().await.err());
    }
    if ground.promises().cells {
        closed("left", client.latch("x", 1).expect("a name").left().await.err());
        closed("wait", client.latch("x", 1).expect("a name").wait().await.err());
    }
}

/// Thousands of callers that give up while the engine is silent leave thousands of releases to be
/// sent. They must not be thousands of tasks, and each is sent once.
async fn callers_that_give_up_leave_a_bounded_pile(mut ground: Ground) {
    const CALLERS: usize = 2000;
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    wire.set(Fault::Hang);
    let before = metrics.num_alive_tasks();
    for number in 0..CALLERS {
        let mutex = client.mutex(format!("n{number}")).expect("a name");
        assert!(tokio::time::timeout(Duration::ZERO, mutex.lock()).await.is_err(), "nothing is answered");
    }
    let tasks = metrics.num_alive_tasks() - before;
    assert!(tasks <= 100, "{tasks} tasks are left of {CALLERS} callers");
    wire.set(Fault::None);
    until("all was undone", async || wire.releases.load(Ordering::Acquire) >= CALLERS).await;
    soon("the close", client.close()).await.expect("closed");
    assert_eq!(wire.releases.load(Ordering::Acquire), CALLERS, "each once");
}

/// The oldest of what is to be undone are left to end with their leases.
async fn more_callers_than_that_leave_no_larger_pile(mut ground: Ground) {
    const CALLERS: usize = 9000;
    /// In flight, and waiting behind that.
    const KEPT: usize = 64 + 8192;
    let options = ground.options().call_limit(ms(1000));
    let (client, wire) = ground.client_on_wire(options).await;
    wire.set(Fault::Hang);
    for number in 0..CALLERS {
        let mutex = client.mutex(format!("n{number}")).expect("a name");
        assert!(tokio::time::timeout(Duration::ZERO, mutex.lock()).await.is_err(), "nothing is answered");
    }
    let error = soon("the close", client.close()).await.expect_err("the engine has not heard");
    // Five of them are named.
    let more = format!("and {} more were not given back", KEPT - 5);
    assert!(error.to_string().contains(&more), "{error}");
}

/// When the pile is full, the oldest claim in it is left to end by itself. That somebody still
/// listens for its loss must not matter to those who want the name next.
async fn a_release_that_is_given_up_holds_up_nobody(mut ground: Ground) {
    // More than are sent at the same time, and more than are kept.
    const IN_FLIGHT: usize = 100;
    const KEPT: usize = 9000;
    let options = ground.options().call_limit(ms(60_000));
    let (client, wire) = ground.client_on_wire(options).await;
    let give_up = async |number: usize| {
        let mutex = client.mutex(format!("n{number}")).expect("a name");
        let mut locking = Box::pin(mutex.lock());
        let waits = std::future::poll_fn(|context| Poll::Ready(locking.as_mut().poll(context).is_pending()));
        assert!(waits.await, "nothing is answered");
    };
    let mutex = client.mutex("x").expect("a name").lease(ms(3000));
    let guard = mutex.lock().await.expect("free");
    let lost = guard.lost();
    wire.set(Fault::Hang);
    for number in 0..IN_FLIGHT {
        give_up(number).await;
    }
    drop(guard);
    for number in IN_FLIGHT..IN_FLIGHT + KEPT {
        give_up(number).await;
    }
    wire.set(Fault::None);
    soon("the next holder", mutex.lock()).await.expect("free").release().await.expect("held");
    drop(lost);
}

/// The connection was down when the request was made, so it may not have been sent; if it came back
/// since, it may have been.
async fn a_request_that_may_have_been_sent_after_all_is_undone(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    for then in [Connection::Up, Connection::Down(2)] {
        wire.set_connection(Some(Connection::Down(1)));
        wire.set(Fault::HangAnswer);
        let mutex = client.mutex("x").expect("a name");
        let locking = tokio::spawn(async move { mutex.lock().await });
        until("it was sent", async || {
            !other.look(Family::Lock, "x").await.expect("a view").claims.is_empty()
        })
        .await;
        wire.set(Fault::None);
        wire.set_connection(Some(then));
        locking.abort();
        // It would be held for half a minute.
        let next = soon("the next holder", other.mutex("x").expect("a name").lock()).await.expect("free");
        next.release().await.expect("held");
    }
    // It was sent when it first asked, whatever became of it when it asked again.
    let held = other.mutex("x").expect("a name").lock().await.expect("free");
    let waiting = async || other.look(Family::Lock, "x").await.expect("a view").waiting;
    wire.set_connection(Some(Connection::Down(1)));
    let mutex = client.mutex("x").expect("a name");
    let locking = tokio::spawn(async move { mutex.lock().await });
    until("it waits", async || waiting().await == 1).await;
    wire.set_connection(Some(Connection::Down(2)));
    wire.set(Fault::Hang);
    let (owner, round) = wire.asked();
    wire.tell(Hint::Wake(owner));
    until("it asks again", async || wire.asked().1 > round).await;
    wire.set(Fault::None);
    locking.abort();
    let before = Instant::now();
    until("it has left the queue", async || waiting().await == 0).await;
    // Without a word it is believed to wait for five seconds.
    assert!(before.elapsed() < ms(3000), "{:?}", before.elapsed());
    held.release().await.expect("held");
    // Nothing was sent if there was no connection in between, and then there is nothing to undo.
    let releases = wire.releases.load(Ordering::Acquire);
    wire.set_connection(Some(Connection::Down(3)));
    wire.set(Fault::Hang);
    unavailable("lock_for", ms(100), client.mutex("x").expect("a name").lock_for(ms(100))).await;
    wire.set(Fault::None);
    soon("the close", client.close()).await.expect("closed");
    assert_eq!(wire.releases.load(Ordering::Acquire), releases, "it undid what was never sent");
}

async fn a_waiter_waits_through_an_outage(mut ground: Ground) {
    let options = ground.options().call_limit(ms(1000));
    let (client, wire) = ground.client_on_wire(options).await;
    let (mut events, other) = (client.events(), ground.client().await);
    for fault in [Fault::Refuse, Fault::Hang] {
        let held = other.mutex("x").expect("a name").lock().await.expect("free");
        let waiting = tokio::spawn({
            let mutex = client.mutex("x").expect("a name");
            async move { mutex.lock().await }
        });
        until("it waits", async || {
            matches!(soon("an event", events.next()).await, Some(Event::Waiting { .. }))
        })
        .await;
        wire.set(fault);
        let asked = wire.acquires.load(Ordering::Acquire);
        until("it has asked in vain", async || wire.acquires.load(Ordering::Acquire) >= asked + 3).await;
        // A limit is kept all the same, and says that there is an outage.
        let limited = client.mutex("y").expect("a name");
        unavailable("lock_for", ms(300), limited.lock_for(ms(200))).await;
        wire.set(Fault::None);
        held.release().await.expect("held");
        let guard = soon("its turn", waiting).await.expect("no panic").expect("it waited through the outage");
        guard.release().await.expect("held");
    }
}

async fn run_gives_the_value_although_the_release_fails(mut ground: Ground) {
    let options = ground.options().call_limit(ms(300));
    let (client, wire) = ground.client_on_wire(options).await;
    let mut events = client.events();
    let mutex = client.mutex("x").expect("a name");
    let work = mutex.run(async |_| {
        wire.set(Fault::Refuse);
        7
    });
    assert_eq!(soon("the work", work).await.expect("the work was done"), 7);
    loop {
        match soon("the next event", events.next()).await.expect("the client lives") {
            Event::NotReleased { name, why, .. } => {
                assert_eq!(name.as_str(), "x");
                assert!(why.contains("cut by the test"), "{why}");
                break;
            }
            Event::Lost { why, .. } => assert_ne!(why, Loss::Gone),
            _ => {}
        }
    }
    wire.set(Fault::None);
}

async fn a_guard_may_outlive_its_runtime(mut ground: Ground) {
    let (url, options) = (ground.url().to_owned(), ground.options());
    let other = ground.client().await;
    let outlived = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (client, guard) = runtime.block_on(async {
            let client = leasehold::connect_with(&url, options).await.expect("the engine is there");
            let mutex = client.mutex("x").expect("a name").lease(ms(2000));
            let guard = mutex.lock().await.expect("free");
            (client, guard)
        });
        drop(runtime);
        drop(guard);
        drop(client);
    });
    outlived.join().expect("no panic");
    // At once where no connection is needed, and with the lease elsewhere.
    let next = soon("the next holder", other.mutex("x").expect("a name").lock()).await.expect("free");
    next.release().await.expect("held");
}

async fn a_label_that_is_too_long_is_refused(mut ground: Ground) {
    let longest = "l".repeat(leasehold::client::LONGEST_LABEL);
    let refused = |error: Option<Error>| {
        let error = error.expect("too long");
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert!(error.to_string().contains("label"), "{error}");
    };
    let options = ground.options().label(format!("{longest}l"));
    refused(leasehold::connect_with(ground.url(), options).await.err());
    let options = ground.options().label(longest.clone());
    let client: Client = ground.client_with(options).await;
    let mutex = client.mutex("x").expect("a name");
    mutex.lock().await.expect("just right").release().await.expect("held");
    refused(mutex.clone().label(format!("{longest}l")).lock().await.err());
    refused(client.rwlock("x").expect("a name").label(format!("{longest}l")).try_read().await.err());
}
