//! What readers see after an invalidation.

use std::task::Poll;

use leasehold::Client;
use leasehold::kit::cache::{Comparison, Failure, Origin};
use tokio::task::JoinSet;

use super::{Source, caches, told, value};
use crate::bench::{Ground, ms, soon, until};
use crate::cells::name;
use crate::wire::Fault;
use crate::{Group, cases};

pub(super) fn group() -> Group {
    cases!(
        "cache_consistency",
        caches,
        [
            an_invalidation_is_seen_by_all,
            a_load_that_began_before_an_invalidation_is_not_kept,
            whoever_joins_after_an_invalidation_gets_nothing_of_before,
            whoever_joins_a_memory_after_an_invalidation_gets_nothing_of_before,
            the_result_of_a_lost_lease_is_discarded,
            a_lost_answer_to_a_store_does_no_harm,
            a_caller_dropped_at_any_point_leaves_nothing,
            no_reader_gets_what_was_invalidated,
            a_local_value_costs_nothing_and_is_forgotten_when_told,
            a_local_value_is_forgotten_by_whoever_invalidates,
            a_local_value_is_forgotten_in_time_if_nobody_tells,
            versions_keep_out_a_source_that_lags,
            versions_keep_out_a_source_that_lacks_the_row,
            a_late_invalidation_leaves_what_is_newer,
            whoever_has_written_reads_no_earlier_version,
            differences_are_found,
            a_cell_of_something_else_is_no_entry,
        ]
    )
}

async fn an_invalidation_is_seen_by_all(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let source = Source::default();
    let (one, two) = (source.cache(&one, ms(60_000)), source.cache(&two, ms(60_000)));
    for round in 0..5 {
        source.set("k", &round.to_string());
        one.invalidate("k").await.expect("an answer");
        assert_eq!(value(two.get("k").await), round.to_string());
        assert_eq!(value(one.get("k").await), round.to_string());
    }
    assert_eq!(source.loads(), 5);
    // What is not there is invalidated too, as is "there is none".
    two.invalidate("never").await.expect("an answer");
    assert_eq!(value(one.get("late").await), "(none)");
    source.set("late", "v");
    two.invalidate("late").await.expect("an answer");
    assert_eq!(value(one.get("late").await), "v");
}

async fn a_load_that_began_before_an_invalidation_is_not_kept(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let source = Source::default();
    source.set("k", "old");
    let (one, two) = (source.cache(&one, ms(60_000)), source.cache(&two, ms(60_000)));
    source.hold();
    let early = tokio::spawn({
        let one = one.clone();
        async move { told(one.get("k").await) }
    });
    // It is counted when it has read the old value; only then is that changed.
    until("it is loaded", async || source.loads() == 1).await;
    source.set("k", "new");
    two.invalidate("k").await.expect("an answer");
    source.go_on();
    // It asked before the invalidation, so either is right for it.
    let (early, origin) = soon("the first", early).await.expect("no panic");
    assert!((early == "old" && origin == Origin::Loaded) || early == "new", "{early} {origin:?}");
    for cache in [&one, &two] {
        assert_eq!(value(cache.get("k").await), "new");
    }
    assert_eq!(one.figures().discarded, 1);
}

async fn whoever_joins_after_an_invalidation_gets_nothing_of_before(mut ground: Ground) {
    let (client, other) = (ground.client().await, ground.client().await);
    let source = Source::default();
    source.set("k", "old");
    let (cache, other) = (source.cache(&client, ms(60_000)), source.cache(&other, ms(60_000)));
    source.hold();
    let early = tokio::spawn({
        let cache = cache.clone();
        async move { cache.get("k").await }
    });
    until("it is loaded", async || source.loads() == 1).await;
    source.set("k", "new");
    other.invalidate("k").await.expect("an answer");
    // In line behind the load of before.
    let mut late: Vec<_> = (0..10).map(|_| Box::pin(cache.get("k"))).collect();
    for getting in &mut late {
        let polled = std::future::poll_fn(|context| Poll::Ready(getting.as_mut().poll(context).is_ready()));
        assert!(!polled.await, "it does not wait");
    }
    source.go_on();
    soon("the first", early).await.expect("no panic").expect("a value");
    for late in late {
        assert_eq!(value(soon("the others", late).await), "new");
    }
}

