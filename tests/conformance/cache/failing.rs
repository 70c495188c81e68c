//! Loads that fail, and how many there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::kit::cache::Failure;
use tokio::task::JoinSet;

use super::{Source, caches, value};
use crate::bench::{Ground, ms, not_within, soon, until};
use crate::{Group, cases};

pub(super) fn group() -> Group {
    cases!(
        "cache",
        caches,
        [
            a_load_that_fails_is_told_to_all_who_wait,
            a_stale_value_is_given_while_loads_fail,
            a_loader_that_panics_is_a_load_that_failed,
            loads_at_once_are_limited,
        ]
    )
}

async fn a_load_that_fails_is_told_to_all_who_wait(mut ground: Ground) {
    let source = Source::default();
    source.fail(true);
    source.hold();
    let (one, two) = (ground.client().await, ground.client().await);
    let cache = |client| source.cache(client, ms(600_000)).pause(ms(1500)).expect("in range");
    let (one, two) = (cache(&one), cache(&two));
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let one = one.clone();
        tasks.spawn(async move { one.get("k").await });
    }
    until("it is loaded", async || source.loads() == 1).await;
    source.go_on();
    for failed in soon("all are told", tasks.join_all()).await {
        let error = failed.expect_err("it failed");
        // Who came later is told of the pause.
        assert!(matches!(error, Failure::Load(_) | Failure::Paused { .. }), "{error}");
    }
    assert_eq!(source.loads(), 1);
    // Others leave the source alone for a while too.
    if let Err(Failure::Paused { retry_after }) = two.get("k").await {
        assert!(retry_after <= ms(1500), "{retry_after:?}");
    }
    source.fail(false);
    source.set("k", "v");
    until("it is loaded again", async || two.get("k").await.is_ok_and(|got| got.value().is_some())).await;
}

async fn a_stale_value_is_given_while_loads_fail(mut ground: Ground) {
    let source = Source::default();
    source.set("k", "v");
    let cache = source.cache(&ground.client().await, ms(200)).stale_for(ms(600_000)).expect("in range");
    let cache = cache.pause(ms(50)).expect("in range");
    value(cache.get("k").await);
    source.fail(true);
    until("loads fail", async || {
        assert_eq!(value(cache.get("k").await), "v");
        cache.figures().load_failures >= 2
    })
    .await;
    // This process pauses with all names after some failures.
    for name in 0..10 {
        cache.get(format!("other{name}")).await.expect_err("it fails");
    }
    let (before, paused) = (source.loads(), cache.get("another").await);
    assert!(matches!(paused, Err(Failure::Paused { .. })), "{paused:?}");
    assert_eq!(source.loads(), before);
    assert_eq!(value(cache.get("k").await), "v");
}

async fn a_loader_that_panics_is_a_load_that_failed(mut ground: Ground) {
    let client = ground.client().await;
    let panics = Arc::new(AtomicBool::new(true));
    let loader = Arc::clone(&panics);
    let cache = client.cache("x", ms(60_000), move |_| {
        let panics = Arc::clone(&loader);
        async move {
            assert!(!panics.load(Ordering::SeqCst), "this is part of the test");
            Ok::<_, String>(b"v".to_vec())
        }
    });
    let cache = cache.expect("a cache");
    let failed = cache.get("k").await;
    assert!(matches!(failed, Err(Failure::Load(_))), "{failed:?}");
    panics.store(false, Ordering::SeqCst);
    // Its right to load was given back, and need not be waited for.
    until("it is loaded", async || cache.get("k").await.is_ok()).await;
}

async fn loads_at_once_are_limited(mut ground: Ground) {
    let source = Source::default();
    source.hold();
    let cache = source.cache(&ground.client().await, ms(60_000)).loads_at_once(3).expect("in range");
    let names: Vec<String> = (0..12).map(|number| format!("k{number}")).collect();
    let all = tokio::spawn({
        let cache = cache.clone();
        async move { cache.get_many(&names).await }
    });
    until("three of them load", async || source.running() == 3).await;
    // The other nine have the right to load by now, or soon, and wait for their turn.
    not_within(ms(100), "a fourth began", until("it begins", async || source.loads() > 3)).await;
    source.go_on();
    assert!(soon("all", all).await.expect("no panic").iter().all(Result::is_ok));
    assert_eq!((source.loads(), source.most()), (12, 3));
}
