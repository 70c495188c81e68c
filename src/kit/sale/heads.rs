//! The rules over the heads of all shards, which are decided together: so a sale is there whole or
//! not at all, and nothing is sold out while a unit is on its way from one shard to another.

use super::head::{Head, Mode};
use super::terms::{MOST_SHARDS, Terms};
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::{Decision, Rule, Write};

/// What is asked of the heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// To begin a sale where there is none.
    Open(Terms),
    /// To begin a later epoch, in which nothing is sold before [`Ask::Resume`].
    Pause(Terms),
    /// To sell again: so many units of each shard are available, ordered and paid.
    Resume { epoch: u32, shards: Vec<[u32; 3]> },
    /// To have at least so many units in one shard, if all shards together have them.
    Gather { epoch: u32, home: u8, quantity: u32 },
    /// To forget the sale. Its heads stay, as long as a cell of it can be there.
    Close { epoch: u32 },
}

/// A step over the heads of all shards. Cells: those of a [`Ask::Gather`] are the heads of the
/// sale's shards; otherwise all that there can be.
#[derive(Clone, Debug)]
pub(super) struct Heads {
    pub(super) ask: Ask,
}

/// What the heads say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Foreign,
    Yes,
    /// There is a sale with this epoch, to which that can not be done.
    Epoch(u32),
    NoSale,
    /// All shards together have so few.
    TooFew(u32),
    /// There was a sale with this epoch, of which buckets and buyers may be there yet.
    Forgotten(u32),
}

impl Heads {
    fn decide(&self, values: &[Option<&[u8]>], now: Micros) -> (Vec<Write>, Answer) {
        let no = |answer| (Vec::new(), answer);
        let mut heads = Vec::with_capacity(values.len());
        for value in values {
            match value.map(Head::decode) {
                None => heads.push(None),
                Some(Some(head)) => heads.push(Some(head)),
                Some(None) => return no(Answer::Foreign),
            }
        }
        // A cell of an earlier epoch is good for nothing, as long as no sale has that epoch again.
        let ends = heads.iter().flatten().map(|head| head.ends).max().unwrap_or(0);
        let gone =
            heads.iter().flatten().filter(|head| head.is_gone(now)).map(|head| head.layout.epoch).max();
        heads.iter_mut().for_each(|head| drop(head.take_if(|head| head.is_gone(now))));
        let epoch = heads.iter().flatten().map(|head| head.layout.epoch).max();
        match &self.ask {
            Ask::Open(_) | Ask::Pause(_) if heads.len() != usize::from(MOST_SHARDS) => no(Answer::Foreign),
            Ask::Open(terms) => match (epoch, gone) {
                (Some(epoch), _) => no(Answer::Epoch(epoch)),
                (None, Some(gone)) if gone >= terms.epoch => no(Answer::Forgotten(gone)),
                _ => (begin(terms, Mode::Open, ends, now), Answer::Yes),
            },
            Ask::Pause(terms) => match (epoch, gone) {
                (Some(epoch), _) if epoch >= terms.epoch => no(Answer::Epoch(epoch)),
                (_, Some(gone)) if gone >= terms.epoch => no(Answer::Forgotten(gone)),
                _ => (begin(terms, Mode::Rebuilding, ends, now), Answer::Yes),
            },
            Ask::Resume { epoch: wanted, shards } => resume(&mut heads, *wanted, shards, now),
            Ask::Gather { epoch: wanted, home, quantity } => {
                gather(&mut heads, *wanted, *home, *quantity, now)
            }
            Ask::Close { epoch: wanted } => match epoch {
                None => no(Answer::NoSale),
                Some(epoch) if epoch != *wanted => no(Answer::Epoch(epoch)),
                Some(_) => (heads.into_iter().map(|head| forget(head, now)).collect(), Answer::Yes),
            },
        }
    }
}

/// The sale ends no earlier than `ends`, until when there may be cells of earlier epochs.
fn begin(terms: &Terms, mode: Mode, ends: Micros, now: Micros) -> Vec<Write> {
    let mut writes: Vec<Write> = terms
        .split(terms.stock)
        .map(|(shard, stock)| {
            let head = Head::new(terms, shard, stock, now);
            Head { mode, ends: head.ends.max(ends), ..head }.put_head(now)
        })
        .collect();
    writes.resize(usize::from(MOST_SHARDS), Write::Delete);
    writes
}

fn forget(head: Option<Head>, now: Micros) -> Write {
    head.map_or(Write::Keep, |head| Head { mode: Mode::Forgotten, ..head }.put_head(now))
}

fn resume(heads: &mut [Option<Head>], epoch: u32, shards: &[[u32; 3]], now: Micros) -> (Vec<Write>, Answer) {
    let found = heads.iter().flatten().map(|head| head.layout.epoch).max();
    let is_ready = |head: &&Head| head.mode == Mode::Rebuilding && head.layout.epoch == epoch;
    let ready = heads.iter().flatten().filter(is_ready).count();
    if ready != shards.len() {
        return (Vec::new(), found.map_or(Answer::NoSale, Answer::Epoch));
    }
    let mut writes = Vec::with_capacity(heads.len());
    for (head, [available, ordered, paid]) in heads.iter_mut().flatten().zip(shards) {
        head.mode = Mode::Open;
        (head.available, head.units.ordered, head.units.paid) = (*available, *ordered, *paid);
        head.stock = available.saturating_add(*ordered).saturating_add(*paid);
        head.taken = head.units.sum();
        // Nobody has looked yet when the first of them is due.
        head.due = now;
        writes.push(head.put_head(now));
    }
    (writes, Answer::Yes)
}

