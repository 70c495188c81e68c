//! `wait=`: what counts only when replicas have confirmed it.

use std::time::Duration;

use leasehold::claim::{Ask, OwnerId};
use leasehold::engine::{CellValue, Engine, Swap, Swapped, Write};
use leasehold::{Client, Error, Family, Name, Options};

use super::client;
use super::members::engine;
use crate::Case;
use crate::bench::{ask, ms, soon, until};
use crate::servers::{Cluster, Redis, Sentinels};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    topology_cases![
        replicas_that_are_away_count,
        replicas_that_are_away_count_in_a_cluster,
        a_server_that_took_over_is_no_majority_by_itself,
        a_server_without_replicas_is_no_majority,
        replicas_that_come_are_counted,
        what_no_replica_has_heard_of_is_not_said_to_be_done,
        what_no_replica_has_heard_of_is_given_back_at_once,
    ]
}

async fn majority(url: &str) -> Client {
    let options = Options::new().call_limit(ms(3000));
    leasehold::connect_with(&format!("{url}?wait=majority"), options).await.expect("the servers are there")
}

/// What is said to somebody who asks for a lock that can not be confirmed.
async fn refused(client: &Client) -> String {
    let answer = soon("an answer", client.mutex("x").expect("a name").lock()).await;
    let error = answer.expect_err("nobody can confirm it");
    assert!(error.is_retryable(), "{error}");
    error.to_string()
}

/// Waits until the servers know something by themselves.
async fn long_until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let limit = tokio::time::Instant::now() + Duration::from_secs(40);
    while !so().await {
        assert!(tokio::time::Instant::now() < limit, "waited too long until {what}");
        tokio::time::sleep(ms(50)).await;
    }
}

async fn replicas_that_are_away_count() {
    let servers = Sentinels::start();
    let before = majority(&servers.url()).await;
    before.mutex("x").expect("a name").lock().await.expect("confirmed").release().await.expect("held");
    servers.servers[1..].iter().for_each(Redis::kill);
    let primary = &servers.servers[0];
    until("the primary is alone", async || {
        primary.command(&["INFO", "replication"]).text().contains("connected_slaves:0")
    })
    .await;
    let after = majority(&servers.url()).await;
    for client in [&before, &after] {
        let error = refused(client).await;
        assert!(error.contains("0 of the 1 replicas"), "{error}");
    }
}

async fn replicas_that_are_away_count_in_a_cluster() {
    let cluster = Cluster::start();
    let before = majority(&cluster.url()).await;
    before.mutex("x").expect("a name").lock().await.expect("confirmed").release().await.expect("held");
    cluster.members[3..].iter().for_each(Redis::kill);
    let primary = cluster.primary_of("lock:x");
    until("the primary is alone", async || {
        primary.command(&["INFO", "replication"]).text().contains("connected_slaves:0")
    })
    .await;
    let after = majority(&cluster.url()).await;
    for client in [&before, &after] {
        let error = refused(client).await;
        assert!(error.contains("0 of the 1 replicas"), "{error}");
    }
}

async fn a_server_that_took_over_is_no_majority_by_itself() {
    let cluster = Cluster::start();
    let dying = cluster.primary_of("lock:x").port();
    let member = cluster.members.iter().find(|member| member.port() == dying).expect("one of ours");
    member.kill();
    let rest = || cluster.members.iter().filter(|member| member.runs());
    long_until("its replica has taken over", async || {
        let asked = rest().next().expect("some are left");
        let nodes = asked.command(&["CLUSTER", "NODES"]).text();
        let works = asked.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok");
        let old = nodes.lines().find(|line| line.contains(&format!(":{dying}@"))).expect("remembered");
        works && old.contains("master,fail ") && old.split(' ').count() == 8
    })
    .await;
    let port = rest().next().expect("some are left").port();
    let after = majority(&format!("redis+cluster://127.0.0.1:{port}")).await;
    let error = refused(&after).await;
    assert!(error.contains("0 of the 1 replicas"), "{error}");
    // It comes back, and is one.
    member.restart();
    long_until("a replica confirms", async || after.mutex("x").expect("a name").lock().await.is_ok()).await;
}

async fn a_server_without_replicas_is_no_majority() {
    let primary = Redis::start();
    let sentinel =
        Redis::start_sentinel(&[&format!("sentinel monitor stock 127.0.0.1 {} 1", primary.port())]);
    let url = format!("redis+sentinel://127.0.0.1:{}/stock", sentinel.port());
    let client = majority(&url).await;
    let error = refused(&client).await;
    assert!(error.contains("no replica of") && error.contains("leave `wait` out"), "{error}");
    let replicaof = format!("127.0.0.1 {}", primary.port());
    let _replica = Redis::start_with(&["--replicaof", &replicaof, "--repl-diskless-sync-delay", "0"]);
    long_until("a replica confirms", async || client.mutex("x").expect("a name").lock().await.is_ok()).await;
}

