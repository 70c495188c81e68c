//! The cache: one loads for all, and an invalidation holds.

mod consistency;
mod filters;
mod outage;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod outbox;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::Client;
use leasehold::kit::cache::{Cache, Failure, Got, LONGEST_VALUE, Loaded, Origin};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bench::{Ground, ms, refuses, soon, until};
use crate::{Group, cases};

pub(crate) fn groups() -> Vec<Group> {
    vec![group(), consistency::group(), outage::group(), filters::group()]
}

fn group() -> Group {
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
            a_load_that_fails_is_told_to_all_who_wait,
            a_stale_value_is_given_while_loads_fail,
            a_loader_that_panics_is_a_load_that_failed,
            loads_at_once_are_limited,
            a_caller_waits_only_so_long,
            a_caller_that_leaves_takes_nothing_from_the_others,
            many_names_are_asked_for_at_once,
            a_long_load_keeps_its_name,
            whoever_loads_and_dies_is_replaced,
            a_value_that_is_too_long_is_not_kept,
            times_out_of_range_are_refused,
        ]
    )
}

/// The ground, if its engine has cells; if not, it must refuse caches.
pub(crate) async fn caches(mut ground: Ground) -> Option<Ground> {
    if ground.promises().cells {
        return Some(ground);
    }
    let client = ground.client().await;
    refuses(client.cache("x", ms(1000), |_| async { Ok::<_, String>(Loaded::none()) }));
    refuses(client.filter("x"));
    refuses(client.outbox("x"));
    None
}

/// A source that counts how often it is asked.
#[derive(Clone, Default)]
pub(crate) struct Source(Arc<Inside>);

struct Inside {
    values: Mutex<HashMap<String, (String, u64)>>,
    loads: AtomicU32,
    /// How many loads run now, and the most that ever did.
    running: AtomicU32,
    most: AtomicU32,
    fails: AtomicBool,
    /// Whether loads go on after they have read.
    open: watch::Sender<bool>,
}

impl Default for Inside {
    fn default() -> Inside {
        Inside {
            values: Mutex::default(),
            loads: AtomicU32::new(0),
            running: AtomicU32::new(0),
            most: AtomicU32::new(0),
            fails: AtomicBool::new(false),
            open: watch::Sender::new(true),
        }
    }
}

impl Source {
    pub(crate) fn set(&self, name: &str, value: &str) {
        self.set_version(name, value, 0);
    }

    pub(crate) fn set_version(&self, name: &str, value: &str, version: u64) {
        self.0.values.lock().expect("no panic").insert(name.to_owned(), (value.to_owned(), version));
    }

    /// How many loads were begun.
    pub(crate) fn loads(&self) -> u32 {
        self.0.loads.load(Ordering::SeqCst)
    }

    /// From now on loads stop after they have read, until this is undone.
    pub(crate) fn hold(&self) {
        self.0.open.send_replace(false);
    }

    pub(crate) fn go_on(&self) {
        self.0.open.send_replace(true);
    }

    pub(crate) fn fail(&self, fails: bool) {
        self.0.fails.store(fails, Ordering::SeqCst);
    }

    async fn load(self, name: String) -> Result<Loaded, String> {
        let inside = &self.0;
        inside.loads.fetch_add(1, Ordering::SeqCst);
        let running = inside.running.fetch_add(1, Ordering::SeqCst) + 1;
        inside.most.fetch_max(running, Ordering::SeqCst);
        let read = inside.values.lock().expect("no panic").get(&name).cloned();
        // A load takes a while, so that others come meanwhile.
        tokio::time::sleep(ms(20)).await;
        inside.open.subscribe().wait_for(|open| *open).await.expect("the source is there");
        inside.running.fetch_sub(1, Ordering::SeqCst);
        if inside.fails.load(Ordering::SeqCst) {
            return Err("the source is down".into());
        }
        Ok(match read {
            Some((value, version)) => Loaded::value(value).version(version),
            None => Loaded::none(),
        })
    }

    /// A cache of this source, without anything left to chance.
    pub(crate) fn cache(&self, client: &Client, fresh: Duration) -> Cache {
        let source = self.clone();
        let cache = client.cache("x", fresh, move |name| source.clone().load(name)).expect("a cache");
        let cache = cache.jitter(0).and_then(|cache| cache.early(0.0)).expect("in range");
        // Servers of a busy machine may take their time.
        cache.deadline(ms(10_000)).and_then(|cache| cache.wait_limit(ms(60_000))).expect("in range")
    }
}

/// The value, and where it came from.
#[track_caller]
pub(crate) fn told(got: Result<Got, Failure>) -> (String, Origin) {
    let got = got.expect("a value");
    let value = got.value().map_or("(none)".into(), |value| String::from_utf8_lossy(value).into_owned());
    (value, got.origin())
}

