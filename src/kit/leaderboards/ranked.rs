//! What goes into a board, and what comes out of it.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use super::change::EVENTS;
use crate::claim::Micros;
use crate::error::{Error, Result};

/// The longest member, in bytes.
pub const LONGEST_MEMBER: usize = 256;
/// The longest id of an event, in bytes.
pub const LONGEST_EVENT: usize = 64;
/// So many of the last events of each member are known.
pub const MOST_EVENTS: usize = EVENTS;

/// Where a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rank {
    /// Counted from 1.
    pub place: u64,
    /// How many members the board has.
    pub of: u64,
    /// The score.
    pub score: i64,
}

/// A member of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ranked {
    /// Counted from 1.
    pub place: u64,
    /// Whose place it is.
    pub member: String,
    /// The score.
    pub score: i64,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incremented {
    /// It was counted. This is the score now.
    Yes(i64),
    /// It had been counted before, and was not again. This is the score.
    Repeated(i64),
}

impl Incremented {
    /// The score, whether the event was counted now or before.
    pub fn score(self) -> i64 {
        match self {
            Incremented::Yes(score) | Incremented::Repeated(score) => score,
        }
    }
}

/// A member as the source of truth has it: see [`Leaderboard::rebuild`](super::Leaderboard::rebuild).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuildEntry {
    pub(super) member: String,
    pub(super) score: i64,
    pub(super) reached: Option<SystemTime>,
    /// Oldest first; no more than are known of a member.
    pub(super) events: Vec<Vec<u8>>,
}

impl RebuildEntry {
    /// A member with this score.
    pub fn new(member: impl Into<String>, score: i64) -> RebuildEntry {
        RebuildEntry { member: member.into(), score, reached: None, events: Vec::new() }
    }

    /// When the score was reached, which decides between equal scores: the time of the rebuild by
    /// default. It is kept in whole microseconds.
    #[must_use]
    pub fn reached_at(mut self, time: SystemTime) -> RebuildEntry {
        self.reached = Some(time);
        self
    }

    /// The events that the score has counted, the newest last: none by default. Only the last
    /// [`MOST_EVENTS`] are kept. They are what
    /// [`Leaderboard::increment_once`](super::Leaderboard::increment_once) recognises after the
    /// rebuild; an event that is not among them is counted again if it is told again.
    #[must_use]
    pub fn events(mut self, events: impl IntoIterator<Item = impl AsRef<[u8]>>) -> RebuildEntry {
        let mut last: VecDeque<Vec<u8>> = VecDeque::new();
        for event in events {
            if last.len() == MOST_EVENTS {
                last.pop_front();
            }
            last.push_back(event.as_ref().to_vec());
        }
        self.events = last.into();
        self
    }
}

pub(super) fn checked(member: &str) -> Result<&str> {
    if member.len() > LONGEST_MEMBER {
        return Err(Error::invalid(format!(
            "a member has {} bytes, more than the {LONGEST_MEMBER} that a leaderboard takes",
            member.len()
        )));
    }
    Ok(member)
}

pub(super) fn checked_event(event: &[u8]) -> Result<&[u8]> {
    if event.len() > LONGEST_EVENT {
        return Err(Error::invalid(format!(
            "the id of the event has {} bytes, more than the {LONGEST_EVENT} that are kept; use a hash of it",
            event.len()
        )));
    }
    Ok(event)
}

pub(super) fn micros(time: SystemTime) -> Micros {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX).min(1 << 53)
}
