//! Servers that die, hang, are slow or cut off: a minority costs nothing, a majority is an error.

use leasehold::engine::Renewed;
use leasehold::{Loss, Standing};
use tokio::time::Instant;

use super::{Lines, connect, impatient, lock, minority, quorum_cases, taken};
use crate::Case;
use crate::bench::{ms, soon, until};
use crate::child;
use crate::redis::topology::members::{engine, hold};
use crate::servers::{Proxy, Quorum, Redis};

pub(super) fn cases(servers: usize) -> Vec<(&'static str, Case)> {
    quorum_cases!(
        servers,
        [
            a_minority_can_die,
            a_minority_can_hang,
            a_minority_can_be_cut_off,
            a_majority_that_is_down_is_an_error,
            a_majority_that_hangs_is_an_error_and_leaves_no_ghost,
            a_majority_that_stalls_is_waited_for,
            half_is_no_majority,
            a_slow_server_holds_up_nobody,
            a_server_that_is_down_when_we_come_is_waited_for,
            a_stopped_server_costs_no_lease,
            a_renewal_is_decided_by_a_majority_alone,
            a_stopped_server_is_not_flooded
        ]
    )
}

/// Holds a name while a minority is hurt, and takes others.
async fn works_without_some(url: &str, hurt: impl FnOnce(), heal: impl FnOnce()) {
    let (one, two) = (connect(url).await, connect(url).await);
    let guard = lock(&one, "x", ms(900)).await;
    hurt();
    let end = Instant::now() + ms(2500);
    while Instant::now() < end {
        assert_ne!(guard.standing(), Standing::Lost, "a minority was enough to lose it");
        assert!(taken(&two, "x").await);
        let before = Instant::now();
        lock(&two, "y", ms(3000)).await.release().await.expect("held");
        assert!(before.elapsed() < ms(1000), "{:?}", before.elapsed());
        tokio::time::sleep(ms(20)).await;
    }
    assert!(guard.standing() == Standing::Held);
    let token = guard.token();
    guard.release().await.expect("a majority heard");
    let next = lock(&two, "x", ms(900)).await;
    assert!(next.token() > token);
    heal();
    next.release().await.expect("held");
    lock(&one, "x", ms(900)).await.release().await.expect("held");
}

async fn a_minority_can_die(servers: usize) {
    let quorum = Quorum::start(servers);
    let some = &quorum.servers[..minority(servers)];
    works_without_some(
        &quorum.url(),
        || some.iter().for_each(Redis::kill),
        || some.iter().for_each(Redis::restart),
    )
    .await;
}

async fn a_minority_can_hang(servers: usize) {
    let quorum = Quorum::start(servers);
    let some = &quorum.servers[..minority(servers)];
    works_without_some(
        &quorum.url(),
        || some.iter().for_each(Redis::pause),
        || some.iter().for_each(Redis::resume),
    )
    .await;
}

async fn a_minority_can_be_cut_off(servers: usize) {
    let lines = Lines::start(servers);
    let some = &lines.proxies[..minority(servers)];
    works_without_some(
        &lines.url(),
        || some.iter().for_each(Proxy::cut),
        || some.iter().for_each(Proxy::pass),
    )
    .await;
}

async fn a_majority_that_is_down_is_an_error(servers: usize) {
    let quorum = Quorum::start(servers);
    let (client, other) = (impatient(&quorum.url()).await, impatient(&quorum.url()).await);
    let guard = lock(&client, "x", ms(1500)).await;
    let dead = &quorum.servers[..servers - minority(servers)];
    dead.iter().for_each(Redis::kill);
    let before = Instant::now();
    let error = other.mutex("y").expect("a name").try_lock().await.expect_err("no majority");
    assert!(before.elapsed() < ms(2000), "{:?}", before.elapsed());
    assert!(error.is_retryable(), "{error}");
    for server in dead {
        assert!(error.to_string().contains(&format!("`127.0.0.1:{}`", server.port())), "{error}");
    }
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deadline);
    dead.iter().for_each(Redis::restart);
    until("all is well again", async || {
        other.mutex("x").expect("a name").try_lock().await.is_ok_and(|guard| guard.is_some())
    })
    .await;
}

async fn a_majority_that_hangs_is_an_error_and_leaves_no_ghost(servers: usize) {
    let quorum = Quorum::start(servers);
    let client = impatient(&quorum.url()).await;
    let hung = &quorum.servers[..servers - minority(servers)];
    lock(&client, "x", ms(900)).await.release().await.expect("held");
    hung.iter().for_each(Redis::pause);
    let before = Instant::now();
    let error = client.mutex("x").expect("a name").lock().await.expect_err("no majority");
    assert!(before.elapsed() < ms(2000), "{:?}", before.elapsed());
    assert!(error.is_retryable(), "{error}");
    for server in hung {
        assert!(error.to_string().contains(&format!("`127.0.0.1:{}`", server.port())), "{error}");
    }
    tokio::time::sleep(ms(1200)).await;
    hung.iter().for_each(Redis::resume);
    // What was asked while they hung is not granted to somebody who does not wait any more; the
    // lease was 30 s.
    let other = connect(&quorum.url()).await;
    let guard = lock(&other, "x", ms(900)).await;
    for server in &quorum.servers {
        let holder = server.command(&["GET", "lock:x"]);
        assert!(holder.is_nil() || holder.text().contains(" 900000 "), "{}", holder.text());
    }
    drop(guard);
}

