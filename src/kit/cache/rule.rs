//! The rule of an entry: a pure step over its cell.
//!
//! A value is stored only by the owner whose load the cell names, and an invalidation takes that
//! name out of the cell. So a result that comes late, because its lease was lost or because the
//! load began before an invalidation, finds that it is not wanted any more.

use std::borrow::Cow;
use std::time::Duration;

use super::entry::{Entry, Held, LARGEST, Loader, decode};
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::{CellValue, Decision, Rule, Twin, Write};

/// What is asked of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// For the value; and if there is none that is fresh, to be the one who loads it.
    Look {
        /// Who loads it then.
        owner: u128,
        /// For how long nobody else does, unless that is extended.
        lease: Duration,
        /// Whether the caller would load it.
        may_load: bool,
        /// A value of an earlier version of the source is of no use to the caller.
        at_least: u64,
        /// The value is to be loaded again already if it is fresh for less than this many
        /// thousandths of the time that its last load took.
        early: u32,
    },
    /// To keep what was loaded.
    Store {
        /// Who has loaded it.
        owner: u128,
        /// What: `None` if the source has nothing of this name.
        value: Option<Vec<u8>>,
        /// Its version in the source; 0 if that has none. It is compared all the same: what has no
        /// version is older than what has one.
        version: u64,
        /// For how long it is fresh.
        fresh: Duration,
        /// For how long after that it may be used while it is loaded again.
        stale: Duration,
        /// How long the load took, in microseconds.
        cost: u32,
        /// How long nobody loads if it is older than what was invalidated.
        pause: Duration,
    },
    /// To go on loading.
    Extend {
        /// Who loads.
        owner: u128,
        /// For how long from now.
        lease: Duration,
    },
    /// To load no more: it was not begun, or has failed.
    Release {
        /// Who loaded.
        owner: u128,
        /// How long nobody loads.
        pause: Duration,
    },
    /// To forget the value, and to refuse what is being loaded.
    Invalidate {
        /// The version of the source from which on values are good; 0 if it has none.
        version: u64,
        /// How long that is remembered.
        kept: Duration,
    },
}

/// The most thousandths that count, so that Lua multiplies exactly.
const MOST_EARLY: u32 = 1 << 20;

/// One step of an entry.
#[derive(Clone, Debug)]
pub struct Step(pub Ask);

/// A value as a caller is given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// `None` if the source has nothing of this name.
    pub value: Option<Vec<u8>>,
    /// The version of the source.
    pub version: u64,
    /// For how long it is fresh.
    pub fresh: Micros,
    /// For how long it is there.
    pub lives: Micros,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The cell holds something else.
    Foreign,
    /// This is the value.
    Fresh(Found),
    /// The value is not fresh any more, and somebody else loads it, or nobody may now.
    Stale(Found),
    /// The value is not fresh any more, and the caller loads it.
    Refresh(Found),
    /// There is no value, and the caller loads it.
    Load,
    /// There is no value. Somebody loads it, for at most this long without a word.
    Wait(Micros),
    /// There is no value, and nobody loads it for so long, because the last load failed.
    Pause(Micros),
    /// There is no value, and the caller would not load it.
    Missing,
    /// It is as was asked.
    Done,
    /// It is not the caller who loads, so nothing was changed.
    NotYours,
    /// What was loaded is older than what was invalidated: at least this version is wanted.
    Older(u64),
}

fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).min(LARGEST / 16)
}

fn found(entry: &Entry<'_>, now: Micros) -> Found {
    Found {
        value: (entry.held == Held::Value).then(|| entry.bytes.to_vec()),
        version: entry.version,
        fresh: entry.fresh_until.saturating_sub(now),
        lives: entry.ends - now,
    }
}

/// Whether this owner's load is what the cell waits for. An owner whose lease is over is still the
/// one if nobody has come since.
fn loads(entry: &Entry<'_>, owner: u128) -> bool {
    entry.loader == Loader::Loads && entry.owner == owner
}

