//! A server that dies, comes back, or forgets.

use leasehold::lock::Observed;
use leasehold::{Error, Event, Loss, Standing};
use tokio::time::Instant;

use super::*;
use crate::bench::{Ground, not_within};
use crate::child::Child;
use crate::servers::{Proxy, SetBack};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "server",
        [
            one_that_forgot_everything_tells_its_holders,
            one_that_kept_its_data_changes_nothing,
            one_that_lost_the_last_of_its_data_gives_no_token_twice,
            one_that_is_gone_costs_the_lease_and_no_more,
            one_that_is_gone_is_named_and_used_again_when_it_is_back,
            one_that_is_gone_and_back_is_an_event,
            one_that_is_gone_leaves_every_limit_kept,
            one_that_is_gone_leaves_no_pile_behind,
            one_that_forgot_everything_shows_observers_the_next_leader,
            a_killed_holder_is_followed_soon_after_its_lease,
            a_lock_delay_outlives_the_holder,
            a_clock_that_is_set_back_keeps_nobody_alive,
        ]
    )
    .cases
}

async fn one_that_forgot_everything_tells_its_holders(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let server = ground.server();
    let held = lock(&one, ms(9000)).await;
    let waiting = wait(&two, ms(9000)).await;
    server.restart_empty();
    let back = Instant::now();
    assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
    took("a loss of data is told, after the restart", back.elapsed());
    assert!(back.elapsed() < ms(2000), "told after {:?}", back.elapsed());
    let next = granted(waiting).await;
    took("the next one is in, after the restart", back.elapsed());
    assert!(back.elapsed() < ms(2500), "the next one was in after {:?}", back.elapsed());
    assert!(next.token() > held.token(), "tokens rise over the loss");
    let error = held.release().await.expect_err("it was lost");
    assert!(matches!(error, Error::Lost { why: Loss::Gone, .. }), "{error}");
    assert_eq!(next.standing(), Standing::Held);
    next.release().await.expect("the other's release has not touched it");
    leave(server, [one, two]).await;
}

async fn one_that_kept_its_data_changes_nothing(_: Ground) {
    let server = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = lock(&one, ms(6000)).await;
    let token = held.token();
    let waiting = wait(&two, ms(6000)).await;
    server.restart();
    let back = Instant::now();
    // Longer than the lease: it was renewed since.
    not_within(ms(6500), "the holder was lost", held.lost()).await;
    assert_eq!((held.standing(), held.token()), (Standing::Held, token));
    assert!(!waiting.is_finished());
    held.release().await.expect("held");
    let next = granted(waiting).await;
    took("a server with its data is back", back.elapsed());
    assert!(next.token() > token);
    next.release().await.expect("held");
    leave(&server, [one, two]).await;
}

async fn one_that_lost_the_last_of_its_data_gives_no_token_twice(_: Ground) {
    let server = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    let log = server.dir().join("appendonlydir/appendonly.aof.1.incr.aof");
    // What was written last is cut off: as if it had been on its way to the disk, or to the replica
    // that took over.
    let (mut kept, mut last) = (0, None);
    for round in 0..10 {
        let held = lock(&one, ms(9000)).await;
        assert!(last.is_none_or(|last| held.token() > last));
        last = Some(held.token());
        held.release().await.expect("held");
        if round == 2 {
            kept = std::fs::metadata(&log).expect("a log").len();
        }
    }
    server.kill();
    std::fs::File::options().write(true).open(&log).and_then(|file| file.set_len(kept)).expect("a log");
    server.restart();
    // The first one has used the name before, and counts on its counter.
    for client in [&one, &two] {
        until("it is back", async || client.look(Family::Lock, "x").await.is_ok()).await;
        let held = lock(client, ms(9000)).await;
        assert!(Some(held.token()) > last, "{} after {last:?}", held.token());
        last = Some(held.token());
        held.release().await.expect("held");
    }
    leave(&server, [one, two]).await;
}

