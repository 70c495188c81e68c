//! What is known of tasks, and pausing them.

use std::collections::BTreeMap;
use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::occurrence::foreign;
use super::record::{End, PastRecord, Record};
use super::rule::{Answer, KEPT, encode, step_with};
use super::task::{LONGEST_HISTORY, Schedule};
use super::timing::{self, Timing};
use crate::claim::Micros;
use crate::client::Client;
use crate::client::cell::TypedRule;
use crate::engine::{CellValue, Decision, Rule, Write};
use crate::error::Result;
use crate::name::{Family, Name};
use crate::token::Token;

/// The cell with the names of all tasks, of all namespaces.
const LIST: &str = "schedule-tasks";
/// At most this many are listed.
const MOST_LISTED: usize = 1000;
/// A task that was listed this long ago is listed again.
const LISTED_ANEW: Micros = 24 * 60 * 60 * 1_000_000;

/// What is known of a task.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// When it is due: an expression and a zone, or an interval.
    pub timing: String,
    /// When it is due next, unless it is paused.
    pub next: Option<SystemTime>,
    /// Since when it is paused.
    pub paused: Option<SystemTime>,
    /// What runs, or ran when its node fell silent and nobody has looked since.
    pub running: Vec<Running>,
    /// What happened last, oldest first.
    pub history: Vec<Past>,
    /// How many runs are done.
    pub done: u64,
    /// How many runs failed.
    pub failed: u64,
    /// How many runs were lost: their nodes fell silent.
    pub lost: u64,
    /// How many runs were stopped because a later one was due.
    pub replaced: u64,
    /// How many occurrences were missed, or more if they were too many to count.
    pub missed: u64,
}

/// An occurrence that runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Running {
    /// Its instant.
    pub scheduled: SystemTime,
    /// When it was started.
    pub started: SystemTime,
    /// Its token; `None` if its node gave it back before it was started.
    pub token: Option<Token>,
    /// 1, or more if it was lost before.
    pub attempt: u32,
    /// The node that runs it, for people.
    pub node: String,
}

/// What became of an occurrence, or of several.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Past {
    /// Its instant; the first one of several.
    pub scheduled: SystemTime,
    /// The last one of several.
    pub last: SystemTime,
    /// When it was started, if it was.
    pub started: Option<SystemTime>,
    /// When it ended, or when it was recorded.
    pub ended: SystemTime,
    /// Its token, if it was started.
    pub token: Option<Token>,
    /// 1, or more if it was lost before; 0 if it was not started.
    pub attempt: u32,
    /// The node that ran it, for people.
    pub node: String,
    /// What it came to.
    pub outcome: Outcome,
}

/// What an occurrence came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The work is done.
    Done,
    /// The work has failed, and why.
    Failed(String),
    /// Its node fell silent: the work was done or not.
    Lost,
    /// It was not started.
    Missed {
        /// How many in a row.
        count: u32,
        /// There were more than were counted.
        more: bool,
    },
    /// The work was stopped because a later occurrence was due.
    Replaced,
    /// The task was paused, and nothing was started between the two instants.
    Paused,
}

