//! Redis servers that belong together: fail-over, slots that move, members that are sick, replicas
//! that must hear.

use std::time::Duration;

use leasehold::{Client, Error, Family, Options, Standing};
use tokio::time::Instant;

use crate::Case;
use crate::bench::{ms, soon, until};
use crate::servers::{Cluster, Redis, Reply, Sentinels};

/// Cases that start their own servers.
macro_rules! topology_cases {
    ($($case:ident),* $(,)?) => {
        vec![$((stringify!($case), crate::case(|_| $case()))),*]
    };
}

pub(crate) mod close;
pub(crate) mod members;
mod replication;
mod sentinel;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    let mut cases = topology_cases![
        what_is_promised_depends_on_the_servers,
        a_fail_over_is_followed,
        a_waiter_gets_in_after_a_fail_over,
        a_primary_that_was_cut_off_is_left,
        an_unknown_primary_is_refused,
        a_claim_without_enough_copies_is_given_back,
        what_is_said_to_a_waiter_stays_with_the_member,
        who_may_not_hear_the_member_is_told_all_the_same,
        channels_that_nobody_needs_are_left,
        a_slot_moves_while_its_name_is_held,
        a_slot_that_stays_half_way_is_named,
        what_was_moved_already_is_asked_for_where_it_is,
        a_member_dies_and_its_replica_takes_over,
        a_sick_member_holds_up_nobody_else,
        a_server_that_is_no_member_is_refused,
        a_server_that_is_no_sentinel_is_named,
    ];
    cases.extend(replication::cases());
    cases.extend(sentinel::cases());
    cases.extend(members::cases());
    cases.extend(close::cases());
    cases
}

async fn client(url: &str) -> Client {
    leasehold::connect(url).await.expect("the servers are there")
}

/// Tries until the servers have found themselves again.
async fn lock_again(client: &Client, name: &str) -> (leasehold::Guard, Duration) {
    let before = Instant::now();
    let limit = before + Duration::from_secs(30);
    loop {
        match client.mutex(name).expect("a name").lock().await {
            Ok(guard) => return (guard, before.elapsed()),
            Err(error) => assert!(error.is_retryable() && Instant::now() < limit, "{error}"),
        }
    }
}

async fn what_is_promised_depends_on_the_servers() {
    let (server, servers) = (Redis::start(), Sentinels::start());
    let promised = async |url: &str| client(url).await.guarantees().exclusion;
    let alone = promised(&server.url()).await;
    let followed = promised(&servers.url()).await;
    let confirmed = promised(&format!("{}?wait=majority", servers.url())).await;
    assert!(alone.contains("until a restart"), "{alone}");
    assert!(followed.contains("until a fail-over or a restart"), "{followed}");
    assert!(confirmed.contains("a replica that has heard") && confirmed.contains("restart"), "{confirmed}");
    // With a log, a restart is no loss.
    let server = Redis::start_with(&["--appendonly", "yes"]);
    assert_eq!(promised(&server.url()).await, "while the server keeps its data");
}

async fn a_fail_over_is_followed() {
    let servers = Sentinels::start();
    servers.agree();
    let url = format!("{}?wait=majority", servers.url());
    let (one, two) = (client(&url).await, client(&url).await);
    let guard = one.mutex("x").expect("a name").lease(ms(20_000)).lock().await.expect("free");
    let before = one.mutex("y").expect("a name").lock().await.expect("free");
    let token = before.token();
    before.release().await.expect("held");
    servers.servers[0].kill();
    let (after, took) = lock_again(&two, "y").await;
    println!("a fail-over took {took:?}");
    assert!(after.token() > token, "tokens keep rising: {} after {token}", after.token());
    // The replica had heard of it: it is still held, by the one that held it.
    until("the holder is sure again", async || guard.standing() == Standing::Held).await;
    let taken = two.mutex("x").expect("a name").try_lock().await;
    assert!(taken.expect("an answer").is_none(), "two holders");
    guard.release().await.expect("still held");
}

async fn a_waiter_gets_in_after_a_fail_over() {
    let servers = Sentinels::start();
    servers.agree();
    let (one, two) = (client(&servers.url()).await, client(&servers.url()).await);
    let guard = one.mutex("x").expect("a name").lease(ms(4000)).lock().await.expect("free");
    let token = guard.token();
    let waiting = tokio::spawn(async move { lock_again(&two, "x").await.0.token() });
    until("it waits", async || one.look(Family::Lock, "x").await.is_ok_and(|view| view.waiting == 1)).await;
    servers.servers[0].kill();
    drop(guard);
    let next =
        tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("in time").expect("no panic");
    assert!(next > token);
}