async fn one_that_is_gone_costs_the_lease_and_no_more(mut ground: Ground) {
    let client = ground.client().await;
    let server = ground.server();
    let held = lock(&client, ms(2400)).await;
    server.kill();
    assert_eq!(soon("the doubt", held.endangered()).await, Standing::InDoubt);
    let deadline = held.deadline();
    let left = held.remaining();
    assert_eq!(soon("the loss", held.lost()).await, Loss::Deadline);
    assert_eq!(held.deadline(), deadline, "nobody can have renewed it");
    assert!(left < ms(2400) && held.remaining().is_zero());
    let error = soon("a release", held.release()).await.expect_err("it was lost");
    assert!(matches!(error, Error::Lost { why: Loss::Deadline, .. }), "{error}");
}

async fn one_that_is_gone_is_named_and_used_again_when_it_is_back(mut ground: Ground) {
    let client = ground.client_with(Options::new().call_limit(ms(700))).await;
    let patient = ground.client_with(Options::new().call_limit(ms(20_000))).await;
    let (server, culprit) = (ground.server(), ground.culprit());
    server.kill();
    let gone = Instant::now();
    // Somebody who waits for longer than the outage does not even notice.
    let mutex = patient.mutex("y").expect("a name");
    let through = tokio::spawn(async move { mutex.lock().await.map(drop) });
    while gone.elapsed() < ms(4000) {
        let asked = Instant::now();
        let error = try_lock(&client).await.expect_err("nobody answers");
        assert!(error.is_retryable() && error.to_string().contains(&culprit), "{error}");
        assert!(asked.elapsed() < ms(1500), "said after {:?}", asked.elapsed());
        let asked = Instant::now();
        let error = soon("an error", client.look(Family::Lock, "x")).await.expect_err("nobody answers");
        assert!(error.is_retryable() && error.to_string().contains(&culprit), "{error}");
        assert!(asked.elapsed() < ms(1500), "said after {:?}", asked.elapsed());
    }
    server.restart();
    let back = Instant::now();
    until("it is used again", async || try_lock(&client).await.is_ok_and(|guard| guard.is_some())).await;
    took("connected again after an outage of 4 s", back.elapsed());
    assert!(back.elapsed() < ms(3600), "connected again after {:?}", back.elapsed());
    soon("the patient one", through).await.expect("no panic").expect("granted");
    leave(server, [client, patient]).await;
}

async fn one_that_is_gone_and_back_is_an_event(mut ground: Ground) {
    let client = ground.client().await;
    let server = ground.server();
    let mut events = client.events();
    let address = format!("127.0.0.1:{}", server.port());
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int();
    let lost = soon("the loss of the connection", events.next()).await;
    assert!(matches!(&lost, Some(Event::Disconnected { server, .. }) if *server == address), "{lost:?}");
    let found = soon("the connection", events.next()).await;
    assert!(matches!(&found, Some(Event::Reconnected { server }) if *server == address), "{found:?}");
    // What the client ends itself is no loss.
    client.close().await.expect("closed");
    drop(client);
    assert!(soon("the end", events.next()).await.is_none());
}

async fn one_that_is_gone_leaves_every_limit_kept(mut ground: Ground) {
    let client = ground.client().await;
    let call_limit = ms(5000);
    let server = ground.server();
    let (released, dropped) = (lock(&client, ms(30_000)).await, {
        let other = client.mutex("y").expect("a name").lease(ms(30_000));
        soon("the lock", other.lock()).await.expect("granted")
    });
    server.kill();
    let begun = Instant::now();
    let error = mutex(&client, ms(30_000)).lock_for(ms(1000)).await.map(|guard| guard.is_some());
    took("lock_for(1s), server away", begun.elapsed());
    // The name is held in this process, so its own line says no without asking.
    assert!(!error.expect("an answer from the line"), "held");
    let other = client.mutex("z").expect("a name");
    let error = other.lock_for(ms(1000)).await.expect_err("nobody answers");
    took("lock_for(1s) twice, server away", begun.elapsed());
    assert!(error.is_retryable() && begun.elapsed() < ms(3000), "{error} after {:?}", begun.elapsed());
    let begun = Instant::now();
    let error = released.release().await.expect_err("nobody hears");
    took("release, server away", begun.elapsed());
    assert!(error.is_retryable() && begun.elapsed() < call_limit + ms(1000), "after {:?}", begun.elapsed());
    drop(dropped);
    let begun = Instant::now();
    let error = client.close().await.expect_err("nobody hears");
    took("close after a dropped guard, server away", begun.elapsed());
    assert!(begun.elapsed() < call_limit + ms(1000), "after {:?}", begun.elapsed());
    let said = error.to_string();
    assert!(said.contains("`x`") && said.contains("`y`") && said.contains("refused"), "{said}");
}

