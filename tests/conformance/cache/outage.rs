//! What callers get while the engine is away.

use leasehold::kit::cache::{Cache, Failure, Origin, WhenAway};

use super::{Source, caches, told, value};
use crate::bench::{Ground, ms, soon, until};
use crate::wire::Fault;
use crate::{Group, cases};

pub(super) fn group() -> Group {
    cases!(
        "cache_outage",
        caches,
        [
            callers_get_what_was_chosen_while_the_engine_is_away,
            an_engine_that_is_away_is_not_waited_for_by_all,
            what_was_invalidated_here_is_not_remembered,
            what_is_remembered_is_not_given_to_who_wants_a_later_version,
            an_invalidation_that_was_not_heard_says_so,
            a_store_that_is_paused_costs_one_deadline,
        ]
    )
}

fn with(cache: Cache, when_away: WhenAway) -> Cache {
    cache.when_away(when_away).and_then(|cache| cache.deadline(ms(200))).expect("in range")
}

async fn callers_get_what_was_chosen_while_the_engine_is_away(mut ground: Ground) {
    for fault in [Fault::Refuse, Fault::Hang] {
        let options = ground.options();
        let (client, wire) = ground.client_on_wire(options).await;
        let source = Source::default();
        source.set("known", "old");
        source.set("unknown", "v");
        let choices = [WhenAway::Fail, WhenAway::Remember, WhenAway::Load];
        let [fail, remember, load] = choices.map(|choice| with(source.cache(&client, ms(60_000)), choice));
        for cache in [&fail, &remember, &load] {
            // On a slow machine the engine may seem to be away at first.
            until("it is known", async || {
                cache.get("known").await.is_ok_and(|got| got.origin() == Origin::Shared)
            })
            .await;
        }
        source.set("known", "new");
        let loads = source.loads();
        wire.set(fault);
        for name in ["known", "unknown"] {
            let failed = fail.get(name).await;
            assert!(matches!(failed, Err(Failure::Engine(_))), "{failed:?}");
        }
        assert_eq!(told(remember.get("known").await), ("old".into(), Origin::Away));
        let failed = remember.get("unknown").await;
        assert!(matches!(failed, Err(Failure::Engine(_))), "{failed:?}");
        assert_eq!(source.loads(), loads);
        assert_eq!(told(load.get("known").await), ("old".into(), Origin::Away));
        assert_eq!(told(load.get("unknown").await), ("v".into(), Origin::Bypass));
        // From here on it is known.
        assert_eq!(told(load.get("unknown").await), ("v".into(), Origin::Away));
        assert_eq!(source.loads(), loads + 1);
        wire.set(Fault::None);
        for cache in [&fail, &remember, &load] {
            until("it is back", async || {
                cache.get("known").await.is_ok_and(|got| got.origin() == Origin::Shared)
            })
            .await;
        }
        client.close().await.ok();
    }
}

async fn an_engine_that_is_away_is_not_waited_for_by_all(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let source = Source::default();
    let cache = with(source.cache(&client, ms(60_000)), WhenAway::Fail);
    wire.set(Fault::Hang);
    for name in 0..3 {
        cache.get(format!("k{name}")).await.expect_err("it is away");
    }
    // The breaker is open: a thousand callers take no time to be told.
    let began = tokio::time::Instant::now();
    for name in 0..1000 {
        cache.get(format!("k{name}")).await.expect_err("it is away");
    }
    assert!(began.elapsed() < ms(5000), "{:?}", began.elapsed());
    wire.set(Fault::None);
    until("it is back", async || cache.get("k").await.is_ok()).await;
}

async fn what_was_invalidated_here_is_not_remembered(mut ground: Ground) {
    let options = ground.options().call_limit(ms(300));
    let (client, wire) = ground.client_on_wire(options).await;
    let source = Source::default();
    source.set("k", "old");
    let cache = with(source.cache(&client, ms(60_000)), WhenAway::Remember);
    // On a slow machine the engine may seem to be away at first.
    until("it is known", async || cache.get("k").await.is_ok_and(|got| got.origin() == Origin::Shared)).await;
    wire.set(Fault::Refuse);
    assert_eq!(told(cache.get("k").await).1, Origin::Away);
    // It can not be heard, but here it is known that it should be.
    cache.invalidate("k").await.expect_err("it is away");
    let forgotten = cache.get("k").await;
    assert!(matches!(forgotten, Err(Failure::Engine(_))), "{forgotten:?}");
}

