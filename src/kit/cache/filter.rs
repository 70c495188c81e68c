//! A Bloom filter of the names that exist, so that nobody loads those that do not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;
use std::{fmt, slice};

use fastbloom::AtomicBloomFilter;

use super::filter_build::{Build, Part};
use super::filter_rule::{Add, Added, Begin, Head, WORDS, decode_part, generation, in_part, part_of};
use super::hash::hash;
use crate::client::Client;
use crate::client::watch::Awaited;
use crate::clock::{Moment, sleep_until};
use crate::engine::MOST_CELLS;
use crate::error::{Error, Result};
use crate::kit::cells;
use crate::name::{Family, Name};

/// A copy that was not confirmed for so long refuses nobody.
pub const TRUSTED: Duration = Duration::from_secs(5);
/// The most names that a filter is built for.
pub const MOST_NAMES: u64 = 100_000_000;
const AGAIN: Duration = Duration::from_secs(1);

/// A Bloom filter of the names that exist, kept in cells and copied into every process. Made by
/// [`Client::filter`].
///
/// It says "surely not" or "maybe". It says "maybe" of everything while it was never built, while
/// it is not read yet, where a part of it is missing, and when the copy of this process was not
/// confirmed for [`TRUSTED`]. A name must be [added](Filter::add) before it exists in the source:
/// other processes refuse it until they hear of that, which takes as long as a message, and at
/// most [`TRUSTED`].
#[derive(Clone)]
pub struct Filter(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) client: Client,
    pub(super) name: String,
    copy: RwLock<Option<Arc<Copy>>>,
    /// Held by whoever brings the copy up to date: of two, the later could put an older one there.
    refreshing: tokio::sync::Mutex<()>,
    /// When that was confirmed last, in microseconds of the client's clock.
    confirmed: AtomicU64,
    reads: AtomicBool,
}

/// What a process has of a filter.
struct Copy {
    head: Head,
    /// How many additions it has.
    count: AtomicU64,
    parts: Vec<Option<AtomicBloomFilter>>,
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl Client {
    /// A filter with a name. Give it to [`Cache::filtered_by`](super::Cache::filtered_by).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is too long; [`Error::Unsupported`] if the engine has no
    /// cells.
    pub fn filter(&self, name: impl AsRef<str>) -> Result<Filter> {
        self.inner.needs_cells("filters are kept in")?;
        let inner = Inner {
            client: self.clone(),
            name: name.as_ref().to_owned(),
            copy: RwLock::default(),
            refreshing: tokio::sync::Mutex::default(),
            confirmed: AtomicU64::new(0),
            reads: AtomicBool::new(false),
        };
        inner.part_cell(u128::MAX, u32::MAX)?;
        Ok(Filter(Arc::new(inner)))
    }
}

impl Filter {
    /// False if the source surely has nothing of this name.
    pub fn may_have(&self, name: &str) -> bool {
        let inner = &self.0;
        self.start();
        let confirmed = Moment::from_micros(inner.confirmed.load(Ordering::Acquire));
        if inner.client.inner.clock.now().since(confirmed) > TRUSTED {
            return true;
        }
        let copy = inner.copy.read().unwrap_or_else(PoisonError::into_inner);
        copy.as_ref().is_none_or(|copy| copy.may_have(hash(name)))
    }

    /// Reads the filter now. Otherwise that is begun in the background when it is first asked.
    /// False if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn load(&self) -> Result<bool> {
        self.start();
        self.0.refresh().await?;
        let copy = self.0.copy.read().unwrap_or_else(PoisonError::into_inner);
        Ok(copy.as_ref().is_some_and(|copy| copy.head.parts > 0))
    }

    /// Adds a name: before it exists in the source.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer: it was added or not, and can be added
    /// again.
    ///
    /// # Cancel safety
    ///
    /// It was added or not; it can be added again.
    pub async fn add(&self, name: impl AsRef<str>) -> Result<()> {
        let (inner, hash) = (&self.0, hash(name.as_ref()));
        loop {
            let Some(head) = inner.head().await?.1 else { return Ok(()) };
            let part = inner.part_cell(head.generation, part_of(hash, head.parts))?;
            let rule = Arc::new(Add { generation: head.generation, hash });
            match inner.client.inner.update(&[inner.head_cell()?, part], &rule).await? {
                Added::Yes | Added::NoFilter => break,
                Added::Rebuilt => {}
            }
        }
        if let Some(copy) = inner.copy.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            copy.insert(hash);
        }
        Ok(())
    }

    /// Begins to build the filter anew for about so many names, of which it shall take one in
    /// `1 / false_positives` that does not exist for one that may.
    ///
    /// Put every name into it with [`Build::insert`], and [`finish`](Build::finish). The filter of
    /// before counts until then. What is [added](Filter::add) meanwhile is in both.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for more than [`MOST_NAMES`], or a rate that is not between 0 and 1;
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// The filter of before counts, whatever becomes of this.
    pub async fn build(&self, names: u64, false_positives: f64) -> Result<Build> {
        if names > MOST_NAMES || !(1e-6..1.0).contains(&false_positives) {
            return Err(Error::invalid(format!(
                "a filter of {names} names with a rate of {false_positives} can not be built; up to {MOST_NAMES} \
                 names and rates from 0.000001 to 1 can"
            )));
        }
        let bits_each = -false_positives.ln() / (std::f64::consts::LN_2 * std::f64::consts::LN_2);
        // Names are not spread evenly over the parts: a tenth more room keeps the rate.
        let bits = names.max(1) as f64 * bits_each * 1.1;
        let parts = (bits / (WORDS * 64) as f64).ceil().max(1.0) as u32;
        let hashes = (bits_each * std::f64::consts::LN_2).round().max(1.0) as u32;
        self.0.client.inner.update(&[self.0.head_cell()?], &Arc::new(Begin)).await?;
        let (now, head) = self.0.head().await?;
        let head = head.ok_or_else(|| self.0.lost())?;
        let (before, count) = ((head.generation, head.parts), head.count);
        let generation = generation(now, head.generation, crate::random::number()?);
        let parts = (0..parts).map(|_| Part::new(hashes)).collect();
        Ok(Build { filter: self.clone(), generation, hashes, parts, count, before })
    }

    /// Begins to read the filter in the background, if that has not begun.
    fn start(&self) {
        let inner = &self.0;
        if inner.reads.swap(true, Ordering::AcqRel) {
            return;
        }
        let Ok(cell) = inner.head_cell() else { return };
        let (weak, client) = (Arc::downgrade(inner), Arc::clone(&inner.client.inner));
        inner.client.inner.runtime.spawn(async move {
            let mut reads = Reads(weak);
            loop {
                match client.wait_until(&cell, None, &mut reads).await {
                    Err(Error::Unavailable { .. } | Error::Engine { .. }) => {}
                    // The filter is gone, or the client is closed.
                    _ => return,
                }
                sleep_until(&*client.clock, client.clock.now() + AGAIN).await;
            }
        });
    }
}

