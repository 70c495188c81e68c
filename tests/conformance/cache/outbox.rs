//! Invalidations that are part of a transaction of the caller's: in databases.

use leasehold::engine::{Swap, Write};
use leasehold::kit::cache::{Cache, Outbox};

use super::database::Database;
use super::{Source, crashes, value};
use crate::bench::{Ground, ms, not_within, soon, until};
use crate::{Case, cases};

pub(crate) fn cases() -> Vec<(&'static str, Case)> {
    let group = cases!(
        "outbox",
        [
            what_was_committed_is_relayed,
            what_was_rolled_back_is_not,
            a_row_is_delivered_at_once,
            many_rows_are_relayed_by_one_of_many,
            a_row_stays_until_its_cache_has_heard_of_it,
            names_that_are_too_long_are_refused,
            a_name_that_the_cache_refuses_holds_up_nobody,
            a_cell_that_holds_something_else_holds_up_nobody,
            a_pile_of_rows_that_can_not_be_relayed_hides_nothing,
        ]
    );
    group.cases.into_iter().chain(crashes::cases()).collect()
}

async fn outbox(ground: &mut Ground) -> Outbox {
    ground.client().await.outbox("x").expect("a database")
}

/// The cache is on another engine than the outbox: in this process.
async fn cache(source: &Source) -> Cache {
    static STORES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = STORES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let client = leasehold::connect(&format!("memory:outbox{number}")).await.expect("an engine");
    source.cache(&client, ms(60_000))
}

async fn what_was_committed_is_relayed(mut ground: Ground) {
    let source = Source::default();
    source.set("k", "old");
    source.set("other", "old");
    let (outbox, mut database) = (outbox(&mut ground).await, Database::open(ground.url()).await);
    let caches = [cache(&source).await, source.cache(&ground.client().await, ms(60_000))];
    for cache in caches {
        source.set("k", "old");
        source.set("other", "old");
        value(cache.get("k").await);
        value(cache.get("other").await);
        let row = outbox.row([("k", 0), ("other", 0)]).expect("a row");
        database.run("begin").await;
        database.write(&row).await;
        assert_eq!(outbox.drain(&cache).await.expect("an answer").rows, 0, "it is not committed");
        source.set("k", "new");
        source.set("other", "new");
        database.run("commit").await;
        // The process dies here.
        assert_eq!(value(cache.get("k").await), "old");
        let relayed = outbox.drain(&cache).await.expect("an answer");
        assert_eq!(relayed.rows, 1);
        assert!(relayed.oldest < ms(60_000), "{relayed:?}");
        assert_eq!(value(cache.get("k").await), "new");
        assert_eq!(value(cache.get("other").await), "new");
        assert_eq!(outbox.drain(&cache).await.expect("an answer").rows, 0, "it is relayed once");
    }
}

async fn what_was_rolled_back_is_not(mut ground: Ground) {
    let source = Source::default();
    let (outbox, mut database) = (outbox(&mut ground).await, Database::open(ground.url()).await);
    let cache = cache(&source).await;
    value(cache.get("k").await);
    database.run("begin").await;
    database.write(&outbox.row([("k", 0)]).expect("a row")).await;
    database.run("rollback").await;
    assert_eq!(outbox.drain(&cache).await.expect("an answer").rows, 0);
    value(cache.get("k").await);
    assert_eq!(source.loads(), 1);
}

async fn a_row_is_delivered_at_once(mut ground: Ground) {
    let source = Source::default();
    source.set_version("k", "old", 1);
    let (outbox, mut database) = (outbox(&mut ground).await, Database::open(ground.url()).await);
    let cache = cache(&source).await;
    value(cache.get("k").await);
    let row = outbox.row([("k", 2)]).expect("a row");
    database.write(&row).await;
    source.set_version("k", "new", 2);
    outbox.deliver(&row, &cache).await.expect("an answer");
    assert_eq!(value(cache.get("k").await), "new");
    assert_eq!(outbox.drain(&cache).await.expect("an answer").rows, 0);
    // Relayed a second time it does no harm: the value has that version.
    database.write(&outbox.row([("k", 2)]).expect("a row")).await;
    assert_eq!(outbox.drain(&cache).await.expect("an answer").rows, 1);
    assert_eq!(value(cache.get("k").await), "new");
    assert_eq!(source.loads(), 2);
}

