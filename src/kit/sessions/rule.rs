//! The rules of sessions: pure steps over the cells of a user.
//!
//! The first cell is the user's epoch, the second the index of the user's sessions (not for
//! [`Ask::Load`] and [`Ask::Save`], which are asked most and need no index), the rest are sessions.
//! A session of a user is valid while its epoch is the user's; so deleting one cell ends all of
//! them at one moment. What is left of them is deleted afterwards, and the index says what that is.

use std::time::Duration;

use super::id::Handle;
use super::record::{Entry, Epoch, Index, NO_USER, Record, decode_epoch, encode_epoch, number};
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::{CellValue, Decision, Rule, Write};
use crate::kit::bytes::{Reader, Writer};

/// How long sessions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetimes {
    /// After their last use.
    pub(super) idle: Duration,
    /// In all.
    pub(super) whole: Duration,
}

/// The end of a session is put off when this part of its lifetime has passed since the last time.
const SLIDES: u64 = 10;

#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// Over epoch, index and session. `epoch` is the user's from now on if there is none.
    Create { handle: Handle, user: Option<String>, data: Vec<u8>, epoch: Epoch, most: usize },
    /// Over epoch and session.
    Load,
    /// Over epoch and session: replaces the data if the session is still at this version.
    Save { version: u64, data: Vec<u8> },
    /// Over epoch, index and session: puts its end off.
    Slide { handle: Handle },
    /// Over epoch, index and session.
    End { handle: Handle },
    /// Over epoch and index.
    List,
    /// Over epoch and index: from now on no session of the user is valid.
    EndAll,
    /// Over epoch, index and these sessions: deletes what is left of ended ones.
    Sweep { handles: Vec<Handle> },
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) ask: Ask,
    pub(super) lifetimes: Lifetimes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A cell holds something else.
    Foreign,
    /// There is no such session, or it was ended.
    None,
    /// The session, at this time, and whether its end should be put off.
    Found { record: Record, now: Micros, slide: bool },
    /// It is not at the version that was asked for.
    Changed { record: Record, now: Micros },
    /// The user has too many.
    TooMany,
    /// The sessions of a user, at this time.
    Listed { index: Index, now: Micros },
    /// So many were valid until now; these were ended and their cells are to be deleted.
    Ended { count: u64, left: Vec<Handle> },
    /// What the deleted ones had, and what is still to be deleted.
    Swept { data: Vec<Vec<u8>>, left: Vec<Handle> },
}

/// The cells as the rules see them.
struct Found {
    epoch: Option<Epoch>,
    index: Index,
    sessions: Vec<Option<Record>>,
}

impl Found {
    /// `None` if one of them is something else.
    fn read(values: &[Option<&[u8]>], has_index: bool) -> Option<Found> {
        let (epoch, rest) = values.split_first()?;
        let (index, sessions) = if has_index { rest.split_first()? } else { (&None, rest) };
        Some(Found {
            epoch: epoch.map(decode_epoch).map_or(Some(None), |epoch| epoch.map(Some))?,
            index: index.map_or_else(|| Some(Index::default()), Index::decode)?,
            sessions: sessions
                .iter()
                .map(|value| value.map(Record::decode).map_or(Some(None), |record| record.map(Some)))
                .collect::<Option<_>>()?,
        })
    }

    /// The session, if it is valid.
    fn valid(&self, now: Micros) -> Option<&Record> {
        let record = self.sessions.first()?.as_ref()?;
        let valid = record.epoch == NO_USER || Some(record.epoch) == self.epoch;
        (valid && record.until > now).then_some(record)
    }

    fn is_live(&self, entry: &Entry, now: Micros) -> bool {
        Some(entry.epoch) == self.epoch && entry.until > now
    }

    /// What was ended and may still have a cell.
    fn left(&self) -> Vec<Handle> {
        let ended = self.index.0.iter().filter(|entry| Some(entry.epoch) != self.epoch);
        ended.map(|entry| entry.handle).collect()
    }

