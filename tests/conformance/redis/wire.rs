//! A wire that is cut, reset, stalled and slow.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use leasehold::{Clock as _, Error, Loss, Standing, SystemClock};
use tokio::time::Instant;

use super::*;
use crate::bench::{Ground, not_within};
use crate::history::{self, Rules, Section};
use crate::servers::Proxy;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "server",
        [
            a_holder_beyond_a_cut_is_lost_before_another_holds,
            an_answer_that_got_lost_is_asked_for_again,
            a_grant_that_nobody_heard_of_is_given_back,
            a_release_whose_answer_got_lost_is_one,
            a_request_that_was_held_up_makes_no_ghost,
            who_ends_while_it_takes_a_lock_leaves_no_counter_for_ever,
            a_message_that_got_lost_is_not_waited_for,
            a_slow_wire_is_slow_and_no_more,
            resets_at_any_instant_leave_nothing_behind,
            any_faults_at_any_time_keep_the_promises,
        ]
    )
    .cases
}

fn url(proxy: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", proxy.port())
}

async fn a_holder_beyond_a_cut_is_lost_before_another_holds(mut ground: Ground) {
    let proxy = Proxy::start(ground.server().port());
    let (far, near) = (connect(&url(&proxy)).await, ground.client().await);
    for cut in [true, false] {
        let held = lock(&far, ms(900)).await;
        let waiting = wait(&near, ms(9000)).await;
        if cut {
            proxy.cut();
        } else {
            proxy.stall();
        }
        let next = granted(waiting).await;
        assert_eq!(held.standing(), Standing::Lost);
        assert!(next.token() > held.token());
        proxy.pass();
        let error = held.release().await.expect_err("it was lost");
        assert!(matches!(error, Error::Lost { why: Loss::Deadline, .. }), "{error}");
        next.release().await.expect("held");
    }
    leave(ground.server(), [far, near]).await;
}

async fn an_answer_that_got_lost_is_asked_for_again(mut ground: Ground) {
    let proxy = Proxy::start(ground.server().port());
    let (far, near) = (connect(&url(&proxy)).await, ground.client().await);
    for simple in [true, false] {
        let held = if simple { None } else { Some(lock(&near, ms(9000)).await) };
        let view = async || near.look(Family::Lock, "x").await.expect("a view");
        let calls = || {
            let stats = ground.server().command(&["INFO", "commandstats"]).text();
            stats
                .lines()
                .filter(|line| line.contains("_evalsha:") || line.contains("_exec:"))
                .collect::<String>()
        };
        let before = calls();
        proxy.stall_replies();
        let mutex = mutex(&far, ms(9000));
        let asking = tokio::spawn(async move { mutex.lock().await.expect("granted") });
        until("it has arrived", async || calls() != before).await;
        // With the connection, the answer is gone for good.
        proxy.reset();
        proxy.pass();
        if let Some(held) = held {
            held.release().await.expect("held");
        }
        let guard = granted(asking).await;
        assert_eq!(view().await.claims.len(), 1, "granted once");
        assert!(guard.token().get() > 0);
        guard.release().await.expect("held");
        assert!(view().await.claims.is_empty());
    }
    leave(ground.server(), [far, near]).await;
}

async fn a_grant_that_nobody_heard_of_is_given_back(mut ground: Ground) {
    let proxy = Proxy::start(ground.server().port());
    let (far, near) = (impatient(&url(&proxy)).await, ground.client().await);
    for reset in [false, true] {
        proxy.stall_replies();
        let error = mutex(&far, ms(30_000)).try_lock().await.expect_err("no answer");
        assert!(error.is_retryable(), "{error:?}");
        if reset {
            proxy.reset();
        }
        proxy.pass();
        free_within(&near, ms(3000)).await.release().await.expect("held");
    }
    leave(ground.server(), [far, near]).await;
}

