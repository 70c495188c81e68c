//! Boards that are built, and who waits for them.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::board::Leaderboard;
use super::super::change::EVENTS;
use super::super::ranked::{Incremented, LONGEST_EVENT, RebuildEntry};
use super::super::rule::{Answer, Ask};
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
    board.rebuild([RebuildEntry::new("ada", 5).events(events)]).await.expect("built");
    for event in 4..EVENTS + 4 {
        let again = board.increment_once("ada", 1, event.to_string()).await.expect("an answer");
        assert_eq!(again, Incremented::Repeated(5), "event {event}");
    }
    assert_eq!(board.increment_once("ada", 1, "3").await.expect("added"), Incremented::Yes(6));
    let too_long = RebuildEntry::new("ada", 5).events([[0; LONGEST_EVENT + 1]]);
    assert!(matches!(board.rebuild([too_long]).await, Err(Error::Invalid { .. })));
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
    assert_eq!(builder.rebuild(entries).await.expect("built"), 20);
}

/// The member may be on the board that comes.
#[tokio::test(start_paused = true)]
async fn nobody_is_removed_from_a_first_board_before_it_is_built() {
    let (builder, writer) = handles().await;
    let entries = (0..3_i64).map(|number| {
        assert!(ask_once(writer.remove("0")).is_pending(), "before entry {number}");
        RebuildEntry::new(number.to_string(), -number)
    });
    builder.rebuild(entries).await.expect("built");
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
