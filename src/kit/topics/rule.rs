//! The rules of a topic: pure steps over its head and its segments.

use std::time::Duration;

use super::log::{Cursor, Head, SEGMENT, Segment, segment_of};
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::{CellValue, Decision, Rule, Write};
use crate::kit::bytes::{Reader, Writer};

/// The head is kept for so much longer than messages: whoever has read all of them is not told of a
/// gap because nothing was published for a while.
const HEAD_KEPT: Duration = Duration::from_secs(400 * 24 * 60 * 60);
/// No message is kept for longer, so that times stay in range.
const LONGEST_KEPT: Duration = Duration::from_secs(20 * 365 * 24 * 60 * 60);

/// Publishes a message. Over the head, the segment that the message is believed to belong to, the
/// one after it, and the one that is given up when that begins.
#[derive(Clone, Debug)]
pub(super) struct Publish {
    /// The first of the segments.
    pub(super) segment: u64,
    /// Of the topic, if it begins now.
    pub(super) epoch: u64,
    pub(super) message: Vec<u8>,
    /// How long this message is kept.
    pub(super) kept: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published {
    /// A cell holds something else.
    Foreign,
    /// It is published; the cursor is after it.
    Yes(Cursor),
    /// The next message has this number, and belongs to other segments.
    Elsewhere(u64),
}

impl Publish {
    fn decide(&self, values: &[Option<&[u8]>], now: Micros) -> Option<(Vec<Write>, Published)> {
        let new = Head { epoch: self.epoch, next: 0 };
        let head = values.first()?.map_or(Some(new), Head::decode)?;
        let segment = segment_of(head.next);
        let Some(place) = segment.checked_sub(self.segment).filter(|place| *place < 2) else {
            return Some((Vec::new(), Published::Elsewhere(head.next)));
        };
        let place = 1 + usize::try_from(place).ok()?;
        let found = values.get(place)?.map(Segment::decode).map_or(Some(None), |found| found.map(Some))?;
        let begins = head.next % SEGMENT;
        let whole = |found: &Segment| {
            found.epoch == head.epoch && found.missing + found.messages.len() as u64 == begins
        };
        // What was in this segment before may have expired.
        let nothing = Segment { epoch: head.epoch, until: 0, missing: begins, messages: Vec::new() };
        let mut written = found.filter(whole).unwrap_or(nothing);
        // Others may keep their messages for longer: their segment, and those after it, because
        // subscribers look for the first that is kept and take it that all later ones are.
        let before = if place == 2 { values.get(1).copied().flatten() } else { None };
        let before = before.and_then(Segment::decode).filter(|before| before.epoch == head.epoch);
        let kept = self.kept.min(LONGEST_KEPT);
        let until = now.saturating_add(u64::try_from(kept.as_micros()).ok()?);
        written.until = until.max(written.until).max(before.map_or(0, |before| before.until));
        written.messages.push(self.message.clone());
        let next = Head { next: head.next + 1, ..head };
        let lives = Duration::from_micros(written.until - now);
        let mut writes = vec![Write::Keep; 4];
        writes[0] = put(next.encode(), lives + HEAD_KEPT);
        writes[place] = put(written.encode(), lives);
        if place == 2 && values.get(3).copied().flatten().is_some() {
            writes[3] = Write::Delete;
        }
        writes.truncate(values.len());
        Some((writes, Published::Yes(Cursor { epoch: head.epoch, next: next.next })))
    }
}

fn put(bytes: Vec<u8>, lives: Duration) -> Write {
    Write::Put(CellValue { bytes, lives })
}

impl Rule for Publish {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        let (writes, answer) = self.decide(values, now).unwrap_or((Vec::new(), Published::Foreign));
        let answer = match answer {
            Published::Foreign => Writer::new(0),
            Published::Yes(cursor) => {
                Writer::new(1).bytes(&cursor.epoch.to_be_bytes()).bytes(&cursor.next.to_be_bytes())
            }
            Published::Elsewhere(next) => Writer::new(2).bytes(&next.to_be_bytes()),
        };
        Decision { writes, answer: answer.done() }
    }
}

impl TypedRule for Publish {
    type Answer = Published;

    fn read(&self, answer: &[u8]) -> Option<Published> {
        let mut reader = Reader::new(answer, *answer.first()?)?;
        let mut long = || Some(u64::from_be_bytes(reader.bytes(8)?.try_into().ok()?));
        Some(match *answer.first()? {
            0 => Published::Foreign,
            1 => Published::Yes(Cursor { epoch: long()?, next: long()? }),
            2 => Published::Elsewhere(long()?),
            _ => return None,
        })
    }
}
