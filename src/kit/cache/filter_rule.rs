//! The cells of a filter, and the rules over them.
//!
//! A filter has parts, and a name belongs to one of them. The head says which generation of parts
//! counts, and what was added to it last. Parts that are missing are not empty: they say "maybe".
//!
//! A builder can not write all parts in one step. What is added after it has written them, and
//! before its generation counts, is in the head until it is in its part too.

use std::time::Duration;

use fastbloom::BloomFilter;

use super::hash::mix;
use super::settings::LONGEST_LIFE;
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::{CellValue, Decision, Rule, Write};
use crate::kit::bytes::{Reader, Writer};

const HEAD: u8 = 0x93;
const PART: u8 = 0x94;
/// Words of 64 bits of a part.
pub(super) const WORDS: usize = 512;
/// So many additions are told of; who has missed more reads all parts again.
const TOLD: usize = 512;
const LIVES: Duration = LONGEST_LIFE;

/// The head of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Which parts count. Rises with every rebuild.
    pub(super) generation: u128,
    /// None while it is built for the first time: then all is "maybe", and additions are noted.
    pub(super) parts: u32,
    /// How many bits a name has.
    pub(super) hashes: u32,
    /// How many names were added, over all generations.
    pub(super) count: u64,
    /// The hashes of those of them that parts may lack.
    pub(super) unsettled: Vec<u64>,
    /// The hashes of the last of them, oldest first.
    pub(super) added: Vec<u64>,
}

/// A generation after another. Later ones are greater as long as heads are kept, and no two
/// builders choose the same, whatever the clock does: they would write the same cells.
pub(super) fn generation(now: Micros, before: u128, random: u64) -> u128 {
    u128::from(now).max((before >> 64) + 1) << 64 | u128::from(random)
}

impl Head {
    pub(super) fn decode(bytes: &[u8]) -> Option<Head> {
        let mut reader = Reader::new(bytes, HEAD)?;
        let generation = u128::from_be_bytes(reader.bytes(16)?.try_into().ok()?);
        let (parts, hashes, count) = (reader.number()?, reader.number()?, reader.wide()?);
        let unsettled = usize::try_from(reader.number()?).ok()?;
        let (all, rest) = reader.rest().as_chunks::<8>();
        let (unsettled, added) = all.split_at_checked(unsettled)?;
        let hashes_of = |some: &[[u8; 8]]| some.iter().map(|hash| u64::from_be_bytes(*hash)).collect();
        let (unsettled, added) = (hashes_of(unsettled), hashes_of(added));
        rest.is_empty().then_some(Head { generation, parts, hashes, count, unsettled, added })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // At most as many as are told of.
        let unsettled = u32::try_from(self.unsettled.len()).unwrap_or(u32::MAX);
        let writer = Writer::new(HEAD).bytes(&self.generation.to_be_bytes()).number(self.parts);
        let writer = writer.number(self.hashes).wide(self.count).number(unsettled);
        let hashes = self.unsettled.iter().chain(&self.added);
        hashes.fold(writer, |writer, hash| writer.bytes(&hash.to_be_bytes())).done()
    }

    /// A part of this generation with one more name. Of a part that is missing everything is
    /// "maybe", and so it stays.
    fn with_name(&self, part: Option<&[u8]>, hash: u64) -> Write {
        let words = part.and_then(|bytes| decode_part(bytes, self.generation));
        words.map_or(Write::Keep, |words| {
            let mut part = BloomFilter::from_vec(words).hashes(self.hashes);
            part.insert_hash(in_part(hash));
            Write::Put(CellValue { bytes: encode_part(self.generation, &part), lives: LIVES })
        })
    }

    /// What was added since there were so many; `None` if that can not be told.
    pub(super) fn since(&self, count: u64) -> Option<&[u64]> {
        let new = usize::try_from(self.count.checked_sub(count)?).ok()?;
        self.added.get(self.added.len().checked_sub(new)?..)
    }

    fn put(&self) -> Write {
        Write::Put(CellValue { bytes: self.encode(), lives: LIVES })
    }
}

