//! What the recorder of a program is told.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::engine::Hint;
use leasehold::{Client, Family};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::bench::{Ground, ms, soon, until};
use crate::wire::Fault;
use crate::{Group, cases};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        cases!(
            "metrics",
            [
                waits_are_counted_by_how_they_end,
                holds_and_losses_are_counted,
                doubts_renewals_and_recoveries_are_counted,
                connections_are_counted,
                names_are_no_label_unless_asked,
            ]
        ),
        #[cfg(all(feature = "cache", feature = "leaderboards", feature = "sessions", feature = "topics"))]
        cases!("metrics", [the_kit_is_counted]),
    ]
}

/// What a scrape would say. The recorder is the whole program's; each case uses names of its own.
fn scrape() -> String {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| PrometheusBuilder::new().install_recorder().expect("the only one")).render()
}

/// A name that no other case uses.
fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    scrape();
    format!("counted-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The figure with these labels; 0 if there is none.
fn figure(metric: &str, labels: &[(&str, &str)]) -> f64 {
    let scrape = scrape();
    let line = scrape.lines().find(|line| {
        line.strip_prefix(metric).is_some_and(|rest| rest.starts_with('{'))
            && labels.iter().all(|(key, value)| line.contains(&format!("{key}=\"{value}\"")))
    });
    line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).unwrap_or(0.0)
}

/// The figure of a name, as a number that can be compared.
fn count(client: &Client, metric: &str, name: &str, more: Option<(&str, &str)>) -> u64 {
    let mut labels = vec![("engine", client.guarantees().engine), ("family", "lock"), ("name", name)];
    labels.extend(more);
    figure(metric, &labels) as u64
}

async fn waits_are_counted_by_how_they_end(mut ground: Ground) {
    let name = unique();
    let options = ground.options().metrics_by_name();
    let (client, other) = (ground.client_with(options).await, ground.client().await);
    let waits = |outcome| count(&client, "leasehold_wait_seconds_count", &name, Some(("outcome", outcome)));
    let waiting = || count(&client, "leasehold_waiting", &name, None);
    let mutex = client.mutex(&name).expect("a name");
    mutex.lock().await.expect("free").release().await.expect("held");
    assert_eq!((waits("granted"), count(&client, "leasehold_grants_total", &name, None)), (1, 1));

    let held = other.mutex(&name).expect("a name").lock().await.expect("free");
    assert!(mutex.try_lock().await.expect("an answer").is_none());
    assert!(mutex.lock_for(ms(400)).await.expect("an answer").is_none());
    assert_eq!((waits("busy"), waits("timed_out"), waiting()), (1, 1, 0));
    let labels = [("name", name.as_str()), ("outcome", "timed_out")];
    let waited = figure("leasehold_wait_seconds_sum", &labels);
    assert!((0.39..10.0).contains(&waited), "waited {waited} s");

    let task = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    });
    until("one waits", async || waiting() == 1).await;
    task.abort();
    until("none waits", async || waiting() == 0).await;
    assert_eq!(waits("cancelled"), 1);

    let task = tokio::spawn(async move { mutex.lock().await });
    until("one waits", async || waiting() == 1).await;
    client.close().await.expect("closed");
    assert!(task.await.expect("no panic").is_err());
    assert_eq!((waits("failed"), waits("granted"), waiting()), (1, 1, 0));
    held.release().await.expect("held");
}

async fn holds_and_losses_are_counted(mut ground: Ground) {
    let name = unique();
    let options = ground.options().metrics_by_name();
    let client = ground.client_with(options).await;
    let holds = |end| count(&client, "leasehold_hold_seconds_count", &name, Some(("end", end)));
    let losses = |why| count(&client, "leasehold_losses_total", &name, Some(("why", why)));
    let mutex = client.mutex(&name).expect("a name");
    let guard = mutex.lock().await.expect("free");
    tokio::time::sleep(ms(100)).await;
    guard.release().await.expect("held");
    assert_eq!((holds("released"), holds("lost")), (1, 0));
    let held = figure("leasehold_hold_seconds_sum", &[("name", name.as_str()), ("end", "released")]);
    assert!((0.09..10.0).contains(&held), "held {held} s");

    let guard = mutex.lock().await.expect("free");
    client.break_claims(Family::Lock, &name).await.expect("broken");
    until("the loss is counted", async || (losses("gone"), holds("lost")) == (1, 1)).await;
    drop(guard);
    let _kept = soon("the next", mutex.lock()).await.expect("free");
    client.close().await.expect("closed");
    until("all is counted", async || (losses("closed"), holds("lost")) == (1, 2)).await;
    assert_eq!((losses("gone"), losses("deadline"), holds("released")), (1, 0, 1));
}

async fn doubts_renewals_and_recoveries_are_counted(mut ground: Ground) {
    let name = unique();
    let options = ground.options().metrics_by_name();
    let (client, wire) = ground.client_on_wire(options).await;
    let renewals = |outcome| count(&client, "leasehold_renewals_total", &name, Some(("outcome", outcome)));
    let doubts = || count(&client, "leasehold_doubts_total", &name, None);
    let recoveries = || count(&client, "leasehold_recoveries_total", &name, None);
    // As long as a busy machine may need to renew it, and to count the recovery.
    let guard = client.mutex(&name).expect("a name").lease(ms(3000)).lock().await.expect("free");
    until("it was renewed", async || renewals("renewed") > 0).await;
    // A slow machine may have been in doubt by itself.
    let (failed, doubted, recovered) = (renewals("failed"), doubts(), recoveries());
    wire.set(Fault::Refuse);
    until("the doubt", async || doubts() > doubted && renewals("failed") > failed).await;
    wire.set(Fault::None);
    until("it recovers", async || recoveries() > recovered).await;
    let doubted = doubts();
    wire.set(Fault::Refuse);
    soon("the loss", guard.lost()).await;
    // Whoever sees the loss first goes on, and whoever counts it may be another thread.
    let lost = || count(&client, "leasehold_losses_total", &name, Some(("why", "deadline")));
    until("the loss is counted", async || lost() == 1).await;
    assert!(doubts() > doubted);
}