    /// Epoch and index as they are written: without what is over, and kept as long as the last.
    fn writes(&mut self, now: Micros) -> [Write; 2] {
        self.index.0.retain(|entry| entry.until > now);
        let last = self.index.0.iter().map(|entry| entry.until).max();
        let Some(lives) = last.map(|until| Duration::from_micros(until - now)) else {
            return [Write::Delete, Write::Delete];
        };
        let epoch = match self.epoch {
            Some(epoch) if self.index.0.iter().any(|entry| entry.epoch == epoch) => {
                Write::Put(CellValue { bytes: encode_epoch(epoch), lives })
            }
            _ => Write::Delete,
        };
        [epoch, Write::Put(CellValue { bytes: self.index.encode(), lives })]
    }
}

fn put(record: &Record, now: Micros) -> Write {
    let lives = Duration::from_micros(record.until.saturating_sub(now));
    Write::Put(CellValue { bytes: record.encode(), lives })
}

impl Step {
    /// When a session that is used now ends.
    fn until(&self, born: Micros, now: Micros) -> Micros {
        let whole = born.saturating_add(micros(self.lifetimes.whole));
        now.saturating_add(micros(self.lifetimes.idle)).min(whole)
    }

    fn is_due(&self, record: &Record, now: Micros) -> bool {
        record.until.saturating_add(micros(self.lifetimes.idle) / SLIDES) <= self.until(record.born, now)
    }

    fn decide(&self, mut found: Found, now: Micros) -> (Vec<Write>, Answer) {
        match &self.ask {
            Ask::Create { handle, user, data, epoch, most } => {
                let until = self.until(now, now);
                let mut record = Record {
                    epoch: NO_USER,
                    version: 1,
                    born: now,
                    seen: now,
                    until,
                    user: user.clone(),
                    data: data.clone(),
                };
                let mut writes = [Write::Keep, Write::Keep];
                if user.is_some() {
                    found.index.0.retain(|entry| entry.until > now);
                    if found.index.0.len() >= *most {
                        return (Vec::new(), Answer::TooMany);
                    }
                    let epoch = *found.epoch.get_or_insert(*epoch);
                    record.epoch = epoch;
                    found.index.0.push(Entry { handle: *handle, epoch, born: now, seen: now, until });
                    writes = found.writes(now);
                }
                let [epoch, index] = writes;
                (vec![epoch, index, put(&record, now)], Answer::Found { record, now, slide: false })
            }
            Ask::Load => match found.valid(now) {
                None => (Vec::new(), Answer::None),
                Some(record) => {
                    let slide = self.is_due(record, now);
                    (Vec::new(), Answer::Found { record: record.clone(), now, slide })
                }
            },
            Ask::Save { version, data } => match found.valid(now) {
                None => (Vec::new(), Answer::None),
                Some(record) if record.version != *version => {
                    (Vec::new(), Answer::Changed { record: record.clone(), now })
                }
                Some(record) => {
                    let slide = self.is_due(record, now);
                    let record = Record { version: version + 1, data: data.clone(), ..record.clone() };
                    (vec![Write::Keep, put(&record, now)], Answer::Found { record, now, slide })
                }
            },
            Ask::Slide { handle } => {
                let Some(record) = found.valid(now).cloned() else { return (Vec::new(), Answer::None) };
                // Never brought forward: others may keep their sessions for longer.
                let until = record.until.max(self.until(record.born, now));
                let record = Record { seen: now, until, ..record };
                let mut writes = [Write::Keep, Write::Keep];
                if record.epoch != NO_USER {
                    for entry in found.index.0.iter_mut().filter(|entry| entry.handle == *handle) {
                        (entry.seen, entry.until) = (now, until);
                    }
                    writes = found.writes(now);
                }
                let [epoch, index] = writes;
                (vec![epoch, index, put(&record, now)], Answer::Found { record, now, slide: false })
            }
            Ask::End { handle } => {
                let count = u64::from(found.valid(now).is_some());
                let mut writes = [Write::Keep, Write::Keep];
                if found.index.0.iter().any(|entry| entry.handle == *handle) {
                    found.index.0.retain(|entry| entry.handle != *handle);
                    writes = found.writes(now);
                }
                let [epoch, index] = writes;
                let session =
                    if found.sessions.iter().any(Option::is_some) { Write::Delete } else { Write::Keep };
                (vec![epoch, index, session], Answer::Ended { count, left: Vec::new() })
            }
            Ask::List => {
                let live = found.index.0.iter().filter(|entry| found.is_live(entry, now)).copied().collect();
                (Vec::new(), Answer::Listed { index: Index(live), now })
            }
            Ask::EndAll => {
                let live = found.index.0.iter().filter(|entry| found.is_live(entry, now)).count();
                let epoch = if found.epoch.take().is_some() { Write::Delete } else { Write::Keep };
                let left = found.left();
                (vec![epoch], Answer::Ended { count: live as u64, left })
            }
            Ask::Sweep { handles } => {
                let ended = |record: &Record| Some(record.epoch) != found.epoch;
                let sessions = found.sessions.iter().map(|record| match record {
                    Some(record) if ended(record) => (Write::Delete, Some(record.data.clone())),
                    _ => (Write::Keep, None),
                });
                let (sessions, data): (Vec<Write>, Vec<Option<Vec<u8>>>) = sessions.unzip();
                let epoch = found.epoch;
                found.index.0.retain(|entry| Some(entry.epoch) == epoch || !handles.contains(&entry.handle));
                let mut writes = found.writes(now).to_vec();
                writes.extend(sessions);
                (writes, Answer::Swept { data: data.into_iter().flatten().collect(), left: found.left() })
            }
        }
    }
}

