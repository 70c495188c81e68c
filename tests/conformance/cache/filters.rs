//! Filters of the names that exist.

use std::task::{Context, Poll, Waker};

use leasehold::kit::cache::{Failure, Origin};

use super::{Source, caches, told, value};
use crate::bench::{Ground, ms, until};
use crate::cells::name;
use crate::wire::Fault;
use crate::{Group, cases};

pub(super) fn group() -> Group {
    cases!(
        "cache_filter",
        caches,
        [
            a_filter_that_was_not_built_refuses_nobody,
            names_that_do_not_exist_are_not_loaded,
            what_is_added_is_known_to_all,
            what_is_added_while_it_is_built_is_in_it,
            a_build_ends_while_names_are_added_all_the_time,
            a_part_that_is_missing_refuses_nobody,
            a_copy_that_is_not_confirmed_refuses_nobody,
            whoever_wants_a_version_is_not_refused,
            a_filter_that_is_too_large_is_refused,
        ]
    )
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("user{number}"))
}

async fn a_filter_that_was_not_built_refuses_nobody(mut ground: Ground) {
    let client = ground.client().await;
    let filter = client.filter("users").expect("a filter");
    assert!(filter.may_have("anybody"));
    assert!(!filter.load().await.expect("an answer"));
    assert!(filter.may_have("anybody"));
    filter.add("somebody").await.expect("an answer");
    let source = Source::default();
    let cache = source.cache(&client, ms(60_000)).filtered_by(&filter).expect("a cache");
    assert_eq!(told(cache.get("anybody").await).1, Origin::Loaded);
}

async fn names_that_do_not_exist_are_not_loaded(mut ground: Ground) {
    const NAMES: usize = 10_000;
    let (one, two) = (ground.client().await, ground.client().await);
    let filter = one.filter("users").expect("a filter");
    for round in 1..=2 {
        // Built again, the second one knows what is gone.
        let mut build = filter.build(NAMES as u64, 0.01).await.expect("an answer");
        names(NAMES / round).for_each(|name| build.insert(name));
        assert!(build.finish().await.expect("an answer"));
        let other = two.filter("users").expect("a filter");
        assert!(other.load().await.expect("an answer"));
        for filter in [&filter, &other] {
            assert!(names(NAMES / round).all(|name| filter.may_have(&name)), "no name is refused");
            let wrong = (0..NAMES).filter(|number| filter.may_have(&format!("nobody{number}"))).count();
            assert!(wrong < NAMES / 50, "{wrong} of {NAMES}");
        }
        let source = Source::default();
        let cache = source.cache(&two, ms(60_000)).filtered_by(&other).expect("a cache");
        let strangers: Vec<_> = (0..100).map(|number| format!("stranger{number}-{round}")).collect();
        let refused = cache.get_many(&strangers).await;
        let filtered = refused.into_iter().filter(|got| {
            got.as_ref().is_ok_and(|got| got.origin() == Origin::Filter && got.value().is_none())
        });
        assert!(filtered.count() > 80);
        assert!(source.loads() < 20, "{}", source.loads());
        source.set("user7", "v");
        cache.invalidate("user7").await.expect("an answer");
        assert_eq!(value(cache.get("user7").await), "v");
    }
}

async fn what_is_added_is_known_to_all(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let (filter, other) = (one.filter("users").expect("a filter"), two.filter("users").expect("a filter"));
    let build = filter.build(1000, 0.001).await.expect("an answer");
    assert!(build.finish().await.expect("an answer"));
    assert!(other.load().await.expect("an answer"));
    let new: Vec<String> = names(20).collect();
    assert!(new.iter().any(|name| !other.may_have(name)));
    for name in &new {
        filter.add(name).await.expect("an answer");
        assert!(filter.may_have(name));
    }
    until("it is told", async || new.iter().all(|name| other.may_have(name))).await;
    assert!(!other.may_have("nobody") || !other.may_have("nobody else"));
}

async fn what_is_added_while_it_is_built_is_in_it(mut ground: Ground) {
    let client = ground.client().await;
    let filter = client.filter("users").expect("a filter");
    // Also while it is built for the first time.
    let first = filter.build(1000, 0.001).await.expect("an answer");
    filter.add("early").await.expect("an answer");
    assert!(filter.may_have("early") && filter.may_have("nobody"), "there is none yet");
    assert!(!filter.load().await.expect("an answer"));
    assert!(first.finish().await.expect("an answer"));
    assert!(filter.may_have("early"));
    let build = filter.build(1000, 0.001).await.expect("an answer");
    let outdated = filter.build(1000, 0.001).await.expect("an answer");
    let new: Vec<String> = names(20).collect();
    for name in &new {
        filter.add(name).await.expect("an answer");
    }
    // The last that was begun or finished counts; one that is older says so.
    let (first, second) = (build.finish().await, outdated.finish().await);
    assert!(first.expect("an answer") || second.expect("an answer"));
    let fresh = ground.client().await.filter("users").expect("a filter");
    assert!(fresh.load().await.expect("an answer"));
    assert!(new.iter().all(|name| fresh.may_have(name)));
    assert!(!fresh.may_have("nobody") || !fresh.may_have("nobody else"));
}