async fn whoever_joins_a_memory_after_an_invalidation_gets_nothing_of_before(mut ground: Ground) {
    let client = ground.client().await;
    let source = Source::default();
    source.set("k", "old");
    let cache = source.cache(&client, ms(60_000)).local_for(ms(60_000)).expect("in range");
    source.hold();
    let early = tokio::spawn({
        let cache = cache.clone();
        async move { cache.get("k").await }
    });
    until("it is loaded", async || source.loads() == 1).await;
    source.set("k", "new");
    // This process forgets at once, whatever is under way.
    cache.invalidate("k").await.expect("an answer");
    let mut late = Box::pin(cache.get("k"));
    let polled = std::future::poll_fn(|context| Poll::Ready(late.as_mut().poll(context).is_ready()));
    assert!(!polled.await, "it does not wait");
    source.go_on();
    soon("the first", early).await.expect("no panic").expect("a value");
    assert_eq!(value(soon("the other", late).await), "new");
}

async fn the_result_of_a_lost_lease_is_discarded(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let (slow, source) = (Source::default(), Source::default());
    slow.set("k", "late");
    source.set("k", "in time");
    slow.hold();
    let cache = slow.cache(&client, ms(60_000)).lease(ms(500)).expect("in range");
    let lost = tokio::spawn({
        let cache = cache.clone();
        async move { value(cache.get("k").await) }
    });
    until("it is loaded", async || slow.loads() == 1).await;
    wire.set(Fault::Hang);
    let other = source.cache(&other, ms(60_000)).lease(ms(500)).expect("in range");
    assert_eq!(told(soon("another loads", other.get("k")).await), ("in time".into(), Origin::Loaded));
    wire.set(Fault::None);
    slow.go_on();
    // Of use to its own caller, who asked before all of this, and to nobody else.
    assert_eq!(soon("the first", lost).await.expect("no panic"), "late");
    until("it is discarded", async || cache.figures().discarded == 1).await;
    assert_eq!(value(other.get("k").await), "in time");
    until("it is heard again", async || value(cache.get("k").await) == "in time").await;
}

async fn a_lost_answer_to_a_store_does_no_harm(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let source = Source::default();
    source.set("k", "v");
    source.hold();
    let cache = source.cache(&client, ms(60_000));
    let first = tokio::spawn({
        let cache = cache.clone();
        async move { value(cache.get("k").await) }
    });
    until("it is loaded", async || source.loads() == 1).await;
    wire.set(Fault::LoseAnswer);
    source.go_on();
    // The caller need not wait for it.
    assert_eq!(soon("the value", first).await.expect("no panic"), "v");
    wire.set(Fault::None);
    until("it is stored, once", async || cache.figures().stored == 1).await;
    assert_eq!(told(source.cache(&ground.client().await, ms(60_000)).get("k").await).1, Origin::Shared);
    assert_eq!((source.loads(), cache.figures().discarded), (1, 0));
}

async fn a_caller_dropped_at_any_point_leaves_nothing(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let source = Source::default();
    // Much longer than anybody waits here: a right to load that is left behind would be seen.
    let cache = |client| source.cache(client, ms(600_000)).lease(ms(600_000)).expect("in range");
    let (cache, other) = (cache(&client), cache(&other));
    for polls in 0..10 {
        let name = format!("k{polls}");
        source.set(&name, "v");
        wire.set(Fault::Stutter);
        {
            let mut getting = Box::pin(cache.get(&name));
            for _ in 0..polls {
                let polled =
                    std::future::poll_fn(|context| Poll::Ready(getting.as_mut().poll(context).is_ready()));
                if polled.await {
                    break;
                }
                tokio::time::sleep(ms(1)).await;
            }
        }
        wire.set(Fault::None);
        assert_eq!(value(soon("another gets it", other.get(&name)).await), "v");
    }
}

/// Readers and writers that never stop: what a reader gets is not older than the last invalidation
/// that had returned before it asked.
async fn no_reader_gets_what_was_invalidated(mut ground: Ground) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    const WRITES: u64 = 60;
    let source = Source::default();
    source.set("k", "0");
    let acknowledged = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for _ in 0..3 {
        let cache = source.cache(&ground.client().await, ms(100)).stale_for(ms(60_000)).expect("in range");
        for _ in 0..8 {
            let (cache, acknowledged, done) = (cache.clone(), Arc::clone(&acknowledged), Arc::clone(&done));
            readers.spawn(async move {
                let mut reads = 0;
                while !done.load(Ordering::SeqCst) {
                    let at_least = acknowledged.load(Ordering::SeqCst);
                    let (value, origin) = told(cache.get("k").await);
                    let value: u64 = value.parse().expect("a number");
                    assert!(value >= at_least, "{value} after {at_least}, {origin:?}");
                    reads += 1;
                    tokio::time::sleep(ms(1)).await;
                }
                reads
            });
        }
    }
    let writer = source.cache(&ground.client().await, ms(60_000));
    for write in 1..=WRITES {
        source.set("k", &write.to_string());
        writer.invalidate("k").await.expect("an answer");
        acknowledged.store(write, Ordering::SeqCst);
        tokio::time::sleep(ms(write % 30)).await;
    }
    done.store(true, Ordering::SeqCst);
    let reads: u64 = soon("readers end", readers.join_all()).await.iter().sum();
    assert!(reads > WRITES, "{reads}");
}

