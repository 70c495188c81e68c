//! How a topic is stored: a head, and segments of messages.
//!
//! The number of a message says in which segment it is, so whoever has a cursor knows which cells
//! to read.

use std::fmt;
use std::str::FromStr;

use crate::claim::Micros;
use crate::error::Error;
use crate::kit::bytes::{Reader, Writer};

/// So many messages are in a segment.
pub(super) const SEGMENT: u64 = 16;

const HEAD: u8 = 0x91;
const MESSAGES: u8 = 0x92;

/// The segment of a message.
pub(super) fn segment_of(number: u64) -> u64 {
    number / SEGMENT
}

/// Where a topic stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Another one each time that the topic begins anew.
    pub(super) epoch: u64,
    /// The number of the next message.
    pub(super) next: u64,
}

impl Head {
    pub(super) fn encode(self) -> Vec<u8> {
        Writer::new(HEAD).bytes(&self.epoch.to_be_bytes()).bytes(&self.next.to_be_bytes()).done()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Head> {
        let mut reader = Reader::new(bytes, HEAD)?;
        let head = Head { epoch: long(&mut reader)?, next: long(&mut reader)? };
        reader.end()?;
        Some(head)
    }
}

/// Messages that follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    /// That of the topic when the first of them was published.
    pub(super) epoch: u64,
    /// No message in it, or before it, was to be kept for longer than until then.
    pub(super) until: Micros,
    /// How many at the beginning of the segment are not there any more.
    pub(super) missing: u64,
    pub(super) messages: Vec<Vec<u8>>,
}

impl Segment {
    /// The message with this place in the segment.
    pub(super) fn message(&self, place: u64) -> Option<&Vec<u8>> {
        self.messages.get(usize::try_from(place.checked_sub(self.missing)?).ok()?)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(MESSAGES).bytes(&self.epoch.to_be_bytes()).wide(self.until);
        writer.short(self.missing);
        for message in &self.messages {
            writer.short(message.len() as u64);
            writer = writer.bytes(message);
        }
        writer.done()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Segment> {
        let mut reader = Reader::new(bytes, MESSAGES)?;
        let (epoch, until, missing) = (long(&mut reader)?, reader.wide()?, reader.short()?);
        let mut segment = Segment { epoch, until, missing, messages: Vec::new() };
        while !reader.is_empty() {
            let length = usize::try_from(reader.short()?).ok()?;
            segment.messages.push(reader.bytes(length)?.to_vec());
        }
        Some(segment)
    }
}

fn long(reader: &mut Reader<'_>) -> Option<u64> {
    Some(u64::from_be_bytes(reader.bytes(8)?.try_into().ok()?))
}

/// A place between two messages of a topic: everything before it was read.
///
/// Written and read as text, to be kept where what was handled is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    pub(super) epoch: u64,
    /// The number of the message after it.
    pub(super) next: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.epoch, self.next)
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Cursor, Error> {
        let parts = text.split_once('-').filter(|(epoch, _)| epoch.len() == 16);
        let cursor = parts.and_then(|(epoch, next)| {
            let digits = epoch.bytes().all(|byte| byte.is_ascii_hexdigit()) && !next.starts_with('+');
            let (epoch, next) = (u64::from_str_radix(epoch, 16).ok()?, next.parse().ok()?);
            digits.then_some(Cursor { epoch, next })
        });
        cursor.ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            Error::invalid(format!("`{shown}` is not a cursor of a topic"))
        })
    }
}
