//! Boards that are built anew from the source of truth.

use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use leasehold::kit::leaderboards::{Incremented, LONGEST_EVENT, MOST_EVENTS, RebuildEntry};
use leasehold::{Client, Error};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{board, check, stored};
use crate::bench::{Ground, ms, soon, until};
use crate::cancel::poll_and_drop;
use crate::wire::Fault;

pub(super) fn entries(count: i64) -> impl Iterator<Item = RebuildEntry> + Clone {
    (0..count).map(|number| RebuildEntry::new(format!("{number:04}"), 10_000 - number))
}

/// A source that has these entries whenever it is read.
pub(super) fn source<I>(entries: I) -> impl FnOnce() -> Ready<leasehold::Result<I>> {
    move || ready(Ok(entries))
}

pub(super) async fn a_board_is_rebuilt_in_one_step(mut ground: Ground) {
    let (one, two) = (board(&ground.client().await), board(&ground.client().await));
    let engine = ground.engine().await;
    for number in 0..30 {
        one.set(format!("old{number}"), number).await.expect("set");
    }
    two.rank("old3").await.expect("an answer");
    assert_eq!(two.rebuild(source(entries(300))).await.expect("built"), 300);
    let book: BTreeMap<String, i64> =
        (0..300).map(|number| (format!("{number:04}"), 10_000 - number)).collect();
    for board in [&one, &two] {
        check(board, &book).await;
        assert_eq!(board.rank("old3").await.expect("an answer"), None);
    }
    let cells = stored(&*engine).await;
    // Times that the source of truth knows decide between equal scores.
    let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds);
    let three = [("c", 1), ("b", 2), ("a", 3)]
        .map(|(member, time)| RebuildEntry::new(member, 5).reached_at(at(time)));
    assert_eq!(one.rebuild(source(three)).await.expect("built"), 3);
    two.set("0", 5).await.expect("set");
    let members: Vec<String> =
        two.top(9).await.expect("an answer").into_iter().map(|ranked| ranked.member).collect();
    assert_eq!(members, ["c", "b", "a", "0"]);
    assert!(cells > 300 && stored(&*engine).await == 6, "{cells} cells");
    assert_eq!(one.rebuild(source([])).await.expect("built"), 0);
    assert_eq!((two.count().await.expect("an answer"), stored(&*engine).await), (0, 2));
}

/// What the board has acknowledged, and what it will, is on it in the end, whenever the source was
/// changed.
pub(super) async fn no_change_is_lost_while_the_source_is_read(mut ground: Ground) {
    let (builder, other) = (board(&ground.client().await), board(&ground.client().await));
    let rows = Mutex::new(BTreeMap::new());
    // As everybody does: the source first.
    let tell = async |member: &str, score: i64| {
        rows.lock().expect("no panic").insert(member.to_owned(), score);
        other.set(member, score).await
    };
    tell("before", 3).await.expect("set");
    let read = || -> Vec<RebuildEntry> {
        let rows = rows.lock().expect("no panic");
        let mut rows: Vec<_> = rows.iter().map(|(member, score)| (-score, member.clone())).collect();
        rows.sort();
        rows.into_iter().map(|(score, member)| RebuildEntry::new(member, -score)).collect()
    };
    let (mut early, mut late) = (None, None);
    let query = async || {
        // The source is changed before the query sees it, and after it.
        early = timeout(ms(200), tell("early", 2)).await.ok();
        let entries = read();
        late = timeout(ms(200), tell("late", 1)).await.ok();
        Ok::<_, Error>(entries)
    };
    assert_eq!(builder.rebuild(query).await.expect("built"), 2);
    assert!(early.is_none() && late.is_none(), "acknowledged by the old board: {early:?} and {late:?}");
    // Whoever was not told tries again.
    tell("late", 1).await.expect("set");
    let book = [("before", 3), ("early", 2), ("late", 1)].map(|(member, score)| (member.to_owned(), score));
    check(&builder, &BTreeMap::from(book)).await;
}