async fn replicas_that_come_are_counted() {
    let servers = Sentinels::start();
    let client = majority(&servers.url()).await;
    let replicaof = format!("127.0.0.1 {}", servers.servers[0].port());
    let more =
        [(); 2].map(|()| Redis::start_with(&["--replicaof", &replicaof, "--repl-diskless-sync-delay", "0"]));
    long_until("the sentinels know them", async || {
        let known = |sentinel: &Redis| {
            sentinel.command(&["SENTINEL", "MASTER", Sentinels::NAME]).field("num-slaves") == "4"
        };
        servers.sentinels.iter().any(known)
    })
    .await;
    // One of two was enough; of four it is not.
    servers.servers[1].kill();
    more.iter().for_each(Redis::kill);
    long_until("four are counted", async || match client.mutex("x").expect("a name").lock().await {
        Ok(guard) => guard.release().await.is_err(),
        Err(error) => error.to_string().contains("only 1 of the 2 replicas"),
    })
    .await;
}

fn unknown<T: std::fmt::Debug>(what: &str, answer: Result<T, Error>) {
    let error = match answer {
        Ok(answer) => panic!("{what} counts without a replica: {answer:?}"),
        Err(error) => error,
    };
    assert!(error.is_retryable() && error.to_string().contains("0 of the 1 replicas"), "{what}: {error}");
}

async fn what_no_replica_has_heard_of_is_not_said_to_be_done() {
    let server = Redis::start();
    let without = client(&server.url()).await;
    let url = format!("{}?wait=1", server.url());
    let with = client(&url).await;
    let held = without.semaphore("s", 2).expect("a name").acquire().await.expect("free");
    unknown("a resize", with.semaphore("s", 2).expect("a name").resize(3).await);
    let reading = without.rwlock("r").expect("a name").read().await.expect("free");
    unknown("a broken claim", with.break_claims(Family::Lock, "r").await);
    unknown("a latch", with.latch("l", 2).expect("a name").count_down().await);
    unknown("what is left of a latch", with.latch("l", 2).expect("a name").left().await);
    // Whether it was done is not known: here it was.
    let engine: Box<dyn Engine> =
        leasehold::engine::open(&url, &Options::new()).await.expect("the server is there");
    let name = Name::new(Family::Cell, "c").expect("a name");
    let value = CellValue { bytes: b"1".to_vec(), lives: ms(60_000) };
    let swap = || vec![Swap { name: name.clone(), version: 0, write: Write::Put(value.clone()) }];
    unknown("a swap", engine.swap(swap()).await);
    let plain: Box<dyn Engine> =
        leasehold::engine::open(&server.url(), &Options::new()).await.expect("the server is there");
    let found = plain.read(std::slice::from_ref(&name)).await.expect("a cell");
    assert_eq!(found.cells[0].value, Some(b"1".to_vec()));
    assert!(matches!(plain.swap(swap()).await, Ok(Swapped::No(_))));
    drop((held, reading));
}

/// A client that got no answer gives back what it may have been granted. The engine does so before
/// that: it knows that there is nothing more to wait for, and others need not wait for the lease.
async fn what_no_replica_has_heard_of_is_given_back_at_once() {
    let primary = Redis::start();
    let replicaof = format!("127.0.0.1 {}", primary.port());
    let replica = Redis::start_with(&["--replicaof", &replicaof, "--repl-diskless-sync-delay", "0"]);
    until("the replica is in step", async || {
        replica.command(&["INFO", "replication"]).text().contains("master_link_status:up")
    })
    .await;
    let confirming = engine(&format!("{}?wait=1", primary.url())).await;
    let plain = engine(&primary.url()).await;
    let lock = Name::new(Family::Lock, "x").expect("a name");
    let semaphore = Name::new(Family::Semaphore, "s").expect("a name");
    let permit = |owner| Ask { weight: 1, capacity: 2, ..ask(owner) };
    // Whoever has had a lock before takes it another way.
    for owner in 1..=2 {
        soon("an answer", confirming.acquire(&lock, &ask(owner))).await.expect("confirmed");
        confirming.release(&lock, OwnerId(owner), 0).await.expect("released");
    }
    replica.pause();
    for (name, ask) in [(&lock, ask(3)), (&semaphore, permit(4)), (&lock, ask(5)), (&semaphore, permit(6))] {
        unknown("a claim", soon("an answer", confirming.acquire(name, &ask)).await);
        let left = plain.look(name, 0).await.expect("a view").claims;
        assert!(left.is_empty(), "still held when the caller is told: {left:?}");
    }
    replica.resume();
}
