//! Boards that are built, and who waits for them.

use std::mem::ManuallyDrop;
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, UNIX_EPOCH};

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::board::Leaderboard;
use super::super::change::EVENTS;
use super::super::ranked::{Incremented, LONGEST_EVENT, RebuildEntry};
use super::super::rule::{Answer, Ask, Fan};
use super::super::tree::Trash;
use super::{runtime, source};
use crate::engine::{CellValue, Swap, Write};
use crate::name::Name;
use crate::{Error, Options, TokioClock};

/// Two handles that share nothing but the board, on a clock that stands still.
async fn handles() -> (Leaderboard, Leaderboard) {
    let options = Options::new().clock(TokioClock::new());
    let client = crate::connect_with("memory:", options).await.expect("a client");
    let board = || client.leaderboard("x").expect("a name");
    (board(), board())
}

/// Asks once. Cells in memory answer at once, so what is pending waits for something else.
fn ask_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn a_rebuild_keeps_the_events_that_it_is_given() {
    let (board, _) = handles().await;
    let events = (0..EVENTS + 4).map(|event| event.to_string());
    board.rebuild(source([RebuildEntry::new("ada", 5).events(events)])).await.expect("built");
    for event in 4..EVENTS + 4 {
        let again = board.increment_once("ada", 1, event.to_string()).await.expect("an answer");
        assert_eq!(again, Incremented::Repeated(5), "event {event}");
    }
    assert_eq!(board.increment_once("ada", 1, "3").await.expect("added"), Incremented::Yes(6));
    let too_long = RebuildEntry::new("ada", 5).events([[0; LONGEST_EVENT + 1]]);
    assert!(matches!(board.rebuild(source([too_long])).await, Err(Error::Invalid { .. })));
}

/// What a source gives for one leaf takes longer than writers wait for a builder.
#[tokio::test(start_paused = true)]
async fn a_slow_source_does_not_lose_to_the_first_writer() {
    let (builder, writer) = handles().await;
    writer.set("ada", 1).await.expect("set");
    let entries = (0..20_i64).map(|number| {
        // Its first poll moves the clock.
        assert!(ask_once(tokio::time::advance(Duration::from_secs(15))).is_pending());
        assert!(ask_once(writer.set("ada", 2)).is_pending(), "it waits before entry {number}");
        RebuildEntry::new(number.to_string(), -number)
    });
    assert_eq!(builder.rebuild(source(entries)).await.expect("built"), 20);
}

/// The first query of a source may take as long.
#[tokio::test(start_paused = true)]
async fn a_slow_query_does_not_lose_to_the_first_writer() {
    let (builder, writer) = handles().await;
    writer.set("ada", 1).await.expect("set");
    let query = async || {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(15)).await;
            assert!(ask_once(writer.set("ada", 2)).is_pending(), "it waits while the source is read");
        }
        Ok::<_, Error>([RebuildEntry::new("bob", 1)])
    };
    assert_eq!(builder.rebuild(query).await.expect("built"), 1);
    assert_eq!(writer.count().await.expect("an answer"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_source_is_passed_on_and_the_old_board_stays() {
    #[derive(Debug)]
    enum Failed {
        Query(u8),
        Board,
    }
    impl From<Error> for Failed {
        fn from(_: Error) -> Failed {
            Failed::Board
        }
    }
    let (builder, writer) = handles().await;
    writer.set("ada", 1).await.expect("set");
    let failed = builder.rebuild(async || Err::<[RebuildEntry; 0], _>(Failed::Query(7))).await;
    assert!(matches!(failed, Err(Failed::Query(7))), "{failed:?}");
    assert_eq!(ask_once(writer.set("ada", 2)).map(Result::ok), Poll::Ready(Some(Some(1))), "nobody waits");
    announce(&builder, 7).await;
    let failed = builder.rebuild(async || Err::<[RebuildEntry; 0], _>(Failed::Query(7))).await;
    assert!(matches!(failed, Err(Failed::Board)), "{failed:?}");
}

/// A source that goes on while it is read.
#[tokio::test(start_paused = true)]
async fn scores_that_are_reached_while_the_source_is_read_are_taken() {
    let (builder, other) = handles().await;
    other.set("eve", 1).await.expect("set");
    let time = async || other.see(0, None, &[]).await.expect("an answer").now;
    let at = |micros| UNIX_EPOCH + Duration::from_micros(micros);
    let read = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let late = RebuildEntry::new("ada", 5).reached_at(at(time().await));
        Ok::<_, Error>([RebuildEntry::new("bob", 5), late])
    };
    assert_eq!(builder.rebuild(read).await.expect("built"), 2);
    // Whoever comes is behind them.
    tokio::time::sleep(Duration::from_millis(1)).await;
    other.set("aaa", 5).await.expect("set");
    let all = other.top(9).await.expect("an answer");
    let members: Vec<&str> = all.iter().map(|ranked| ranked.member.as_str()).collect();
    assert_eq!(members, ["bob", "ada", "aaa"]);
    let read = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok([RebuildEntry::new("ada", 5).reached_at(at(time().await + 1))])
    };
    let error: Error = builder.rebuild(read).await.expect_err("in the future");
    assert!(error.to_string().contains("1 us ahead of the engine's clock"), "{error}");
}