/// Killed in the middle, with calls on their way. Writers go on after a minute, and all cells are
/// deleted then.
pub(super) async fn a_killed_rebuild_holds_nobody_up_for_long(mut ground: Ground) {
    // It takes a minute; one engine in files and one with a server show it.
    if !["file", "redis"].contains(&ground.word()) {
        return;
    }
    let engine = ground.engine().await;
    let client = ground.client().await;
    let boards =
        ["x", "y"].map(|name| client.leaderboard(name).expect("a name").fan_out(16).expect("in range"));
    let mut children = Vec::new();
    for (board, name) in boards.iter().zip(["x", "y"]) {
        board.set("old", 1).await.expect("set");
        let mut child = ground.child().await.expect("another process");
        assert_eq!(child.ask(&format!("rebuild-leaderboard {name}")).await, "building");
        children.push(child);
    }
    until("they are in the middle", async || stored(&*engine).await > 2 * 3 + 500).await;
    for child in &mut children {
        child.kill().await;
    }
    let killed = Instant::now();
    let mut left = 0;
    for board in &boards {
        assert_eq!(board.count().await.expect("an answer"), 1, "the old board");
        left = stored(&*engine).await;
        assert!(matches!(board.delete().await, Err(Error::Unavailable { .. })), "somebody builds it");
    }
    assert!(left > 506, "{left} cells");
    while killed.elapsed() < ms(75_000) && boards[0].set("old", 2).await.is_err() {}
    let waited = killed.elapsed();
    assert!(waited > ms(45_000), "writers must wait for a builder, and went on after {waited:?}");
    let [rebuilt, deleted] = boards;
    assert_eq!(rebuilt.rebuild(source(entries(3))).await.expect("built"), 3);
    while deleted.delete().await.is_err() {
        assert!(killed.elapsed() < ms(75_000), "it is not deleted");
        tokio::time::sleep(ms(100)).await;
    }
    // A head, a leaf, and three members.
    assert_eq!(stored(&*engine).await, 5);
}

/// In a child process: builds a board until it is killed.
pub(crate) async fn rebuild_in_child(client: &Client, name: &str, answer: fn(&str)) {
    let board = client.leaderboard(name).expect("a name").fan_out(16).expect("in range");
    let built = board.rebuild(async || {
        answer("building");
        Ok::<_, Error>(entries(i64::MAX))
    });
    built.await.expect("it is killed before");
}

pub(super) async fn a_rebuilt_board_knows_the_events_that_it_was_given(mut ground: Ground) {
    let (one, two) = (board(&ground.client().await), board(&ground.client().await));
    one.increment_once("ada", 5, "0").await.expect("added");
    // More than are kept: the newest are.
    let events = (0..=MOST_EVENTS).map(|event| event.to_string());
    let entries = [RebuildEntry::new("ada", 50).events(events), RebuildEntry::new("bob", 7).events(["0"])];
    assert_eq!(one.rebuild(source(entries)).await.expect("built"), 2);
    for event in 1..=MOST_EVENTS {
        let again = two.increment_once("ada", 1000, event.to_string()).await.expect("an answer");
        assert_eq!(again, Incremented::Repeated(50), "event {event}");
    }
    assert_eq!(two.increment_once("bob", 1, "0").await.expect("an answer"), Incremented::Repeated(7));
    assert_eq!(two.increment_once("ada", 1, "0").await.expect("added"), Incremented::Yes(51));
    assert_eq!(one.increment_once("bob", 1, "1").await.expect("added"), Incremented::Yes(8));
    let too_long = RebuildEntry::new("ada", 1).events([[7; LONGEST_EVENT + 1]]);
    assert!(matches!(one.rebuild(source([too_long])).await, Err(Error::Invalid { .. })));
    until("it is given up", async || two.set("ada", 3).await.is_ok()).await;
    // A rebuild that names no events forgets them.
    until("it is rebuilt", async || one.rebuild(source([RebuildEntry::new("ada", 9)])).await.is_ok()).await;
    assert_eq!(two.increment_once("ada", 1, "2").await.expect("added"), Incremented::Yes(10));
}

pub(super) async fn nobody_is_removed_from_a_board_before_it_is_built(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let (builder, other) = (board(&client), board(&ground.client().await));
    assert_eq!(other.remove("0007").await.expect("an answer"), None);
    wire.set(Fault::Slow(ms(20)));
    let (begun, begins) = oneshot::channel::<()>();
    let mut begun = Some(begun);
    let entries = entries(300).inspect(move |_| drop(begun.take()));
    let building = tokio::spawn(async move { builder.rebuild(source(entries)).await });
    begins.await.expect_err("it is dropped when the source is read");
    let mut removed = None;
    until("it is built", async || match other.remove("0007").await {
        Ok(score) => {
            removed = Some(score);
            true
        }
        Err(error) => {
            assert!(matches!(error, Error::Unavailable { .. }), "{error}");
            false
        }
    })
    .await;
    assert_eq!(removed, Some(Some(9993)));
    assert_eq!(soon("it is built", building).await.expect("no panic").expect("built"), 300);
    assert_eq!(other.get("0007").await.expect("an answer"), None);
    assert_eq!(other.count().await.expect("an answer"), 299);
}

/// 250 entries behind so many others.
fn behind(others: i64) -> impl Iterator<Item = RebuildEntry> {
    let others = (0..others).map(move |number| RebuildEntry::new(format!("other{number}"), 20_000 - number));
    others.chain(entries(250))
}

