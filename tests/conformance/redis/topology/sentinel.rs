//! Whom to believe: sentinels that are cut off, hang or are dead, and a primary that was left.

use leasehold::{Client, Standing};
use tokio::time::Instant;

use super::{client, lock_again, until_changed};
use crate::Case;
use crate::bench::{ms, soon, until};
use crate::servers::{Redis, Sentinels};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    topology_cases![
        a_sentinel_that_is_cut_off_is_not_believed,
        one_sentinel_of_three_will_do,
        a_primary_that_hangs_is_left_as_soon_as_another_is_named,
        whoever_is_still_with_the_old_primary_gets_a_lower_token,
    ]
}

/// Where a lock that this client takes is written down.
async fn takes_at(client: &Client, server: &Redis) -> bool {
    let Ok(guard) = client.mutex("x").expect("a name").lock().await else { return false };
    let there = server.command(&["EXISTS", "lock:x"]).int() == 1;
    guard.release().await.ok();
    there
}

async fn a_sentinel_that_is_cut_off_is_not_believed() {
    let servers = Sentinels::start();
    servers.agree();
    // What it watches is a primary as far as it knows, and it never hears of the others.
    let old = Redis::start();
    let cut_off = Redis::start_sentinel(&[&format!("sentinel monitor stock 127.0.0.1 {} 2", old.port())]);
    let url = servers.url().replace("://", &format!("://127.0.0.1:{},", cut_off.port()));
    let before = client(&url).await;
    // Nobody knows better so far.
    assert!(takes_at(&before, &old).await);
    let primary = servers.primary().port();
    servers.sentinels[0].command(&["SENTINEL", "FAILOVER", Sentinels::NAME]).ok();
    until_changed(&servers, primary).await;
    let named = Instant::now();
    until("the client has left", async || takes_at(&before, servers.primary()).await).await;
    let took = named.elapsed();
    println!("left {took:?} after another was named");
    // A second by our promise, and some for a machine that is busy.
    assert!(took < ms(3000), "{took:?}");
    // Nor does it mislead those who come later.
    assert!(takes_at(&client(&url).await, servers.primary()).await);
    // When it is the only one that is left it is better than nothing, but no reason to leave.
    let there = servers.primary();
    servers.sentinels.iter().for_each(Redis::kill);
    tokio::time::sleep(ms(1500)).await;
    assert!(takes_at(&before, there).await);
    assert!(takes_at(&client(&url).await, &old).await);
}

async fn one_sentinel_of_three_will_do() {
    let servers = Sentinels::start();
    let one = client(&servers.url()).await;
    let guard = one.mutex("x").expect("a name").lease(ms(2000)).lock().await.expect("free");
    servers.sentinels[0].pause();
    servers.sentinels[1].kill();
    let before = Instant::now();
    let two = soon("a connection", client(&servers.url())).await;
    let took = before.elapsed();
    assert!(took < ms(700), "one that hangs has held us up: {took:?}");
    assert!(two.mutex("x").expect("a name").try_lock().await.expect("an answer").is_none());
    let end = Instant::now() + ms(3000);
    while Instant::now() < end {
        assert_ne!(guard.standing(), Standing::Lost);
        tokio::time::sleep(ms(50)).await;
    }
    servers.sentinels[0].resume();
}

async fn a_primary_that_hangs_is_left_as_soon_as_another_is_named() {
    let servers = Sentinels::start();
    servers.agree();
    let one = client(&servers.url()).await;
    drop(one.mutex("x").expect("a name").lock().await.expect("free"));
    let old = servers.servers[0].port();
    // It takes what it is asked and says nothing: whether the connection still works is not known
    // for seconds.
    servers.servers[0].pause();
    until_changed(&servers, old).await;
    let named = Instant::now();
    lock_again(&one, "y").await.0.release().await.expect("held");
    let took = named.elapsed();
    println!("taken {took:?} after another was named");
    assert!(took < ms(3000), "{took:?}");
}

async fn whoever_is_still_with_the_old_primary_gets_a_lower_token() {
    let servers = Sentinels::start();
    servers.agree();
    let promised = client(&servers.url()).await.guarantees().tokens;
    assert!(promised.contains("old primary"), "{promised}");
    let confirmed = client(&format!("{}?wait=majority", servers.url())).await.guarantees().tokens;
    assert!(!confirmed.contains("old primary"), "{confirmed}");
    // This one does not ask the sentinels.
    let late = client(&servers.servers[0].url()).await;
    late.mutex("x").expect("a name").lock().await.expect("free").release().await.expect("held");
    let old = servers.servers[0].port();
    servers.servers[0].pause();
    until_changed(&servers, old).await;
    let (new, _) = lock_again(&client(&servers.url()).await, "x").await;
    servers.servers[0].resume();
    // Until the sentinels tell it what it is, it is the primary in its own eyes.
    let stale = soon("a grant", late.mutex("x").expect("a name").lock()).await.expect("granted");
    assert!(
        stale.token() < new.token(),
        "a fence would let the late one in: {} {}",
        stale.token(),
        new.token()
    );
}