/// A thousand callers a second, each of which gives up soon: nothing is kept for them, and when the
/// server is back it serves those who call then.
async fn one_that_is_gone_leaves_no_pile_behind(mut ground: Ground) {
    let client = ground.client().await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let server = ground.server();
    server.kill();
    until("it is known to be gone", async || {
        let answer = tokio::time::timeout(ms(20), try_lock(&client)).await;
        answer.is_err()
    })
    .await;
    let before = metrics.num_alive_tasks();
    let mut callers = tokio::task::JoinSet::new();
    let begun = Instant::now();
    for number in 0..3000_u32 {
        let mutex = client.mutex(format!("n{number}")).expect("a name");
        callers.spawn(async move { tokio::time::timeout(ms(100), mutex.try_lock()).await.is_err() });
        while callers.try_join_next().is_some() {}
        tokio::time::sleep_until(begun + Duration::from_millis(number.into())).await;
    }
    while callers.join_next().await.is_some() {}
    let left = metrics.num_alive_tasks().saturating_sub(before);
    took(&format!("{left} tasks are left of 3000 callers"), begun.elapsed());
    assert!(left < 100, "{left} tasks are left");
    server.restart();
    let back = Instant::now();
    let guard = soon("a caller", client.mutex("x").expect("a name").lock()).await.expect("granted");
    took("a caller is served again", back.elapsed());
    guard.release().await.expect("held");
    soon("the end", client.close()).await.expect("nothing is left to do");
    let scripts = server.command(&["INFO", "commandstats"]).text();
    let calls = |name: &str| -> u32 {
        let line = scripts.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    let sent = calls("evalsha") + calls("eval");
    assert!(sent < 300, "{sent} scripts for one caller: releases of what was never sent");
}

async fn one_that_forgot_everything_shows_observers_the_next_leader(mut ground: Ground) {
    let (one, two, watcher) = (ground.client().await, ground.client().await, ground.client().await);
    let server = ground.server();
    for changes in [1, 3] {
        let name = format!("x{changes}");
        let mut observer = watcher.election(&name).expect("a name").observe().await.expect("an observer");
        assert_eq!(observer.next().await.expect("an answer"), Observed::Vacant);
        let first = one.election(&name).expect("a name").campaign("a").await.expect("elected");
        for _ in 1..changes {
            first.proclaim("a again").await.expect("leading");
            first.proclaim("a").await.expect("leading");
        }
        let mut last = observer.next().await.expect("an answer");
        while !matches!(&last, Observed::Leader(leader) if leader.value == b"a") {
            last = soon("the first leader", observer.next()).await.expect("an answer");
        }
        // So many changes that the new log is as long as the one that was lost.
        server.command(&["FLUSHALL"]).ok();
        let second = two.election(&name).expect("a name").campaign("b").await.expect("elected");
        for _ in 1..changes {
            second.proclaim("b again").await.expect("leading");
            second.proclaim("b").await.expect("leading");
        }
        let mut seen = Vec::new();
        let found = async {
            loop {
                let observed = observer.next().await.expect("an answer");
                let found = matches!(&observed, Observed::Leader(leader) if leader.value == b"b");
                seen.push(observed);
                if found {
                    break;
                }
            }
        };
        soon("the second leader", found).await;
        assert!(seen.iter().any(|observed| matches!(observed, Observed::Missed(_))), "{seen:?}");
        drop((first, second));
    }
}

async fn a_killed_holder_is_followed_soon_after_its_lease(mut ground: Ground) {
    let client = ground.client().await;
    let mut child = Child::start(ground.url()).await;
    let token = child.lock("x", ms(1500)).await;
    let waiting = wait(&client, ms(6000)).await;
    child.kill().await;
    let killed = Instant::now();
    let guard = granted(waiting).await;
    took("the next one is in, after the death of a holder with a lease of 1.5 s", killed.elapsed());
    // The lease was renewed no later than it was killed.
    assert!(killed.elapsed() < ms(1500 + 1600), "in after {:?}", killed.elapsed());
    assert!(guard.token().get() > token);
    guard.release().await.expect("held");
    leave(ground.server(), [client]).await;
}

async fn a_lock_delay_outlives_the_holder(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let (wired, wire) = ground.client_on_wire(Options::new()).await;
    let mutex = wired.mutex("x").expect("a name").lease(ms(500)).lock_delay(ms(1500));
    let held = mutex.lock().await.expect("free");
    let waiting = wait(&two, ms(6000)).await;
    wire.set(crate::wire::Fault::Refuse);
    soon("the loss", held.lost()).await;
    let lost = Instant::now();
    assert!(try_lock(&one).await.expect("an answer").is_none(), "closed");
    let guard = granted(waiting).await;
    took("the next one is in, after a delay of 1.5 s", lost.elapsed());
    assert!(lost.elapsed() > ms(1400) && lost.elapsed() < ms(1500 + 1600), "in after {:?}", lost.elapsed());
    guard.release().await.expect("held");
    wire.set(crate::wire::Fault::None);
    drop(held);
    leave(ground.server(), [one, two, wired]).await;
}

async fn a_clock_that_is_set_back_keeps_nobody_alive(_: Ground) {
    const BACK: Duration = ms(120_000);
    let clock = SetBack::start();
    // As far as its server can tell, the far one dies.
    let proxy = Proxy::start(clock.port());
    let far = connect(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    let (near, next) = (connect(&clock.url()).await, connect(&clock.url()).await);
    let name = |client: &Client, name: &str| client.mutex(name).expect("a name").lease(ms(2000));
    let waiting = async |family: Family, name: &str, count: u32| {
        until("it waits", async || near.look(family, name).await.expect("a view").waiting == count).await;
    };

    // One that holds; one that shares; one that comes first in the queue, and wants more than there
    // is; and one that is told that it holds and does not say that it knows.
    let holds = soon("it", name(&far, "holds").lock()).await.expect("granted");
    let shares =
        soon("it", far.rwlock("shares").expect("a name").lease(ms(2000)).read()).await.expect("granted");
    let shares_too = soon("it", near.rwlock("shares").expect("a name").read()).await.expect("granted");
    let permit = soon("it", near.semaphore("waits", 2).expect("a name").acquire()).await.expect("granted");
    let told = soon("it", near.mutex("told").expect("a name").lock()).await.expect("granted");
    let first = far.semaphore("waits", 2).expect("a name");
    let first = tokio::spawn(async move { first.acquire_many(2).await.map(drop) });
    waiting(Family::Semaphore, "waits", 1).await;
    let second = tokio::spawn({
        let told = name(&far, "told");
        async move { told.lock().await.map(drop) }
    });
    waiting(Family::Lock, "told", 1).await;

    let wanted = ["holds", "shares", "told"].map(|wanted| name(&next, wanted));
    let permits = next.semaphore("waits", 2).expect("a name");
    let mut wait = tokio::task::JoinSet::new();
    for mutex in wanted {
        wait.spawn(async move { mutex.lock().await.expect("granted").release().await.expect("held") });
    }
    wait.spawn(async move { permits.acquire().await.expect("granted").release().await.expect("held") });
    waiting(Family::Lock, "holds", 1).await;
    waiting(Family::Lock, "shares", 1).await;
    waiting(Family::Lock, "told", 2).await;
    waiting(Family::Semaphore, "waits", 2).await;
    proxy.cut();
    told.release().await.expect("held");
    shares_too.release().await.expect("held");
    clock.set_back(BACK);
    let before = Instant::now();
    while let Some(done) =
        tokio::time::timeout(ms(20_000), wait.join_next()).await.expect("they have their turns")
    {
        done.expect("no panic");
        took("one is in, although the clock was set back", before.elapsed());
    }
    drop((holds, shares, first, second));
    permit.release().await.expect("held");
}