/// Entries during which writers can see that a board is being built: what it is called, or 0.
fn observed(others: i64, round: u32, building: &Arc<AtomicU32>) -> impl Iterator<Item = RebuildEntry> {
    let building = Arc::clone(building);
    let (count, mut begun) = (others + 250, None);
    behind(others).enumerate().map(move |(number, entry)| {
        // The first is asked for after the rebuild is announced, the last before it is done.
        let begun = begun.get_or_insert_with(Instant::now);
        let last = number + 1 == usize::try_from(count).expect("small");
        assert!(!last || begun.elapsed() >= ms(40), "writers have had no time to be wrong");
        building.store(if last { 0 } else { round }, Ordering::SeqCst);
        entry
    })
}

pub(super) async fn no_score_is_lost_while_a_board_is_rebuilt(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let (builder, reader) = (board(&client), board(&ground.client().await));
    builder.rebuild(source(behind(0))).await.expect("built");
    let stop = Arc::new(AtomicBool::new(false));
    let building = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for writer in 0..2 {
        let (board, stop) = (board(&ground.client().await), Arc::clone(&stop));
        let building = Arc::clone(&building);
        tasks.spawn(async move {
            // What was acknowledged last, and when it was asked for.
            let mut acknowledged = None;
            for number in 0.. {
                if stop.load(Ordering::Acquire) {
                    break;
                }
                let (asked, round) = (Instant::now(), building.load(Ordering::SeqCst));
                // Behind all others.
                match board.set(format!("writer{writer}"), -number).await {
                    Ok(_) if round > 0 => {
                        let now = building.load(Ordering::SeqCst);
                        assert_ne!(now, round, "it was acknowledged while the board was being built");
                        acknowledged = Some((number, asked));
                    }
                    Ok(_) => acknowledged = Some((number, asked)),
                    Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error}"),
                }
                tokio::time::sleep(ms(1)).await;
            }
            (writer, acknowledged)
        });
    }
    let looking = {
        let stop = Arc::clone(&stop);
        tokio::spawn(async move {
            while !stop.load(Ordering::Acquire) {
                // Half of one board and half of the other would not fit together: 50 more members
                // are before it on one of them. The writers are behind it.
                let rank = reader.rank("0007").await.expect("an answer").expect("on both boards");
                let writers = rank.of.checked_sub(if rank.place == 8 { 250 } else { 300 });
                assert!([8, 58].contains(&rank.place) && rank.score == 9993, "{rank:?}");
                assert!(writers.is_some_and(|writers| writers <= 2), "{rank:?}");
                tokio::time::sleep(ms(1)).await;
            }
        })
    };
    let mut built = Instant::now();
    for round in 1..4 {
        let others = if round % 2 == 1 { 50 } else { 0 };
        // So that writers have the time to try while it is built.
        wire.set(Fault::Slow(ms(20)));
        builder.rebuild(source(observed(others, round, &building))).await.expect("built");
        wire.set(Fault::None);
        built = Instant::now();
        for writer in ["writer0", "writer1"] {
            // The second change after one that is seen now was asked for later than now.
            let mut first = None;
            until("writers went on", async || {
                let found = builder.get(writer).await.expect("an answer");
                first = first.or(found);
                first.zip(found).is_some_and(|(first, found)| found <= first - 2)
            })
            .await;
        }
    }
    stop.store(true, Ordering::Release);
    soon("the reader ends", looking).await.expect("no panic");
    for (writer, acknowledged) in soon("the writers end", tasks.join_all()).await {
        let (number, asked) = acknowledged.expect("something was written");
        assert!(asked >= built, "it was written after the last rebuild");
        let found = builder.get(format!("writer{writer}")).await.expect("an answer").expect("a score");
        assert!(-found >= number, "{found} is before {number}");
    }
}

pub(super) async fn a_dropped_rebuild_leaves_the_old_board(mut ground: Ground) {
    let options = ground.options();
    let (client, wire) = ground.client_on_wire(options).await;
    let (cut, whole) = (board(&client), board(&ground.client().await));
    let engine = ground.engine().await;
    whole.set("ada", 1).await.expect("set");
    wire.set(Fault::Stutter);
    for depth in 0..16 {
        poll_and_drop(cut.rebuild(source(entries(40))), depth).await;
        let count = whole.count().await.expect("an answer");
        assert!([1, 40].contains(&count), "{count} members");
        if count == 40 {
            break;
        }
    }
    wire.set(Fault::None);
    // Writers go on as soon as it is given up, and the next rebuild deletes what was left.
    until("it is rebuilt", async || match whole.rebuild(source(entries(3))).await {
        Ok(count) => count == 3,
        Err(error) => {
            assert!(matches!(error, Error::Unavailable { .. }), "{error}");
            false
        }
    })
    .await;
    until("nothing else is left", async || stored(&*engine).await == 5).await;
}