async fn connections_are_counted(mut ground: Ground) {
    scrape();
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let engine = client.guarantees().engine;
    // Other cases count too.
    let connections = || {
        let labels = [("engine", engine)];
        (figure("leasehold_disconnects_total", &labels), figure("leasehold_reconnects_total", &labels))
    };
    let before = connections();
    wire.tell(Hint::Disconnected { server: "a:1".into(), why: "the test".into() });
    let between = connections();
    wire.tell(Hint::Reconnected { server: "a:1".into() });
    assert!(between.0 > before.0 && connections().1 > before.1);
}

async fn names_are_no_label_unless_asked(mut ground: Ground) {
    let name = unique();
    let client = ground.client().await;
    let series =
        format!("leasehold_grants_total{{engine=\"{}\",family=\"lock\"}} ", client.guarantees().engine);
    let grants = || -> u64 {
        let scrape = scrape();
        let figure = scrape.lines().find_map(|line| line.strip_prefix(&series));
        figure.map_or(0, |figure| figure.parse().expect("a number"))
    };
    let before = grants();
    client.mutex(&name).expect("a name").lock().await.expect("free").release().await.expect("held");
    assert!(grants() > before);
    assert!(!scrape().contains(&name));
}

#[cfg(all(feature = "cache", feature = "leaderboards", feature = "sessions", feature = "topics"))]
async fn the_kit_is_counted(mut ground: Ground) {
    let client = ground.client().await;
    if !ground.promises().cells {
        return;
    }
    let (name, engine) = (unique(), client.guarantees().engine);

    let loader = async |_: String| Ok::<_, String>(b"x".to_vec());
    let cache = client.cache(&name, ms(60_000), loader).expect("a cache");
    cache.get("x").await.expect("loaded");
    cache.get("x").await.expect("shared");
    cache.invalidate("x").await.expect("an answer");
    let labels = [("engine", engine), ("cache", name.as_str())];
    let of = |metric, more: &[(&str, &str)]| figure(metric, &[&labels, more].concat()) as u64;
    let gets = |origin| of("leasehold_cache_gets_total", &[("origin", origin)]);
    assert_eq!((gets("loaded"), gets("shared")), (1, 1));
    assert_eq!(of("leasehold_cache_loads_total", &[("outcome", "stored")]), 1);
    assert_eq!(of("leasehold_cache_invalidations_total", &[]), 1);

    // In a database, its outbox.
    if let Ok(outbox) = client.outbox(&name) {
        use leasehold::engine::{CellValue, Swap, Write};

        let labels = [("engine", engine), ("outbox", name.as_str())];
        let row = outbox.row([("x", 0)]).expect("a row");
        outbox.deliver(&row, &cache).await.expect("an answer");
        let relayed =
            |by| figure("leasehold_cache_outbox_rows_total", &[&labels[..], &[("by", by)]].concat());
        assert_eq!((relayed("writer"), relayed("relay")), (1.0, 0.0));
        // A row that is none.
        let cell = crate::cells::name(&format!("cache-outbox/{{{name}}}/row"));
        let bytes = b"something else".to_vec();
        let write = Write::Put(CellValue { bytes, lives: ms(60_000) });
        let swap = Swap { name: cell, version: 0, write };
        ground.engine().await.swap(vec![swap]).await.expect("an answer");
        assert_eq!(outbox.drain(&cache).await.expect("an answer").stuck, 1);
        assert_eq!(figure("leasehold_cache_outbox_stuck_rows", &labels), 1.0);
    }

    // Other cases count here, too.
    let counted = || {
        [
            ("leasehold_leaderboards_total", "changed"),
            ("leasehold_leaderboards_total", "ranked"),
            ("leasehold_sessions_total", "created"),
            ("leasehold_sessions_total", "all_ended"),
            ("leasehold_topics_total", "published"),
            ("leasehold_topics_total", "delivered"),
        ]
        .map(|(metric, outcome)| figure(metric, &[("engine", engine), ("outcome", outcome)]))
    };
    let before = counted();
    let board = client.leaderboard(&name).expect("a board");
    board.set("ada", 1).await.expect("an answer");
    assert!(board.rank("ada").await.expect("an answer").is_some());
    let sessions = client.sessions(&name).expect("sessions");
    sessions.create("ada", b"x").await.expect("an answer");
    sessions.end_all("ada").await.expect("an answer");
    let topic = client.topic(&name).expect("a topic");
    let mut subscriber = topic.subscribe(leasehold::kit::topics::From::Now).await.expect("an answer");
    topic.publish(b"x").await.expect("an answer");
    soon("the message", subscriber.next()).await.expect("an answer");
    let after = counted();
    assert!(before.iter().zip(&after).all(|(before, after)| after > before), "{before:?} {after:?}");
}
