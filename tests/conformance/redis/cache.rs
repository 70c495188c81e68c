//! What a cache asks of the server.

use leasehold::kit::cache::{Cache, Loaded, Origin};

use super::*;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!("server", [a_cache_takes_the_round_trips_that_are_promised]).cases
}

/// As the server counts them: the commands of clients, and not those of scripts.
async fn a_cache_takes_the_round_trips_that_are_promised(ground: Ground) {
    const TIMES: u64 = 20;
    let client = connect(ground.url()).await;
    let load = |_| async { Ok::<_, String>(Loaded::value("v")) };
    let cache = || client.cache("x", ms(60_000), load).and_then(|cache| cache.early(0.0)).expect("a cache");
    let (shared, local) = (cache(), cache().local_for(ms(60_000)).expect("in range"));
    let trips = async |cache: &Cache, prefix: &str, origin: Origin| {
        // Everything but what scripts call: those read and write cells.
        let count = || {
            let stats = ground.server().command(&["INFO", "commandstats"]).text();
            let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
            let scripts = |line: &&str| line.starts_with("cmdstat_eval");
            stats.lines().filter(scripts).filter_map(calls).sum::<u64>()
        };
        let before = count();
        for number in 0..TIMES {
            let got = cache.get(format!("{prefix}{number}")).await.expect("a value");
            assert_eq!(got.origin(), origin);
        }
        count() - before
    };
    // From now on the server knows the scripts.
    shared.get("k").await.expect("a value");
    shared.get("k").await.expect("a value");
    assert_eq!(trips(&shared, "k", Origin::Loaded).await, TIMES * 2, "misses");
    assert_eq!(trips(&shared, "k", Origin::Shared).await, TIMES, "hits");
    let names = (0..TIMES).map(|number| format!("k{number}"));
    until("all is remembered", async || {
        let got = local.get_many(names.clone()).await;
        got.into_iter().all(|got| got.is_ok_and(|got| got.origin() == Origin::Local))
    })
    .await;
    assert_eq!(trips(&local, "k", Origin::Local).await, 0, "hits in memory");
    client.close().await.ok();
}
