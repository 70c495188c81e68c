//! Reading what was published.

use std::collections::VecDeque;

use super::log::{Cursor, Head, SEGMENT, Segment, segment_of};
use super::topic::Topic;
use crate::client::acquire::Patience;
use crate::client::watch::{Awaited, Watched};
use crate::error::Result;

/// So many segments are read at a time.
const AT_ONCE: u64 = 4;

/// The epoch of a cursor of a topic that has not begun.
const NOT_BEGUN: u64 = 0;

/// Where a subscriber begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// With what is published from now on.
    Now,
    /// With the oldest message that is kept.
    Oldest,
    /// Where it, or another subscriber, was.
    Cursor(Cursor),
}

/// What a subscriber is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The next message.
    Message(Message),
    /// Messages that were published and are not kept any more.
    Gap {
        /// How many, if that is known. It is not if the store has forgotten the topic meanwhile.
        missed: Option<u64>,
        /// Where it goes on.
        cursor: Cursor,
    },
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// What was published.
    pub data: Vec<u8>,
    /// The place after it: whoever has handled the message notes it, and goes on from there.
    pub cursor: Cursor,
}

impl Delivery {
    /// The place after it.
    pub fn cursor(&self) -> Cursor {
        match self {
            Delivery::Message(message) => message.cursor,
            Delivery::Gap { cursor, .. } => *cursor,
        }
    }
}

/// Reads a topic in order. Made by [`Topic::subscribe`].
#[derive(Debug)]
pub struct Subscriber {
    topic: Topic,
    watched: Watched,
    /// After what was delivered last.
    cursor: Cursor,
    ready: VecDeque<Delivery>,
    /// It wants the oldest message: what is not there any more is no gap.
    from_oldest: bool,
}

impl Subscriber {
    pub(super) async fn start(topic: Topic, from: From) -> Result<Subscriber> {
        let name = topic.head_cell()?;
        // Before the head is read, or a message in between is heard of late.
        let watched = topic.client.inner.watch(&name).await?;
        let begin = Cursor { epoch: NOT_BEGUN, next: 0 };
        let cursor = match from {
            From::Cursor(cursor) => cursor,
            From::Now | From::Oldest => {
                let found = topic.client.inner.read_cells(&[name]).await?;
                let head = topic.head(found.cells.first().and_then(|cell| cell.value.as_ref()))?;
                match head {
                    Some(Head { epoch, next }) if from == From::Now => Cursor { epoch, next },
                    Some(Head { epoch, .. }) => Cursor { epoch, next: 0 },
                    None => begin,
                }
            }
        };
        let from_oldest = from == From::Oldest;
        Ok(Subscriber { topic, watched, cursor, ready: VecDeque::new(), from_oldest })
    }

    /// After what was delivered last: where another subscriber can go on.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The next message, as soon as there is one.
    ///
    /// The engine tells when something was published, where it can; a look every second or so makes
    /// up for what was not heard.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) if the engine does not answer. Asking
    /// again goes on where it was.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing is lost: the next call goes on where it was.
    pub async fn next(&mut self) -> Result<Delivery> {
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                self.cursor = delivery.cursor();
                let skipped = self.from_oldest && matches!(delivery, Delivery::Gap { missed: Some(_), .. });
                self.from_oldest = false;
                if skipped {
                    continue;
                }
                self.topic.count(match delivery {
                    Delivery::Message(_) => "delivered",
                    Delivery::Gap { .. } => "gap",
                });
                return Ok(delivery);
            }
            let mut look = Look { topic: &self.topic, cursor: self.cursor };
            let looking = self.watched.until(Patience::Forever, &mut look);
            let found = self.topic.client.inner.unless_closed(looking).await?;
            self.ready = found.unwrap_or_default();
        }
    }
}

/// That there is something to deliver.
struct Look<'a> {
    topic: &'a Topic,
    cursor: Cursor,
}