async fn a_primary_that_was_cut_off_is_left() {
    let servers = Sentinels::start();
    servers.agree();
    let one = client(&servers.url()).await;
    drop(one.mutex("x").expect("a name").lock().await.expect("free"));
    // It stands still for so long that the others choose another; then it goes on, and thinks that
    // it is the primary.
    let old = servers.servers[0].port();
    servers.servers[0].pause();
    until_changed(&servers, old).await;
    servers.servers[0].resume();
    // Until the sentinels are asked again, at most a second, names may still be taken there: that
    // is not promised against.
    until("names are where the sentinels say", async || {
        let (guard, _) = lock_again(&one, "y").await;
        let there = servers.primary().command(&["EXISTS", "lock:y"]).int() == 1;
        guard.release().await.ok();
        there
    })
    .await;
}

async fn until_changed(servers: &Sentinels, old: u16) {
    let limit = Instant::now() + Duration::from_secs(30);
    while servers.primary().port() == old {
        assert!(Instant::now() < limit, "no fail-over");
        tokio::time::sleep(ms(20)).await;
    }
}

async fn an_unknown_primary_is_refused() {
    let servers = Sentinels::start();
    let wrong = servers.url().replace(Sentinels::NAME, "nobody");
    let error = leasehold::connect(&wrong).await.expect_err("no such primary");
    assert!(matches!(error, Error::Engine { .. }) && error.to_string().contains("`nobody`"), "{error}");
    servers.sentinels.iter().for_each(Redis::kill);
    let error = leasehold::connect(&servers.url()).await.expect_err("no sentinel answers");
    assert!(error.is_retryable() && error.to_string().contains("127.0.0.1:"), "{error}");
}

async fn a_claim_without_enough_copies_is_given_back() {
    let primary = Redis::start();
    let url = format!("{}?wait=1", primary.url());
    let alone = leasehold::connect_with(&url, Options::new().call_limit(ms(3000)))
        .await
        .expect("the server is there");
    let error = alone.mutex("x").expect("a name").lock().await.expect_err("there is no replica");
    assert!(error.is_retryable() && error.to_string().contains("0 of the 1 replicas"), "{error}");
    let error = alone.semaphore("s", 2).expect("a name").acquire().await.expect_err("there is no replica");
    assert!(error.to_string().contains("replicas"), "{error}");
    until("they were given back", async || {
        let free = |view: leasehold::engine::View| view.claims.is_empty();
        alone.look(Family::Lock, "x").await.is_ok_and(free)
            && alone.look(Family::Semaphore, "s").await.is_ok_and(free)
    })
    .await;

    let replicaof = format!("127.0.0.1 {}", primary.port());
    let replica = Redis::start_with(&["--replicaof", &replicaof, "--repl-diskless-sync-delay", "0"]);
    until("the replica is in step", async || {
        replica.command(&["INFO", "replication"]).text().contains("master_link_status:up")
    })
    .await;
    let guard = alone.mutex("x").expect("a name").lease(ms(1500)).lock().await.expect("confirmed");
    assert_eq!(replica.command(&["EXISTS", "lock:x"]).int(), 1, "the replica has heard of it");
    // Without its replica the claim can not be renewed, and its holder is told in time.
    replica.pause();
    until("the holder is in doubt", async || guard.standing() != Standing::Held).await;
    soon("the loss", guard.lost()).await;
    replica.resume();
}

/// Moves a slot with all its keys from one member to another, key by key, as an operator's tool
/// does.
fn move_slot(cluster: &Cluster, key: &str) {
    let from = cluster.primary_of(key);
    let to = cluster.members[..3].iter().find(|member| member.port() != from.port()).expect("another");
    let slot = from.command(&["CLUSTER", "KEYSLOT", key]).int().to_string();
    let (from_id, to_id) =
        (from.command(&["CLUSTER", "MYID"]).text(), to.command(&["CLUSTER", "MYID"]).text());
    to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).ok();
    from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).ok();
    loop {
        let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"]).texts();
        let Some(key) = keys.first() else { break };
        let port = to.port().to_string();
        let moved = from.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "1000"]);
        assert!(!matches!(moved, Reply::Error(_)), "{}", moved.error());
        std::thread::sleep(ms(3));
    }
    // Between the two: whatever is asked now is asked twice.
    std::thread::sleep(ms(600));
    for member in [to, from].into_iter().chain(&cluster.members[..3]) {
        member.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).ok();
    }
}