impl Inner {
    pub(super) fn head_cell(&self) -> Result<Name> {
        self.client.name(Family::Cell, &(cells::cell("cache-filter/", &self.name) + "/head"))
    }

    pub(super) fn part_cell(&self, generation: u128, part: u32) -> Result<Name> {
        let text = cells::cell("cache-filter/", &self.name);
        self.client.name(Family::Cell, &format!("{text}/{generation:032x}/{part}"))
    }

    pub(super) fn lost(&self) -> Error {
        Error::Engine {
            engine: self.client.guarantees().engine,
            what: format!("the filter `{}` was lost while it was built; build it again", self.name),
            source: None,
        }
    }

    /// The engine's time, and the head if there is one.
    pub(super) async fn head(&self) -> Result<(u64, Option<Head>)> {
        let found = self.client.inner.read_cells(slice::from_ref(&self.head_cell()?)).await?;
        let value = found.cells.first().and_then(|cell| cell.value.as_deref());
        Ok((found.now, value.and_then(Head::decode)))
    }

    /// Brings the copy up to date.
    pub(super) async fn refresh(&self) -> Result<()> {
        let _alone = self.refreshing.lock().await;
        // From before the question: additions after it are not in the answer.
        let asked = self.client.inner.clock.now();
        let head = self.head().await?.1;
        let copy = self.copy.read().unwrap_or_else(PoisonError::into_inner).clone();
        let up_to_date = match (&copy, &head) {
            (None, None) => true,
            (Some(copy), Some(head)) => copy.follow(head),
            _ => false,
        };
        if !up_to_date {
            let copy = match head {
                Some(head) => Some(Arc::new(self.read(head).await?)),
                None => None,
            };
            *self.copy.write().unwrap_or_else(PoisonError::into_inner) = copy;
        }
        self.confirmed.fetch_max(asked.as_micros(), Ordering::AcqRel);
        Ok(())
    }

    /// Reads all parts.
    async fn read(&self, head: Head) -> Result<Copy> {
        let mut parts = Vec::with_capacity(head.parts as usize);
        let numbers: Vec<u32> = (0..head.parts).collect();
        for some in numbers.chunks(MOST_CELLS) {
            let names =
                some.iter().map(|part| self.part_cell(head.generation, *part)).collect::<Result<Vec<_>>>()?;
            let found = self.client.inner.read_cells(&names).await?;
            parts.extend(found.cells.iter().map(|cell| {
                let words = decode_part(cell.value.as_deref()?, head.generation)?;
                Some(AtomicBloomFilter::from_vec(words).hashes(head.hashes))
            }));
        }
        let count = AtomicU64::new(head.count);
        let copy = Copy { head, count, parts };
        copy.head.unsettled.iter().for_each(|hash| copy.insert(*hash));
        Ok(copy)
    }
}

impl Copy {
    fn part(&self, hash: u64) -> Option<&AtomicBloomFilter> {
        self.parts.get(part_of(hash, self.head.parts) as usize)?.as_ref()
    }

    fn may_have(&self, hash: u64) -> bool {
        self.part(hash).is_none_or(|part| part.contains_hash(in_part(hash)))
    }

    fn insert(&self, hash: u64) {
        if let Some(part) = self.part(hash) {
            part.insert_hash(in_part(hash));
        }
    }

    /// Adds what is new; false if all must be read again.
    fn follow(&self, head: &Head) -> bool {
        if head.generation != self.head.generation {
            return false;
        }
        let Some(new) = head.since(self.count.load(Ordering::Acquire)) else { return false };
        new.iter().for_each(|hash| self.insert(*hash));
        self.count.fetch_max(head.count, Ordering::AcqRel);
        // A part that was missing may be there again only in another generation.
        true
    }
}

/// Somebody who keeps a copy up to date, for as long as there is a filter.
struct Reads(Weak<Inner>);

impl Awaited for &mut Reads {
    type Found = ();

    async fn look(&mut self) -> Result<Option<()>> {
        let Some(inner) = self.0.upgrade() else { return Ok(Some(())) };
        inner.refresh().await?;
        Ok(None)
    }
}
