//! Building a filter beside the one that counts.

use std::fmt;
use std::sync::Arc;

use fastbloom::BloomFilter;

use super::filter::{Filter, Inner};
use super::filter_rule::{Forget, PutParts, Settle, Switch, Switched, WORDS, encode_part, in_part, part_of};
use super::hash::hash;
use crate::engine::MOST_CELLS;
use crate::error::{Error, Result};

/// A filter that is being built. Made by [`Filter::build`].
pub struct Build {
    pub(super) filter: Filter,
    pub(super) generation: u128,
    pub(super) hashes: u32,
    pub(super) parts: Vec<Part>,
    /// How many additions it has.
    pub(super) count: u64,
    /// The generation and parts of before.
    pub(super) before: (u128, u32),
}

/// A part of a filter that is being built.
pub(super) struct Part {
    bits: BloomFilter,
    /// The store does not have it as it is.
    unwritten: bool,
}

impl Part {
    pub(super) fn new(hashes: u32) -> Part {
        Part { bits: BloomFilter::from_vec(vec![0; WORDS]).hashes(hashes), unwritten: true }
    }
}

impl fmt::Debug for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Build").field("filter", &self.filter).finish_non_exhaustive()
    }
}

impl Build {
    /// Puts a name into it.
    pub fn insert(&mut self, name: impl AsRef<str>) {
        self.insert_hash(hash(name.as_ref()));
    }

    fn insert_hash(&mut self, hash: u64) {
        let count = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        if let Some(part) = self.parts.get_mut(part_of(hash, count) as usize) {
            part.unwritten |= !part.bits.insert_hash(in_part(hash));
        }
    }

    /// Puts in what others have [added](Filter::add) since. Call it now and then while a long list
    /// is read: only the last 512 additions are remembered.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if more were added than are remembered, and [`Error::Engine`] if the
    /// store has lost the filter meanwhile: build it again. [`Error::Unavailable`] if the engine
    /// does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn catch_up(&mut self) -> Result<()> {
        let Some(head) = self.filter.0.head().await?.1 else { return Err(self.filter.0.lost()) };
        let Some(new) = head.since(self.count) else {
            return Err(Error::invalid(format!(
                "more names were added to the filter `{}` than are remembered; build it again, and catch up \
                 more often",
                self.filter.0.name
            )));
        };
        new.iter().for_each(|hash| self.insert_hash(*hash));
        self.count = head.count;
        Ok(())
    }

    /// Lets it count instead of the one before. False if somebody has finished a later one.
    ///
    /// # Errors
    ///
    /// As [`Build::catch_up`].
    ///
    /// # Cancel safety
    ///
    /// It counts whole or not at all. Parts of one that does not count are left behind until their
    /// end.
    pub async fn finish(mut self) -> Result<bool> {
        let inner = Arc::clone(&self.filter.0);
        let parts = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let Build { generation, hashes, .. } = self;
        self.catch_up().await?;
        self.write().await?;
        loop {
            // What was added while all parts were written: it is in a few of them.
            self.catch_up().await?;
            self.write().await?;
            let switch = Switch { generation, parts, hashes, count: self.count };
            match inner.client.inner.update(&[inner.head_cell()?], &Arc::new(switch)).await? {
                Switched::Yes => break,
                // Too much was added, or the filter was lost: the next look says so.
                Switched::Behind => {}
                Switched::Outdated => return Ok(false),
            }
        }
        inner.settle(generation).await;
        inner.refresh().await?;
        let (generation, parts) = self.before;
        inner.forget(generation, parts).await;
        Ok(true)
    }

    /// Writes the parts that the store does not have as they are.
    async fn write(&mut self) -> Result<()> {
        let inner = &self.filter.0;
        let mut unwritten: Vec<(u32, &mut Part)> =
            (0..).zip(&mut self.parts).filter(|(_, part)| part.unwritten).collect();
        for some in unwritten.chunks_mut(MOST_CELLS) {
            let names = some.iter().map(|(number, _)| inner.part_cell(self.generation, *number));
            let names = names.collect::<Result<Vec<_>>>()?;
            let parts = some.iter().map(|(_, part)| encode_part(self.generation, &part.bits)).collect();
            inner.client.inner.update(&names, &Arc::new(PutParts { parts })).await?;
            some.iter_mut().for_each(|(_, part)| part.unwritten = false);
        }
        Ok(())
    }
}

impl Inner {
    /// Puts what is noted in the head into the parts. If that fails it stays in the head, and is
    /// read from there.
    async fn settle(&self, generation: u128) {
        let Ok((_, Some(head))) = self.head().await else { return };
        if head.generation != generation {
            return;
        }
        for hash in head.unsettled {
            let (first, second) = (self.head_cell(), self.part_cell(generation, part_of(hash, head.parts)));
            let (Ok(first), Ok(second)) = (first, second) else { return };
            let rule = Arc::new(Settle { generation, hash });
            if self.client.inner.update(&[first, second], &rule).await.is_err() {
                return;
            }
        }
    }

    /// Deletes the parts of a generation that does not count any more. If that fails they end by
    /// themselves.
    async fn forget(&self, generation: u128, parts: u32) {
        let numbers: Vec<u32> = (0..parts).collect();
        for some in numbers.chunks(MOST_CELLS) {
            let names: Result<Vec<_>> = some.iter().map(|part| self.part_cell(generation, *part)).collect();
            let Ok(names) = names else { return };
            if self.client.inner.update(&names, &Arc::new(Forget(names.len()))).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter_rule::Begin;
    use super::*;

    #[tokio::test]
    async fn builders_of_the_same_moment_do_not_write_the_same_parts() {
        let client = crate::connect("memory:").await.expect("an engine");
        let filter = client.filter("users").expect("a filter");
        let head = [filter.0.head_cell().expect("a name")];
        client.inner.update(&head, &Arc::new(Begin)).await.expect("an answer");
        // From a store whose clock was ahead: the clock tells later builders nothing.
        let count = filter.0.head().await.expect("an answer").1.expect("a head").count;
        let ahead = Switch { generation: u128::MAX >> 4, parts: 0, hashes: 1, count };
        let switched = client.inner.update(&head, &Arc::new(ahead)).await.expect("an answer");
        assert_eq!(switched, Switched::Yes);
        let mut one = filter.build(1, 0.001).await.expect("an answer");
        let mut two = filter.build(1, 0.001).await.expect("an answer");
        one.insert("ann");
        assert!(one.finish().await.expect("an answer"));
        // The second has not come to Ann yet.
        two.write().await.expect("an answer");
        let fresh = client.filter("users").expect("a filter");
        assert!(fresh.load().await.expect("an answer"));
        assert!(fresh.may_have("ann") && !fresh.may_have("nobody"));
    }
}