/// How often the members have done something, all together.
fn calls(cluster: &Cluster, command: &str) -> u64 {
    let of = |member: &Redis| {
        let stats = member.command(&["INFO", "commandstats"]).text();
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| line.split(',').next().expect("a number").parse().expect("a number"))
    };
    cluster.members.iter().map(of).sum()
}

/// The sharded channels that somebody hears.
fn shard_channels(cluster: &Cluster) -> Vec<String> {
    cluster.members.iter().flat_map(|member| member.command(&["PUBSUB", "SHARDCHANNELS"]).texts()).collect()
}

const TURNS: u64 = 20;
const FEW: u64 = 3;

async fn take_turns(client: Client) {
    for _ in 0..TURNS {
        let guard = client.mutex("x").expect("a name").lock().await.expect("an answer");
        // Long enough for the other one to wait.
        tokio::time::sleep(ms(5)).await;
        guard.release().await.expect("held");
    }
}

async fn who_may_not_hear_the_member_is_told_all_the_same() {
    let cluster = Cluster::start();
    for member in &cluster.members {
        let rules = ["on", ">canary", "~*", "&*", "+@all", "-ssubscribe"];
        member.command(&[&["ACL", "SETUSER", "app"], &rules[..]].concat()).ok();
    }
    let url = cluster.url().replace("://", "://app:canary@");
    let before = Instant::now();
    let (one, two) = (client(&url).await, client(&url).await);
    tokio::join!(take_turns(one), take_turns(two));
    assert!(before.elapsed() < ms(10_000), "{TURNS} turns took {:?}", before.elapsed());
    assert!(calls(&cluster, "publish") >= TURNS && calls(&cluster, "spublish") == 0);
}

async fn what_is_said_to_a_waiter_stays_with_the_member() {
    let cluster = Cluster::start();
    let (one, two) = (client(&cluster.url()).await, client(&cluster.url()).await);
    tokio::join!(take_turns(one.clone()), take_turns(two.clone()));
    let (sharded, everywhere) = (calls(&cluster, "spublish"), calls(&cluster, "publish"));
    assert!(sharded >= TURNS, "{sharded} messages to those who wait");
    // A machine that stands still for a moment may make one late.
    assert!(everywhere <= FEW, "{everywhere} messages to all members");
    assert_eq!(shard_channels(&cluster).len(), 2, "one for each client: {:?}", shard_channels(&cluster));
    // One that does not hear any more is told by the other way.
    let guard = one.mutex("x").expect("a name").lock().await.expect("free");
    let waiting = tokio::spawn(async move { two.mutex("x")?.lock().await });
    until("it waits", async || one.look(Family::Lock, "x").await.is_ok_and(|view| view.waiting == 1)).await;
    let primary = cluster.primary_of("lock:x");
    let clients = primary.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).text();
    let ears: Vec<&str> = clients.lines().filter(|line| !line.contains(" ssub=0 ")).collect();
    assert_eq!(ears.len(), 2, "{clients}");
    for line in ears {
        let id = line.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).expect("a number");
        primary.command(&["CLIENT", "KILL", "ID", id]);
    }
    let before = Instant::now();
    guard.release().await.expect("held");
    soon("the waiter", waiting).await.expect("no panic").expect("granted").release().await.expect("held");
    assert!(before.elapsed() < ms(900), "told after {:?}", before.elapsed());
}

