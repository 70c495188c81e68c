//! Compares what the cache has with what the source has.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::figures::Count;
use super::got::Failure;
use super::handle::Cache;
use super::loader::Loaded;
use super::rule::{Answer, Ask, Found, Step};

/// What came of comparing an entry with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Comparison {
    /// They are the same, or the entry has changed meanwhile, as it should.
    Same,
    /// There is no entry.
    Absent,
    /// They were different when they were compared first, and the same entry was still there and
    /// still different after the patience was over: an invalidation is missing.
    Different,
}

impl Cache {
    /// Compares the shared entry of a name with what the loader says.
    ///
    /// If they are different, somebody may have changed the source and be about to invalidate the
    /// entry. So both are compared again after `patience`.
    ///
    /// # Errors
    ///
    /// As [`Cache::get`].
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn compare(
        &self,
        name: impl AsRef<str>,
        patience: Duration,
    ) -> std::result::Result<Comparison, Failure> {
        let (core, name) = (&self.0, name.as_ref());
        let mut found = core.peek(name).await?;
        let mut waited = false;
        loop {
            let Some(entry) = found else { return Ok(Comparison::Absent) };
            let loaded = core.load_from_source(name).await?;
            // What was in the cache before the source was read and is there after it is what the
            // cache had to say at that moment.
            let again = core.peek(name).await?;
            if again.as_ref().is_none_or(|again| !same(again, &entry)) || agrees(&entry, &loaded) {
                core.counters.add(Count::Compared);
                return Ok(Comparison::Same);
            }
            if waited {
                core.counters.add(Count::Compared);
                core.counters.add(Count::Different);
                tracing::warn!(
                    target: "leasehold", cache = core.settings.name, name, ?patience,
                    "an entry differs from its source"
                );
                return Ok(Comparison::Different);
            }
            core.sleep_until(core.now() + patience).await;
            waited = true;
            found = core.peek(name).await?.filter(|found| same(found, &entry));
            if found.is_none() {
                core.counters.add(Count::Compared);
                return Ok(Comparison::Same);
            }
        }
    }

    /// Gets a value as [`Cache::get`] does, and compares one in so many with the source in the
    /// background. [`Cache::figures`] and the metrics tell how many were different.
    ///
    /// # Errors
    ///
    /// As [`Cache::get`].
    ///
    /// # Cancel safety
    ///
    /// As [`Cache::get`].
    pub async fn get_sampled(
        &self,
        name: impl AsRef<str>,
        one_in: u64,
        patience: Duration,
    ) -> std::result::Result<super::Got, Failure> {
        let name = name.as_ref();
        let got = self.get(name).await?;
        if one_in > 0 && self.0.dice.roll().is_multiple_of(one_in) {
            let (cache, name) = (self.clone(), name.to_owned());
            self.0.client.inner.runtime.spawn(async move { cache.compare(name, patience).await });
        }
        Ok(got)
    }
}

/// Whether two looks have seen one entry: a value that was stored again has other lifetimes, but
/// that is not known here, so its value and version must do.
fn same(one: &Found, two: &Found) -> bool {
    (&one.value, one.version) == (&two.value, two.version)
}

fn agrees(entry: &Found, loaded: &Loaded) -> bool {
    entry.value == loaded.value
}

impl Core {
    /// The shared entry as it is, without loading it.
    async fn peek(self: &Arc<Core>, name: &str) -> std::result::Result<Option<Found>, Failure> {
        let cell = self.cell(name)?;
        let look = Ask::Look { owner: 0, lease: Duration::ZERO, may_load: false, at_least: 0, early: 0 };
        let (inner, limit) = (&self.client.inner, self.settings.deadline);
        let answer = inner.update_within(limit, slice::from_ref(&cell), &Arc::new(Step(look))).await;
        self.note(&answer);
        match answer? {
            Answer::Fresh(found) | Answer::Stale(found) => Ok(Some(found)),
            Answer::Foreign => Err(self.foreign(&cell).into()),
            _ => Ok(None),
        }
    }
}
