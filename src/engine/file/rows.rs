//! What the rows of a store look like.
//!
//! One table of bytes, sorted by key. The first byte of a key says what the row is:
//!
//! ```text
//! n family name           the state of a name
//! q family length name place    one waiter of a name, in order
//! o owner                 where that owner waits
//! w family length name seat     a client that wants to hear of changes
//! c name                  a cell
//! f                       a floor for tokens of names that were forgotten
//! x                       how far the store has been swept
//! ```

use heed::types::Bytes;
use heed::{Database, RwTxn};

use crate::claim::{Micros, OwnerId, Queue, Seat, Waiter};
use crate::engine::table::Waiters;
use crate::engine::table::row::{Record, decode, encode};
use crate::name::{Family, Name, fold, is_folded};

/// The one table.
pub(super) type Table = Database<'static, Bytes, Bytes>;

/// The longest name that is stored as it is. Keys of the store are at most 511 bytes.
pub(super) const LONGEST_KEY: usize = 480;

pub(super) const FLOOR: &[u8] = b"f";
pub(super) const CURSOR: &[u8] = b"x";
/// Names and cells lie between these.
pub(super) const SWEPT: std::ops::Range<&[u8]> = b"c".as_slice()..b"o".as_slice();

pub(super) fn family_byte(family: Family) -> u8 {
    match family {
        Family::Lock => b'l',
        Family::Semaphore => b's',
        Family::Election => b'e',
        Family::Cell => b'c',
    }
}

pub(super) fn name_key(name: &Name) -> Vec<u8> {
    name_key_of(name.family(), &fold(name.as_str(), LONGEST_KEY))
}

/// The start of the keys of names that start with `prefix`.
pub(super) fn names_prefix(family: Family, prefix: &str) -> Vec<u8> {
    // Beyond this a name may be stored folded; shorter, its start is always as it is.
    const SHORT: usize = 400;
    let cut = (0..=prefix.len().min(SHORT)).rev().find(|at| prefix.is_char_boundary(*at)).unwrap_or(0);
    name_key_of(family, &prefix[..cut])
}

pub(super) fn is_cell(key: &[u8]) -> bool {
    key.first() == Some(&b'c')
}

/// The family of a name from its key.
pub(super) fn family_of(key: &[u8]) -> Option<Family> {
    let [b'n', family, ..] = key else { return None };
    Family::ALL.into_iter().find(|known| family_byte(*known) == *family)
}

fn name_key_of(family: Family, folded: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(2 + folded.len());
    key.extend_from_slice(&[b'n', family_byte(family)]);
    key.extend_from_slice(folded.as_bytes());
    key
}

/// The text of a name from its row.
pub(super) fn text_of<'a>(key: &'a [u8], record: &'a Record) -> Option<&'a str> {
    record.text.as_deref().or_else(|| std::str::from_utf8(key.get(2..)?).ok())
}

pub(super) fn cell_key(name: &Name) -> Vec<u8> {
    let mut key = vec![b'c'];
    key.extend_from_slice(fold(name.as_str(), LONGEST_KEY).as_bytes());
    key
}

/// The start of the keys of cells whose names start with `prefix`.
pub(super) fn cells_prefix(prefix: &str) -> Vec<u8> {
    let mut key = names_prefix(Family::Cell, prefix).split_off(1);
    key[0] = b'c';
    key
}

/// The name of a cell from its key, if that is all of it.
pub(super) fn text_of_cell(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.get(1..)?).ok().filter(|text| !is_folded(text))
}

/// The start of the keys of rows that belong to a name. With the length in it, no name's rows start
/// like another's.
fn prefix(kind: u8, name_key: &[u8]) -> Vec<u8> {
    let (family, folded) = (name_key[1], &name_key[2..]);
    let length = u16::try_from(folded.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[kind, family], length.as_slice(), folded].concat()
}

pub(super) fn watchers_prefix(name: &Name) -> Vec<u8> {
    prefix(b'w', &name_key(name))
}

pub(super) fn watcher_key(name: &Name, seat: Seat) -> Vec<u8> {
    [watchers_prefix(name).as_slice(), &seat.to_be_bytes()].concat()
}

/// The number at the end of a key.
pub(super) fn number_after(prefix: &[u8], key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(prefix.len()..)?.try_into().ok()?))
}

pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

fn owner_key(owner: OwnerId) -> [u8; 17] {
    let mut key = [b'o'; 17];
    key[1..].copy_from_slice(&owner.0.to_be_bytes());
    key
}

/// What can go wrong with a row.
#[derive(Debug, thiserror::Error)]
pub(super) enum RowError {
    #[error(transparent)]
    Store(#[from] heed::Error),
    #[error(transparent)]
    Encoding(#[from] postcard::Error),
}

/// The queue of a name, as rows.
pub(super) struct Rows<'a, 'txn> {
    pub(super) table: Table,
    pub(super) txn: &'a mut RwTxn<'txn>,
    pub(super) name_key: &'a [u8],
    pub(super) next_place: &'a mut u64,
}

impl Rows<'_, '_> {
    fn place_key(&self, place: u64) -> Vec<u8> {
        [prefix(b'q', self.name_key).as_slice(), &place.to_be_bytes()].concat()
    }

    fn place_of(&self, owner: OwnerId) -> Result<Option<u64>, RowError> {
        Ok(self.table.get(self.txn, &owner_key(owner))?.map(number))
    }

    /// The first waiters, in order.
    fn first_waiters(&self, most: usize) -> Result<Vec<Waiter>, RowError> {
        let rows = self.table.prefix_iter(self.txn, &prefix(b'q', self.name_key))?;
        rows.take(most).map(|row| Ok(decode(row?.1)?)).collect()
    }
}

impl Queue for Rows<'_, '_> {
    type Error = RowError;

    fn first(&self) -> Result<Option<Waiter>, RowError> {
        Ok(self.first_waiters(1)?.pop())
    }

    fn push(&mut self, waiter: Waiter) -> Result<(), RowError> {
        let place = *self.next_place;
        *self.next_place += 1;
        let key = self.place_key(place);
        self.table.put(self.txn, &key, &encode(&waiter)?)?;
        self.table.put(self.txn, &owner_key(waiter.owner), &place.to_be_bytes())?;
        Ok(())
    }

    fn touch(&mut self, owner: OwnerId, alive_until: Micros) -> Result<bool, RowError> {
        let Some(place) = self.place_of(owner)? else { return Ok(false) };
        let key = self.place_key(place);
        let Some(row) = self.table.get(self.txn, &key)? else { return Ok(false) };
        let mut waiter: Waiter = decode(row)?;
        waiter.alive_until = alive_until;
        self.table.put(self.txn, &key, &encode(&waiter)?)?;
        Ok(true)
    }

    fn remove(&mut self, owner: OwnerId) -> Result<bool, RowError> {
        let Some(place) = self.place_of(owner)? else { return Ok(false) };
        let key = self.place_key(place);
        self.table.delete(self.txn, &owner_key(owner))?;
        Ok(self.table.delete(self.txn, &key)?)
    }
}

impl Waiters for Rows<'_, '_> {
    fn waiters(&self) -> Result<Vec<Waiter>, RowError> {
        self.first_waiters(usize::MAX)
    }
}