impl Awaited for Look<'_> {
    type Found = VecDeque<Delivery>;

    async fn look(&mut self) -> Result<Option<VecDeque<Delivery>>> {
        let (first, count) = (segment_of(self.cursor.next), AT_ONCE);
        let (head, segments) = self.read(first, count).await?;
        let Some(head) = head else { return Ok(None) };
        let mut ready = deliver(self.cursor, head, first, &segments);
        let last = segment_of(head.next.max(1) - 1);
        // What was read last is gone, and there is more: the first that is kept may be far away.
        let goes_on =
            matches!(ready.back(), Some(Delivery::Gap { missed: Some(_), .. })) && first + count <= last;
        if goes_on && ready.len() > 1 {
            // The next look finds the whole gap. What is before it is delivered first.
            ready.pop_back();
        } else if goes_on {
            let kept = self.first_kept(head.epoch, first + count, last).await?;
            let (newer, segments) = self.read(kept, AT_ONCE).await?;
            if newer.is_none_or(|newer| newer.epoch != head.epoch) {
                // It began anew meanwhile; the next look says so.
                return Ok(None);
            }
            let next = (kept * SEGMENT).max(self.cursor.next);
            let (missed, cursor) = (Some(next - self.cursor.next), Cursor { epoch: head.epoch, next });
            ready = VecDeque::from([Delivery::Gap { missed, cursor }]);
            ready.extend(deliver(cursor, newer.unwrap_or(head), kept, &segments));
            merge_gaps(&mut ready);
        }
        Ok((!ready.is_empty()).then_some(ready))
    }
}

impl Look<'_> {
    /// The head and some segments, at one moment.
    async fn read(&self, first: u64, count: u64) -> Result<(Option<Head>, Vec<Option<Segment>>)> {
        let mut names = vec![self.topic.head_cell()?];
        for segment in first..first.saturating_add(count) {
            names.push(self.topic.segment_cell(segment)?);
        }
        let found = self.topic.client.inner.read_cells(&names).await?;
        let mut values = found.cells.into_iter().map(|cell| cell.value);
        let head = self.topic.head(values.next().flatten().as_ref())?;
        let decode = |value: Option<Vec<u8>>| {
            let decoded = value.map(|value| Segment::decode(&value).ok_or_else(|| self.topic.foreign()));
            decoded.transpose()
        };
        Ok((head, values.map(decode).collect::<Result<_>>()?))
    }

    /// The first segment that is kept, or the last one. Segments are forgotten from the oldest on,
    /// so half of what is left can be ruled out each time.
    async fn first_kept(&self, epoch: u64, mut from: u64, mut last: u64) -> Result<u64> {
        while from < last {
            let middle = from + (last - from) / 2;
            let (_, segments) = self.read(middle, 1).await?;
            match segments.first() {
                Some(Some(segment)) if segment.epoch == epoch => last = middle,
                _ => from = middle + 1,
            }
        }
        Ok(from)
    }
}

/// What a subscriber at this place is given of what was read: segments from `first` on.
pub(super) fn deliver(
    cursor: Cursor,
    head: Head,
    first: u64,
    segments: &[Option<Segment>],
) -> VecDeque<Delivery> {
    let mut ready = VecDeque::new();
    let epoch = head.epoch;
    if cursor.epoch == NOT_BEGUN || cursor.epoch != epoch || cursor.next > head.next {
        let next = 0;
        let gap = Delivery::Gap { missed: None, cursor: Cursor { epoch, next } };
        match cursor {
            // Nothing was published before the topic began.
            Cursor { epoch: NOT_BEGUN, .. } if first == 0 => {}
            // It goes on in the new epoch with what the next look finds.
            _ => return VecDeque::from([gap]),
        }
    }
    let begin = if cursor.epoch == epoch { cursor.next } else { 0 };
    for number in begin..head.next {
        let at = segment_of(number).checked_sub(first).and_then(|at| usize::try_from(at).ok());
        let Some(segment) = at.and_then(|at| segments.get(at)) else { break };
        let segment = segment.as_ref().filter(|segment| segment.epoch == epoch);
        let cursor = Cursor { epoch, next: number + 1 };
        ready.push_back(match segment.and_then(|segment| segment.message(number % SEGMENT)) {
            Some(data) => Delivery::Message(Message { data: data.clone(), cursor }),
            None => Delivery::Gap { missed: Some(1), cursor },
        });
    }
    merge_gaps(&mut ready);
    ready
}

/// Makes one gap of those that follow each other.
fn merge_gaps(ready: &mut VecDeque<Delivery>) {
    let mut merged: VecDeque<Delivery> = VecDeque::with_capacity(ready.len());
    for delivery in ready.drain(..) {
        match (merged.back_mut(), delivery) {
            (
                Some(Delivery::Gap { missed: Some(before), cursor: end }),
                Delivery::Gap { missed: Some(more), cursor },
            ) => {
                *before += more;
                *end = cursor;
            }
            (_, Delivery::Gap { missed: Some(0), .. }) => {}
            (_, delivery) => merged.push_back(delivery),
        }
    }
    *ready = merged;
}