impl Schedule {
    /// What is known of the task; `None` if no node has ever asked for it.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Unavailable`] if the engine does not answer; [`crate::Error::Engine`] if the
    /// record is something else.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn status(&self) -> Result<Option<Status>> {
        let cell = self.cell()?;
        let found = self.client.inner.read_cells(slice::from_ref(&cell)).await?;
        let Some(bytes) = found.cells.into_iter().next().and_then(|cell| cell.value) else {
            return Ok(None);
        };
        let record = Record::decode(&bytes).ok_or_else(|| foreign(&self.client, &cell))?;
        Ok(Some(Status::new(record, found.now)))
    }

    /// Starts no more occurrences, on any node, until [`Schedule::resume`]. What runs goes on. True
    /// if it was not paused before; false also if no node has ever asked for the task.
    ///
    /// # Errors
    ///
    /// As [`Schedule::status`].
    ///
    /// # Cancel safety
    ///
    /// It was done or not; it can be done again.
    pub async fn pause(&self) -> Result<bool> {
        self.manage(Manage::Pause).await
    }

    /// Starts occurrences again, from the next instant on: what was due in between does not run.
    /// Nodes hear of it within 15 seconds. True if it was paused.
    ///
    /// # Errors
    ///
    /// As [`Schedule::status`].
    ///
    /// # Cancel safety
    ///
    /// It was done or not; it can be done again.
    pub async fn resume(&self) -> Result<bool> {
        self.manage(Manage::Resume).await
    }

    async fn manage(&self, what: Manage) -> Result<bool> {
        let cell = self.cell()?;
        match self.client.inner.update(slice::from_ref(&cell), &Arc::new(what)).await? {
            Answer::Foreign => Err(foreign(&self.client, &cell)),
            answer => Ok(answer == Answer::Yes),
        }
    }

    /// Puts the task on the list of all tasks.
    pub(super) async fn enlist(&self) -> Result<()> {
        let name = self.client.name(Family::Cell, &self.name)?;
        let enlist = Arc::new(Enlist { name: name.as_str().to_owned() });
        self.client.inner.update(&[list()?], &enlist).await
    }
}

impl Client {
    /// The names of the tasks that nodes have asked for, in this client's namespace.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn tasks(&self) -> Result<Vec<String>> {
        if !self.guarantees().cells {
            return Ok(Vec::new());
        }
        let found = self.inner.read_cells(&[list()?]).await?;
        let value = found.cells.into_iter().next().and_then(|cell| cell.value);
        let listed: BTreeMap<String, Micros> =
            value.and_then(|value| postcard::from_bytes(&value).ok()).unwrap_or_default();
        let prefix = self.name(Family::Cell, "")?;
        let names =
            listed.into_keys().filter_map(|name| Some(name.strip_prefix(prefix.as_str())?.to_owned()));
        Ok(names.collect())
    }
}

fn list() -> Result<Name> {
    Name::new(Family::Cell, LIST)
}

/// Pausing a task.
#[derive(Debug)]
enum Manage {
    Pause,
    Resume,
}

impl Rule for Manage {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        step_with(values, |found| {
            let Some(mut record) = found else { return (None, Answer::Gone) };
            match (self, record.paused) {
                (Manage::Pause, None) => record.paused = Some(now),
                (Manage::Resume, Some(since)) => {
                    record.paused = None;
                    record.decided = record.decided.max(now);
                    let past = PastRecord {
                        instant: since,
                        last: now,
                        token: 0,
                        attempt: 0,
                        started: now,
                        ended: now,
                        node: String::new(),
                        end: End::Paused,
                    };
                    record.remember(past, LONGEST_HISTORY);
                }
                _ => return (None, Answer::Gone),
            }
            record.written = now;
            (Some(record), Answer::Yes)
        })
    }
}

impl TypedRule for Manage {
    type Answer = Answer;

    fn read(&self, answer: &[u8]) -> Option<Answer> {
        postcard::from_bytes(answer).ok()
    }
}

/// Puts a task on the list.
#[derive(Debug)]
struct Enlist {
    name: String,
}

impl Rule for Enlist {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        let value = values.first().copied().flatten();
        // A list that can not be read is made anew: it only serves listings.
        let mut listed: BTreeMap<String, Micros> =
            value.and_then(|value| postcard::from_bytes(value).ok()).unwrap_or_default();
        let fresh = listed.get(&self.name).is_some_and(|then| now.saturating_sub(*then) < LISTED_ANEW);
        let answer = encode(&Answer::Yes);
        if fresh {
            return Decision { writes: Vec::new(), answer };
        }
        listed.insert(self.name.clone(), now);
        let kept = u64::try_from(KEPT.as_micros()).unwrap_or(u64::MAX);
        listed.retain(|_, then| now.saturating_sub(*then) < kept);
        while listed.len() > MOST_LISTED
            && let Some(oldest) = listed.iter().min_by_key(|(_, then)| **then).map(|(name, _)| name.clone())
        {
            listed.remove(&oldest);
        }
        // Nothing in a list can not be written.
        let bytes = postcard::to_stdvec(&listed).unwrap_or_default();
        Decision { writes: vec![Write::Put(CellValue { bytes, lives: KEPT })], answer }
    }
}

