//! The end of a client, as its servers see it.

use leasehold::engine::Engine;
use leasehold::{Family, Name, Options};
use tokio::time::Instant;

use super::client;
use crate::Case;
use crate::bench::{ms, soon, until};
use crate::servers::{Cluster, Redis, Sentinels};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    topology_cases![
        a_closed_client_lets_go_of_its_connection,
        a_closed_client_lets_go_of_the_sentinels,
        a_closed_client_lets_go_of_the_members,
    ]
}

/// The connections of ours at a server: it has others, from its replicas and sentinels.
fn connections(server: &Redis) -> Vec<String> {
    let clients = server.command(&["CLIENT", "LIST"]).text();
    clients.lines().filter(|line| line.contains(" user=ours ")).map(str::to_owned).collect()
}

/// Connects, holds and waits for things, closes, and looks what is left on the servers. Some of
/// them stand still meanwhile.
pub(crate) async fn lets_go(url: &str, servers: &[&Redis], stopped: &[Redis]) {
    for server in servers {
        server.command(&["ACL", "SETUSER", "ours", "on", ">canary", "~*", "&*", "+@all"]).ok();
    }
    let url = &url.replace("://", "://ours:canary@");
    let one = client(url).await;
    let clone = one.clone();
    let mut guards = Vec::new();
    for number in 0..8 {
        guards.push(one.mutex(number.to_string()).expect("a name").lock().await.expect("free"));
    }
    let mutex = one.mutex("0").expect("a name");
    assert!(mutex.lock_for(ms(20)).await.expect("an answer").is_none());
    assert!(servers.iter().any(|server| !connections(server).is_empty()), "none is seen");
    stopped.iter().for_each(Redis::pause);
    let start = Instant::now();
    soon("the end", one.close()).await.expect("those that matter hear");
    println!("closed after {:?}", start.elapsed());
    stopped.iter().for_each(Redis::resume);
    for server in servers {
        until("the connections are gone", async || connections(server).is_empty()).await;
    }
    // Also of an engine by itself, however often.
    let engine: Box<dyn Engine> = leasehold::engine::open(url, &Options::new()).await.expect("servers");
    let name = Name::new(Family::Lock, "x").expect("a name");
    engine.look(&name, 0).await.expect("a view");
    soon("the end", engine.close()).await.expect("nothing can fail");
    soon("the end", engine.close()).await.expect("nothing can fail");
    let error = soon("a refusal", engine.look(&name, 0)).await.expect_err("it is closed");
    assert!(error.to_string().contains("closed"), "{error}");
    drop((clone, guards, mutex));
}

async fn a_closed_client_lets_go_of_its_connection() {
    let server = Redis::start();
    lets_go(&server.url(), &[&server], &[]).await;
}

async fn a_closed_client_lets_go_of_the_sentinels() {
    let servers = Sentinels::start();
    let all: Vec<&Redis> = servers.servers.iter().chain(&servers.sentinels).collect();
    let url = format!("{}?sentinel_user=ours&sentinel_password=canary", servers.url());
    lets_go(&url, &all, &servers.sentinels[1..2]).await;
}

async fn a_closed_client_lets_go_of_the_members() {
    let cluster = Cluster::start();
    let all: Vec<&Redis> = cluster.members.iter().collect();
    lets_go(&cluster.url(), &all, &[]).await;
}
