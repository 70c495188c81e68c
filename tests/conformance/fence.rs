//! Tokens: that they rise, whatever happens in between, and that a resource can rely on it.

use leasehold::{Error, Family, Fence, Options};

use crate::bench::{Ground, ms, soon};
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "fence",
        [
            tokens_rise_over_an_expiry,
            tokens_rise_when_the_record_is_forgotten,
            tokens_rise_when_the_name_is_broken,
            tokens_rise_for_a_new_client,
            tokens_rise_in_the_order_of_waiting,
            hand_over_inside_a_process_gives_fresh_tokens,
            a_stale_token_is_refused_by_the_resource,
        ]
    )
}

async fn tokens_rise_over_an_expiry(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let guard = client.mutex("x").expect("a name").lease(ms(200)).lock().await.expect("free");
    wire.set(Fault::Hang);
    let next = soon("the next holder", other.mutex("x").expect("a name").lock()).await.expect("granted");
    assert!(next.token() > guard.token());
}

async fn tokens_rise_when_the_record_is_forgotten(mut ground: Ground) {
    // As many cycles as fit into few microseconds, each with a block of tokens reserved and given back.
    let client = ground.client_with(Options::new().hand_over(ms(50), 1000)).await;
    let mutex = client.mutex("x").expect("a name");
    let mut last = 0;
    for _ in 0..2000 {
        let guard = mutex.lock().await.expect("free");
        assert!(guard.token().get() > last);
        last = guard.token().get();
        guard.release().await.expect("held");
    }
}

async fn tokens_rise_when_the_name_is_broken(mut ground: Ground) {
    let client = ground.client().await;
    let mut last = None;
    for _ in 0..20 {
        let guard = client.mutex("x").expect("a name").lock().await.expect("free");
        assert!(Some(guard.token()) > last);
        last = Some(guard.token());
        client.break_claims(Family::Lock, "x").await.expect("broken");
        drop(guard);
    }
}

async fn tokens_rise_for_a_new_client(mut ground: Ground) {
    let mut last = None;
    for _ in 0..5 {
        let client = ground.client().await;
        let guard = client.mutex("x").expect("a name").lock().await.expect("free");
        assert!(Some(guard.token()) > last);
        last = Some(guard.token());
        drop(guard);
        client.close().await.expect("closed");
    }
}

async fn tokens_rise_in_the_order_of_waiting(mut ground: Ground) {
    let first = ground.client().await;
    let held = first.mutex("x").expect("a name").lock().await.expect("free");
    let mut waiting = Vec::new();
    for place in 0..5 {
        let client = ground.client().await;
        let mutex = client.mutex("x").expect("a name");
        waiting.push(tokio::spawn(async move { mutex.lock().await.map(|guard| guard.token()) }));
        crate::bench::until("it waits", async || {
            first.look(Family::Lock, "x").await.expect("a view").waiting == place + 1
        })
        .await;
    }
    let mut tokens = vec![held.token()];
    held.release().await.expect("held");
    for task in waiting {
        tokens.push(soon("the next", task).await.expect("no panic").expect("granted"));
    }
    // Where there is no order of waiting the tokens are different all the same, and above the first holder's.
    if !first.guarantees().fair {
        tokens[1..].sort_unstable();
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

async fn hand_over_inside_a_process_gives_fresh_tokens(mut ground: Ground) {
    let client = ground.client().await;
    let mutex = client.mutex("x").expect("a name");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let mutex = mutex.clone();
        tasks.spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..50 {
                let guard = mutex.lock().await.expect("granted");
                tokens.push(guard.token());
                tokio::task::yield_now().await;
                guard.release().await.expect("held");
            }
            tokens
        });
    }
    let mut all = Vec::new();
    while let Some(tokens) = tasks.join_next().await {
        let tokens = tokens.expect("no panic");
        assert!(tokens.is_sorted_by(|a, b| a < b));
        all.extend(tokens);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 500, "a token was given twice");
}

async fn a_stale_token_is_refused_by_the_resource(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let fence = Fence::new();
    let stale = client.mutex("x").expect("a name").lease(ms(200)).lock().await.expect("free");
    fence.admit(stale.token()).expect("the holder");
    wire.set(Fault::Hang);
    let newer = soon("the next holder", other.mutex("x").expect("a name").lock()).await.expect("granted");
    fence.admit(newer.token()).expect("the newer holder");
    assert!(matches!(fence.admit(stale.token()), Err(Error::Fenced { .. })));
}
