//! Servers that forget what they knew, and servers that do not know the time.

use leasehold::{Client, Family, Options, Standing};
use tokio::time::Instant;

use super::{Hammer, connect, lock, minority, quorum_cases, taken};
use crate::Case;
use crate::bench::{ms, soon, until};
use crate::servers::{FrozenRedis, Proxy, Quorum, Redis, SetBack};

pub(super) fn cases(servers: usize) -> Vec<(&'static str, Case)> {
    quorum_cases!(
        servers,
        [
            a_server_restarted_without_its_data_does_not_vote_at_once,
            a_server_that_was_flushed_does_not_vote_at_once,
            a_server_restarted_with_old_data_does_not_vote_at_once,
            a_server_that_remembers_votes_right_after_a_restart,
            a_majority_that_forgot_votes_again_after_a_while,
            all_servers_are_restarted_one_by_one,
            all_servers_that_remember_are_restarted_one_by_one,
            a_clock_that_is_set_does_not_repeat_tokens,
            clocks_that_are_set_back_keep_nobody_alive,
        ]
    )
}

/// Long enough to see, short enough to wait for.
const OPTIONS: &str = "?max_lease=2s";

async fn brief(url: &str) -> Client {
    let options = Options::new().lease(ms(2000)).call_limit(ms(1500));
    leasehold::connect_with(url, options).await.expect("a majority is there")
}

/// True if a server has been let in to vote.
fn votes(server: &Redis) -> bool {
    let info = server.command(&["INFO", "server"]).text();
    let run = info.lines().find_map(|line| line.strip_prefix("run_id:")).expect("a run").trim().to_owned();
    let mark = server.command(&["GET", "leasehold:member"]);
    !mark.is_nil() && mark.text() == run
}

/// A server forgets while a name is held. Until the longest lease is over it does not help anybody
/// else to the name.
async fn does_not_vote_at_once(servers: usize, arguments: &[&str], forget: impl FnOnce(&Redis)) {
    let quorum = Quorum::start_with(servers, arguments);
    let url = format!("{}{OPTIONS}", quorum.url());
    let (client, other) = (brief(&url).await, brief(&url).await);
    // With the lease it has it may be lost while so many hang; it must not be given to anybody else
    // before.
    let guard = lock(&client, "x", ms(2000)).await;
    let before = lock(&other, "y", ms(2000)).await;
    let token = before.token();
    before.release().await.expect("held");
    let forgetful = &quorum.servers[0];
    let forgot = Instant::now();
    forget(forgetful);
    // The others that are not needed for a majority hang: with the forgetful one's vote there would
    // be one.
    let hung = &quorum.servers[1..=minority(servers)];
    hung.iter().for_each(Redis::pause);
    while forgot.elapsed() < ms(1500) {
        let name = if guard.standing() == Standing::Lost { "y" } else { "x" };
        let answer = other.mutex(name).expect("a name").try_lock().await;
        let error = answer.expect_err("a server votes that has forgotten everything");
        assert!(error.is_retryable(), "{error}");
        assert!(forgot.elapsed() > ms(1600) || !votes(forgetful));
    }
    hung.iter().for_each(Redis::resume);
    let limit = Instant::now() + ms(9000);
    while !votes(forgetful) {
        assert!(Instant::now() < limit, "it never votes again");
        lock(&other, "z", ms(500)).await.release().await.expect("the others suffice");
        tokio::time::sleep(ms(20)).await;
    }
    assert!(forgot.elapsed() >= ms(2000), "it votes again after {:?}", forgot.elapsed());
    guard.release().await.ok();
    // It counts again, and its counters are above all that were given before.
    hung.iter().for_each(Redis::pause);
    let after = lock(&other, "y", ms(2000)).await;
    assert!(after.token() > token, "{:?} after {token:?}", after.token());
    hung.iter().for_each(Redis::resume);
}

async fn a_server_restarted_without_its_data_does_not_vote_at_once(servers: usize) {
    does_not_vote_at_once(servers, &[], Redis::restart_empty).await;
}

async fn a_server_that_was_flushed_does_not_vote_at_once(servers: usize) {
    // Whatever it promises about its disk.
    does_not_vote_at_once(servers, &Quorum::REMEMBERS, |server| server.command(&["FLUSHALL"]).ok()).await;
}

async fn a_server_restarted_with_old_data_does_not_vote_at_once(servers: usize) {
    let now_and_then = ["--appendonly", "yes", "--appendfsync", "everysec"];
    does_not_vote_at_once(servers, &now_and_then, Redis::restart).await;
}

async fn a_server_that_remembers_votes_right_after_a_restart(servers: usize) {
    let quorum = Quorum::start(servers);
    let (client, other) = (connect(&quorum.url()).await, connect(&quorum.url()).await);
    let guard = lock(&client, "x", ms(5000)).await;
    quorum.servers[0].restart();
    let before = Instant::now();
    until("it votes", async || votes(&quorum.servers[0])).await;
    assert!(before.elapsed() < ms(3000), "{:?}", before.elapsed());
    quorum.servers[1..=minority(servers)].iter().for_each(Redis::pause);
    assert!(taken(&other, "x").await, "it has forgotten who holds the name");
    lock(&other, "y", ms(5000)).await.release().await.expect("held");
    assert_ne!(guard.standing(), Standing::Lost);
    quorum.servers[1..=minority(servers)].iter().for_each(Redis::resume);
    guard.release().await.expect("held");
}