async fn a_local_value_costs_nothing_and_is_forgotten_when_told(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let other = ground.client().await;
    let source = Source::default();
    source.set("k", "old");
    let cache = source.cache(&client, ms(600_000)).local_for(ms(600_000)).expect("in range");
    value(cache.get("k").await);
    // Listening begins with the first value and forgets what was there before.
    until("it is local", async || told(cache.get("k").await).1 == Origin::Local).await;
    wire.set(Fault::Refuse);
    for _ in 0..3 {
        assert_eq!(told(cache.get("k").await), ("old".into(), Origin::Local));
    }
    wire.set(Fault::None);
    source.set("k", "new");
    source.cache(&other, ms(600_000)).invalidate("k").await.expect("an answer");
    until("it is told", async || value(cache.get("k").await) == "new").await;
    assert_eq!(source.loads(), 2);
}

async fn a_local_value_is_forgotten_by_whoever_invalidates(mut ground: Ground) {
    let source = Source::default();
    let client = ground.client().await;
    let cache = source.cache(&client, ms(600_000)).local_for(ms(600_000)).expect("in range");
    for round in 0..20 {
        source.set("k", &round.to_string());
        cache.invalidate("k").await.expect("an answer");
        assert_eq!(value(cache.get("k").await), round.to_string());
        assert_eq!(value(cache.get("k").await), round.to_string());
    }
}

async fn a_local_value_is_forgotten_in_time_if_nobody_tells(mut ground: Ground) {
    let source = Source::default();
    source.set("k", "old");
    let (client, engine) = (ground.client().await, ground.engine().await);
    let cache = source.cache(&client, ms(600_000)).local_for(ms(300)).expect("in range");
    value(cache.get("k").await);
    // Behind its back: nobody is told.
    source.set("k", "new");
    let found = engine.read(&[name("cache/x/{k}")]).await.expect("an answer");
    let version = found.cells[0].version;
    let write = leasehold::engine::Write::Delete;
    let swap = leasehold::engine::Swap { name: name("cache/x/{k}"), version, write };
    engine.swap(vec![swap]).await.expect("an answer");
    until("it is forgotten", async || value(cache.get("k").await) == "new").await;
}

async fn versions_keep_out_a_source_that_lags(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let (primary, replica) = (Source::default(), Source::default());
    replica.set_version("k", "old", 7);
    primary.set_version("k", "new", 8);
    let lags = replica.cache(&one, ms(60_000)).pause(ms(50)).expect("in range");
    let (two, patient) = (primary.cache(&two, ms(60_000)), ms(60_000));
    assert_eq!(value(lags.get("k").await), "old");
    two.invalidate_version("k", 8).await.expect("an answer");
    let behind = lags.get("k").await;
    assert!(matches!(behind, Err(Failure::Behind { wanted: 8 })), "{behind:?}");
    until("the primary is asked", async || two.get("k").await.is_ok()).await;
    assert_eq!(value(lags.get("k").await), "new");
    assert_eq!(two.get("k").await.expect("a value").version(), 8);
    assert_eq!(lags.figures().behind, 1);
    // An entry that is there is not replaced by an older one either.
    let shown = lags.compare("k", patient / 600).await.expect("an answer");
    assert_eq!(shown, Comparison::Different);
}