impl Ask {
    fn decide<'a>(&'a self, before: Option<Entry<'a>>, now: Micros) -> (Option<Entry<'a>>, Answer) {
        let had = before.is_some();
        let mut entry = before.unwrap_or(Entry::EMPTY);
        if entry.held != Held::Nothing && entry.ends <= now {
            entry = Entry { held: Held::Nothing, version: 0, bytes: Cow::Borrowed(&[]), ..entry };
        }
        if entry.least_until <= now {
            // Something else may have kept the cell. What has no version can be stored again.
            entry.least = 0;
        }
        match self {
            Ask::Look { owner, lease, may_load, at_least, early } => {
                let usable = entry.held != Held::Nothing && entry.version >= *at_least;
                let fresh = entry.fresh_until.saturating_sub(now);
                let is_early = fresh * 1000 <= u64::from(entry.cost) * u64::from((*early).min(MOST_EARLY));
                if usable && fresh > 0 && !is_early {
                    return (None, Answer::Fresh(found(&entry, now)));
                }
                let busy = entry.loader == Loader::Loads && entry.loads_until > now && entry.owner != *owner;
                let paused = entry.retry_at > now;
                if busy || paused || !may_load {
                    return (
                        None,
                        match (usable, busy, paused) {
                            (true, ..) if fresh > 0 => Answer::Fresh(found(&entry, now)),
                            (true, ..) => Answer::Stale(found(&entry, now)),
                            (_, true, _) => Answer::Wait(entry.loads_until - now),
                            (_, _, true) => Answer::Pause(entry.retry_at - now),
                            _ => Answer::Missing,
                        },
                    );
                }
                let answer = if usable { Answer::Refresh(found(&entry, now)) } else { Answer::Load };
                let loads_until = now + micros(*lease);
                (Some(Entry { loader: Loader::Loads, owner: *owner, loads_until, ..entry }), answer)
            }
            Ask::Store { owner, value, version, fresh, stale, cost, pause } => {
                // Stored before, and the answer was lost.
                if entry.loader == Loader::HasStored && entry.owner == *owner {
                    return (None, Answer::Done);
                }
                if !loads(&entry, *owner) {
                    return (None, Answer::NotYours);
                }
                let has = if entry.held == Held::Nothing { 0 } else { entry.version };
                let least = entry.least.max(has);
                // Also if it has no version: a replica that lacks a row has none of it.
                if *version < least {
                    let retry_at = now + micros(*pause);
                    let (loader, owner) = (Loader::Nobody, 0);
                    return (Some(Entry { loader, owner, retry_at, ..entry }), Answer::Older(least));
                }
                let fresh_until = now + micros(*fresh);
                let stored = Entry {
                    held: if value.is_some() { Held::Value } else { Held::None },
                    version: *version,
                    fresh_until,
                    ends: fresh_until + micros(*stale),
                    loader: Loader::HasStored,
                    loads_until: 0,
                    retry_at: 0,
                    cost: *cost,
                    bytes: Cow::Borrowed(value.as_deref().unwrap_or_default()),
                    ..entry
                };
                (Some(stored), Answer::Done)
            }
            Ask::Extend { owner, lease } => {
                if !loads(&entry, *owner) {
                    return (None, Answer::NotYours);
                }
                (Some(Entry { loads_until: now + micros(*lease), ..entry }), Answer::Done)
            }
            Ask::Release { owner, pause } => {
                if !loads(&entry, *owner) {
                    return (None, Answer::NotYours);
                }
                let (loader, owner) = (Loader::Nobody, 0);
                let retry_at = if pause.is_zero() { entry.retry_at } else { now + micros(*pause) };
                (Some(Entry { loader, owner, loads_until: 0, retry_at, ..entry }), Answer::Done)
            }
            Ask::Invalidate { version, kept } => {
                let (least, least_until) = if *version > 0 {
                    (entry.least.max(*version), entry.least_until.max(now + micros(*kept)))
                } else {
                    (entry.least, entry.least_until)
                };
                if *version > 0 && entry.held != Held::Nothing && entry.version >= *version {
                    // The value is what the source has had since. What is being loaded is compared.
                    return (Some(Entry { least, least_until, ..entry }), Answer::Done);
                }
                let after = Entry {
                    held: Held::Nothing,
                    version: 0,
                    least,
                    least_until,
                    loader: Loader::Nobody,
                    owner: 0,
                    loads_until: 0,
                    bytes: Cow::Borrowed(&[]),
                    ..entry
                };
                // Nothing to forget is nothing to write.
                let after = (had || *version > 0).then_some(after);
                (after, Answer::Done)
            }
        }
    }
}