impl Rule for Step {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        let has_index = !matches!(self.ask, Ask::Load | Ask::Save { .. });
        let (writes, answer) = match Found::read(values, has_index) {
            Some(found) => self.decide(found, now),
            None => (Vec::new(), Answer::Foreign),
        };
        Decision { writes, answer: encode(&answer) }
    }

    fn mostly_looks(&self) -> bool {
        matches!(self.ask, Ask::Load | Ask::List)
    }
}

impl TypedRule for Step {
    type Answer = Answer;

    fn read(&self, answer: &[u8]) -> Option<Answer> {
        let mut reader = Reader::new(answer, *answer.first()?)?;
        Some(match *answer.first()? {
            0 => Answer::Foreign,
            1 => Answer::None,
            2 => {
                let (slide, now) = (reader.byte()? != 0, reader.wide()?);
                Answer::Found { record: Record::decode(reader.rest())?, now, slide }
            }
            3 => {
                let now = reader.wide()?;
                Answer::Changed { record: Record::decode(reader.rest())?, now }
            }
            4 => Answer::TooMany,
            5 => {
                let now = reader.wide()?;
                Answer::Listed { index: Index::decode(reader.rest())?, now }
            }
            6 => Answer::Ended { count: reader.wide()?, left: read_handles(&mut reader)? },
            7 => {
                let left = read_handles(&mut reader)?;
                let mut data = Vec::new();
                while !reader.is_empty() {
                    let length = usize::try_from(reader.short()?).ok()?;
                    data.push(reader.bytes(length)?.to_vec());
                }
                Answer::Swept { data, left }
            }
            _ => return None,
        })
    }
}

fn encode(answer: &Answer) -> Vec<u8> {
    match answer {
        Answer::Foreign => Writer::new(0),
        Answer::None => Writer::new(1),
        Answer::Found { record, now, slide } => {
            Writer::new(2).byte(u8::from(*slide)).wide(*now).bytes(&record.encode())
        }
        Answer::Changed { record, now } => Writer::new(3).wide(*now).bytes(&record.encode()),
        Answer::TooMany => Writer::new(4),
        Answer::Listed { index, now } => Writer::new(5).wide(*now).bytes(&index.encode()),
        Answer::Ended { count, left } => write_handles(Writer::new(6).wide(*count), left),
        Answer::Swept { data, left } => {
            let mut writer = write_handles(Writer::new(7), left);
            for data in data {
                writer.short(data.len() as u64);
                writer = writer.bytes(data);
            }
            writer
        }
    }
    .done()
}

fn write_handles(mut writer: Writer, handles: &[Handle]) -> Writer {
    writer.short(handles.len() as u64);
    handles.iter().fold(writer, |writer, handle| writer.bytes(&handle.0.to_be_bytes()))
}

fn read_handles(reader: &mut Reader<'_>) -> Option<Vec<Handle>> {
    let count = reader.short()?;
    (0..count).map(|_| number(reader).map(Handle)).collect()
}

/// Times are below 2^53.
fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).min(1 << 51)
}