async fn many_rows_are_relayed_by_one_of_many(mut ground: Ground) {
    const NAMES: usize = 40;
    let source = Source::default();
    let cache = cache(&source).await;
    let names: Vec<String> = (0..NAMES).map(|number| format!("k{number}")).collect();
    names.iter().for_each(|name| source.set(name, "old"));
    soon("all", cache.get_many(&names)).await;
    let mut relays = Vec::new();
    for _ in 0..3 {
        let (outbox, cache) = (outbox(&mut ground).await.poll(ms(20)), cache.clone());
        relays.push(tokio::spawn(async move { outbox.run(&cache).await }));
    }
    let (outbox, mut database) = (outbox(&mut ground).await, Database::open(ground.url()).await);
    for name in &names {
        source.set(name, "new");
        database.write(&outbox.row([(name, 0)]).expect("a row")).await;
    }
    until("all are new", async || {
        let got = cache.get_many(&names).await;
        got.into_iter().all(|got| value(got) == "new")
    })
    .await;
    // Whoever relays dies, and another goes on.
    for relay in relays.drain(..2) {
        relay.abort();
    }
    source.set("k0", "newer");
    database.write(&outbox.row([("k0", 0)]).expect("a row")).await;
    until("another relays", async || value(cache.get("k0").await) == "newer").await;
    relays.into_iter().for_each(|relay| relay.abort());
}

async fn a_row_stays_until_its_cache_has_heard_of_it(mut ground: Ground) {
    let source = Source::default();
    source.set("k", "old");
    let (outbox, mut database) = (outbox(&mut ground).await, Database::open(ground.url()).await);
    let engine = leasehold::engine::open("memory:outbox-away", &leasehold::Options::new()).await;
    let (engine, wire) = crate::wire::wire(engine.expect("an engine"));
    let options = leasehold::Options::new().call_limit(ms(200));
    let client = leasehold::Client::new(engine, options).expect("a client");
    let cache = source.cache(&client, ms(60_000));
    value(cache.get("k").await);
    database.write(&outbox.row([("k", 0)]).expect("a row")).await;
    source.set("k", "new");
    wire.set(crate::wire::Fault::Refuse);
    outbox.drain(&cache).await.expect_err("the cache is away");
    not_within(ms(300), "the relay ended", outbox.run(&cache)).await;
    wire.set(crate::wire::Fault::None);
    let outbox = outbox.poll(ms(20));
    let relay = tokio::spawn({
        let cache = cache.clone();
        async move { outbox.run(&cache).await }
    });
    until("it is relayed", async || cache.get("k").await.is_ok_and(|got| got.value() == Some(b"new"))).await;
    relay.abort();
}

async fn names_that_are_too_long_are_refused(mut ground: Ground) {
    let client = ground.client().await;
    assert!(client.outbox("x".repeat(400)).is_err());
    let longest = client.outbox("x".repeat(300)).expect("not too long");
    let none: [(&str, u64); 0] = [];
    assert!(longest.row(none).is_err() && longest.row([("k", 1 << 52)]).is_err());
    let (mut database, source) = (Database::open(ground.url()).await, Source::default());
    let cache = cache(&source).await;
    // However long the names in it are, it is found.
    database.write(&longest.row([("n".repeat(2000), 0)]).expect("a row")).await;
    let relayed = longest.drain(&cache).await;
    assert_eq!(relayed.map_or(0, |relayed| relayed.rows), 1);
    // What no cache could take is not written down. A brace takes three bytes.
    for name in ["n".repeat(4000), "{".repeat(1500)] {
        longest.row([(name, 0)]).expect_err("too long");
    }
    longest.row([("n".repeat(3584), 0)]).expect("not too long");
}

/// Some good rows are relayed beside one that can not be: by one pass, and by the relay, which goes
/// on.
async fn the_others_are_relayed(source: &Source, outbox: Outbox, cache: &Cache, database: &mut Database) {
    let names: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    let are = async |value: &[u8]| {
        let got = cache.get_many(&names).await;
        got.into_iter().all(|got| got.expect("a value").value() == Some(value))
    };
    for name in &names {
        source.set(name, "old");
        cache.invalidate(name).await.expect("an answer");
    }
    assert!(are(b"old").await);
    for name in &names {
        source.set(name, "new");
        database.write(&outbox.row([(name, 0)]).expect("a row")).await;
    }
    let relayed = outbox.drain(cache).await.expect("the others are relayed");
    assert_eq!((relayed.rows, relayed.stuck), (20, 1));
    assert!(are(b"new").await);
    let relay = tokio::spawn({
        let (outbox, cache) = (outbox.clone().poll(ms(20)), cache.clone());
        async move { outbox.run(&cache).await }
    });
    for value in ["newer", "newest"] {
        names.iter().for_each(|name| source.set(name, value));
        database.write(&outbox.row(names.iter().map(|name| (name, 0))).expect("a row")).await;
        until("it is relayed", async || are(value.as_bytes()).await).await;
    }
    assert!(!relay.is_finished());
    relay.abort();
    relay.await.expect_err("it was aborted");
    // The row is still there, for somebody to look at.
    until("nothing else is left", async || {
        let relayed = outbox.drain(cache).await.expect("an answer");
        (relayed.rows, relayed.stuck) == (0, 1)
    })
    .await;
}

