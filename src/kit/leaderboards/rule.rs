//! The rules of a board: pure steps over its head, the cell of a member, and some of the tree.
//!
//! Whoever asks has guessed which cells of the tree are needed. A step relies on nothing that it
//! does not see: if it needs another cell, or the board is another one by now, it writes nothing
//! and answers [`Answer::Astray`] with what it saw, so that the next guess is better.

use std::time::Duration;

use super::change::Act;
use super::key::Order;
use super::seen::Seen;
use super::tree::{Head, Part, Trash};
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::{CellValue, Decision, Rule, Write};
use crate::kit::bytes::{Reader, Writer};

/// How long the cells of a board without an end are kept after they were written: 100 years.
pub(super) const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// How long the cells of a board are kept after its end, which the head decides. Cells expire by
/// the raw clock of the engine or of the caller. So none goes before the end if a clock is set
/// back, or clocks differ, by less than this.
pub(super) const AFTER_END: Duration = Duration::from_secs(60 * 60);
/// A leaf with so many bytes is full.
const MOST_BYTES: usize = 16 * 1024;

/// The most levels of nodes: two ways from the root to a leaf fit in one call.
pub(super) const HIGHEST: u8 = 6;

/// How much fits in a cell of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fan {
    pub(super) leaf: usize,
    pub(super) node: usize,
}

impl Fan {
    pub(super) fn is_full(self, part: &Part) -> bool {
        match part {
            Part::Node(node) => node.children.len() >= self.node,
            Part::Leaf(leaf) => {
                let bytes = || leaf.keys.iter().map(super::key::Key::size).sum::<usize>();
                leaf.keys.len() >= self.leaf || (leaf.keys.len() >= 4 && bytes() >= MOST_BYTES)
            }
        }
    }

    /// Whether it should be merged with a neighbour.
    pub(super) fn is_thin(self, part: &Part) -> bool {
        match part {
            Part::Node(node) => node.children.len() <= (self.node / 4).max(1),
            Part::Leaf(leaf) => leaf.keys.len() <= self.leaf / 4,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// Over the head, the member, and the tree as far as it changes.
    Change { member: String, act: Act },
    /// Over the head and a leaf that does not exist: the first of a board.
    Begin { leaf: u64 },
    /// Over the head, the parent, the part and a part that does not exist; for the root another
    /// one that does not exist instead of the parent.
    Split { id: u64, new: u64, root: u64 },
    /// Over the head, the parent and two parts that are neighbours.
    Merge { left: u64, right: u64 },
    /// Over the head and the root: takes out a root with one child.
    Shrink,
    /// Over the head, as all that follow: nobody changes the board while it is built anew.
    Announce,
    /// Goes on building, with cells up to this number.
    Reserve { reserved: u64 },
    /// What was built is the board.
    Commit { root: u64, height: u8 },
    /// Gives up building.
    Abandon,
    /// There is no board any more.
    Discard,
    /// This has been deleted.
    Swept { trash: Trash },
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) order: Order,
    /// The end of a board that begins.
    pub(super) until: Option<Micros>,
    pub(super) fan: Fan,
    /// The board whose cells these are.
    pub(super) epoch: u64,
    /// The cells of the tree that are given.
    pub(super) ids: Vec<u64>,
    pub(super) ask: Ask,
}

/// Why a score is as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Changed,
    /// It was so already, or was better.
    Same,
    /// The event was counted before.
    Repeated,
}

pub(super) type Values = Vec<Option<Vec<u8>>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A cell holds something else, or the cells do not fit together.
    Foreign,
    /// Other cells are needed. These are the values now.
    Astray {
        now: Micros,
        values: Values,
    },
    /// The score before and after, turned; whether the leaf that was left has become thin; when.
    Changed {
        before: Option<i64>,
        after: Option<i64>,
        outcome: Outcome,
        thin: bool,
        now: Micros,
    },
    /// The leaf that the member enters, or the parent of what is to be split, must be split before.
    /// These are the values now.
    Full {
        now: Micros,
        values: Values,
    },
    /// The score would not fit.
    Overflow,
    NoBoard,
    /// The board is over, or would be when it begins.
    Over,
    /// The board has the other order.
    OtherOrder,
    Rebuilding,
    /// The tree has another shape. These are the values now; `thin` is true if the parent has
    /// become thin.
    Reshaped {
        now: Micros,
        thin: bool,
        values: Values,
    },
    /// The head, as it is now.
    Done(Option<Head>),
    /// That is not so any more.
    No,
}