/// The part that a name belongs to.
pub(super) fn part_of(hash: u64, parts: u32) -> u32 {
    // Always below the number of parts.
    u32::try_from((hash >> 32) % u64::from(parts.max(1))).unwrap_or(0)
}

/// The hash of a name within its part.
pub(super) fn in_part(hash: u64) -> u64 {
    mix(hash ^ 0x5bd1_e995_97f4_a7c1)
}

pub(super) fn encode_part(generation: u128, part: &BloomFilter) -> Vec<u8> {
    let writer = Writer::new(PART).bytes(&generation.to_be_bytes());
    part.as_slice().iter().fold(writer, |writer, word| writer.bytes(&word.to_be_bytes())).done()
}

/// A part of this generation; `None` if the bytes are something else.
pub(super) fn decode_part(bytes: &[u8], generation: u128) -> Option<Vec<u64>> {
    let mut reader = Reader::new(bytes, PART)?;
    let found = u128::from_be_bytes(reader.bytes(16)?.try_into().ok()?);
    let (words, rest) = reader.rest().as_chunks::<8>();
    (found == generation && rest.is_empty() && words.len() == WORDS)
        .then(|| words.iter().map(|word| u64::from_be_bytes(*word)).collect())
}

/// Adds a name, over the head and the part that it belongs to.
#[derive(Debug)]
pub(super) struct Add {
    pub(super) generation: u128,
    pub(super) hash: u64,
}

/// What came of adding a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    Yes,
    /// There is no filter, so nobody is refused.
    NoFilter,
    /// The parts are of another generation by now.
    Rebuilt,
}

impl Rule for Add {
    fn step(&self, values: &[Option<&[u8]>], _: Micros) -> Decision {
        let value = |number: usize| values.get(number).copied().flatten();
        let answer = |answer: u8| Decision { writes: Vec::new(), answer: vec![answer] };
        let Some(mut head) = value(0).and_then(Head::decode) else { return answer(1) };
        if head.generation != self.generation {
            return answer(2);
        }
        head.count += 1;
        head.added.push(self.hash);
        let old = head.added.len().saturating_sub(TOLD);
        head.added.drain(..old);
        Decision { writes: vec![head.put(), head.with_name(value(1), self.hash)], answer: vec![0] }
    }
}

impl TypedRule for Add {
    type Answer = Added;

    fn read(&self, answer: &[u8]) -> Option<Added> {
        match answer {
            [0] => Some(Added::Yes),
            [1] => Some(Added::NoFilter),
            [2] => Some(Added::Rebuilt),
            _ => None,
        }
    }
}

/// Sees to it that additions are noted from now on.
#[derive(Debug)]
pub(super) struct Begin;

impl Rule for Begin {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        if values.first().copied().flatten().and_then(Head::decode).is_some() {
            return Decision::default();
        }
        // Counted from the time on: nobody takes it for one that was there before and was lost.
        let (unsettled, added) = (Vec::new(), Vec::new());
        let head = Head { generation: 0, parts: 0, hashes: 1, count: now, unsettled, added };
        Decision { writes: vec![head.put()], answer: Vec::new() }
    }
}

impl TypedRule for Begin {
    type Answer = ();

    fn read(&self, _: &[u8]) -> Option<()> {
        Some(())
    }
}

/// Writes parts of a generation that does not count yet.
#[derive(Debug)]
pub(super) struct PutParts {
    pub(super) parts: Vec<Vec<u8>>,
}

impl Rule for PutParts {
    fn step(&self, _: &[Option<&[u8]>], _: Micros) -> Decision {
        let put = |bytes: &Vec<u8>| Write::Put(CellValue { bytes: bytes.clone(), lives: LIVES });
        Decision { writes: self.parts.iter().map(put).collect(), answer: Vec::new() }
    }
}

impl TypedRule for PutParts {
    type Answer = ();

    fn read(&self, _: &[u8]) -> Option<()> {
        Some(())
    }
}

/// Lets a generation count. What was added that its parts do not have is noted.
#[derive(Debug)]
pub(super) struct Switch {
    pub(super) generation: u128,
    pub(super) parts: u32,
    pub(super) hashes: u32,
    /// How many additions its parts have.
    pub(super) count: u64,
}