async fn a_build_ends_while_names_are_added_all_the_time(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let adds = ground.client().await.filter("users").expect("a filter");
    let filter = client.filter("users").expect("a filter");
    // Of so many parts that they are written in several calls.
    let mut build = filter.build(80_000, 0.001).await.expect("an answer");
    build.insert("first");
    wire.set(Fault::Stutter);
    let mut added = vec!["first".to_owned()];
    let mut finishing = std::pin::pin!(build.finish());
    let mut calls = wire.calls();
    let finished = loop {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(finished) = finishing.as_mut().poll(&mut context) {
            break finished;
        }
        // One is added before each of its calls is carried out.
        if wire.calls() > calls {
            calls = wire.calls();
            let new = format!("user{}", added.len());
            adds.add(&new).await.expect("an answer");
            added.push(new);
            assert!(added.len() < 100, "it does not end");
        }
        tokio::time::sleep(ms(1)).await;
    };
    wire.set(Fault::None);
    assert!(finished.expect("an answer"));
    assert!(added.len() > 5, "{}", added.len());
    for filter in [&filter, &adds, &ground.client().await.filter("users").expect("a filter")] {
        assert!(filter.load().await.expect("an answer"));
        assert!(added.iter().all(|name| filter.may_have(name)));
        assert!(!filter.may_have("nobody") || !filter.may_have("nobody else"));
    }
}

async fn a_part_that_is_missing_refuses_nobody(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let filter = client.filter("users").expect("a filter");
    assert!(filter.build(1, 0.001).await.expect("an answer").finish().await.expect("an answer"));
    assert!(!filter.may_have("nobody"));
    let cells = engine.list_cells("cache-filter/{users}/", None, 100).await.expect("an answer");
    let head = name("cache-filter/{users}/head");
    let part = cells.into_iter().find(|cell| *cell != head).expect("a part");
    let found = engine.read(std::slice::from_ref(&part)).await.expect("an answer");
    let (version, write) = (found.cells[0].version, leasehold::engine::Write::Delete);
    engine.swap(vec![leasehold::engine::Swap { name: part, version, write }]).await.expect("an answer");
    let other = ground.client().await.filter("users").expect("a filter");
    assert!(other.load().await.expect("an answer"));
    assert!(other.may_have("nobody"));
    // What is added to it is no reason to believe in it.
    other.add("somebody").await.expect("an answer");
    assert!(other.may_have("nobody"));
}

async fn a_copy_that_is_not_confirmed_refuses_nobody(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let filter = client.filter("users").expect("a filter");
    assert!(filter.build(1, 0.001).await.expect("an answer").finish().await.expect("an answer"));
    until("it is read", async || !filter.may_have("nobody")).await;
    // Others may have added names meanwhile.
    wire.set(Fault::Refuse);
    until("it is not believed any more", async || filter.may_have("nobody")).await;
    wire.set(Fault::None);
    until("it is confirmed", async || !filter.may_have("nobody")).await;
}

async fn whoever_wants_a_version_is_not_refused(mut ground: Ground) {
    let client = ground.client().await;
    let filter = client.filter("users").expect("a filter");
    assert!(filter.build(1, 0.001).await.expect("an answer").finish().await.expect("an answer"));
    assert!(!filter.may_have("new"));
    let source = Source::default();
    let cache = source.cache(&client, ms(60_000)).filtered_by(&filter).expect("a cache");
    // Written by somebody who has not told the filter.
    source.set_version("new", "v", 3);
    assert_eq!(told(cache.get("new").await), ("(none)".into(), Origin::Filter));
    assert_eq!(told(cache.get_at_least("new", 3).await), ("v".into(), Origin::Loaded));
    let behind = cache.get_at_least("new", 4).await;
    assert!(matches!(behind, Err(Failure::Behind { wanted: 4 })), "{behind:?}");
}

async fn a_filter_that_is_too_large_is_refused(mut ground: Ground) {
    let filter = ground.client().await.filter("users").expect("a filter");
    assert!(filter.build(u64::MAX, 0.01).await.is_err());
    assert!(filter.build(10, 0.0).await.is_err() && filter.build(10, 1.0).await.is_err());
}
