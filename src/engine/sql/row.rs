//! What is stored of a name, and how it is read.

use crate::claim::{Micros, OwnerId, Waiter};
use crate::engine::table::buffered::{Rest, Snapshot};
use crate::engine::table::row::{Record, decode, encode};
use crate::error::Error;
use crate::name::{Family, Name, fold, is_folded};

/// The longest name that is stored as it is.
pub(crate) const LONGEST_KEY: usize = 480;

/// The columns of a name's row, beside its key and version.
///
/// All numbers are microseconds and count from `at`, which is a time of the database's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    /// 0 where the numbers are absolute.
    pub(crate) at: Micros,
    /// The highest token that was given.
    pub(crate) last: u64,
    /// From when on the row is as good as none, except for `last`; `None` if only a rule can tell.
    pub(crate) idle_after: Option<Micros>,
    /// The claim of one owner that has the whole name, for statements that check it.
    pub(crate) sole: Option<Sole>,
    /// The record of the name; `None` if nobody uses it.
    pub(crate) record: Option<Vec<u8>>,
}

/// A claim that has the whole name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sole {
    pub(crate) first_token: u64,
    pub(crate) last_token: u64,
    pub(crate) ends: Micros,
}

/// The row of a name, as it is read.
#[derive(Clone, Debug)]
pub(crate) struct NameRow {
    pub(crate) version: i64,
    pub(crate) at: Micros,
    pub(crate) last: u64,
    pub(crate) record: Option<Vec<u8>>,
}

/// The row of a waiter.
#[derive(Clone, Debug)]
pub(crate) struct WaiterRow {
    pub(crate) place: u64,
    pub(crate) alive_until: Micros,
    pub(crate) waiter: Vec<u8>,
}

impl Columns {
    /// The columns for a record whose numbers are absolute, or relative to a time that is not known
    /// yet.
    pub(crate) fn of(record: &Record) -> Result<Columns, postcard::Error> {
        let state = &record.state;
        let sole = state.sole_claim().map(|claim| Sole {
            first_token: claim.token,
            last_token: claim.token + u64::from(claim.tokens) - 1,
            ends: claim.expires,
        });
        Ok(Columns {
            at: 0,
            last: state.last_token(),
            idle_after: state.idle_from(),
            sole,
            record: Some(encode(record)?),
        })
    }

    /// The columns of a name that nobody uses.
    pub(crate) fn idle(last: u64) -> Columns {
        Columns { at: 0, last, idle_after: Some(0), sole: None, record: None }
    }
}

impl NameRow {
    /// The record, with absolute numbers; `None` if nobody uses the name.
    pub(crate) fn record(&self) -> Result<Option<Record>, postcard::Error> {
        let Some(bytes) = &self.record else { return Ok(None) };
        let mut record: Record = decode(bytes)?;
        record.state.shift(self.at);
        Ok(Some(record))
    }

    /// The highest token that was given.
    pub(crate) fn last_token(&self) -> u64 {
        self.at + self.last
    }
}

impl WaiterRow {
    pub(crate) fn new(place: u64, waiter: &Waiter) -> Result<WaiterRow, postcard::Error> {
        Ok(WaiterRow { place, alive_until: waiter.alive_until, waiter: encode(waiter)? })
    }

    fn read(&self) -> Result<(u64, Waiter), postcard::Error> {
        let mut waiter: Waiter = decode(&self.waiter)?;
        // Kept in a column of its own, which is all that changes when a waiter asks again.
        waiter.alive_until = self.alive_until;
        Ok((self.place, waiter))
    }
}

/// What was read of a name.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) now: Micros,
    pub(crate) row: Option<NameRow>,
    /// In order.
    pub(crate) first: Vec<WaiterRow>,
    pub(crate) own: Option<WaiterRow>,
}

impl Found {
    /// True if there are waiters although the name says that it has none: its row was deleted by
    /// hand.
    pub(crate) fn has_orphans(&self) -> Result<bool, postcard::Error> {
        if self.first.is_empty() && self.own.is_none() {
            return Ok(false);
        }
        let record = self.row.as_ref().map(NameRow::record).transpose()?.flatten();
        Ok(record.is_none_or(|record| record.state.waiting() == 0))
    }

    /// For the rules. `most` waiters were asked for.
    pub(crate) fn snapshot(&self, most: usize) -> Result<Snapshot, postcard::Error> {
        Ok(Snapshot {
            record: self.row.as_ref().map(NameRow::record).transpose()?.flatten(),
            floor: self.row.as_ref().map_or(0, NameRow::last_token),
            first: self.first.iter().map(WaiterRow::read).collect::<Result<_, _>>()?,
            rest: if self.first.len() < most { Rest::None } else { Rest::Unread },
            own: self.own.as_ref().map(WaiterRow::read).transpose()?,
        })
    }
}

/// The key of a name.
pub(crate) fn key_of(name: &Name) -> Vec<u8> {
    keyed(name.family(), &fold(name.as_str(), LONGEST_KEY))
}

fn keyed(family: Family, folded: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + folded.len());
    key.push(family_byte(family));
    key.extend_from_slice(folded.as_bytes());
    key
}

fn family_byte(family: Family) -> u8 {
    match family {
        Family::Lock => b'l',
        Family::Semaphore => b's',
        Family::Election => b'e',
        Family::Cell => b'c',
    }
}

/// The name of a key and its record, if it is one of ours.
pub(crate) fn name_of(key: &[u8], record: &Record) -> Option<Name> {
    let (&family, folded) = key.split_first()?;
    let family = Family::ALL.into_iter().find(|known| family_byte(*known) == family)?;
    let text = record.text.as_deref().or_else(|| std::str::from_utf8(folded).ok())?;
    Name::new(family, text).ok()
}

/// The name of a cell from its key, if that is all of it.
pub(crate) fn cell_of(key: &[u8]) -> Option<Name> {
    let (_, text) = key.split_first()?;
    let text = std::str::from_utf8(text).ok().filter(|text| !is_folded(text))?;
    Name::new(Family::Cell, text).ok()
}

/// Where keys start, and before which they end, of names of a family that start with `prefix`.
pub(crate) fn keys_with(family: Family, prefix: &str) -> (Vec<u8>, Vec<u8>) {
    // Beyond this a name may be stored folded. Shorter, its start is always as it is.
    const SHORT: usize = 400;
    let cut = (0..=prefix.len().min(SHORT)).rev().find(|at| prefix.is_char_boundary(*at)).unwrap_or(0);
    let from = keyed(family, &prefix[..cut]);
    let mut to = from.clone();
    // No byte of UTF-8 is 255, and no family has that byte.
    to.push(u8::MAX);
    (from, to)
}

/// An owner as bytes.
pub(crate) fn owner_bytes(owner: OwnerId) -> [u8; 16] {
    owner.0.to_be_bytes()
}

/// The error for a row that can not be read.
pub(crate) fn unreadable(engine: &'static str, name: &Name, error: postcard::Error) -> Error {
    Error::Engine {
        engine,
        what: format!(
            "the row of `{name}` can not be read ({error}): it is damaged, or was written by a newer \
             version; delete it if nobody holds the name"
        ),
        source: Some(Box::new(error)),
    }
}