/// What is still on its way comes behind those who delete it.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_for_a_board_that_is_not_built_any_more() {
    let (builder, writer) = handles().await;
    let late = |epoch| {
        let name = builder.member_name(epoch, "ada").expect("a name");
        let value = CellValue { bytes: vec![1], lives: Duration::from_secs(60) };
        [Swap { name, version: 0, write: Write::Put(value) }]
    };
    let (unknown, known) = (AtomicU64::new(0), AtomicU64::new(0));
    announce(&builder, 7).await;
    builder.write_built(7, &known, &late(7)).await.expect("written");
    let twice = builder.write_built(7, &known, &late(7)).await.expect_err("it is there");
    assert!(twice.to_string().contains("`ada` is there twice"), "{twice}");
    announce(&builder, 8).await;
    assert!(builder.write_built(8, &unknown, &late(8)).await.is_err(), "another one is being built");
    builder.ask(7, None, Vec::new(), Ask::Abandon).await.expect("an answer");
    // Whoever builds next, or nobody.
    for round in 0..2 {
        for version in [&known, &unknown] {
            let error = builder.write_built(7, version, &late(9)).await.expect_err("too late").to_string();
            assert!(error.contains("took too long"), "{error}");
        }
        assert!(round == 1 || matches!(announce(&builder, 9).await, Answer::Done(_)));
    }
    builder.ask(9, None, Vec::new(), Ask::Abandon).await.expect("an answer");
    let all = writer.client.inner.engine.list_cells("", None, 10).await.expect("a list");
    let written: Vec<&Name> = all.iter().filter(|name| name.as_str().contains('=')).collect();
    assert_eq!(written, [&builder.member_name(7, "ada").expect("a name")]);
}

/// The job that rebuilds a board may never get to the end.
#[tokio::test(start_paused = true)]
async fn killed_rebuilds_leave_no_more_each_time() {
    let (board, _) = handles().await;
    // All scores are in the other order: whoever cleans up does not care.
    let builder = board.clone().lower_first();
    board.set("ada", 1).await.expect("set");
    for epoch in 1..6 {
        // As a process does that is killed in the middle.
        let killed = std::future::pending::<crate::Result<[RebuildEntry; 0]>>;
        let mut rebuild = ManuallyDrop::new(Box::pin(builder.rebuild(killed)));
        assert!(ask_once(rebuild.as_mut()).is_pending());
        tokio::time::sleep(Duration::from_secs(61)).await;
        let head = board.see(0, None, &[]).await.expect("an answer").head.expect("a head");
        assert!(head.trash.len() <= 1, "{} after {epoch}", head.trash.len());
        assert!(head.building.is_some());
    }
    board.set("ada", 2).await.expect("set");
    let failed = builder.rebuild(async || Err::<[RebuildEntry; 0], _>(Error::invalid("no source"))).await;
    assert!(failed.is_err());
    tokio::time::sleep(Duration::from_millis(1)).await;
    let head = board.see(0, None, &[]).await.expect("an answer").head.expect("a head");
    assert_eq!((head.trash, head.building), (vec![], None));
}

#[test]
fn a_rebuild_can_outlive_its_runtime() {
    let runtime = runtime();
    let client = runtime.block_on(async { crate::connect("memory:").await.expect("a client") });
    let board = Leaderboard { fan: Fan { leaf: 4, node: 4 }, ..client.leaderboard("x").expect("a name") };
    // More leaves than are written at a time, so that it waits for its tasks.
    let entries = (0..1000).map(|number| RebuildEntry::new(format!("{number:04}"), -number));
    let mut rebuild = Box::pin(board.rebuild(source(entries)));
    runtime.block_on(async { assert!(ask_once(rebuild.as_mut()).is_pending()) });
    drop(runtime);
    drop(rebuild);
    // It has been given up, and is deleted by the next one.
    let trash = ask_once(board.first_trash());
    assert!(matches!(trash, Poll::Ready(Ok(Some(Trash::Unfinished { .. })))), "{trash:?}");
}