#[track_caller]
pub(crate) fn value(got: Result<Got, Failure>) -> String {
    told(got).0
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

async fn many_at_once_have_one_load(mut ground: Ground) {
    let source = Source::default();
    source.set("k", "v");
    source.hold();
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let cache = source.cache(&ground.client().await, ms(600_000));
        for _ in 0..25 {
            let cache = cache.clone();
            tasks.spawn(async move { value(cache.get("k").await) });
        }
    }
    until("one loads", async || source.loads() > 0).await;
    tokio::time::sleep(ms(50)).await;
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
        let cache = source.cache(&ground.client().await, ms(700));
        caches.push(cache.stale_for(Duration::ZERO).expect("in range"));
    }
    value(caches[0].get("k").await);
    for expiry in 1..=3 {
        // Readers that never stop; the next load is due to the end of the value and nothing else.
        until("it was loaded again", async || {
            let mut tasks = JoinSet::new();
            for cache in caches.iter().flat_map(|cache| std::iter::repeat_n(cache, 10)) {
                let cache = cache.clone();
                tasks.spawn(async move { value(cache.get("k").await) });
            }
            assert!(tasks.join_all().await.iter().all(|value| value == "v"));
            source.loads() > expiry
        })
        .await;
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
    let cache = source.cache(&ground.client().await, ms(60_000)).loads_at_once(3).expect("in range");
    let names: Vec<String> = (0..12).map(|number| format!("k{number}")).collect();
    let got = soon("all", cache.get_many(&names)).await;
    assert!(got.iter().all(Result::is_ok));
    assert_eq!(source.loads(), 12);
    let most = source.0.most.load(Ordering::SeqCst);
    assert!((2..=3).contains(&most), "{most}");
}

async fn a_caller_waits_only_so_long(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let source = Source::default();
    source.set("k", "v");
    source.hold();
    let (one, two) = (source.cache(&one, ms(60_000)), source.cache(&two, ms(60_000)));
    let brief = two.wait_limit(ms(100)).expect("in range");
    let first = tokio::spawn({
        let one = one.clone();
        async move { value(one.get("k").await) }
    });
    until("it is loaded", async || source.loads() == 1).await;
    let late = brief.get("k").await;
    assert!(matches!(late, Err(Failure::TimedOut)), "{late:?}");
    source.go_on();
    assert_eq!(soon("the value", first).await.expect("no panic"), "v");
    until("it is there", async || brief.get("k").await.is_ok()).await;
    assert_eq!(source.loads(), 1);
}

async fn a_caller_that_leaves_takes_nothing_from_the_others(mut ground: Ground) {
    let source = Source::default();
    source.set("k", "v");
    source.hold();
    let cache = source.cache(&ground.client().await, ms(60_000));
    let mut tasks: Vec<_> = (0..5)
        .map(|_| {
            let cache = cache.clone();
            tokio::spawn(async move { value(cache.get("k").await) })
        })
        .collect();
    until("it is loaded", async || source.loads() == 1).await;
    let last = tasks.pop().expect("five");
    for task in tasks {
        task.abort();
        task.await.ok();
        tokio::task::yield_now().await;
    }
    source.go_on();
    assert_eq!(soon("the value", last).await.expect("no panic"), "v");
    assert_eq!(source.loads(), 1);
}

async fn many_names_are_asked_for_at_once(mut ground: Ground) {
    let source = Source::default();
    let names: Vec<String> = (0..50).map(|number| format!("k{number}")).collect();
    names.iter().filter(|name| name.len() == 3).for_each(|name| source.set(name, name));
    let cache = source.cache(&ground.client().await, ms(60_000));
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

async fn a_long_load_keeps_its_name(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let source = Source::default();
    source.set("k", "v");
    source.hold();
    let cache = |client| source.cache(client, ms(60_000)).lease(ms(600)).expect("in range");
    let (one, two) = (cache(&one), cache(&two));
    let tasks: Vec<_> =
        [one, two].map(|cache| tokio::spawn(async move { value(cache.get("k").await) })).into();
    until("it is loaded", async || source.loads() == 1).await;
    tokio::time::sleep(ms(1500)).await;
    source.go_on();
    for task in tasks {
        assert_eq!(soon("the value", task).await.expect("no panic"), "v");
    }
    assert_eq!(source.loads(), 1);
}

async fn whoever_loads_and_dies_is_replaced(mut ground: Ground) {
    let Some(mut child) = ground.child().await else { return };
    let source = Source::default();
    source.set("k", "v");
    // It says that it loads `k`, for a lease of this long, and never ends.
    assert_eq!(child.ask("cache x k 1500").await, "loading");
    let cache = source.cache(&ground.client().await, ms(60_000)).lease(ms(1500)).expect("in range");
    let brief = cache.clone().wait_limit(ms(100)).expect("in range");
    let waits = brief.get("k").await;
    assert!(matches!(waits, Err(Failure::TimedOut)), "{waits:?}");
    assert_eq!(source.loads(), 0);
    child.kill().await;
    assert_eq!(told(soon("the value", cache.get("k")).await), ("v".into(), Origin::Loaded));
    assert_eq!(source.loads(), 1);
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
