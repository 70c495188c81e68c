//! The locks for programs without async, on plain threads.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::blocking::{Client, connect};
use leasehold::lock::Observed;
use leasehold::{Error, Family, Loss, Standing};

use crate::bench::{Ground, ms};
use crate::child::Child;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "blocking",
        [
            threads_exclude_each_other,
            a_lease_is_renewed_while_its_thread_computes,
            a_loss_while_computing_is_told,
            a_dropped_guard_is_released,
            the_last_that_is_dropped_gives_everything_back,
            time_limits_hold,
            work_runs_under_a_mutex,
            every_lock_is_there,
            an_election_is_led_on_the_callers_thread,
            events_end_with_the_client,
            inside_a_task_it_is_refused,
            a_thread_of_a_runtime_that_may_block_may_call,
            a_forked_child_is_told_to_connect,
        ]
    )
}

/// Does something on a plain thread.
async fn plainly<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = tokio::task::spawn_blocking(move || std::thread::spawn(work).join());
    match thread.await.expect("no panic") {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Two clients of the ground, as two processes would have them, on a plain thread.
async fn with_two<T: Send + 'static>(
    ground: &Ground,
    work: impl FnOnce(Client, Client) -> T + Send + 'static,
) -> T {
    let url = ground.url().to_owned();
    plainly(move || work(connect(&url).expect("a client"), connect(&url).expect("a client"))).await
}

/// Waits until something is so, and fails after ten seconds.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < ms(10_000), "waited too long until {what}");
        std::thread::sleep(ms(2));
    }
}

async fn threads_exclude_each_other(ground: Ground) {
    with_two(&ground, |one, two| {
        let inside = AtomicU32::new(0);
        let done = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for client in [&one, &one, &two, &two] {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let guard = client.mutex("x").expect("a name").lock().expect("granted");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold");
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        guard.release().expect("held");
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 40);
    })
    .await;
}

async fn a_lease_is_renewed_while_its_thread_computes(ground: Ground) {
    with_two(&ground, |one, two| {
        let guard = one.mutex("x").expect("a name").lease(ms(1000)).lock().expect("free");
        let theirs = two.mutex("x").expect("a name");
        let started = Instant::now();
        let mut sum = 0_u64;
        // No call of ours in here, and no wait: a thread that is busy.
        while started.elapsed() < ms(2200) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        assert_eq!(guard.standing(), Standing::Held);
        assert!(theirs.try_lock().expect("an answer").is_none(), "the lease was not renewed");
        guard.check().expect("held");
        guard.release().expect("held");
        assert!(theirs.lock_for(ms(5000)).expect("an answer").is_some());
    })
    .await;
}

async fn a_loss_while_computing_is_told(ground: Ground) {
    with_two(&ground, |one, two| {
        let mut guard = one.mutex("x").expect("a name").lease(ms(600)).lock().expect("free");
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        guard.on_lost(move |why| {
            assert_eq!(why, Loss::Gone);
            flag.store(true, Ordering::Release);
        });
        assert_eq!(guard.lost_for(ms(1)).expect("an answer"), None);
        assert_eq!(two.break_claims(Family::Lock, "x").expect("broken").len(), 1);
        // The work looks at its flag and nothing else.
        until("the loss is told", || stop.load(Ordering::Acquire));
        assert!(matches!(guard.check(), Err(Error::Lost { why: Loss::Gone, .. })));
        assert_eq!(guard.lost_for(ms(5000)).expect("an answer"), Some(Loss::Gone));
        assert!(matches!(guard.release(), Err(Error::Lost { .. })));
        // Not because of a release, and not after one.
        let mut guard = one.mutex("x").expect("a name").lock_for(ms(5000)).expect("granted").expect("free");
        let (told, watched) = std::sync::mpsc::channel();
        guard.on_lost(move |_| told.send(()).expect("somebody listens"));
        guard.release().expect("held");
        let end = watched.recv_timeout(ms(5000));
        assert_eq!(
            end,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected),
            "what waits ends with the guard"
        );
    })
    .await;
}

