//! Boards that are built, and who waits for them.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::super::board::Leaderboard;
use super::super::change::EVENTS;
use super::super::ranked::{Incremented, LONGEST_EVENT, RebuildEntry};
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