impl Rule for Step {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        let before = match values.first().copied().flatten().map(decode) {
            None => None,
            Some(Some(entry)) => Some(entry),
            Some(None) => return Decision { writes: Vec::new(), answer: encode(&Answer::Foreign) },
        };
        let (after, answer) = self.0.decide(before, now);
        let writes = match after {
            None => Vec::new(),
            Some(entry) if entry.over_at() <= now => vec![Write::Delete],
            Some(entry) => {
                let lives = Duration::from_micros(entry.over_at() - now);
                vec![Write::Put(CellValue { bytes: entry.encode(), lives })]
            }
        };
        Decision { writes, answer: encode(&answer) }
    }

    fn mostly_looks(&self) -> bool {
        matches!(self.0, Ask::Look { .. })
    }

    fn twin(&self) -> Option<Twin> {
        let number = |number: u64| number.to_string().into_bytes();
        let duration = |duration: &Duration| number(micros(*duration));
        let bytes = |owner: &u128| owner.to_be_bytes().to_vec();
        let arguments = match &self.0 {
            Ask::Look { owner, lease, may_load, at_least, early } => vec![
                b"look".to_vec(),
                bytes(owner),
                duration(lease),
                number(u64::from(*may_load)),
                number(*at_least),
                number(u64::from((*early).min(MOST_EARLY))),
            ],
            Ask::Store { owner, value, version, fresh, stale, cost, pause } => vec![
                b"store".to_vec(),
                bytes(owner),
                number(u64::from(value.is_some())),
                number(*version),
                duration(fresh),
                duration(stale),
                number(u64::from(*cost)),
                duration(pause),
                value.clone().unwrap_or_default(),
            ],
            Ask::Extend { owner, lease } => vec![b"extend".to_vec(), bytes(owner), duration(lease)],
            Ask::Release { owner, pause } => vec![b"release".to_vec(), bytes(owner), duration(pause)],
            Ask::Invalidate { version, kept } => {
                vec![b"invalidate".to_vec(), number(*version), duration(kept)]
            }
        };
        let (script, shortcut) = (include_str!("entry.lua"), Some(include_str!("fresh.lua")));
        Some(Twin { script, shortcut, arguments })
    }
}

/// Bytes of an answer before the value.
const START: usize = 26;

impl TypedRule for Step {
    type Answer = Answer;

    fn read(&self, answer: &[u8]) -> Option<Answer> {
        let (start, value) = answer.split_first_chunk::<START>()?;
        let number = |at: usize| start[at..at + 8].try_into().map(u64::from_be_bytes).ok();
        let (first, lives, version) = (number(2)?, number(10)?, number(18)?);
        let found = || Found {
            value: (start[1] == Held::Value as u8).then(|| value.to_vec()),
            version,
            fresh: first,
            lives,
        };
        Some(match start[0] {
            0 => Answer::Foreign,
            1 => Answer::Fresh(found()),
            2 => Answer::Stale(found()),
            3 => Answer::Refresh(found()),
            4 => Answer::Load,
            5 => Answer::Wait(first),
            6 => Answer::Pause(first),
            7 => Answer::Missing,
            8 => Answer::Done,
            9 => Answer::NotYours,
            10 => Answer::Older(first),
            _ => return None,
        })
    }
}

fn encode(answer: &Answer) -> Vec<u8> {
    let (word, first, found) = match answer {
        Answer::Foreign => (0, 0, None),
        Answer::Fresh(found) => (1, found.fresh, Some(found)),
        Answer::Stale(found) => (2, found.fresh, Some(found)),
        Answer::Refresh(found) => (3, found.fresh, Some(found)),
        Answer::Load => (4, 0, None),
        Answer::Wait(left) => (5, *left, None),
        Answer::Pause(left) => (6, *left, None),
        Answer::Missing => (7, 0, None),
        Answer::Done => (8, 0, None),
        Answer::NotYours => (9, 0, None),
        Answer::Older(least) => (10, *least, None),
    };
    let value = found.and_then(|found| found.value.as_deref());
    let held = match (found, value) {
        (None, _) => Held::Nothing,
        (Some(_), None) => Held::None,
        (Some(_), Some(_)) => Held::Value,
    };
    let mut bytes = Vec::with_capacity(START + value.map_or(0, <[u8]>::len));
    bytes.extend_from_slice(&[word, held as u8]);
    for number in [first, found.map_or(0, |found| found.lives), found.map_or(0, |found| found.version)] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes.extend_from_slice(value.unwrap_or_default());
    bytes
}