async fn a_release_whose_answer_got_lost_is_one(mut ground: Ground) {
    let proxy = Proxy::start(ground.server().port());
    let (far, near) = (connect(&url(&proxy)).await, ground.client().await);
    let lock_all = async |count: usize| {
        let locks = (0..count).map(|number| far.mutex(format!("x{number}")).expect("a mutex"));
        join_all(locks.map(|mutex| async move { mutex.lock().await.expect("granted") })).await
    };
    // One goes alone; many go together.
    for count in [1, 8] {
        // Whoever has had it before takes it the short way, and gives it back so if that is soon.
        // The server knows the script.
        for _ in 0..3 {
            join_all(lock_all(count).await.into_iter().map(Guard::release)).await;
        }
        let guards = lock_all(count).await;
        proxy.stall_replies();
        let released = tokio::spawn(join_all(guards.into_iter().map(Guard::release)));
        until("all are free", async || near.list(Family::Lock, None, 100).await.expect("a list").is_empty())
            .await;
        // With the connection, the answers are gone for good.
        proxy.reset();
        proxy.pass();
        for released in released.await.expect("no panic") {
            released.expect("it was held until it was given back");
        }
    }
    leave(ground.server(), [far, near]).await;
}

async fn a_request_that_was_held_up_makes_no_ghost(mut ground: Ground) {
    let proxy = Proxy::start(ground.server().port());
    let far = connect_with(&url(&proxy), Options::new().call_limit(ms(60_000))).await;
    let near = ground.client().await;
    let mut admin = ground.server().connect();
    for _ in 0..2 {
        lock(&far, ms(30_000)).await.release().await.expect("held");
    }
    // Everything that is on this connection arrives after the client has given it up, and even
    // after what the client says on the next one.
    proxy.stall_open();
    let mutex = mutex(&far, ms(30_000));
    let asking = tokio::spawn(async move { mutex.lock().await.expect("granted") });
    let connections = |admin: &mut Connection| number(admin, "stats", "total_connections_received");
    let before = connections(&mut admin);
    until_long("the client connects again", async || connections(&mut admin) > before).await;
    // Asked for again, on the next connection, without waiting for an answer that will never come.
    let guard = granted(asking).await;
    guard.release().await.expect("held");
    // The end of the old connection comes after what was said on it; then there are ours, theirs
    // and the admin's.
    proxy.pass();
    until("all has arrived", async || number(&mut admin, "clients", "connected_clients") == 3).await;
    free_within(&near, ms(1500)).await.release().await.expect("held");
    leave(ground.server(), [far, near]).await;
}

/// A number that the server says of itself.
fn number(connection: &mut Connection, section: &str, name: &str) -> u64 {
    let info = connection.command(&["INFO", section]).text();
    let number = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    number.and_then(|number| number.trim().parse().ok()).expect("a number")
}

/// A connection that does not answer is given up after about eight seconds.
async fn until_long(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let limit = Instant::now() + ms(20_000);
    while !so().await {
        assert!(Instant::now() < limit, "waited too long until {what}");
        tokio::time::sleep(ms(50)).await;
    }
}

async fn who_ends_while_it_takes_a_lock_leaves_no_counter_for_ever(mut ground: Ground) {
    let proxy = Proxy::start(ground.server().port());
    let (far, near) = (connect(&url(&proxy)).await, ground.client().await);
    let mut admin = ground.server().connect();
    // One goes alone, many go together; with others since we last had it, or without; free, or a
    // stranger's.
    for (count, others, held) in [(1, false, false), (1, true, false), (1, false, true), (8, false, false)] {
        let all = |client: &Client| {
            let locks = (0..count).map(|number| client.mutex(format!("x{number}")).expect("a mutex"));
            join_all(locks.map(|mutex| async move { mutex.try_lock().await }).collect::<Vec<_>>())
        };
        for client in if others { [&far, &near, &far] } else { [&far; 3] } {
            for guard in soon("the locks", all(client)).await {
                guard.expect("an answer").expect("free").release().await.expect("held");
            }
        }
        admin.command(&["FLUSHALL"]).ok();
        if held {
            admin.command(&["SET", "lock:x0", "a stranger", "PX", "60000"]).ok();
        }
        // It does what it is asked, and the client never hears of it.
        proxy.stall_replies();
        let asking = tokio::spawn(all(&far));
        for number in 0..count {
            let counter = format!("{{lock:x{number}}}:lock:token");
            until("it has counted", async || admin.command(&["EXISTS", &counter]).int() == 1).await;
        }
        assert_eq!(keys_that_stay(&mut admin), [""; 0], "{count} at once, others {others}, held {held}");
        asking.abort();
        // Until it has left its place in the process.
        asking.await.expect_err("given up");
        proxy.reset();
        proxy.pass();
        admin.command(&["DEL", "lock:x0"]).int();
    }
    leave(ground.server(), [far, near]).await;
}

