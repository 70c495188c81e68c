//! Building a filter beside the one that counts.

use std::fmt;
use std::sync::Arc;

use fastbloom::BloomFilter;

use super::filter::{Filter, Inner};
use super::filter_rule::{Forget, PutParts, Switch, Switched, encode_part, in_part, part_of};
use super::hash::hash;
use crate::engine::MOST_CELLS;
use crate::error::{Error, Result};

/// A filter that is being built. Made by [`Filter::build`].
pub struct Build {
    pub(super) filter: Filter,
    pub(super) generation: u64,
    pub(super) hashes: u32,
    pub(super) parts: Vec<BloomFilter>,
    /// How many additions it has.
    pub(super) count: u64,
    /// The generation and parts of before.
    pub(super) before: (u64, u32),
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
            part.insert_hash(in_part(hash));
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
        let generation = self.generation;
        let parts = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        loop {
            self.catch_up().await?;
            let numbers: Vec<u32> = (0..parts).collect();
            for (some, filters) in numbers.chunks(MOST_CELLS).zip(self.parts.chunks(MOST_CELLS)) {
                let names = some.iter().map(|part| inner.part_cell(generation, *part));
                let names = names.collect::<Result<Vec<_>>>()?;
                let parts = filters.iter().map(|part| encode_part(generation, part)).collect();
                inner.client.inner.update(&names, &Arc::new(PutParts { parts })).await?;
            }
            let switch = Switch { generation, parts, hashes: self.hashes, count: self.count };
            match inner.client.inner.update(&[inner.head_cell()?], &Arc::new(switch)).await? {
                Switched::Yes => break,
                Switched::Behind => {}
                Switched::Outdated => return Ok(false),
            }
        }
        inner.refresh().await?;
        let (generation, parts) = self.before;
        inner.forget(generation, parts).await;
        Ok(true)
    }
}

impl Inner {
    /// Deletes the parts of a generation that does not count any more. If that fails they end by
    /// themselves.
    async fn forget(&self, generation: u64, parts: u32) {
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