impl TypedRule for Enlist {
    type Answer = ();

    fn read(&self, _answer: &[u8]) -> Option<()> {
        Some(())
    }
}

fn at(time: Micros) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(time)
}

impl Status {
    fn new(record: Record, now: Micros) -> Status {
        let timing = Timing::of_text(&record.timing).filter(|_| record.paused.is_none());
        let next = timing.and_then(|timing| timing.next_after(record.decided.max(now)));
        let running = record.runs.into_iter().map(|run| Running {
            scheduled: at(run.instant),
            started: at(run.started),
            token: Token::new(run.token),
            attempt: run.attempt,
            node: run.node,
        });
        let history = record.history.into_iter().map(|past| Past {
            scheduled: at(past.instant),
            last: at(past.last),
            started: (past.token != 0).then(|| at(past.started)),
            ended: at(past.ended),
            token: Token::new(past.token),
            attempt: past.attempt,
            node: past.node,
            outcome: match past.end {
                End::Done => Outcome::Done,
                End::Failed(why) => Outcome::Failed(why),
                End::Lost => Outcome::Lost,
                End::Missed { count, more } => Outcome::Missed { count, more },
                End::Paused => Outcome::Paused,
                End::Replaced => Outcome::Replaced,
            },
        });
        Status {
            timing: record.timing,
            next: next.map(at),
            paused: record.paused.map(at),
            running: running.collect(),
            history: history.collect(),
            done: record.counts.done,
            failed: record.counts.failed,
            lost: record.counts.lost,
            replaced: record.counts.replaced,
            missed: record.counts.missed,
        }
    }
}

/// A time in RFC 3339.
fn shown(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    timing::show(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

impl fmt::Display for Running {
    /// In one line, like `2026-11-18T02:00:00Z runs since 2026-11-18T02:00:00.01Z, token 17, backup
    /// (pid 123 on host)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Running { scheduled, started, token, attempt, node } = self;
        write!(f, "{} ", shown(*scheduled))?;
        match token {
            Some(token) => write!(f, "runs since {}, token {token}", shown(*started))?,
            None => write!(f, "waits for a node")?,
        }
        if *attempt > 1 {
            write!(f, ", attempt {attempt}")?;
        }
        write!(f, ", {node}")
    }
}

impl fmt::Display for Past {
    /// In one line, like `2026-11-18T02:00:00Z done in 3s, token 17, backup (pid 123 on host)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", shown(self.scheduled))?;
        let started = self.started.unwrap_or(self.ended);
        let took = self.ended.duration_since(started).unwrap_or_default();
        let took = Duration::from_millis(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        match &self.outcome {
            Outcome::Done => write!(f, "done in {took:?}")?,
            Outcome::Failed(why) => write!(f, "failed after {took:?}: {why}")?,
            Outcome::Replaced => write!(f, "stopped after {took:?} for a later one")?,
            Outcome::Lost => write!(f, "lost: its node fell silent, and it was done or not")?,
            Outcome::Paused => return write!(f, "paused until {}", shown(self.last)),
            Outcome::Missed { count: 1, more: false } => return write!(f, "missed"),
            Outcome::Missed { count, more } => {
                let more = if *more { "or more " } else { "" };
                return write!(f, "missed, {count} {more}until {}", shown(self.last));
            }
        }
        if self.attempt > 1 {
            write!(f, ", attempt {}", self.attempt)?;
        }
        if let Some(token) = self.token {
            write!(f, ", token {token}")?;
        }
        write!(f, ", {}", self.node)
    }
}

impl fmt::Display for Status {
    /// When it is due, and when next.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.paused, self.next) {
            (Some(since), _) => write!(f, "{}, paused since {}", self.timing, shown(since)),
            (None, Some(next)) => write!(f, "{}, next at {}", self.timing, shown(next)),
            (None, None) => f.write_str(&self.timing),
        }
    }
}