fn gather(
    heads: &mut [Option<Head>],
    epoch: u32,
    home: u8,
    quantity: u32,
    now: Micros,
) -> (Vec<Write>, Answer) {
    let mut shards: Vec<&mut Head> = heads.iter_mut().flatten().collect();
    if let Some(other) = shards.iter().find(|head| head.layout.epoch != epoch || head.mode != Mode::Open) {
        return (Vec::new(), Answer::Epoch(other.layout.epoch));
    }
    let all: u32 = shards.iter().fold(0, |all, head| all.saturating_add(head.available));
    let home = usize::from(home);
    let Some(has) = shards.get(home).map(|head| head.available) else {
        return (Vec::new(), Answer::NoSale);
    };
    if all < quantity {
        return (Vec::new(), Answer::TooFew(all));
    }
    let mut missing = quantity.saturating_sub(has);
    let mut writes = vec![Write::Keep; shards.len()];
    while missing > 0 {
        let richest = shards
            .iter()
            .enumerate()
            .filter(|(number, _)| *number != home)
            .max_by_key(|(_, head)| head.available)
            .map(|(number, head)| (number, head.available));
        let Some((number, available)) = richest else { break };
        // Half of what the richest has: whoever comes next need not ask it again.
        let moved = available.div_ceil(2).max(missing.min(available));
        if moved == 0 {
            break;
        }
        missing = missing.saturating_sub(moved);
        for (shard, gives) in [(number, true), (home, false)] {
            let head = &mut *shards[shard];
            if gives {
                head.available -= moved;
                head.stock = head.stock.saturating_sub(moved);
            } else {
                head.available = head.available.saturating_add(moved);
                head.stock = head.stock.saturating_add(moved);
            }
            writes[shard] = head.put_head(now);
        }
    }
    (writes, Answer::Yes)
}

impl Rule for Heads {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        let (writes, answer) = self.decide(values, now);
        let (word, number): (u8, u32) = match answer {
            Answer::Foreign => (0, 0),
            Answer::Yes => (1, 0),
            Answer::Epoch(epoch) => (2, epoch),
            Answer::NoSale => (3, 0),
            Answer::TooFew(left) => (4, left),
            Answer::Forgotten(epoch) => (5, epoch),
        };
        Decision { writes, answer: [[word].as_slice(), &number.to_be_bytes()].concat() }
    }
}

impl TypedRule for Heads {
    type Answer = Answer;

    fn read(&self, answer: &[u8]) -> Option<Answer> {
        let (word, number) = answer.split_first()?;
        let number = u32::from_be_bytes(number.try_into().ok()?);
        Some(match *word {
            0 => Answer::Foreign,
            1 => Answer::Yes,
            2 => Answer::Epoch(number),
            3 => Answer::NoSale,
            4 => Answer::TooFew(number),
            5 => Answer::Forgotten(number),
            _ => return None,
        })
    }
}

/// Writes what a rebuilt sale starts with, buckets and buyers, while nothing is sold. The cells are
/// the head of a shard and those that are written.
#[derive(Clone, Debug)]
pub(super) struct Fill {
    pub(super) epoch: u32,
    pub(super) values: Vec<Vec<u8>>,
}

impl Rule for Fill {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        let head = values.first().copied().flatten().and_then(Head::decode);
        let is_ours = |head: &Head| {
            head.mode == Mode::Rebuilding && head.layout.epoch == self.epoch && !head.is_gone(now)
        };
        let Some(head) = head.filter(is_ours) else {
            return Decision { writes: Vec::new(), answer: vec![0] };
        };
        let puts = self.values.iter().map(|bytes| head.put(bytes.clone(), now));
        Decision { writes: std::iter::once(Write::Keep).chain(puts).collect(), answer: vec![1] }
    }
}

impl TypedRule for Fill {
    /// False if the sale is another one by now.
    type Answer = bool;

    fn read(&self, answer: &[u8]) -> Option<bool> {
        match answer {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

/// Notes when the next reservation is due at the earliest. The cell is the head.
#[derive(Clone, Debug)]
pub(super) struct Swept {
    pub(super) epoch: u32,
    /// What a worker has found that has looked at all buckets.
    pub(super) due: Micros,
}

impl Rule for Swept {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        let head = values.first().copied().flatten().and_then(Head::decode);
        let mut writes = Vec::new();
        let is_ours =
            |head: &Head| head.mode == Mode::Open && head.layout.epoch == self.epoch && !head.is_gone(now);
        if let Some(mut head) = head.filter(is_ours) {
            head.due = self.due;
            writes.push(head.put_head(now));
        }
        Decision { writes, answer: vec![1] }
    }
}

impl TypedRule for Swept {
    type Answer = ();

    fn read(&self, _answer: &[u8]) -> Option<()> {
        Some(())
    }
}
