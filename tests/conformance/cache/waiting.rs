//! Those who wait for the load of another.

use std::time::Duration;

use leasehold::kit::cache::{Failure, Origin};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Source, caches, told, value};
use crate::bench::{Ground, ms, soon, until};
use crate::{Group, cases};

pub(super) fn group() -> Group {
    cases!(
        "cache",
        caches,
        [
            a_caller_waits_only_so_long,
            every_caller_waits_for_its_own_time,
            a_caller_that_leaves_takes_nothing_from_the_others,
            a_long_load_keeps_its_name,
            whoever_loads_and_dies_is_replaced,
            those_who_wait_are_woken_and_do_not_ask_again_and_again,
        ]
    )
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

async fn every_caller_waits_for_its_own_time(mut ground: Ground) {
    const LIMIT: Duration = ms(1000);
    let (one, two) = (ground.client().await, ground.client().await);
    let source = Source::default();
    source.hold();
    let one = source.cache(&one, ms(60_000));
    let loading = tokio::spawn(async move { told(one.get("k").await) });
    until("it is loaded", async || source.loads() == 1).await;
    let waits = source.cache(&two, ms(60_000)).wait_limit(LIMIT).expect("in range");
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let (begun, waits) = (Instant::now(), waits.clone());
        callers.spawn(async move { (waits.get("k").await, begun.elapsed()) });
        // The next one comes later, and stands in line behind it.
        until("it is later", async || begun.elapsed() >= ms(100)).await;
    }
    for (got, waited) in soon("all are told", callers.join_all()).await {
        assert!(matches!(got, Err(Failure::TimedOut)), "{got:?}");
        assert!(waited >= LIMIT, "told after {waited:?}");
    }
    source.go_on();
    assert_eq!(soon("the value", loading).await.expect("no panic").1, Origin::Loaded);
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

async fn those_who_wait_are_woken_and_do_not_ask_again_and_again(mut ground: Ground) {
    // Whoever is not told looks again after this long at the most, and after a second at the least.
    const LOOKS: Duration = ms(1500);
    const ROUNDS: u64 = 5;
    let source = Source::default();
    // It is not renewed here: that would be a change of the entry.
    let long = |client| source.cache(client, ms(600_000)).lease(ms(600_000)).expect("in range");
    let (other, options) = (ground.client().await, ground.options());
    let (client, wire) = ground.client_on_wire(options).await;
    let (loads, waits) = (long(&other), long(&client));
    let mut fastest = Duration::MAX;
    for round in 1..=ROUNDS {
        let name = format!("k{round}");
        source.set(&name, "v");
        source.hold();
        let loading = tokio::spawn({
            let (cache, name) = (loads.clone(), name.clone());
            async move { value(cache.get(name).await) }
        });
        until("it is loaded", async || u64::from(source.loads()) == round).await;
        let (begun, calls) = (Instant::now(), wire.calls());
        let mut tasks = JoinSet::new();
        for _ in 0..40 {
            let (cache, name) = (waits.clone(), name.clone());
            tasks.spawn(async move { (told(cache.get(name).await), Instant::now()) });
        }
        until("they wait", async || waits.figures().waited == round).await;
        // They are watched for a while.
        tokio::time::sleep(ms(500)).await;
        let released = Instant::now();
        source.go_on();
        let mut last = released;
        for (got, at) in soon("they are woken", tasks.join_all()).await {
            assert_eq!(got, ("v".into(), Origin::Shared));
            last = last.max(at);
        }
        fastest = fastest.min(last - released);
        assert_eq!(soon("the value", loading).await.expect("no panic"), "v");
        // One of them asks for all: it looks, begins to listen, looks again, and once more when it
        // is told. The end of the listening of the last round may come late, and whoever begins to
        // listen may be told of the change before that.
        let (calls, looks) = (wire.calls() - calls, begun.elapsed().as_secs() as usize);
        assert!(calls <= 9 + looks, "{calls} calls in {:?}", begun.elapsed());
    }
    let hears = !matches!(ground.word(), "mysql" | "pgbouncer");
    let limit = if hears { LOOKS / 5 } else { LOOKS };
    assert!(fastest <= limit, "the fastest of {ROUNDS} took {fastest:?}");
}
