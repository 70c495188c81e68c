//! A cluster in which a member stands still.

use std::sync::Arc;

use leasehold::claim::{Answer, Ask, Holder, OwnerId, WHOLE};
use leasehold::engine::{Engine, Hints, Renewal, Renewed};
use leasehold::{Client, Family, Guard, Name, Options, Standing};
use tokio::time::Instant;

use crate::Case;
use crate::bench::{ms, soon, until};
use crate::servers::{Cluster, Redis};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    topology_cases![
        a_stopped_member_costs_nobody_else_a_lease,
        what_is_answered_is_not_lost_with_what_is_not,
        each_member_is_a_shard,
    ]
}

/// An engine without a client, which renews nothing by itself.
pub(crate) async fn engine(url: &str) -> Box<dyn Engine> {
    let engine = leasehold::engine::open(url, &Options::new()).await.expect("the servers are there");
    engine.listen(Hints::new(|_| {}));
    engine
}

/// Takes a lock, and says how it is renewed.
pub(crate) async fn hold(engine: &dyn Engine, name: &str, owner: u128, lease: u64) -> Renewal {
    let (name, owner, lease) = (Name::new(Family::Lock, name).expect("a name"), OwnerId(owner), ms(lease));
    let ask = Ask {
        owner,
        weight: WHOLE,
        capacity: WHOLE,
        lease,
        lock_delay: ms(0),
        tokens: 1,
        wait: false,
        answer_within: ms(5000),
        round: 1,
        holder: Arc::new(Holder { host: "here".into(), pid: 1, label: String::new() }),
        value: Arc::default(),
        logged: false,
    };
    let answer = soon("an answer", engine.acquire(&name, &ask)).await.expect("an answer");
    assert!(matches!(answer, Answer::Granted(_)), "{answer:?}");
    Renewal { name, owner, lease }
}

/// A cluster that does not replace a member that stands still, and whose others go on without it.
fn patient() -> Cluster {
    let cluster = Cluster::start();
    for member in &cluster.members {
        member.command(&["CONFIG", "SET", "cluster-node-timeout", "120000"]).ok();
        member.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).ok();
    }
    cluster
}

/// Some names that are kept where `lock:x` is, or anywhere else.
fn names(cluster: &Cluster, with_x: bool) -> Vec<String> {
    let there = cluster.primary_of("lock:x").port();
    let names = (0..200).map(|number| format!("n{number}"));
    names
        .filter(|name| (cluster.primary_of(&format!("lock:{name}")).port() == there) == with_x)
        .take(4)
        .collect()
}

async fn lock(client: &Client, name: &str, lease: u64) -> Guard {
    client.mutex(name).expect("a name").lease(ms(lease)).lock().await.expect("free")
}

async fn a_stopped_member_costs_nobody_else_a_lease() {
    let cluster = patient();
    // What belongs to the sick one is given up sooner than a seventh of a lease would be over.
    let options = Options::new().call_limit(ms(300));
    let client = leasehold::connect_with(&cluster.url(), options).await.expect("members");
    let (mut sick, mut well) = (Vec::new(), Vec::new());
    for name in names(&cluster, true) {
        sick.push(lock(&client, &name, 2200).await);
    }
    for name in names(&cluster, false) {
        well.push(lock(&client, &name, 2200).await);
    }
    let member = cluster.primary_of("lock:x");
    member.pause();
    let end = Instant::now() + ms(10_000);
    while Instant::now() < end {
        for guard in &well {
            assert_ne!(guard.standing(), Standing::Lost, "a lease on a healthy member is lost");
        }
        tokio::time::sleep(ms(20)).await;
    }
    until("all are held", async || well.iter().all(|guard| guard.standing() == Standing::Held)).await;
    assert!(sick.iter().all(|guard| guard.standing() == Standing::Lost), "nobody can have renewed them");
    member.resume();
}

async fn each_member_is_a_shard() {
    let cluster = patient();
    let engine = engine(&cluster.url()).await;
    let (sick, well) = (names(&cluster, true), names(&cluster, false));
    let mut renewals = Vec::new();
    for (owner, name) in (1..).zip(sick.iter().chain(&well)) {
        renewals.push(hold(&*engine, name, owner, 60_000).await);
    }
    // Whoever mixes them still gets the answers that there are.
    let member = cluster.primary_of("lock:x");
    member.pause();
    let before = Instant::now();
    let verdicts = tokio::time::timeout(ms(5000), engine.renew(&renewals)).await;
    println!("renewed in {:?}", before.elapsed());
    let verdicts = verdicts.expect("what is answered is lost with what is not").expect("some are answered");
    let expected: Vec<Renewed> = [[Renewed::Unknown; 4], [Renewed::Yes; 4]].concat();
    assert_eq!(verdicts, expected);
    member.resume();
    let shards: Vec<u64> = renewals.iter().map(|renewal| engine.shard(&renewal.name)).collect();
    let (with_x, elsewhere) = shards.split_at(sick.len());
    assert!(with_x.iter().all(|shard| *shard == with_x[0] && !elsewhere.contains(shard)), "{shards:?}");
}

/// A slot that is on its way can not answer; the others of its member can.
async fn what_is_answered_is_not_lost_with_what_is_not() {
    let cluster = patient();
    // Less than a seventh of a lease, more than an eighth.
    let options = Options::new().call_limit(ms(390));
    let client = leasehold::connect_with(&cluster.url(), options).await.expect("members");
    let mut guards = Vec::new();
    for name in names(&cluster, true) {
        guards.push(lock(&client, &name, 2800).await);
    }
    let moving = lock(&client, "x", 2800).await;
    let from = cluster.primary_of("lock:x");
    let to = cluster.members[..3].iter().find(|member| member.port() != from.port()).expect("another");
    let slot = from.command(&["CLUSTER", "KEYSLOT", "lock:x"]).int().to_string();
    let id = |member: &Redis| member.command(&["CLUSTER", "MYID"]).text();
    to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]).ok();
    from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]).ok();
    until("the one that can not be renewed is lost", async || {
        let lost = guards.iter().any(|guard| guard.standing() == Standing::Lost);
        assert!(!lost, "a lease is lost because of another's slot");
        moving.standing() == Standing::Lost
    })
    .await;
    from.command(&["CLUSTER", "SETSLOT", &slot, "STABLE"]).ok();
    to.command(&["CLUSTER", "SETSLOT", &slot, "STABLE"]).ok();
}
