//! One loads for all, and values end.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use leasehold::kit::cache::{Cache, LONGEST_VALUE, Loaded, Origin};
use tokio::task::JoinSet;

use super::{Source, caches, told, value};
use crate::bench::{Ground, ms, refuses, soon, until};
use crate::{Group, cases};

pub(super) fn group() -> Group {
    cases!(
        "cache",
        caches,
        [
            a_value_is_loaded_once_and_shared,
            many_at_once_have_one_load,
            a_hot_name_that_expires_is_loaded_once,
            a_stale_value_is_given_while_one_loads_it_again,
            a_value_is_loaded_again_before_it_expires,
            what_is_not_there_is_remembered_for_a_while,
            many_names_are_asked_for_at_once,
            hits_and_misses_take_the_calls_that_are_promised,
            a_value_that_is_too_long_is_not_kept,
            times_out_of_range_are_refused,
        ]
    )
}

async fn a_value_is_loaded_once_and_shared(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let source = Source::default();
    source.set("k", "v");
    let (one, two) = (source.cache(&one, ms(60_000)), source.cache(&two, ms(60_000)));
    assert_eq!(told(one.get("k").await), ("v".into(), Origin::Loaded));
    assert_eq!(told(one.get("k").await), ("v".into(), Origin::Shared));
    assert_eq!(told(two.get("k").await), ("v".into(), Origin::Shared));
    assert_eq!(source.loads(), 1);
    // Names are apart, whatever is in them, and so are caches.
    source.set("", "empty");
    source.set("{k}", "braces");
    assert_eq!(value(two.get("").await), "empty");
    assert_eq!(value(two.get("{k}").await), "braces");
    let figures = one.figures();
    assert_eq!((figures.loaded, figures.shared, figures.loads, figures.stored), (1, 1, 1, 1));
}

/// How often somebody has waited for the load of another client.
fn waited(caches: &[Cache]) -> u64 {
    caches.iter().map(|cache| cache.figures().waited).sum()
}

async fn many_at_once_have_one_load(mut ground: Ground) {
    let source = Source::default();
    source.set("k", "v");
    source.hold();
    let (mut caches, mut tasks) = (Vec::new(), JoinSet::new());
    for _ in 0..4 {
        caches.push(source.cache(&ground.client().await, ms(600_000)));
    }
    for cache in caches.iter().flat_map(|cache| std::iter::repeat_n(cache, 25)) {
        let cache = cache.clone();
        tasks.spawn(async move { value(cache.get("k").await) });
    }
    until("one loads, and the others wait", async || source.loads() > 0 && waited(&caches) == 3).await;
    source.go_on();
    let values = soon("all have it", tasks.join_all()).await;
    assert!(values.iter().all(|value| value == "v"));
    assert_eq!(source.loads(), 1);
}

async fn a_hot_name_that_expires_is_loaded_once(mut ground: Ground) {
    let source = Source::default();
    source.set("k", "v");
    let mut caches = Vec::new();
    for _ in 0..3 {
        let cache = source.cache(&ground.client().await, ms(1500));
        caches.push(cache.stale_for(Duration::ZERO).expect("in range"));
    }
    value(caches[0].get("k").await);
    for expiry in 1..=3 {
        // The next load is due to the end of the value and nothing else.
        source.hold();
        let (before, done) = (waited(&caches), Arc::new(AtomicBool::new(false)));
        let mut readers = JoinSet::new();
        for cache in caches.iter().flat_map(|cache| std::iter::repeat_n(cache, 10)) {
            let (cache, done) = (cache.clone(), Arc::clone(&done));
            readers.spawn(async move {
                while !done.load(Ordering::SeqCst) {
                    assert_eq!(value(cache.get("k").await), "v");
                    tokio::time::sleep(ms(2)).await;
                }
            });
        }
        until("it is loaded again, and the others wait", async || {
            source.loads() > expiry && waited(&caches) == before + 2
        })
        .await;
        done.store(true, Ordering::SeqCst);
        source.go_on();
        soon("all have it", readers.join_all()).await;
        assert_eq!(source.loads(), expiry + 1);
    }
}

async fn a_stale_value_is_given_while_one_loads_it_again(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let source = Source::default();
    source.set("k", "old");
    let cache = |client| source.cache(client, ms(300)).stale_for(ms(600_000)).expect("in range");
    let (one, two) = (cache(&one), cache(&two));
    value(one.get("k").await);
    source.set("k", "new");
    source.hold();
    until("it is stale", async || told(two.get("k").await).1 == Origin::Stale).await;
    for cache in [&one, &two] {
        assert_eq!(told(cache.get("k").await), ("old".into(), Origin::Stale));
    }
    until("one loads it", async || source.loads() == 2).await;
    source.go_on();
    until("it is new", async || value(one.get("k").await) == "new").await;
    assert_eq!(value(two.get("k").await), "new");
}

async fn a_value_is_loaded_again_before_it_expires(mut ground: Ground) {
    let source = Source::default();
    source.set("k", "old");
    // A load takes 300 ms: on the average a caller is early by 20 times that.
    let cache = source.cache(&ground.client().await, ms(20_000)).early(20.0).expect("in range");
    source.hold();
    let first = tokio::spawn({
        let cache = cache.clone();
        async move { value(cache.get("k").await) }
    });
    until("it is loaded", async || source.loads() == 1).await;
    tokio::time::sleep(ms(300)).await;
    source.go_on();
    assert_eq!(soon("the first", first).await.expect("no panic"), "old");
    source.set("k", "new");
    until("it is loaded early", async || {
        let (value, origin) = told(cache.get("k").await);
        assert_ne!(origin, Origin::Stale, "it is fresh all the time");
        value == "new"
    })
    .await;
}