/// What came of switching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switched {
    Yes,
    /// It can not be told what was added meanwhile.
    Behind,
    /// Somebody else has built a later one.
    Outdated,
}

impl Rule for Switch {
    fn step(&self, values: &[Option<&[u8]>], _: Micros) -> Decision {
        let before = values.first().copied().flatten().and_then(Head::decode);
        let answer = |answer: u8| Decision { writes: Vec::new(), answer: vec![answer] };
        let Switch { generation, parts, hashes, count } = *self;
        // If there is none: it was there when this was begun, and with it additions were lost.
        let Some(before) = before else { return answer(1) };
        if before.generation >= generation {
            return answer(2);
        }
        let Some(unsettled) = before.since(count).map(<[u64]>::to_vec) else { return answer(1) };
        let head = Head { generation, parts, hashes, unsettled, ..before };
        Decision { writes: vec![head.put()], answer: vec![0] }
    }
}

impl TypedRule for Switch {
    type Answer = Switched;

    fn read(&self, answer: &[u8]) -> Option<Switched> {
        match answer {
            [0] => Some(Switched::Yes),
            [1] => Some(Switched::Behind),
            [2] => Some(Switched::Outdated),
            _ => None,
        }
    }
}

/// Puts a name that a part may lack into it, over the head and the part.
#[derive(Debug)]
pub(super) struct Settle {
    pub(super) generation: u128,
    pub(super) hash: u64,
}

impl Rule for Settle {
    fn step(&self, values: &[Option<&[u8]>], _: Micros) -> Decision {
        let value = |number: usize| values.get(number).copied().flatten();
        let head = value(0).and_then(Head::decode).filter(|head| head.generation == self.generation);
        let Some(mut head) = head else { return Decision::default() };
        head.unsettled.retain(|hash| *hash != self.hash);
        let part = head.with_name(value(1), self.hash);
        Decision { writes: vec![head.put(), part], answer: Vec::new() }
    }
}

impl TypedRule for Settle {
    type Answer = ();

    fn read(&self, _: &[u8]) -> Option<()> {
        Some(())
    }
}

/// Deletes cells, whatever they hold.
#[derive(Debug)]
pub(super) struct Forget(pub(super) usize);

impl Rule for Forget {
    fn step(&self, _: &[Option<&[u8]>], _: Micros) -> Decision {
        let writes = vec![Write::Delete; self.0];
        Decision { writes, answer: Vec::new() }
    }
}

impl TypedRule for Forget {
    type Answer = ();

