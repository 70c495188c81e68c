//! Tokens: that they rise, whatever happens in between, and that a resource can rely on it.

use leasehold::claim::{Answer, Ask};
use leasehold::{Error, Family, Fence, Name};

use crate::bench::{Ground, ask, ms, soon};
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
    // A client reserves tokens only if others of its process wait. So the engine is asked for a
    // block that is a minute ahead of the clock: a record that is started anew with the clock's
    // time would give it again.
    const BLOCK: u32 = 60_000_000;
    let engine = ground.engine().await;
    let name = Name::new(Family::Lock, "x").expect("a name");
    let mut last = 0;
    for owner in 1..=4 {
        let ask = Ask { tokens: BLOCK, ..ask(owner) };
        let answer = soon("an answer", engine.acquire(&name, &ask)).await.expect("an answer");
        let Answer::Granted(grant) = answer else { panic!("not granted: {answer:?}") };
        assert!(grant.token > last, "token {} after {last}", grant.token);
        last = grant.token + u64::from(grant.tokens) - 1;
        // Nobody holds it and nobody waits, so nothing has to be remembered of it but the token.
        if owner % 2 == 0 {
            engine.break_claims(&name).await.expect("broken");
        } else {
            engine.release(&name, ask.owner, last).await.expect("released");
        }
    }
    engine.close().await.expect("closed");
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
    // Where there is no order of waiting the tokens are different all the same, and above the first
    // holder's.
    if !ground.promises().fair {
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