async fn versions_keep_out_a_source_that_lacks_the_row(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    // A replica that has heard of none of the rows.
    let (primary, replica) = (Source::default(), Source::default());
    let cache = |source: &Source, client: &Client| {
        let cache = source.cache(client, ms(300)).stale_for(ms(600_000)).expect("in range");
        cache.none_for(ms(600_000)).and_then(|cache| cache.pause(ms(50))).expect("in range")
    };
    let (lags, fresh) = (cache(&replica, &one), cache(&primary, &two));
    // A row is inserted.
    primary.set_version("k", "new", 1);
    fresh.invalidate_version("k", 1).await.expect("an answer");
    let behind = lags.get("k").await;
    assert!(matches!(behind, Err(Failure::Behind { wanted: 1 })), "{behind:?}");
    until("the primary is asked", async || fresh.get("k").await.is_ok()).await;
    // It is stale soon, and then the replica is asked again and again. Nothing was invalidated.
    primary.set_version("other", "new", 8);
    until("the primary is asked", async || fresh.get("other").await.is_ok()).await;
    let before = lags.figures().behind;
    until("the replica is asked", async || {
        assert_eq!(value(lags.get("k").await), "new");
        assert_eq!(value(lags.get("other").await), "new");
        lags.figures().behind >= before + 4
    })
    .await;
    // It is deleted, and that has a version too.
    primary.delete_version("k", 2);
    fresh.invalidate_version("k", 2).await.expect("an answer");
    until("the replica is asked", async || match lags.get("k").await {
        Err(Failure::Behind { wanted: 2 }) => true,
        Err(Failure::Paused { .. }) => false,
        other => panic!("{other:?}"),
    })
    .await;
    until("the primary is asked", async || fresh.get("k").await.is_ok()).await;
    for cache in [&lags, &fresh] {
        let got = cache.get_at_least("k", 2).await.expect("it is known that there is none");
        assert_eq!((got.value(), got.version()), (None, 2));
    }
    // What has no version is taken when the version of the invalidation is forgotten.
    let forgets = fresh.clone().versions_kept_for(ms(300)).expect("in range");
    forgets.invalidate_version("gone", 3).await.expect("an answer");
    until("it is forgotten", async || lags.get("gone").await.is_ok()).await;
    assert_eq!(value(lags.get("gone").await), "(none)");
}

async fn a_late_invalidation_leaves_what_is_newer(mut ground: Ground) {
    let source = Source::default();
    source.set_version("k", "v", 8);
    let cache = source.cache(&ground.client().await, ms(60_000));
    value(cache.get("k").await);
    for version in [8, 3, 8] {
        cache.invalidate_version("k", version).await.expect("an answer");
        assert_eq!(told(cache.get("k").await), ("v".into(), Origin::Shared));
    }
    source.set_version("k", "w", 9);
    cache.invalidate_version("k", 9).await.expect("an answer");
    assert_eq!(value(cache.get("k").await), "w");
    assert_eq!(source.loads(), 2);
}

async fn whoever_has_written_reads_no_earlier_version(mut ground: Ground) {
    let source = Source::default();
    source.set_version("k", "old", 1);
    let cache = source.cache(&ground.client().await, ms(60_000));
    value(cache.get("k").await);
    source.set_version("k", "new", 2);
    // Not invalidated, and yet the writer sees what it wrote, and from then on everybody.
    assert_eq!(value(cache.get("k").await), "old");
    assert_eq!(value(cache.get_at_least("k", 2).await), "new");
    assert_eq!(told(cache.get("k").await), ("new".into(), Origin::Shared));
    let behind = cache.get_at_least("k", 3).await;
    assert!(matches!(behind, Err(Failure::Behind { wanted: 3 })), "{behind:?}");
}

async fn differences_are_found(mut ground: Ground) {
    let source = Source::default();
    source.set("k", "old");
    let cache = source.cache(&ground.client().await, ms(60_000));
    assert_eq!(cache.compare("k", ms(20)).await.expect("an answer"), Comparison::Absent);
    value(cache.get("k").await);
    assert_eq!(cache.compare("k", ms(20)).await.expect("an answer"), Comparison::Same);
    source.set("k", "new");
    assert_eq!(cache.compare("k", ms(20)).await.expect("an answer"), Comparison::Different);
    let figures = cache.figures();
    assert_eq!((figures.compared, figures.different), (2, 1));
    // An invalidation that comes a little later is no difference.
    let loads = source.loads();
    let late = async {
        until("it is compared", async || source.loads() > loads).await;
        cache.invalidate("k").await
    };
    let (shown, late) = tokio::join!(cache.compare("k", ms(4000)), late);
    late.expect("an answer");
    assert_eq!(shown.expect("an answer"), Comparison::Same);
    // Samples are taken in the background.
    value(cache.get("k").await);
    source.set("k", "newer");
    until("a sample differs", async || {
        value(cache.get_sampled("k", 2, ms(1)).await);
        cache.figures().different > 1
    })
    .await;
}

async fn a_cell_of_something_else_is_no_entry(mut ground: Ground) {
    let (client, engine) = (ground.client().await, ground.engine().await);
    let value = leasehold::engine::CellValue { bytes: b"other".to_vec(), lives: ms(60_000) };
    let write = leasehold::engine::Write::Put(value);
    let swap = leasehold::engine::Swap { name: name("cache/x/{k}"), version: 0, write };
    engine.swap(vec![swap]).await.expect("an answer");
    let source = Source::default();
    let cache = source.cache(&client, ms(60_000));
    let failed = cache.get("k").await;
    assert!(matches!(failed, Err(Failure::Engine(_))), "{failed:?}");
    assert!(cache.invalidate("k").await.is_err());
    assert_eq!(source.loads(), 0);
}
