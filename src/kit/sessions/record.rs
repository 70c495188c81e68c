//! What the store has of a session, and of all sessions of a user.

use super::id::Handle;
use crate::claim::Micros;
use crate::kit::bytes::{Reader, Writer};

const EPOCH: u8 = 0x81;
const INDEX: u8 = 0x82;
const RECORD: u8 = 0x83;

/// The number of a user's epoch. Its sessions carry it; when it is gone, they are over.
pub(super) type Epoch = u64;

/// The epoch of a session that has no user.
pub(super) const NO_USER: Epoch = 0;

pub(super) fn encode_epoch(epoch: Epoch) -> Vec<u8> {
    Writer::new(EPOCH).bytes(&epoch.to_be_bytes()).done()
}

pub(super) fn decode_epoch(bytes: &[u8]) -> Option<Epoch> {
    let mut reader = Reader::new(bytes, EPOCH)?;
    let epoch = long(&mut reader)?;
    reader.end()?;
    Some(epoch)
}

/// A session as the index of its user has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) handle: Handle,
    pub(super) epoch: Epoch,
    pub(super) born: Micros,
    pub(super) seen: Micros,
    pub(super) until: Micros,
}

/// The sessions of a user: those of the current epoch, and those that were ended and whose cells
/// are not deleted yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index(pub(super) Vec<Entry>);

impl Index {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(INDEX);
        for entry in &self.0 {
            writer = writer
                .bytes(&entry.handle.0.to_be_bytes())
                .bytes(&entry.epoch.to_be_bytes())
                .wide(entry.born)
                .wide(entry.seen)
                .wide(entry.until);
        }
        writer.done()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Index> {
        let mut reader = Reader::new(bytes, INDEX)?;
        let mut entries = Vec::new();
        while !reader.is_empty() {
            entries.push(Entry {
                handle: Handle(number(&mut reader)?),
                epoch: long(&mut reader)?,
                born: reader.wide()?,
                seen: reader.wide()?,
                until: reader.wide()?,
            });
        }
        Some(Index(entries))
    }
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) epoch: Epoch,
    /// Counts what was saved.
    pub(super) version: u64,
    pub(super) born: Micros,
    /// When its end was put off last.
    pub(super) seen: Micros,
    /// Its end, unless it is used.
    pub(super) until: Micros,
    pub(super) user: Option<String>,
    pub(super) data: Vec<u8>,
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(RECORD)
            .bytes(&self.epoch.to_be_bytes())
            .bytes(&self.version.to_be_bytes())
            .wide(self.born)
            .wide(self.seen)
            .wide(self.until);
        // One more than the length: a user may have an empty name.
        writer.short(self.user.as_ref().map_or(0, |user| user.len() as u64 + 1));
        writer.bytes(self.user.as_deref().unwrap_or_default().as_bytes()).bytes(&self.data).done()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Record> {
        let mut reader = Reader::new(bytes, RECORD)?;
        let (epoch, version) = (long(&mut reader)?, long(&mut reader)?);
        let (born, seen, until) = (reader.wide()?, reader.wide()?, reader.wide()?);
        let user = match usize::try_from(reader.short()?).ok()? {
            0 => None,
            more => Some(String::from_utf8(reader.bytes(more - 1)?.to_vec()).ok()?),
        };
        Some(Record { epoch, version, born, seen, until, user, data: reader.rest().to_vec() })
    }
}

pub(super) fn long(reader: &mut Reader<'_>) -> Option<u64> {
    Some(u64::from_be_bytes(reader.bytes(8)?.try_into().ok()?))
}

pub(super) fn number(reader: &mut Reader<'_>) -> Option<u128> {
    Some(u128::from_be_bytes(reader.bytes(16)?.try_into().ok()?))
}