async fn a_dropped_guard_is_released(ground: Ground) {
    with_two(&ground, |one, two| {
        let guard = one.mutex("x").expect("a name").lock().expect("free");
        drop(guard);
        // Long before the lease of 30 seconds is over, and although the client lives on.
        let theirs =
            two.mutex("x").expect("a name").lock_for(ms(5000)).expect("an answer").expect("released");
        theirs.release().expect("held");
        let guards = one.multi(["a", "b"]).expect("names").lock().expect("free");
        drop(guards);
        assert!(two.multi(["b", "a"]).expect("names").lock_for(ms(5000)).expect("an answer").is_some());
    })
    .await;
}

async fn the_last_that_is_dropped_gives_everything_back(ground: Ground) {
    with_two(&ground, |one, two| {
        let mutex = one.mutex("x").expect("a name");
        let guard = mutex.lock().expect("free");
        let forgotten = one.mutex("y").expect("a name").lock().expect("free");
        // Whoever forgets a guard keeps the client, unless it is closed.
        std::mem::forget(forgotten);
        one.close().expect("closed");
        assert_eq!(guard.standing(), Standing::Lost);
        assert!(matches!(mutex.try_lock(), Err(Error::Invalid { .. })));
        for name in ["x", "y"] {
            assert!(two.mutex(name).expect("a name").try_lock().expect("an answer").is_some(), "{name}");
        }
        drop((one, mutex, guard));

        let guard = two.mutex("x").expect("a name").lock_for(ms(5000)).expect("an answer").expect("free");
        drop(two);
        // The guard keeps what it needs.
        assert_eq!(guard.standing(), Standing::Held);
        drop(guard);
    })
    .await;
    // No waiting: the drop has waited.
    with_two(&ground, |one, _| {
        assert!(one.mutex("x").expect("a name").try_lock().expect("an answer").is_some());
    })
    .await;
}