async fn a_message_that_got_lost_is_not_waited_for(mut ground: Ground) {
    let proxy = Proxy::start(ground.server().port());
    let (far, near) = (connect(&url(&proxy)).await, ground.client().await);
    let held = lock(&near, ms(9000)).await;
    let waiting = wait(&far, ms(9000)).await;
    // Held back with the connection that is reset, so that it never comes.
    proxy.stall_replies();
    held.release().await.expect("held");
    let released = Instant::now();
    until("it is granted", async || near.look(Family::Lock, "x").await.expect("a view").claims.len() == 1)
        .await;
    proxy.reset();
    proxy.pass();
    let guard = granted(waiting).await;
    took("the next one is in although the message was lost", released.elapsed());
    assert!(released.elapsed() < ms(1600), "in after {:?}", released.elapsed());
    guard.release().await.expect("held");
    leave(ground.server(), [far, near]).await;
}

async fn a_slow_wire_is_slow_and_no_more(mut ground: Ground) {
    let proxy = Proxy::start(ground.server().port());
    let (far, near) = (connect(&url(&proxy)).await, ground.client().await);
    proxy.delay(ms(100));
    let held = lock(&far, ms(3000)).await;
    assert!(held.remaining() < ms(2800), "counted from before the request");
    let waiting = wait(&near, ms(3000)).await;
    not_within(ms(4000), "the lease was lost", held.lost()).await;
    held.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");
    proxy.pass();
    leave(ground.server(), [far, near]).await;
}

/// Random enough, and the same again from the same seed.
struct Dice(u64);

