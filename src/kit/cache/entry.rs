//! An entry of the shared level, as a cell keeps it.

use std::borrow::Cow;

use crate::claim::Micros;
use crate::kit::bytes::{Reader, Writer};

const ENTRY: u8 = 0x91;
/// Times and versions are below this, so that Lua holds them exactly.
pub(super) const LARGEST: u64 = 1 << 52;

/// What is known of a name: a value, who loads one, and what was invalidated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) held: Held,
    /// The version of the source that the value has; 0 if the source has no versions.
    pub(super) version: u64,
    /// No value of an earlier version may be stored. 0 if nobody has said so.
    pub(super) least: u64,
    /// How long that is remembered.
    pub(super) least_until: Micros,
    /// From then on the value should be loaded again.
    pub(super) fresh_until: Micros,
    /// From then on there is no value.
    pub(super) ends: Micros,
    pub(super) loader: Loader,
    /// The owner that loads, or that has stored the value.
    pub(super) owner: u128,
    /// If somebody loads: until then nobody else does.
    pub(super) loads_until: Micros,
    /// Nobody loads before this, because the last load failed.
    pub(super) retry_at: Micros,
    /// How long the last load took, in microseconds.
    pub(super) cost: u32,
    pub(super) bytes: Cow<'a, [u8]>,
}

/// What is held for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Nothing,
    /// The source has nothing of this name.
    None,
    Value,
}

/// What the owner of an entry does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loader {
    Nobody,
    Loads,
    HasStored,
}

impl Entry<'_> {
    /// An entry of which nothing is known.
    pub(super) const EMPTY: Entry<'static> = Entry {
        held: Held::Nothing,
        version: 0,
        least: 0,
        least_until: 0,
        fresh_until: 0,
        ends: 0,
        loader: Loader::Nobody,
        owner: 0,
        loads_until: 0,
        retry_at: 0,
        cost: 0,
        bytes: Cow::Borrowed(&[]),
    };

    pub(super) fn encode(&self) -> Vec<u8> {
        Writer::new(ENTRY)
            .byte(self.held as u8 + ((self.loader as u8) << 4))
            .wide(self.version)
            .wide(self.least)
            .wide(self.least_until)
            .wide(self.fresh_until)
            .wide(self.ends)
            .wide(self.loads_until)
            .wide(self.retry_at)
            .number(self.cost)
            .bytes(&self.owner.to_be_bytes())
            .bytes(&self.bytes)
            .done()
    }

    /// When nothing of the entry matters any more.
    pub(super) fn over_at(&self) -> Micros {
        let value = if self.held == Held::Nothing { 0 } else { self.ends };
        let load = if self.loader == Loader::Loads { self.loads_until } else { 0 };
        value.max(load).max(self.retry_at).max(self.least_until)
    }
}

/// Reads an entry; `None` if the bytes are something else.
pub(super) fn decode(bytes: &[u8]) -> Option<Entry<'_>> {
    let mut reader = Reader::new(bytes, ENTRY)?;
    let flags = reader.byte()?;
    let held = match flags & 0x0f {
        0 => Held::Nothing,
        1 => Held::None,
        2 => Held::Value,
        _ => return None,
    };
    let loader = match flags >> 4 {
        0 => Loader::Nobody,
        1 => Loader::Loads,
        2 => Loader::HasStored,
        _ => return None,
    };
    let mut wide = || reader.wide().filter(|number| *number < LARGEST);
    let (version, least, least_until) = (wide()?, wide()?, wide()?);
    let (fresh_until, ends, loads_until, retry_at) = (wide()?, wide()?, wide()?, wide()?);
    let cost = reader.number()?;
    let owner = u128::from_be_bytes(reader.bytes(16)?.try_into().ok()?);
    let bytes = Cow::Borrowed(reader.rest());
    Some(Entry {
        held,
        version,
        least,
        least_until,
        fresh_until,
        ends,
        loader,
        owner,
        loads_until,
        retry_at,
        cost,
        bytes,
    })
}
