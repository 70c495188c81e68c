//! The level in the memory of this process.
//!
//! An entry is good for a short time after the question that brought it was sent, and only while
//! nobody has said that its name was invalidated. That is a number for each of some thousand groups
//! of names, which is noted before the question: an answer that an invalidation has overtaken is
//! kept with the number of before, and is never used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moka::Expiry;
use moka::sync::Cache;

use super::got::{Got, Origin};
use crate::clock::Moment;

const GROUPS: usize = 4096;
/// What an entry takes beside its name and value, about.
const OVERHEAD: usize = 200;

#[derive(Debug)]
pub(super) struct Local {
    entries: Cache<Arc<str>, Entry>,
    marks: Box<[AtomicU64]>,
}

#[derive(Clone, Debug)]
struct Entry {
    got: Got,
    mark: u64,
    /// Until then it is a hit.
    good_until: Moment,
    /// Until then it may be used while the engine is away.
    kept_until: Moment,
    /// The same for whoever throws it away.
    lives: Duration,
}

/// How many invalidations of a group of names were heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

struct Lives;

impl Expiry<Arc<str>, Entry> for Lives {
    fn expire_after_create(&self, _: &Arc<str>, entry: &Entry, _: Instant) -> Option<Duration> {
        Some(entry.lives)
    }

    fn expire_after_update(
        &self,
        _: &Arc<str>,
        entry: &Entry,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(entry.lives)
    }
}

impl Local {
    pub(super) fn new(bytes: u64) -> Local {
        let weigh = |name: &Arc<str>, entry: &Entry| {
            let value = entry.got.value.as_ref().map_or(0, |value| value.len());
            u32::try_from(OVERHEAD + name.len() + value).unwrap_or(u32::MAX)
        };
        let entries = Cache::builder().max_capacity(bytes).weigher(weigh).expire_after(Lives).build();
        Local { entries, marks: (0..GROUPS).map(|_| AtomicU64::new(0)).collect() }
    }

    fn of(&self, hash: u64) -> &AtomicU64 {
        &self.marks[hash as usize % GROUPS]
    }

    /// To be noted before a question is sent.
    pub(super) fn mark(&self, hash: u64) -> Mark {
        Mark(self.of(hash).load(Ordering::Acquire))
    }

    /// Keeps an answer to a question that was sent at `as_of`, when the mark was this.
    pub(super) fn keep(&self, name: &Arc<str>, got: &Got, mark: Mark, as_of: Moment, times: Times) {
        let Times { good, lives } = times;
        let entry = Entry {
            got: got.clone(),
            mark: mark.0,
            good_until: as_of + good,
            kept_until: as_of + lives,
            lives,
        };
        self.entries.insert(Arc::clone(name), entry);
    }

    /// A hit.
    pub(super) fn get(&self, name: &str, hash: u64, now: Moment) -> Option<Got> {
        let entry = self.find(name, hash)?;
        (now < entry.good_until).then_some(Got { origin: Origin::Local, ..entry.got })
    }

    /// What is known while the engine is away.
    pub(super) fn remembered(&self, name: &str, hash: u64, now: Moment) -> Option<Got> {
        let entry = self.find(name, hash)?;
        (now < entry.kept_until).then_some(Got { origin: Origin::Away, ..entry.got })
    }

    fn find(&self, name: &str, hash: u64) -> Option<Entry> {
        self.entries.get(name).filter(|entry| Mark(entry.mark) == self.mark(hash))
    }

    /// The name was invalidated.
    pub(super) fn invalidate(&self, hash: u64) {
        self.of(hash).fetch_add(1, Ordering::AcqRel);
    }

    /// Any name may have been.
    pub(super) fn invalidate_all(&self) {
        for mark in &self.marks {
            mark.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// How long an entry is a hit, and how long it is remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) good: Duration,
    pub(super) lives: Duration,
}