async fn a_majority_that_forgot_votes_again_after_a_while(servers: usize) {
    let quorum = Quorum::start(servers);
    let client = brief(&format!("{}{OPTIONS}", quorum.url())).await;
    let before = lock(&client, "x", ms(2000)).await;
    let token = before.token();
    before.release().await.expect("held");
    let forgot = Instant::now();
    for server in &quorum.servers[minority(servers)..] {
        server.command(&["FLUSHALL"]).ok();
    }
    let error = client.mutex("x").expect("a name").try_lock().await.expect_err("no majority may vote");
    assert!(error.is_retryable() && error.to_string().contains("has lost its data"), "{error}");
    until("all vote again", async || quorum.servers.iter().all(votes)).await;
    assert!(forgot.elapsed() >= ms(2000), "{:?}", forgot.elapsed());
    assert!(lock(&client, "x", ms(2000)).await.token() > token);
    // All of them at once, as when a test is cleaned up: there is nobody to ask, and nothing to
    // wait for.
    let last = lock(&client, "y", ms(2000)).await;
    let token = last.token();
    last.release().await.expect("held");
    for server in &quorum.servers {
        server.command(&["FLUSHALL"]).ok();
    }
    assert!(lock(&client, "y", ms(2000)).await.token() > token);
}

/// Restarts every server in turn while clients take turns.
async fn one_by_one(quorum: &Quorum, client: &Client, restart: fn(&Redis)) {
    let url = format!("{}{OPTIONS}", quorum.url());
    let hammer = Hammer::start(&url, 4, ms(1000)).await;
    for server in &quorum.servers {
        tokio::time::sleep(ms(100)).await;
        restart(server);
        let limit = Instant::now() + ms(12_000);
        while !votes(server) {
            assert!(Instant::now() < limit, "it never votes again: {:?}", client.guarantees());
            tokio::time::sleep(ms(20)).await;
        }
    }
    hammer.stop().await;
}

async fn all_servers_are_restarted_one_by_one(servers: usize) {
    let quorum = Quorum::start_with(servers, &[]);
    let client = brief(&format!("{}{OPTIONS}", quorum.url())).await;
    one_by_one(&quorum, &client, Redis::restart_empty).await;
}

async fn all_servers_that_remember_are_restarted_one_by_one(servers: usize) {
    let quorum = Quorum::start(servers);
    let client = brief(&format!("{}{OPTIONS}", quorum.url())).await;
    one_by_one(&quorum, &client, Redis::restart).await;
}

async fn a_clock_that_is_set_does_not_repeat_tokens(servers: usize) {
    let frozen: Vec<FrozenRedis> = (0..minority(servers)).map(|_| Redis::start_frozen()).collect();
    let others = Quorum::start(servers - frozen.len());
    let mut url = others.url();
    for server in &frozen {
        url.push_str(&format!(",127.0.0.1:{}", server.port()));
    }
    const WORKERS: u64 = 3;
    let hammer = Hammer::start(&url, WORKERS, ms(2000)).await;
    for round in 0..12_u64 {
        tokio::time::sleep(ms(60)).await;
        for server in &frozen {
            // An hour forwards, and more than that back.
            let hour = 3_600_000_000;
            let now = server.micros();
            server.set_micros(if round % 2 == 0 { now + hour } else { now - 2 * hour });
        }
    }
    // A claim that ends early where it is needed for the majority lets others in; their tokens are
    // larger all the same.
    hammer.stop_after(WORKERS).await;
    // A counter that ended goes on above all that its server ever gave, although its clock went
    // back.
    let client = connect(&url).await;
    let before = lock(&client, "x", ms(2000)).await;
    let token = before.token();
    before.release().await.expect("held");
    for server in frozen.iter().map(|server| &**server).chain(&others.servers) {
        server.command(&["DEL", "{lock:x}:redlock:token"]).int();
    }
    assert!(lock(&client, "x", ms(2000)).await.token() > token);
}

async fn clocks_that_are_set_back_keep_nobody_alive(servers: usize) {
    let clocks: Vec<SetBack> = (0..servers).map(|_| SetBack::start()).collect();
    let proxies: Vec<Proxy> = clocks.iter().map(|clock| Proxy::start(clock.port())).collect();
    let url = |ports: Vec<u16>| {
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redlock://{}", hosts.join(","))
    };
    // As far as the servers can tell, the far one dies.
    let far = connect(&url(proxies.iter().map(Proxy::port).collect())).await;
    let near = connect(&url(clocks.iter().map(|clock| clock.port()).collect())).await;
    let reader = |client: &Client, name: &str| client.rwlock(name).expect("a name").lease(ms(2000));
    let _holds = lock(&far, "holds", ms(2000)).await;
    let _shares = soon("it", reader(&far, "shares").read()).await.expect("granted");
    let _waited_for = soon("it", reader(&near, "waits").read()).await.expect("granted");
    let first = reader(&far, "waits");
    let _first = tokio::spawn(async move { first.write().await.map(drop) });
    let view = async || near.look(Family::Lock, "waits").await.expect("a view");
    until("the writer waits", async || view().await.waiting == 1).await;
    proxies.iter().for_each(Proxy::cut);
    clocks.iter().for_each(|clock| clock.set_back(ms(120_000)));
    let all = async {
        lock_long(&near, "holds").await;
        lock_long(&near, "shares").await;
        // A reader does not overtake a writer that waits, if that lives.
        reader(&near, "waits").read().await.expect("granted").release().await.expect("held");
    };
    tokio::time::timeout(ms(30_000), all).await.expect("they have their turns");
}

async fn lock_long(client: &Client, name: &str) {
    client.mutex(name).expect("a name").lock().await.expect("granted").release().await.expect("held");
}