async fn what_is_remembered_is_not_given_to_who_wants_a_later_version(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let source = Source::default();
    source.set_version("k", "two", 2);
    let choices = [WhenAway::Fail, WhenAway::Remember, WhenAway::Load];
    let [fail, remember, load] = choices.map(|choice| with(source.cache(&client, ms(60_000)), choice));
    let line = with(source.cache(&client, ms(60_000)), WhenAway::Remember);
    for cache in [&fail, &remember, &load, &line] {
        until("it is known", async || cache.get("k").await.is_ok_and(|got| got.origin() == Origin::Shared))
            .await;
    }
    // One that wants too much takes nothing from those who stand in line behind it.
    wire.set(Fault::Hang);
    let (late, content) = tokio::join!(line.get_at_least("k", 3), line.get("k"));
    assert!(matches!(late, Err(Failure::Engine(_))), "{late:?}");
    assert_eq!(told(content), ("two".into(), Origin::Away));
    wire.set(Fault::Refuse);
    for cache in [&fail, &remember] {
        let failed = cache.get_at_least("k", 3).await;
        assert!(matches!(failed, Err(Failure::Engine(_))), "{failed:?}");
    }
    for cache in [&remember, &load] {
        assert_eq!(told(cache.get_at_least("k", 2).await), ("two".into(), Origin::Away));
    }
    // A source that lags behind is of no use either, and what is remembered stays.
    source.set_version("k", "one", 1);
    let failed = load.get_at_least("k", 3).await;
    assert!(matches!(failed, Err(Failure::Behind { wanted: 3 })), "{failed:?}");
    assert_eq!(told(load.get("k").await), ("two".into(), Origin::Away));
    source.set_version("k", "three", 3);
    assert_eq!(told(load.get_at_least("k", 3).await), ("three".into(), Origin::Bypass));
    assert_eq!(told(load.get_at_least("k", 3).await), ("three".into(), Origin::Away));
}

async fn an_invalidation_that_was_not_heard_says_so(mut ground: Ground) {
    let options = ground.options().call_limit(ms(300));
    let (client, wire) = ground.client_on_wire(options).await;
    let source = Source::default();
    source.set("k", "old");
    let cache = source.cache(&client, ms(60_000));
    value(cache.get("k").await);
    source.set("k", "new");
    for fault in [Fault::Refuse, Fault::Hang, Fault::LoseAnswer] {
        wire.set(fault);
        let error = cache.invalidate("k").await.expect_err("it is not heard");
        assert!(error.is_retryable(), "{error}");
    }
    wire.set(Fault::None);
    until("it is heard", async || cache.invalidate("k").await.is_ok()).await;
    until("it is back", async || value(cache.get("k").await) == "new").await;
}

async fn a_store_that_is_paused_costs_one_deadline(mut ground: Ground) {
    let client = ground.client().await;
    let source = Source::default();
    source.set("k", "v");
    let cache = source.cache(&client, ms(60_000)).deadline(ms(2000)).expect("in range");
    until("it is known", async || cache.get("k").await.is_ok_and(|got| got.origin() == Origin::Shared)).await;
    let Some(paused) = ground.pause() else { return };
    // Whoever only looks into a file does not wait for whoever writes to it.
    let origin = if ground.promises().engine == "file" { Origin::Shared } else { Origin::Away };
    assert_eq!(told(soon("an answer", cache.get("k")).await), ("v".into(), origin));
    source.set("other", "w");
    assert_eq!(told(soon("an answer", cache.get("other")).await), ("w".into(), Origin::Bypass));
    drop(paused);
    until("it is back", async || cache.get("k").await.is_ok_and(|got| got.origin() == Origin::Shared)).await;
    until("the other too", async || {
        cache.get("other").await.is_ok_and(|got| got.value() == Some(b"w".as_slice()))
    })
    .await;
}