async fn a_name_that_the_cache_refuses_holds_up_nobody(mut ground: Ground) {
    let source = Source::default();
    let (outbox, mut database) = (outbox(&mut ground).await, Database::open(ground.url()).await);
    // The name of the cache leaves no room for it.
    let client = leasehold::connect("memory:outbox-long").await.expect("an engine");
    let cache = source.cache_named(&client, &"c".repeat(3000), ms(60_000));
    let row = outbox.row([("n".repeat(2000), 0), ("with it".into(), 0)]).expect("a row");
    outbox.deliver(&row, &cache).await.expect_err("too long for this cache");
    database.write(&row).await;
    source.set("with it", "old");
    value(cache.get("with it").await);
    source.set("with it", "new");
    the_others_are_relayed(&source, outbox, &cache, &mut database).await;
    assert_eq!(value(cache.get("with it").await), "new", "what the row says beside it");
}

async fn a_cell_that_holds_something_else_holds_up_nobody(mut ground: Ground) {
    let source = Source::default();
    let (outbox, mut database) = (outbox(&mut ground).await, Database::open(ground.url()).await);
    let cache = source.cache(&ground.client().await, ms(60_000));
    // A row that is none.
    let mut row = outbox.row([("k", 0)]).expect("a row");
    row.value = b"something else".to_vec();
    database.write(&row).await;
    the_others_are_relayed(&source, outbox.clone(), &cache, &mut database).await;
    let engine = ground.engine().await;
    let rows = engine.list_cells("cache-outbox/", None, 10).await.expect("a list");
    let version = engine.read(&rows).await.expect("an answer").cells[0].version;
    let name = rows.into_iter().next().expect("it is still there");
    engine.swap(vec![Swap { name, version, write: Write::Delete }]).await.expect("an answer");
    // A row that names an entry that is none.
    let foreign = crate::cells::name("cache/x/{foreign}");
    engine.apply(&[foreign], &crate::cells::add(1)).await.expect("an answer");
    database.write(&outbox.row([("foreign", 0)]).expect("a row")).await;
    the_others_are_relayed(&source, outbox, &cache, &mut database).await;
}

async fn a_pile_of_rows_that_can_not_be_relayed_hides_nothing(mut ground: Ground) {
    const PILE: u64 = 1100;
    const GOOD: u64 = 50;
    let source = Source::default();
    let (outbox, mut database) = (outbox(&mut ground).await, Database::open(ground.url()).await);
    let cache = cache(&source).await;
    source.set("k", "old");
    value(cache.get("k").await);
    database.run("begin").await;
    for number in 0..PILE + GOOD {
        let mut row = outbox.row([("k", 0)]).expect("a row");
        if number < PILE {
            row.value = b"something else".to_vec();
        }
        database.write(&row).await;
    }
    database.run("commit").await;
    source.set("k", "new");
    let relayed = outbox.drain(&cache).await.expect("an answer");
    assert_eq!((relayed.rows, relayed.stuck), (GOOD, PILE));
    assert_eq!(value(cache.get("k").await), "new");
    // Known to be stuck, they are not read again each time.
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let relay = tokio::spawn({
        let (outbox, cache) = (client.outbox("x").expect("a database").poll(ms(20)), cache.clone());
        async move { outbox.run(&cache).await }
    });
    source.set("k", "newer");
    database.write(&outbox.row([("k", 0)]).expect("a row")).await;
    until("it is relayed", async || value(cache.get("k").await) == "newer").await;
    let (before, began) = (wire.calls(), tokio::time::Instant::now());
    tokio::time::sleep(ms(1000)).await;
    let (calls, passes) = (wire.calls() - before, began.elapsed().as_millis() as usize / 20 + 1);
    // A pass lists two pages and sees that there are no more. It would read 69 times.
    assert!(calls <= passes * 3 + 75, "{calls} calls in {passes} passes");
    relay.abort();
}