    fn read(&self, _: &[u8]) -> Option<()> {
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(decision: &Decision, number: usize) -> Vec<u8> {
        match &decision.writes[number] {
            Write::Put(value) => value.bytes.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Stores keep filters: where the bits of a name are never changes, or stored filters would
    /// refuse names that exist.
    #[test]
    fn bits_are_pinned() {
        let mut part = BloomFilter::from_vec(vec![0; WORDS]).hashes(7);
        part.insert_hash(in_part(super::super::hash::hash("user7")));
        let set: Vec<usize> =
            (0..WORDS * 64).filter(|bit| part.as_slice()[bit / 64] >> (bit % 64) & 1 == 1).collect();
        assert_eq!(set, PINNED, "fastbloom has changed: give parts another tag");
    }

    const PINNED: [usize; 7] = [8425, 8499, 15055, 17434, 17922, 23580, 24051];

    #[test]
    fn a_generation_counts_only_with_all_that_was_added() {
        let switch = |generation, count| Switch { generation, parts: 2, hashes: 7, count };
        // What was added while there was no filter is noted from the beginning on.
        assert_eq!(Add { generation: 0, hash: 76 }.step(&[None, None], 1).answer, [1]);
        let head = bytes(&Begin.step(&[None], 5), 0);
        assert!(Begin.step(&[Some(&head)], 6).writes.is_empty());
        let added = Add { generation: 0, hash: 76 }.step(&[Some(&head), None], 6);
        assert_eq!((added.answer.as_slice(), &added.writes[1]), ([0].as_slice(), &Write::Keep));
        let head = bytes(&added, 0);
        // From before what can be told.
        assert_eq!(switch(10, 4).step(&[Some(&head)], 1).answer, [1]);
        assert_eq!(switch(10, 6).step(&[None], 1).answer, [1]);
        let first = switch(10, 6).step(&[Some(&head)], 1);
        assert_eq!(first.answer, [0]);
        let head = bytes(&first, 0);
        let part = encode_part(10, &BloomFilter::from_vec(vec![0; WORDS]).hashes(7));
        let added = Add { generation: 10, hash: 77 }.step(&[Some(&head), Some(&part)], 1);
        assert_eq!(added.answer, [0]);
        let (head, part) = (bytes(&added, 0), bytes(&added, 1));
        let words = decode_part(&part, 10).expect("a part");
        assert!(BloomFilter::from_vec(words).hashes(7).contains_hash(in_part(77)));
        let second = switch(11, 7).step(&[Some(&head)], 1);
        assert_eq!(second.answer, [0]);
        let head = bytes(&second, 0);
        assert_eq!(Head::decode(&head).expect("a head").since(6), Some([77].as_slice()));
        assert_eq!(switch(10, 7).step(&[Some(&head)], 1).answer, [2]);
        // Whoever adds to the old one learns that there is another.
        assert_eq!(Add { generation: 10, hash: 78 }.step(&[Some(&head), None], 1).answer, [2]);
        assert_eq!(Add { generation: 10, hash: 78 }.step(&[None, None], 1).answer, [1]);
        // A part that is missing stays so.
        let alone = Add { generation: 11, hash: 78 }.step(&[Some(&head), None], 1);
        assert_eq!((alone.answer.as_slice(), &alone.writes[1]), ([0].as_slice(), &Write::Keep));
    }

    #[test]
    fn what_a_generation_lacks_is_noted_until_it_has_it() {
        let empty = encode_part(10, &BloomFilter::from_vec(vec![0; WORDS]).hashes(7));
        let has = |part: &[u8], hash| {
            let words = decode_part(part, 10).expect("a part");
            BloomFilter::from_vec(words).hashes(7).contains_hash(in_part(hash))
        };
        let mut head = bytes(&Begin.step(&[None], 5), 0);
        for hash in [76, 77] {
            head = bytes(&Add { generation: 0, hash }.step(&[Some(&head), None], 6), 0);
        }
        // Its builder has heard of the first of them.
        let switched = Switch { generation: 10, parts: 1, hashes: 7, count: 6 }.step(&[Some(&head)], 7);
        assert_eq!(switched.answer, [0]);
        head = bytes(&switched, 0);
        let found = Head::decode(&head).expect("a head");
        assert_eq!((found.count, found.unsettled.as_slice(), found.added.len()), (7, [77].as_slice(), 2));
        let added = Add { generation: 10, hash: 78 }.step(&[Some(&head), Some(&empty)], 8);
        let part = bytes(&added, 1);
        head = bytes(&added, 0);
        assert_eq!(Head::decode(&head).expect("a head").unsettled, [77]);
        assert!(has(&part, 78) && !has(&part, 77));
        // Of another generation it is somebody else's.
        let other = Settle { generation: 9, hash: 77 }.step(&[Some(&head), Some(&part)], 9);
        assert_eq!(other, Decision::default());
        let settled = Settle { generation: 10, hash: 77 }.step(&[Some(&head), Some(&part)], 9);
        let found = Head::decode(&bytes(&settled, 0)).expect("a head");
        assert_eq!((found.count, found.unsettled.as_slice()), (8, [].as_slice()));
        let part = bytes(&settled, 1);
        assert!(has(&part, 77) && has(&part, 78));
    }

    #[test]
    fn generations_rise_and_are_never_the_same() {
        let first = generation(1000, 0, u64::MAX);
        assert!(generation(1001, first, 0) > first);
        // The clock was set back, or two builders read it at the same moment.
        for now in [1, 1000] {
            let (one, two) = (generation(now, first, 1), generation(now, first, 2));
            assert!(one > first && two > first && one != two, "{one} {two}");
        }
    }
}