async fn what_is_not_there_is_remembered_for_a_while(mut ground: Ground) {
    let source = Source::default();
    let cache = source.cache(&ground.client().await, ms(600_000)).none_for(ms(400)).expect("in range");
    assert_eq!(told(cache.get("k").await), ("(none)".into(), Origin::Loaded));
    assert_eq!(told(cache.get("k").await), ("(none)".into(), Origin::Shared));
    source.set("k", "v");
    until("it is there", async || value(cache.get("k").await) == "v").await;
    assert_eq!(source.loads(), 2);
    // An empty value is not none.
    source.set("empty", "");
    assert_eq!(cache.get("empty").await.expect("a value").value(), Some([].as_slice()));
    assert_eq!(cache.get("empty").await.expect("a value").value(), Some([].as_slice()));
}

async fn many_names_are_asked_for_at_once(mut ground: Ground) {
    let source = Source::default();
    let names: Vec<String> = (0..50).map(|number| format!("k{number}")).collect();
    names.iter().filter(|name| name.len() == 3).for_each(|name| source.set(name, name));
    let cache = source.cache(&ground.client().await, ms(60_000));
    // The last ones are there already, so they are answered first.
    for name in &names[40..] {
        assert_eq!(value(cache.get(name).await), *name);
    }
    for _ in 0..2 {
        let got = soon("all", cache.get_many(&names)).await;
        assert_eq!(got.len(), names.len());
        for (name, got) in names.iter().zip(got) {
            assert_eq!(value(got), if name.len() == 3 { name.as_str() } else { "(none)" });
        }
    }
    assert_eq!(source.loads(), 50);
    // One name twice is loaded once.
    soon("both", cache.get_many(["twice", "twice"])).await;
    assert_eq!(source.loads(), 51);
    assert!(cache.get_many::<&str>([]).await.is_empty());
}

/// Of the engine; docs/cache.md says how many round trips each of them is.
async fn hits_and_misses_take_the_calls_that_are_promised(mut ground: Ground) {
    const TIMES: usize = 50;
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let source = Source::default();
    let shared = source.cache(&client, ms(60_000));
    // Nothing but these goes over the wire.
    let calls = async |cache: &Cache, name: &str, origin: Origin| {
        let before = wire.calls();
        assert_eq!(told(cache.get(name).await).1, origin);
        wire.calls() - before
    };
    for number in 0..TIMES {
        let name = format!("k{number}");
        assert_eq!(calls(&shared, &name, Origin::Loaded).await, 2, "a miss looks, and stores");
        assert_eq!(calls(&shared, &name, Origin::Shared).await, 1, "a hit looks");
    }
    let names: Vec<String> = (0..TIMES).map(|number| format!("k{number}")).collect();
    let before = wire.calls();
    assert!(shared.get_many(&names).await.iter().all(Result::is_ok));
    assert_eq!(wire.calls() - before, TIMES, "each of many is a call");
    let local = source.cache(&client, ms(60_000)).local_for(ms(60_000)).expect("in range");
    until("it is remembered", async || told(local.get("k0").await).1 == Origin::Local).await;
    // Not even one that is begun and not waited for. Whoever listens for news makes a call now and
    // then, which may be in between.
    let mut with_calls = 0;
    for _ in 0..TIMES {
        let before = wire.calls();
        let mut hit = pin!(local.get("k0"));
        let hit = futures_util::poll!(&mut hit);
        let Poll::Ready(hit) = hit else { panic!("a hit waits for nobody") };
        assert_eq!(told(hit).1, Origin::Local);
        with_calls += usize::from(wire.calls() > before);
    }
    assert!(with_calls <= 3, "{with_calls} of {TIMES} hits made calls");
}

async fn a_value_that_is_too_long_is_not_kept(mut ground: Ground) {
    let source = Source::default();
    let cache = source.cache(&ground.client().await, ms(60_000));
    source.set("longest", &"x".repeat(LONGEST_VALUE));
    source.set("longer", &"x".repeat(LONGEST_VALUE + 1));
    for _ in 0..2 {
        assert_eq!(value(cache.get("longest").await).len(), LONGEST_VALUE);
        assert_eq!(value(cache.get("longer").await).len(), LONGEST_VALUE + 1);
    }
    assert_eq!(source.loads(), 3);
}

async fn times_out_of_range_are_refused(mut ground: Ground) {
    let client = ground.client().await;
    let cache = |fresh| client.cache("x", fresh, |_| async { Ok::<_, String>(Loaded::none()) });
    assert!(cache(Duration::ZERO).is_err() && cache(Duration::MAX).is_err());
    let cache = cache(ms(1000)).expect("in range");
    assert!(cache.clone().lease(ms(1)).is_err() && cache.clone().jitter(91).is_err());
    assert!(cache.clone().stale_for(Duration::MAX).is_err());
    assert!(cache.invalidate_version("k", 0).await.is_err());
    assert!(cache.invalidate_version("k", 1 << 52).await.is_err());
    if !matches!(ground.promises().engine, "mysql" | "postgres") {
        refuses(client.outbox("x"));
    }
}