async fn a_majority_that_stalls_is_waited_for(servers: usize) {
    let quorum = Quorum::start(servers);
    let stalled = &quorum.servers[..servers - minority(servers)];
    let url = quorum.url();
    let turns = child::take_turns(&url, 4, 2500);
    let stalls = async {
        loop {
            tokio::time::sleep(ms(150)).await;
            stalled.iter().for_each(Redis::pause);
            // Longer than one server has to answer, and shorter than a call has.
            tokio::time::sleep(ms(700)).await;
            stalled.iter().for_each(Redis::resume);
        }
    };
    // Every section is held and given back: none of them is told that it has lost.
    tokio::select! {
        _ = turns => {}
        () = stalls => {}
    }
}

async fn half_is_no_majority(servers: usize) {
    let quorum = Quorum::start(servers + 1);
    let client = impatient(&quorum.url()).await;
    let half = servers.div_ceil(2);
    quorum.servers[..half - 1].iter().for_each(Redis::kill);
    lock(&client, "x", ms(3000)).await.release().await.expect("held");
    quorum.servers[half - 1].kill();
    let error = client.mutex("x").expect("a name").try_lock().await.expect_err("half is not enough");
    assert!(error.is_retryable() && error.to_string().contains("no majority"), "{error}");
}

async fn a_slow_server_holds_up_nobody(servers: usize) {
    let lines = Lines::start(servers);
    let client = connect(&lines.url()).await;
    lock(&client, "x", ms(9000)).await.release().await.expect("held");
    lines.proxies[0].delay(ms(400));
    let before = Instant::now();
    let mut last = None;
    for _ in 0..20 {
        let guard = lock(&client, "x", ms(9000)).await;
        assert!(Some(guard.token()) > last);
        last = Some(guard.token());
        guard.release().await.expect("held");
    }
    assert!(before.elapsed() < ms(4000), "{:?}", before.elapsed());
    lines.proxies[0].pass();
    until("the slow one is free too", async || {
        lines.quorum.servers[0].command(&["EXISTS", "lock:x"]).int() == 0
    })
    .await;
}

async fn a_server_that_is_down_when_we_come_is_waited_for(servers: usize) {
    let quorum = Quorum::start(servers);
    drop(connect(&quorum.url()).await);
    quorum.servers[0].kill();
    let client = connect(&quorum.url()).await;
    let guard = lock(&client, "x", ms(1200)).await;
    quorum.servers[0].restart();
    until("it takes part", async || quorum.servers[0].command(&["EXISTS", "lock:x"]).int() == 1).await;
    assert_eq!(guard.standing(), Standing::Held);
    guard.release().await.expect("held");
    until("it is free there too", async || quorum.servers[0].command(&["EXISTS", "lock:x"]).int() == 0).await;
    let all = quorum.servers.iter().collect::<Vec<_>>();
    all.iter().for_each(|server| server.kill());
    let error = leasehold::connect(&quorum.url()).await.expect_err("nobody is there");
    for server in all {
        assert!(error.to_string().contains(&format!("`127.0.0.1:{}`", server.port())), "{error}");
    }
}

async fn a_stopped_server_costs_no_lease(servers: usize) {
    let quorum = Quorum::start(servers);
    let client = connect(&quorum.url()).await;
    let (long, short) = (lock(&client, "long", ms(30_000)).await, lock(&client, "short", ms(2000)).await);
    quorum.servers[..minority(servers)].iter().for_each(Redis::pause);
    let end = Instant::now() + ms(10_500);
    while Instant::now() < end {
        assert_ne!(short.standing(), Standing::Lost, "a minority was enough to lose it");
        assert_eq!(long.standing(), Standing::Held);
        tokio::time::sleep(ms(20)).await;
    }
    until("it is held", async || short.standing() == Standing::Held).await;
    quorum.servers[..minority(servers)].iter().for_each(Redis::resume);
    short.release().await.expect("a majority hears");
    long.release().await.expect("a majority hears");
}

async fn a_renewal_is_decided_by_a_majority_alone(servers: usize) {
    let quorum = Quorum::start(servers);
    let engine = engine(&quorum.url()).await;
    let renewals = [hold(&*engine, "long", 1, 30_000).await, hold(&*engine, "short", 2, 10_000).await];
    quorum.servers[..minority(servers)].iter().for_each(Redis::pause);
    for _ in 0..3 {
        let before = Instant::now();
        let verdicts = soon("verdicts", engine.renew(&renewals)).await.expect("a majority answers");
        assert_eq!(verdicts, [Renewed::Yes; 2]);
        assert!(before.elapsed() < ms(1000), "it waited for a minority: {:?}", before.elapsed());
    }
    quorum.servers[..minority(servers)].iter().for_each(Redis::resume);
}

/// How many scripts a server has run.
fn scripts(server: &Redis) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).text();
    let calls = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_eval")?.split_once("calls="));
    calls.map(|(_, rest)| rest.split(',').next().expect("a number").parse::<u64>().expect("a number")).sum()
}

async fn a_stopped_server_is_not_flooded(servers: usize) {
    let quorum = Quorum::start(servers);
    let client = connect(&quorum.url()).await;
    let guard = lock(&client, "x", ms(600)).await;
    let (stopped, other) = (&quorum.servers[0], &quorum.servers[servers - 1]);
    let (before, others_before) = (scripts(stopped), scripts(other));
    stopped.pause();
    // Shorter than it takes to give the connection up.
    until("it was renewed often", async || scripts(other) >= others_before + 8).await;
    assert_eq!(guard.standing(), Standing::Held);
    stopped.resume();
    // It does first what it was asked first.
    let stale = scripts(stopped) - before;
    assert!(stale <= 4, "{stale} renewals of long ago");
    until("it is renewed there again", async || scripts(stopped) > before + stale + 2).await;
}