async fn channels_that_nobody_needs_are_left() {
    let cluster = Cluster::start();
    // All in one slot.
    let url = format!("{}/?prefix={{shop}}:", cluster.url().trim_end_matches('/'));
    let (one, two) = (client(&url).await, client(&url).await);
    let mut held = Vec::new();
    let wait_for = async |number: usize| {
        let mutex = two.mutex(number.to_string()).expect("a name");
        // On a busy machine the time may be over before there is an answer; it listens all the
        // same.
        let waited = mutex.lock_for(ms(20)).await;
        assert!(
            waited.is_ok_and(|guard| guard.is_none()) || mutex.try_lock().await.expect("an answer").is_none()
        );
    };
    for number in 0..190 {
        held.push(one.mutex(number.to_string()).expect("a name").lock().await.expect("free"));
    }
    for number in 0..170 {
        wait_for(number).await;
    }
    assert!(shard_channels(&cluster).len() > 160);
    tokio::time::sleep(ms(10_100)).await;
    for number in 170..190 {
        wait_for(number).await;
    }
    until("most are left", async || shard_channels(&cluster).len() < 140).await;
    // Those that are left are heard again when they are needed.
    let waiting = {
        let two = two.clone();
        tokio::spawn(async move { two.mutex("3")?.lock().await })
    };
    until("it waits", async || one.look(Family::Lock, "3").await.is_ok_and(|view| view.waiting == 1)).await;
    held.swap_remove(3).release().await.expect("held");
    soon("the waiter", waiting).await.expect("no panic").expect("granted").release().await.expect("held");
    assert!(calls(&cluster, "publish") <= FEW, "messages to all members");
}

/// Takes and releases another name, with another who does the same.
async fn hammer(client: Client) {
    let mut last = None;
    for _ in 0..500 {
        let guard = client.mutex("y").expect("a name").lock().await.expect("an answer");
        let token = Some(guard.token());
        assert!(token > last, "{token:?} after {last:?}");
        last = token;
        guard.release().await.expect("held");
    }
}

async fn a_slot_moves_while_its_name_is_held() {
    let cluster = std::sync::Arc::new(Cluster::start());
    // All in one slot.
    let url = format!("{}/?prefix={{s}}:", cluster.url().trim_end_matches('/'));
    let (one, two) = (client(&url).await, client(&url).await);
    let guard = one.mutex("x").expect("a name").lease(ms(3000)).lock().await.expect("free");
    let waiting = {
        let two = two.clone();
        tokio::spawn(async move { two.mutex("x")?.lock().await })
    };
    until("it waits", async || one.look(Family::Lock, "x").await.is_ok_and(|view| view.waiting == 1)).await;
    // There and back, while others take and release another name of that slot.
    let hammering: tokio::task::JoinSet<()> = [one.clone(), two.clone()].map(hammer).into_iter().collect();
    for _ in 0..3 {
        let cluster = std::sync::Arc::clone(&cluster);
        tokio::task::spawn_blocking(move || move_slot(&cluster, "{s}:x")).await.expect("no panic");
        assert_ne!(guard.standing(), Standing::Lost);
        until("the holder is sure again", async || guard.standing() == Standing::Held).await;
    }
    hammering.join_all().await;
    let token = guard.token();
    until("it listens where the name is now", async || {
        let heard = cluster.primary_of("{s}:x").command(&["PUBSUB", "SHARDCHANNELS"]).texts();
        heard.iter().any(|channel| channel.contains(":{s}:x{"))
    })
    .await;
    guard.release().await.expect("still held");
    let before = std::time::Instant::now();
    let next = soon("the waiter", waiting).await.expect("no panic").expect("granted");
    assert!(before.elapsed() < ms(900), "told after {:?}", before.elapsed());
    assert!(next.token() > token);
}

async fn a_slot_that_stays_half_way_is_named() {
    let cluster = Cluster::start();
    let client =
        leasehold::connect_with(&cluster.url(), Options::new().call_limit(ms(500))).await.expect("members");
    let from = cluster.primary_of("lock:x");
    let to = cluster.members[..3].iter().find(|member| member.port() != from.port()).expect("another");
    let slot = from.command(&["CLUSTER", "KEYSLOT", "lock:x"]).int().to_string();
    let id = |member: &Redis| member.command(&["CLUSTER", "MYID"]).text();
    to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]).ok();
    from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]).ok();
    let error = client.mutex("x").expect("a name").lock().await.expect_err("nowhere");
    let told = format!("is giving slot {slot} to another member");
    assert!(error.is_retryable() && error.to_string().contains(&told), "{error}");
    from.command(&["CLUSTER", "SETSLOT", &slot, "STABLE"]).ok();
    to.command(&["CLUSTER", "SETSLOT", &slot, "STABLE"]).ok();
    client.mutex("x").expect("a name").lock().await.expect("free").release().await.expect("held");
}