/// What a step writes.
pub(super) struct Draft<'a> {
    values: &'a [Option<&'a [u8]>],
    first_part: usize,
    ids: &'a [u64],
    now: Micros,
    /// How long cells of the tree and of members are kept.
    pub(super) lives: Duration,
    pub(super) writes: Vec<Write>,
}

impl Draft<'_> {
    fn put(&mut self, cell: usize, bytes: Vec<u8>, lives: Duration) {
        self.writes[cell] = Write::Put(CellValue { bytes, lives });
    }

    pub(super) fn head(&mut self, head: &Head) {
        self.put(0, head.encode(), head.lives(self.now));
    }

    pub(super) fn delete_head(&mut self) {
        self.writes[0] = Write::Delete;
    }

    pub(super) fn member(&mut self, bytes: Option<Vec<u8>>) {
        match bytes {
            Some(bytes) => self.put(1, bytes, self.lives),
            None => self.writes[1] = Write::Delete,
        }
    }

    pub(super) fn part(&mut self, id: u64, part: &Part) {
        if let Some(place) = self.ids.iter().position(|other| *other == id) {
            self.put(self.first_part + place, part.encode(), self.lives);
        }
    }

    pub(super) fn delete(&mut self, id: u64) {
        if let Some(place) = self.ids.iter().position(|other| *other == id) {
            self.writes[self.first_part + place] = Write::Delete;
        }
    }

    /// The values as they are when this is written.
    pub(super) fn after(&self) -> Values {
        let value = |(value, write): (&Option<&[u8]>, &Write)| match write {
            Write::Keep => value.map(<[u8]>::to_vec),
            Write::Put(put) => Some(put.bytes.clone()),
            Write::Delete => None,
        };
        self.values.iter().zip(&self.writes).map(value).collect()
    }

    fn before(&self) -> Values {
        self.values.iter().map(|value| value.map(<[u8]>::to_vec)).collect()
    }

    pub(super) fn astray(&self, now: Micros) -> Answer {
        Answer::Astray { now, values: self.before() }
    }

    pub(super) fn full(&self, now: Micros) -> Answer {
        Answer::Full { now, values: self.before() }
    }
}

impl Step {
    pub(super) fn has_member(&self) -> bool {
        matches!(self.ask, Ask::Change { .. })
    }

    fn decide(&self, seen: Seen, draft: &mut Draft<'_>) -> Answer {
        match &self.ask {
            Ask::Change { member, act } => self.change(seen, draft, member, act),
            Ask::Begin { leaf } => self.begin(&seen, draft, *leaf),
            Ask::Split { id, new, root } => self.split(seen, draft, *id, *new, *root),
            Ask::Merge { left, right } => self.merge(seen, draft, *left, *right),
            Ask::Shrink => self.shrink(&seen, draft),
            ask => self.turn_epoch(seen, draft, ask),
        }
    }
}

/// How long a cell of a board with this end is kept.
pub(super) fn lives(until: Option<Micros>, now: Micros) -> Duration {
    until.map_or(FOR_EVER, |until| Duration::from_micros(until.saturating_sub(now)) + AFTER_END)
}

impl Rule for Step {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        let has_member = self.has_member();
        let Some(seen) = Seen::read(values, has_member, &self.ids, now) else {
            return Decision { writes: Vec::new(), answer: encode(&Answer::Foreign) };
        };
        let until = seen.head.as_ref().and_then(|head| head.until);
        let mut draft = Draft {
            values,
            first_part: 1 + usize::from(has_member),
            ids: &self.ids,
            now,
            lives: lives(until, now),
            writes: vec![Write::Keep; values.len()],
        };
        let answer = self.decide(seen, &mut draft);
        let kept = draft.writes.iter().all(|write| *write == Write::Keep);
        Decision { writes: if kept { Vec::new() } else { draft.writes }, answer: encode(&answer) }
    }
}