/// Asks for what somebody else has, with a limit. Servers that do not answer within the limit are
/// asked again.
#[track_caller]
fn refused_within<T>(limit: Duration, mut ask: impl FnMut() -> leasehold::Result<Option<T>>) {
    for _ in 0..5 {
        let started = Instant::now();
        match ask() {
            Ok(None) => {
                let took = started.elapsed();
                assert!((limit..limit + ms(2000)).contains(&took), "took {took:?}");
                return;
            }
            Ok(Some(_)) => panic!("two hold the name"),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    panic!("no answer in time, again and again");
}

async fn time_limits_hold(ground: Ground) {
    with_two(&ground, |one, two| {
        let held = one.rwlock("x").expect("a name").write().expect("free");
        let limit = ms(400);
        refused_within(limit, || two.mutex("x").expect("a name").lock_for(limit));
        refused_within(limit, || two.rwlock("x").expect("a name").read_for(limit));
        refused_within(limit, || two.rwlock("x").expect("a name").write_for(limit));
        assert!(two.rwlock("x").expect("a name").try_read().expect("an answer").is_none());
        refused_within(limit, || two.multi(["x", "z"]).expect("names").lock_for(limit));
        held.release().expect("held");
    })
    .await;
}

async fn work_runs_under_a_mutex(ground: Ground) {
    with_two(&ground, |one, two| {
        let (mutex, theirs) = (one.mutex("x").expect("a name"), two.mutex("x").expect("a name"));
        let here = std::thread::current().id();
        let token = mutex.run(|token| {
            assert_eq!(std::thread::current().id(), here);
            // Blocking calls can be made inside it.
            assert!(theirs.try_lock().expect("an answer").is_none());
            token
        });
        assert!(token.expect("held").get() > 0);
        // Work that was done without protection is an error.
        let lost = mutex.run(|_| one.break_claims(Family::Lock, "x").expect("broken"));
        assert!(matches!(lost, Err(Error::Lost { why: Loss::Gone, .. })), "{lost:?}");
        let failed: Result<u8, &str> = mutex.run(|_| Err("the work's own")).expect("held");
        assert_eq!(failed, Err("the work's own"));
    })
    .await;
}

async fn every_lock_is_there(ground: Ground) {
    with_two(&ground, |one, two| {
        let guarantees = one.guarantees();
        let lock = one.namespace("shop").rwlock("catalogue").expect("a name").label("reader");
        assert_eq!(lock.name(), "shop/catalogue");
        let reader = lock.read().expect("free");
        assert!(two.rwlock("shop/catalogue").expect("a name").try_write().expect("an answer").is_none());
        let reader = if guarantees.upgrades {
            let writer = reader.upgrade().expect("the only reader");
            let writer = writer.downgrade().expect("held").try_upgrade().expect("held").expect("alone");
            writer.downgrade().expect("held")
        } else {
            reader.upgrade().expect_err("refused").guard
        };
        let view = two.look(Family::Lock, "shop/catalogue").expect("a view");
        assert_eq!(view.claims[0].claim.holder.label, "reader");
        assert_eq!(two.list(Family::Lock, None, 10).expect("a page").len(), 1);
        reader.release().expect("held");

        let both =
            one.multi(vec![String::from("a"), String::from("b")]).expect("names").lock().expect("free");
        assert!(both.is_held() && both.token("a").is_some() && both.names().count() == 2);
        assert_eq!(both.lost_for(ms(1)).expect("an answer"), None);
        both.release().expect("held");

        if guarantees.counts {
            let permits = one.semaphore("printers", 3).expect("a name");
            let two_of_them = permits.acquire_many(2).expect("free");
            let last = permits.acquire_for(ms(1000)).expect("an answer").expect("free");
            assert!(permits.try_acquire().expect("an answer").is_none());
            assert!(permits.acquire_many_for(2, ms(20)).expect("an answer").is_none());
            assert_eq!(permits.available().expect("an answer"), 0);
            permits.resize(4).expect("resized");
            permits.acquire().expect("the fourth").release().expect("held");
            drop((two_of_them, last));
        }
        if guarantees.cells {
            let latch = one.latch("ready", 2).expect("a name");
            assert_eq!(latch.count_down().expect("counted"), 1);
            assert!(!latch.wait_for(ms(20)).expect("an answer"));
            assert_eq!(two.latch("ready", 2).expect("a name").count_down().expect("counted"), 0);
            latch.wait().expect("open");
            assert_eq!(latch.left().expect("an answer"), 0);
        }
    })
    .await;
}

async fn an_election_is_led_on_the_callers_thread(ground: Ground) {
    with_two(&ground, |one, two| {
        if !one.guarantees().elects {
            assert!(matches!(one.election("e"), Err(Error::Unsupported { .. })));
            return;
        }
        let (ours, theirs) = (one.election("e").expect("a name"), two.election("e").expect("a name"));
        let mut observer = theirs.observe().expect("an observer");
        assert_eq!(observer.next().expect("an answer"), Observed::Vacant);
        assert_eq!(observer.next_for(ms(20)).expect("an answer"), None);
        let here = std::thread::current().id();
        let mut terms = 0;
        let last = ours.lead("first", |term| {
            assert_eq!(std::thread::current().id(), here);
            term.check().expect("just elected");
            assert_eq!(theirs.leader().expect("an answer").expect("a leader").token, term.token());
            assert!(theirs.try_campaign("other").expect("an answer").is_none());
            term.proclaim("changed").expect("held");
            terms += 1;
            if terms == 2 { ControlFlow::Break(term.token()) } else { ControlFlow::Continue(()) }
        });
        assert!(last.expect("led").get() > 0);
        let mut seen = Vec::new();
        while let Some(observed) = observer.next_for(ms(500)).expect("an answer") {
            seen.push(match observed {
                Observed::Leader(leader) => String::from_utf8(leader.value).expect("text"),
                Observed::Vacant => "-".into(),
                other => format!("{other:?}"),
            });
        }
        assert_eq!(seen, ["first", "changed", "-", "first", "changed", "-"]);
        let candidate = ours.campaign_for("x", ms(5000)).expect("an answer").expect("nobody leads");
        assert_eq!((candidate.name(), candidate.standing()), ("e", Standing::Held));
        candidate.resign().expect("held");
    })
    .await;
}

async fn events_end_with_the_client(ground: Ground) {
    with_two(&ground, |one, _| {
        let mut events = one.events();
        assert!(events.next_for(ms(20)).expect("an answer").is_none());
        let listening =
            std::thread::spawn(move || events.map(|event| format!("{event:?}")).collect::<Vec<_>>());
        one.mutex("x").expect("a name").lock().expect("free").release().expect("held");
        drop(one);
        until("the events end", || listening.is_finished());
        let told = listening.join().expect("no panic");
        assert!(
            told.len() == 2 && told[0].starts_with("Granted") && told[1].starts_with("Released"),
            "{told:?}"
        );
    })
    .await;
}

async fn inside_a_task_it_is_refused(ground: Ground) {
    fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) {
        let error = answer.expect_err("it would block the runtime").to_string();
        assert!(error.contains("async task") && error.contains("spawn_blocking"), "{error}");
    }
    refused(connect(ground.url()));
    let (one, two) = with_two(&ground, |one, two| (one, two)).await;
    let mutex = one.mutex("x").expect("a name");
    refused(mutex.lock());
    refused(mutex.lock_for(ms(10)));
    refused(one.look(Family::Lock, "x"));
    refused(one.close());
    assert!(one.events().next().is_none());
    let (guard, reader) = plainly({
        let (mutex, lock) = (mutex.clone(), one.rwlock("y").expect("a name"));
        move || (mutex.lock().expect("free"), lock.read().expect("free"))
    })
    .await;
    // What needs no waiting can be asked anywhere.
    guard.check().expect("held");
    refused(guard.lost_for(ms(10)));
    let refused_upgrade = reader.upgrade().expect_err("it would block the runtime");
    assert_eq!(refused_upgrade.guard.standing(), Standing::Held, "the guard comes back");
    refused(guard.release());
    drop(refused_upgrade);
    // The refused release goes on in the background, and so does the end of the client.
    drop((one, mutex));
    plainly(move || {
        for name in ["x", "y"] {
            let guard = two.mutex(name).expect("a name").lock_for(ms(5000)).expect("an answer");
            guard.expect("released in the background").release().expect("held");
        }
    })
    .await;
}

async fn a_thread_of_a_runtime_that_may_block_may_call(ground: Ground) {
    let url = ground.url().to_owned();
    let client = tokio::task::spawn_blocking(move || {
        let client = connect(&url).expect("a client");
        client.mutex("x").expect("a name").lock().expect("free").release().expect("held");
        client
    });
    let client = client.await.expect("no panic");
    // Needs a runtime with other threads.
    if !ground.paused_time() {
        let task = tokio::spawn(async move {
            tokio::task::block_in_place(|| {
                client.mutex("x").expect("a name").lock().expect("free").release().expect("held");
                client
            })
        });
        drop(task.await.expect("no panic"));
    }
}

async fn a_forked_child_is_told_to_connect(ground: Ground) {
    // Another process does not know of paused time.
    if ground.paused_time() {
        tokio::time::resume();
    }
    let mut child = Child::start(ground.url()).await;
    let answer = child.ask("fork-blocking x").await;
    assert!(answer.starts_with("refused") && answer.contains("made before a fork"), "{answer}");
    assert!(answer.contains("must connect for itself"), "{answer}");
    assert_eq!(child.line().await, "dropped", "the copy of a fork can be dropped");
    assert!(child.line().await.starts_with("held "), "the parent goes on");
}