/// A slot whose keys have all been moved, and which is not yet the other member's: the first member
/// sends everybody on. What needs only one key can be done there.
async fn what_was_moved_already_is_asked_for_where_it_is() {
    let cluster = Cluster::start();
    let options = Options::new().call_limit(ms(3000));
    let client = leasehold::connect_with(&cluster.url(), options).await.expect("members");
    let latch = client.latch("x", 4).expect("a name");
    latch.count_down().await.expect("counted");
    let key = "{lock:x}:cell";
    let from = cluster.primary_of(key);
    let to = cluster.members[..3].iter().find(|member| member.port() != from.port()).expect("another");
    let slot = from.command(&["CLUSTER", "KEYSLOT", key]).int().to_string();
    let id = |member: &Redis| member.command(&["CLUSTER", "MYID"]).text();
    to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]).ok();
    from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]).ok();
    from.command(&["MIGRATE", "127.0.0.1", &to.port().to_string(), key, "0", "1000"]).ok();
    assert!(from.command(&["GET", key]).error().starts_with("ASK "), "it was moved");
    for left in [2, 1] {
        latch.count_down().await.expect("counted where it is");
        assert_eq!(latch.left().await.expect("an answer"), left);
    }
    for member in [to, from].into_iter().chain(&cluster.members[..3]) {
        member.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id(to)]).ok();
    }
    assert_eq!(latch.left().await.expect("an answer"), 1);
    latch.count_down().await.expect("counted");
    soon("the latch", latch.wait()).await.expect("open");
}

async fn a_member_dies_and_its_replica_takes_over() {
    let cluster = Cluster::start();
    let (one, two) = (client(&cluster.url()).await, client(&cluster.url()).await);
    let dying = cluster.primary_of("lock:x").port();
    let elsewhere = (0..100).map(|number| format!("n{number}"));
    let elsewhere: Vec<String> = elsewhere
        .filter(|name| cluster.primary_of(&format!("lock:{name}")).port() != dying)
        .take(5)
        .collect();
    let mut guards = Vec::new();
    for name in &elsewhere {
        // Longer than a fail-over: until then the others refuse to serve too, if they are set up as
        // they come.
        guards.push(one.mutex(name).expect("a name").lease(ms(20_000)).lock().await.expect("free"));
    }
    let before = one.mutex("x").expect("a name").lock().await.expect("free");
    let token = before.token();
    before.release().await.expect("held");
    cluster.members.iter().find(|member| member.port() == dying).expect("one of ours").kill();
    let (after, took) = lock_again(&two, "x").await;
    println!("a member's fail-over took {took:?}");
    assert!(after.token() > token);
    until("all are sure again", async || guards.iter().all(|guard| guard.standing() == Standing::Held)).await;
    for name in &elsewhere {
        assert!(two.mutex(name).expect("a name").try_lock().await.expect("an answer").is_none());
    }
}

async fn a_sick_member_holds_up_nobody_else() {
    let cluster = Cluster::start();
    let one = client(&cluster.url()).await;
    let sick = cluster.primary_of("lock:x").port();
    let mut guards = Vec::new();
    for number in 0..30 {
        let name = format!("n{number}");
        if cluster.primary_of(&format!("lock:{name}")).port() != sick {
            guards.push(one.mutex(&name).expect("a name").lease(ms(1200)).lock().await.expect("free"));
        }
    }
    let _held = one.mutex("x").expect("a name").lease(ms(1200)).lock().await.expect("free");
    let member = cluster.members.iter().find(|member| member.port() == sick).expect("one of ours");
    member.pause();
    let end = Instant::now() + ms(1400);
    while Instant::now() < end {
        assert!(
            guards.iter().all(|guard| guard.standing() != Standing::Lost),
            "the others' names must not suffer"
        );
        tokio::time::sleep(ms(20)).await;
    }
    member.resume();
    assert!(guards.len() > 5 && guards.iter().all(|guard| guard.standing() == Standing::Held));
}

async fn a_server_that_is_no_member_is_refused() {
    let server = Redis::start();
    let url = server.url().replace("redis://", "redis+cluster://");
    let error = leasehold::connect(&url).await.expect_err("not a cluster");
    assert!(matches!(error, Error::Engine { .. }) && error.to_string().contains("redis://"), "{error}");
}

async fn a_server_that_is_no_sentinel_is_named() {
    let server = Redis::start();
    let url = format!("{}/main", server.url().replace("redis://", "redis+sentinel://"));
    let error = leasehold::connect(&url).await.expect_err("not a sentinel");
    assert!(error.to_string().contains("is not a sentinel"), "{error}");
}