#[tokio::test(start_paused = true)]
async fn a_board_that_has_ended_stays_so_for_those_who_know() {
    let (board, other) = handles().await;
    let now = other.see(0, None, &[]).await.expect("an answer").now;
    let week = board.until(UNIX_EPOCH + Duration::from_micros(now) + Duration::from_secs(60));
    week.increment("ada", 5).await.expect("added");
    tokio::time::sleep(Duration::from_secs(61)).await;
    // Somebody who does not know has begun another one.
    other.set("ada", 1).await.expect("set");
    for late in [
        week.set("ada", 9).await.map(drop),
        week.best("ada", 9).await.map(drop),
        week.increment("ada", 9).await.map(drop),
        week.increment_once("ada", 9, "e").await.map(drop),
        week.remove("ada").await.map(drop),
    ] {
        let error = late.expect_err("it has ended").to_string();
        assert!(error.contains("has ended"), "{error}");
    }
    assert_eq!(other.get("ada").await.expect("an answer"), Some(1));
}

/// The member may be on the board that comes.
#[tokio::test(start_paused = true)]
async fn nobody_is_removed_from_a_first_board_before_it_is_built() {
    let (builder, writer) = handles().await;
    let entries = (0..3_i64).map(|number| {
        assert!(ask_once(writer.remove("0")).is_pending(), "before entry {number}");
        RebuildEntry::new(number.to_string(), -number)
    });
    builder.rebuild(source(entries)).await.expect("built");
    assert_eq!(writer.remove("0").await.expect("removed"), Some(0));
    // Whoever waits is told.
    builder.delete().await.expect("deleted");
    assert!(matches!(announce(&builder, 7).await, Answer::Done(_)));
    let error = writer.remove("1").await.expect_err("it is being built");
    assert!(error.to_string().contains("is being built anew"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_builder_that_took_too_long_undoes_no_change() {
    let (builder, writer) = handles().await;
    let commits = async |epoch| {
        let commit = Ask::Commit { root: 1, height: 0 };
        matches!(builder.ask(epoch, None, Vec::new(), commit).await, Ok(Answer::Done(_)))
    };
    let goes_on_after_a_minute = async |epoch| {
        announce(&builder, epoch).await;
        tokio::time::sleep(Duration::from_secs(61)).await;
    };
    // Without a board.
    goes_on_after_a_minute(7).await;
    assert_eq!(writer.remove("ada").await.expect("not there"), None);
    assert!(!commits(7).await, "the other board may have had it");
    // With one, on which nothing changes.
    writer.increment_once("ada", 1, "e").await.expect("added");
    goes_on_after_a_minute(8).await;
    assert_eq!(writer.set("ada", 1).await.expect("set"), Some(1));
    assert!(!commits(8).await);
    goes_on_after_a_minute(9).await;
    assert_eq!(writer.increment_once("ada", 1, "e").await.expect("told"), Incremented::Repeated(1));
    assert!(!commits(9).await);
    goes_on_after_a_minute(10).await;
    assert!(commits(10).await, "nobody went on");
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_handle_wait_for_a_builder_together() {
    let (builder, writer) = handles().await;
    announce(&builder, 7).await;
    let begun = Instant::now();
    // More than could look one after the other.
    let tasks = |score: i64| -> JoinSet<crate::Result<Option<i64>>> {
        let task = |number: i64| {
            let writer = writer.clone();
            async move { writer.set(number.to_string(), score).await }
        };
        (0..200).map(task).collect()
    };
    for told in tasks(1).join_all().await {
        let error = told.expect_err("it is being built").to_string();
        assert!(error.contains("is being built anew"), "{error}");
    }
    let limit = writer.client.inner.options.call_limit;
    let waited = begun.elapsed();
    assert!(waited >= limit && waited < limit + Duration::from_millis(100), "{waited:?}");
    // All go on when it is given up.
    let tasks = tasks(2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    builder.ask(7, None, Vec::new(), Ask::Abandon).await.expect("an answer");
    let begun = Instant::now();
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
}

async fn announce(board: &Leaderboard, epoch: u64) -> Answer {
    board.ask(epoch, None, Vec::new(), Ask::Announce).await.expect("an answer")
}