impl Dice {
    /// From the environment, or from the time; said aloud, so that what was found can be found
    /// again.
    fn new(case: &str) -> Dice {
        let given = std::env::var("LEASEHOLD_SEED").ok().and_then(|seed| seed.parse().ok());
        let time = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
        let seed = given.unwrap_or_else(time);
        eprintln!("{case}: LEASEHOLD_SEED={seed}");
        Dice(seed | 1)
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    fn millis(&mut self, below: u64) -> Duration {
        Duration::from_micros(self.roll(below * 1000))
    }
}

async fn resets_at_any_instant_leave_nothing_behind(mut ground: Ground) {
    let mut dice = Dice::new("resets_at_any_instant_leave_nothing_behind");
    let proxy = Arc::new(Proxy::start(ground.server().port()));
    let (far, near) = (connect(&url(&proxy)).await, ground.client().await);
    let stop = Arc::new(AtomicBool::new(false));
    let resetting = std::thread::spawn({
        let (stop, proxy) = (Arc::clone(&stop), Arc::clone(&proxy));
        move || {
            let mut resets = 0;
            while !stop.load(Ordering::Acquire) {
                // About as long as a connection takes to be made and used a few times.
                std::thread::sleep(dice.millis(40));
                proxy.reset();
                resets += 1;
            }
            resets
        }
    });
    let (mut taken, mut last) = (0, 0);
    let start = Instant::now();
    // On a busy machine it takes longer until there were enough of both.
    while start.elapsed() < ms(4000) || taken <= 50 {
        assert!(start.elapsed() < ms(40_000), "{taken} sections");
        match try_lock(&far).await {
            Ok(Some(guard)) => {
                assert!(guard.token().get() > last, "tokens went back");
                last = guard.token().get();
                taken += 1;
                match guard.release().await {
                    Ok(()) | Err(Error::Unavailable { .. }) => {}
                    // Given back by a request whose answer was lost, and then once more.
                    Err(Error::Lost { why: Loss::Gone, .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Ok(None) => {}
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
    }
    stop.store(true, Ordering::Release);
    let resets = resetting.join().expect("no panic");
    took(&format!("{resets} resets and {taken} sections"), start.elapsed());
    assert!(resets > 50, "{resets} resets");
    free_within(&near, ms(3000)).await.release().await.expect("held");
    leave(ground.server(), [far, near]).await;
}

/// What one client does while its wire is faulty.
async fn sections(client: Client, worker: u64, stop: Arc<AtomicBool>, seen: Arc<StdMutex<Vec<Section>>>) {
    let mutex = client.mutex("x").expect("a name").lease(ms(1000));
    while !stop.load(Ordering::Acquire) {
        let asked = SystemClock.now().as_micros();
        let guard = match mutex.lock_for(ms(500)).await {
            Ok(Some(guard)) => guard,
            Ok(None) => continue,
            Err(error) => {
                assert!(error.is_retryable(), "{error:?}");
                continue;
            }
        };
        let granted = SystemClock.now().as_micros();
        tokio::task::yield_now().await;
        // What it holds for longer than its deadline it does not believe to hold, and a guard that
        // was handed over at its deadline it never did.
        let (now, deadline) = (SystemClock.now(), guard.deadline());
        if deadline.as_micros() > granted {
            let (released, token) = (now.min(deadline).as_micros(), guard.token().get());
            let section = Section { worker, asked, granted, released, token, weight: 1 };
            seen.lock().expect("no panic").push(section);
        }
        guard.release().await.map_or_else(drop, drop);
    }
}

/// One fault, and its end. Some are followed by a pause in which a busy machine can make a
/// connection, and use it.
fn hurt(proxy: &Proxy, dice: &mut Dice) {
    match dice.roll(8) {
        0 | 1 => proxy.reset(),
        2 => proxy.cut(),
        3 => proxy.stall_requests(),
        4 => proxy.stall_replies(),
        5 => proxy.stall_open(),
        6 => proxy.delay(dice.millis(5)),
        _ => {
            proxy.stall_replies();
            std::thread::sleep(dice.millis(5));
            proxy.reset();
        }
    }
    let long = dice.roll(40) == 0;
    std::thread::sleep(dice.millis(if long { 1500 } else { 10 }));
    proxy.pass();
    let pause = dice.roll(20) == 0;
    std::thread::sleep(dice.millis(if pause { 600 } else { 30 }));
}

async fn any_faults_at_any_time_keep_the_promises(mut ground: Ground) {
    const CLIENTS: u64 = 8;
    let mut dice = Dice::new("any_faults_at_any_time_keep_the_promises");
    let near = ground.client().await;
    let seen = Arc::new(StdMutex::new(Vec::new()));
    let faults = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let (mut clients, mut workers, mut hurting) = (Vec::new(), Vec::new(), Vec::new());
    for worker in 0..CLIENTS {
        let proxy = Proxy::start(ground.server().port());
        let client = connect_with(&url(&proxy), Options::new().call_limit(ms(600))).await;
        for _ in 0..2 {
            workers.push(tokio::spawn(sections(
                client.clone(),
                worker,
                Arc::clone(&stop),
                Arc::clone(&seen),
            )));
        }
        clients.push(client);
        let (stop, faults, mut dice) =
            (Arc::clone(&stop), Arc::clone(&faults), Dice(dice.roll(u64::MAX) | 1));
        hurting.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Acquire) {
                hurt(&proxy, &mut dice);
                faults.fetch_add(1, Ordering::AcqRel);
            }
            proxy
        }));
    }
    // On a busy machine it takes longer until there was enough of all.
    let enough = || {
        let seen = seen.lock().expect("no panic");
        let active: BTreeSet<u64> = seen.iter().map(|section| section.worker).collect();
        (faults.load(Ordering::Acquire), seen.len(), active.len())
    };
    loop {
        tokio::time::sleep(ms(100)).await;
        let (faults, sections, active) = enough();
        if start.elapsed() > ms(10_000) && faults > 500 && sections > 100 && active == CLIENTS as usize {
            break;
        }
        let told = format!("{faults} faults, {sections} sections of {active} clients");
        assert!(start.elapsed() < ms(90_000), "{told}");
    }
    stop.store(true, Ordering::Release);
    for worker in workers {
        worker.await.expect("no panic");
    }
    let proxies: Vec<Proxy> = hurting.into_iter().map(|hurting| hurting.join().expect("no panic")).collect();
    let over = Instant::now();
    // Whoever was handed the name and did not hear of it has three seconds.
    let guard = free_within(&near, ms(8000)).await;
    took("the name is free after all that", over.elapsed());
    let sections = seen.lock().expect("no panic").clone();
    let summary = history::check(&sections, Rules { capacity: 1, rising_beyond: 0, fifo_beyond: None });
    let summary = summary.unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(guard.token().get() > sections.iter().map(|section| section.token).max().expect("some"));
    guard.release().await.expect("held");
    took(&format!("{} faults, {summary:?}", faults.load(Ordering::Acquire)), start.elapsed());
    for client in clients {
        match soon("the end", client.close()).await {
            // The last fault may have been just now: then it says what was not heard.
            Ok(()) | Err(Error::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    leave(ground.server(), [near]).await;
    drop(proxies);
}
