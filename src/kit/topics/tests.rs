//! The rules of a topic on generated sequences, over a store of cells in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::log::{Cursor, Head, Segment, segment_of};
use super::rule::{Publish, Published};
use super::subscribe::{Delivery, deliver};
use crate::client::cell::TypedRule as _;
use crate::engine::{Rule as _, Write};

#[derive(Default)]
struct Store {
    now: u64,
    head: Option<Vec<u8>>,
    segments: BTreeMap<u64, (Vec<u8>, u64)>,
}

impl Store {
    fn publish(&mut self, message: u64, guess: u64, kept: u64) -> Published {
        let now = self.now;
        self.segments.retain(|_, (_, until)| *until > now);
        let cells = [guess, guess + 1];
        let rule = Publish {
            segment: guess,
            epoch: 7,
            message: message.to_be_bytes().to_vec(),
            kept: Duration::from_micros(kept),
        };
        let mut values = vec![self.head.as_deref()];
        values.extend(cells.iter().map(|cell| self.segments.get(cell).map(|(bytes, _)| bytes.as_slice())));
        let decision = rule.step(&values, now);
        for (cell, write) in decision.writes.into_iter().enumerate() {
            match (cell, write) {
                (_, Write::Keep) => {}
                (0, Write::Put(put)) => self.head = Some(put.bytes),
                (cell, Write::Put(put)) => {
                    let lives = u64::try_from(put.lives.as_micros()).expect("short");
                    self.segments.insert(cells[cell - 1], (put.bytes, now + lives));
                }
                (cell, Write::Delete) => panic!("cell {cell} is deleted"),
            }
        }
        rule.read(&decision.answer).expect("an answer")
    }

    fn deliver(&mut self, cursor: Cursor) -> Vec<Delivery> {
        let now = self.now;
        self.segments.retain(|_, (_, until)| *until > now);
        let Some(head) = self.head.as_deref().map(|head| Head::decode(head).expect("a head")) else {
            return Vec::new();
        };
        let first = segment_of(cursor.next);
        let segments = (first..first + 4).map(|segment| {
            self.segments.get(&segment).map(|(bytes, _)| Segment::decode(bytes).expect("a segment"))
        });
        deliver(cursor, head, first, &segments.collect::<Vec<_>>()).into()
    }
}

proptest! {
    /// Every message that was published is delivered once and in order, or is counted in a gap.
    #[test]
    fn nothing_is_left_out_without_a_word(
        acts in proptest::collection::vec((0..10u8, 0..50u64, 0..3u64), 1..300)
    ) {
        let mut store = Store { now: 1, ..Store::default() };
        let (mut published, mut guess) = (0_u64, 0);
        let mut cursor = Cursor { epoch: 0, next: 0 };
        let mut seen = 0_u64;
        // Until when each message is kept.
        let mut promised = Vec::new();
        for (act, time, off) in acts {
            match act {
                0..6 => loop {
                    // Publishers do not agree.
                    let kept = [20, 200, 1000][time as usize % 3];
                    match store.publish(published, guess, kept) {
                        Published::Yes(after) => {
                            promised.push(store.now + kept);
                            published += 1;
                            prop_assert_eq!(after, Cursor { epoch: 7, next: published });
                            guess = segment_of(published.max(1) - 1).saturating_sub(off);
                            break;
                        }
                        Published::Elsewhere(next) => {
                            prop_assert_eq!(next, published);
                            prop_assert!(segment_of(next) != guess && segment_of(next) != guess + 1);
                            guess = segment_of(next.max(1) - 1);
                        }
                        Published::Foreign => prop_assert!(false),
                    }
                },
                6..8 => store.now += time,
                _ => {
                    for delivery in store.deliver(cursor) {
                        match &delivery {
                            Delivery::Message(message) => {
                                prop_assert_eq!(&message.data, &seen.to_be_bytes());
                                seen += 1;
                            }
                            Delivery::Gap { missed, .. } => {
                                let missed = seen..seen + missed.expect("known");
                                seen = missed.end;
                                let over = |number: u64| promised[number as usize] <= store.now;
                                prop_assert!(missed.clone().all(over), "{:?} at {}", missed, store.now);
                            }
                        }
                        cursor = delivery.cursor();
                        prop_assert_eq!(cursor, Cursor { epoch: 7, next: seen });
                    }
                }
            }
        }
        while cursor.next < published {
            let deliveries = store.deliver(cursor);
            prop_assert!(!deliveries.is_empty());
            cursor = deliveries.last().expect("one").cursor();
        }
    }

    #[test]
    fn bytes_of_something_else_are_none_of_ours(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let rule = Publish { segment: 0, epoch: 7, message: vec![], kept: Duration::from_secs(1) };
        if Head::decode(&bytes).is_none() {
            let decision = rule.step(&[Some(&bytes), None, None], 5);
            prop_assert_eq!(rule.read(&decision.answer), Some(Published::Foreign));
            prop_assert_eq!(decision.writes, vec![]);
        }
        if let Some(segment) = Segment::decode(&bytes) {
            prop_assert_eq!(Segment::decode(&segment.encode()), Some(segment));
        }
    }
}

/// Stores keep these, and so do those who have noted a cursor: they never change.
#[test]
fn what_is_stored_is_pinned() {
    let head = Head { epoch: 1, next: 2 };
    assert_eq!(head.encode(), [&[0x91, 0, 0, 0, 0, 0, 0, 0, 1], &[0, 0, 0, 0, 0, 0, 0, 2][..]].concat());
    let segment = Segment { epoch: 1, until: 5, missing: 3, messages: vec![vec![9], vec![]] };
    let times = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 5];
    assert_eq!(segment.encode(), [&[0x92], &times[..], &[3, 1, 9, 0]].concat());
    let cursor = Cursor { epoch: 0xab, next: 17 };
    assert_eq!(cursor.to_string(), "00000000000000ab-17");
    assert_eq!("00000000000000ab-17".parse::<Cursor>().expect("a cursor"), cursor);
    for wrong in ["", "-", "ab-17", "00000000000000ab-", "00000000000000ab-+1", "+0000000000000ab-1"] {
        assert!(wrong.parse::<Cursor>().is_err(), "{wrong}");
    }
}

#[test]
fn a_topic_that_began_anew_is_a_gap() {
    let head = Head { epoch: 7, next: 3 };
    let old = deliver(Cursor { epoch: 6, next: 40 }, head, 2, &[None]);
    assert_eq!(old, [Delivery::Gap { missed: None, cursor: Cursor { epoch: 7, next: 0 } }]);
    // The store went back.
    let ahead = deliver(Cursor { epoch: 7, next: 4 }, head, 0, &[None]);
    assert_eq!(ahead, [Delivery::Gap { missed: None, cursor: Cursor { epoch: 7, next: 0 } }]);
}