impl TypedRule for Step {
    type Answer = Answer;

    fn read(&self, answer: &[u8]) -> Option<Answer> {
        let mut reader = Reader::new(answer, *answer.first()?)?;
        let reader = &mut reader;
        Some(match *answer.first()? {
            0 => Answer::Foreign,
            1 => Answer::Astray { now: reader.wide()?, values: read_values(reader)? },
            2 => {
                let outcome = match reader.byte()? {
                    0 => Outcome::Changed,
                    1 => Outcome::Same,
                    _ => Outcome::Repeated,
                };
                let (thin, now) = (reader.byte()? != 0, reader.wide()?);
                Answer::Changed {
                    outcome,
                    thin,
                    now,
                    before: read_score(reader)?,
                    after: read_score(reader)?,
                }
            }
            3 => Answer::Full { now: reader.wide()?, values: read_values(reader)? },
            4 => Answer::Overflow,
            5 => Answer::NoBoard,
            6 => Answer::Over,
            7 => Answer::OtherOrder,
            8 => Answer::Rebuilding,
            9 => {
                let (thin, now) = (reader.byte()? != 0, reader.wide()?);
                Answer::Reshaped { thin, now, values: read_values(reader)? }
            }
            10 if reader.is_empty() => Answer::Done(None),
            10 => Answer::Done(Some(Head::decode(reader.rest())?)),
            11 => Answer::No,
            _ => return None,
        })
    }
}

fn encode(answer: &Answer) -> Vec<u8> {
    match answer {
        Answer::Foreign => Writer::new(0),
        Answer::Astray { now, values } => write_values(Writer::new(1).wide(*now), values),
        Answer::Changed { before, after, outcome, thin, now } => {
            let writer = Writer::new(2).byte(*outcome as u8).byte(u8::from(*thin)).wide(*now);
            write_score(write_score(writer, *before), *after)
        }
        Answer::Full { now, values } => write_values(Writer::new(3).wide(*now), values),
        Answer::Overflow => Writer::new(4),
        Answer::NoBoard => Writer::new(5),
        Answer::Over => Writer::new(6),
        Answer::OtherOrder => Writer::new(7),
        Answer::Rebuilding => Writer::new(8),
        Answer::Reshaped { now, thin, values } => {
            write_values(Writer::new(9).byte(u8::from(*thin)).wide(*now), values)
        }
        Answer::Done(head) => {
            let head = head.as_ref().map(Head::encode).unwrap_or_default();
            Writer::new(10).bytes(&head)
        }
        Answer::No => Writer::new(11),
    }
    .done()
}

fn write_score(writer: Writer, score: Option<i64>) -> Writer {
    match score {
        None => writer.byte(0),
        Some(score) => writer.byte(1).bytes(&score.to_be_bytes()),
    }
}

fn read_score(reader: &mut Reader<'_>) -> Option<Option<i64>> {
    match reader.byte()? {
        0 => Some(None),
        _ => Some(Some(i64::from_be_bytes(reader.bytes(8)?.try_into().ok()?))),
    }
}

fn write_values(mut writer: Writer, values: &Values) -> Writer {
    for value in values {
        // One more than the length: a value may be empty.
        writer.short(value.as_ref().map_or(0, |value| value.len() as u64 + 1));
        writer = writer.bytes(value.as_deref().unwrap_or_default());
    }
    writer
}

fn read_values(reader: &mut Reader<'_>) -> Option<Values> {
    let mut values = Vec::new();
    while !reader.is_empty() {
        values.push(match usize::try_from(reader.short()?).ok()? {
            0 => None,
            more => Some(reader.bytes(more - 1)?.to_vec()),
        });
    }
    Some(values)
}
