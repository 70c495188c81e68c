//! Servers that let in only some, who may do little.

use std::collections::BTreeSet;

use leasehold::{Client, Family};

use super::{connect, lock, quorum_cases};
use crate::Case;
use crate::bench::{ms, soon, until};
use crate::servers::{Quorum, Redis};

pub(super) fn cases(servers: usize) -> Vec<(&'static str, Case)> {
    quorum_cases!(servers, [these_permissions_are_enough_and_all_are_used])
}

/// All that a client does, as docs/redlock.md lists it.
const COMMANDS: &str = "ping info time client|id client|kill config|get subscribe publish evalsha eval scan set get mget del exists \
     expire pexpire pttl hset hget hmget hdel hlen zadd zrem zrange zrangebyscore zrevrange zscore zcard";

async fn these_permissions_are_enough_and_all_are_used(servers: usize) {
    let quorum = Quorum::start(servers);
    let rules = ["on", ">canary", "resetkeys", "~lock:*", "~{lock:*", "~leasehold:*", "resetchannels"];
    let commands: Vec<String> = COMMANDS.split_whitespace().map(|command| format!("+{command}")).collect();
    for server in &quorum.servers {
        let mut words = vec!["ACL", "SETUSER", "app"];
        words.extend(rules.iter().chain(&["&leasehold:*", "-@all"]));
        words.extend(commands.iter().map(String::as_str));
        server.command(&words).ok();
        server.command(&["CONFIG", "RESETSTAT"]).ok();
    }
    let url = quorum.url().replace("redlock://", "redlock://app:canary@");
    let url = format!("{url}?max_lease=2s");
    let (one, two) = (connect(&url).await, connect(&url).await);

    // A mutex that is waited for, renewed, and healed where it was lost.
    let held = lock(&one, "x", ms(900)).await;
    let mutex = two.mutex("x").expect("a name").lease(ms(900));
    let waiting = tokio::spawn(async move { mutex.lock().await });
    until("it waits", async || one.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    let first = &quorum.servers[0];
    first.command(&["DEL", "lock:x"]).int();
    until("it is healed", async || !first.command(&["GET", "lock:x"]).is_nil()).await;
    held.release().await.expect("held");
    soon("the waiter", waiting).await.expect("no panic").expect("granted").release().await.expect("held");

    // Readers, a writer that becomes one, and an operator.
    let rwlock = |client: &Client| client.rwlock("x").expect("a name").lease(ms(900));
    let reader = rwlock(&one).read().await.expect("free");
    let deadline = reader.deadline();
    let other = rwlock(&two).read().await.expect("shared");
    until("it is renewed", async || reader.deadline() > deadline).await;
    reader.release().await.expect("held");
    other.release().await.expect("held");
    let writer = rwlock(&one).write().await.expect("free");
    let reader = writer.downgrade().await.expect("held");
    assert_eq!(one.list(Family::Lock, None, 10).await.expect("a list").len(), 1);
    assert_eq!(two.break_claims(Family::Lock, "x").await.expect("broken").len(), 1);
    soon("the loss", reader.lost()).await;

    // A server that forgets and is let in again, a connection that breaks, and an idle one.
    first.command(&["FLUSHALL"]).ok();
    until("it votes again", async || {
        lock(&one, "y", ms(900)).await.release().await.expect("held");
        !first.command(&["GET", "leasehold:member"]).is_nil()
    })
    .await;
    first.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int();
    until("an idle connection is tried", async || first.used().contains("ping")).await;
    lock(&two, "x", ms(900)).await.release().await.expect("held");

    let denied: Vec<String> = quorum.servers.iter().flat_map(Redis::denied).collect();
    assert_eq!(denied, [""; 0], "denied");
    let used: BTreeSet<String> = quorum.servers.iter().flat_map(Redis::used).collect();
    let unused: Vec<&str> = COMMANDS.split_whitespace().filter(|command| !used.contains(*command)).collect();
    assert!(unused.is_empty(), "not needed: {unused:?}");
}
