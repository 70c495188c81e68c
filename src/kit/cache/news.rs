//! News of invalidations, for the memories of other processes.
//!
//! One cell has the hashes of the names that were invalidated last, and a number that counts them.
//! Who has a memory watches it, and forgets what it has not seen yet; everything, if it has missed
//! some. News are a hint: whoever does not get them forgets when
//! [`Cache::local_for`](super::Cache::local_for) is over.

use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::core::Core;
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::client::watch::Awaited;
use crate::clock::{Clock, sleep_until};
use crate::engine::{CellValue, Decision, Rule, Write};
use crate::error::{Error, Result};
use crate::kit::bytes::{Reader, Writer};
use crate::name::Name;

const NEWS: u8 = 0x92;
/// So many names are told of; who has missed more forgets everything.
const TOLD: usize = 128;
/// How long the last news are kept.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// After an error whoever listens tries again in so long.
const AGAIN: Duration = Duration::from_secs(1);

/// What was invalidated last, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Paper {
    /// How many there were with the last. Begins at the time, so that it rises although the cell
    /// was lost.
    pub(super) count: u64,
    hashes: Vec<u64>,
}

impl Paper {
    pub(super) fn decode(bytes: &[u8]) -> Option<Paper> {
        let mut reader = Reader::new(bytes, NEWS)?;
        let count = reader.wide()?;
        let (hashes, rest) = reader.rest().as_chunks::<8>();
        rest.is_empty()
            .then(|| Paper { count, hashes: hashes.iter().map(|hash| u64::from_be_bytes(*hash)).collect() })
    }

    fn encode(&self) -> Vec<u8> {
        let writer = Writer::new(NEWS).wide(self.count);
        self.hashes.iter().fold(writer, |writer, hash| writer.bytes(&hash.to_be_bytes())).done()
    }

    /// What is new to somebody who has read so far; `None` if that can not be told.
    pub(super) fn since(&self, read: u64) -> Option<&[u64]> {
        let new = usize::try_from(self.count.checked_sub(read)?).ok()?;
        self.hashes.get(self.hashes.len().checked_sub(new)?..)
    }
}

/// Adds to the news.
#[derive(Debug)]
pub(super) struct Announce {
    pub(super) hashes: Vec<u64>,
}

impl Rule for Announce {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        // What is not news is replaced by news.
        let before = values.first().copied().flatten().and_then(Paper::decode);
        let mut paper = before.unwrap_or(Paper { count: now, hashes: Vec::new() });
        paper.count += self.hashes.len() as u64;
        paper.hashes.extend_from_slice(&self.hashes);
        let old = paper.hashes.len().saturating_sub(TOLD);
        paper.hashes.drain(..old);
        let put = Write::Put(CellValue { bytes: paper.encode(), lives: KEPT });
        Decision { writes: vec![put], answer: Vec::new() }
    }
}

impl TypedRule for Announce {
    type Answer = ();

    fn read(&self, _: &[u8]) -> Option<()> {
        Some(())
    }
}

#[derive(Debug, Default)]
pub(super) struct News {
    unsent: Mutex<Unsent>,
    listens: AtomicBool,
}

#[derive(Debug, Default)]
struct Unsent {
    hashes: Vec<u64>,
    /// Somebody sends them.
    sends: bool,
}

impl News {
    fn take(&self) -> Option<Vec<u64>> {
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        unsent.sends = !unsent.hashes.is_empty();
        unsent.sends.then(|| std::mem::take(&mut unsent.hashes))
    }
}

impl Core {
    /// Tells other processes that a name was invalidated, in the background; what comes meanwhile
    /// goes into one call.
    pub(super) fn announce(self: &Arc<Core>, hash: u64) {
        {
            let mut unsent = self.news.unsent.lock().unwrap_or_else(PoisonError::into_inner);
            unsent.hashes.push(hash);
            if unsent.sends {
                return;
            }
            unsent.sends = true;
        }
        let core = Arc::clone(self);
        self.client.inner.background(async move {
            let Ok(cell) = core.news_cell() else { return };
            while let Some(hashes) = core.news.take() {
                let told = core.client.inner.update(slice::from_ref(&cell), &Arc::new(Announce { hashes })).await;
                if let Err(error) = told {
                    tracing::debug!(target: "leasehold", cache = core.settings.name, %error, "news were not told");
                }
            }
        });
    }

    /// Begins to listen for news, if that has not begun.
    pub(super) fn listen(self: &Arc<Core>) {
        if self.settings.local.is_zero() || self.news.listens.swap(true, Ordering::AcqRel) {
            return;
        }
        let (core, client) = (Arc::downgrade(self), Arc::clone(&self.client.inner));
        let Ok(cell) = self.news_cell() else { return };
        self.client.inner.runtime.spawn(async move {
            let mut reads = Reads { core, cell: cell.clone(), read: None };
            loop {
                match client.wait_until(&cell, None, &mut reads).await {
                    Err(Error::Unavailable { .. } | Error::Engine { .. }) => {}
                    // The cache is gone, or the client is closed.
                    _ => return,
                }
                let clock: &dyn Clock = &*client.clock;
                sleep_until(clock, clock.now() + AGAIN).await;
            }
        });
    }
}

/// Somebody who reads the news, for as long as there is a cache.
struct Reads {
    core: Weak<Core>,
    cell: Name,
    /// How far.
    read: Option<u64>,
}

impl Awaited for &mut Reads {
    type Found = ();

    async fn look(&mut self) -> Result<Option<()>> {
        let Some(core) = self.core.upgrade() else { return Ok(Some(())) };
        let found = core.client.inner.read_cells(slice::from_ref(&self.cell)).await?;
        let value = found.cells.first().and_then(|cell| cell.value.as_deref());
        let paper = value.and_then(Paper::decode).unwrap_or_default();
        match self.read.map(|read| paper.since(read)) {
            Some(Some(new)) => new.iter().for_each(|hash| core.local.invalidate(*hash)),
            // What was kept before the first look may have been invalidated before it.
            None | Some(None) => core.local.invalidate_all(),
        }
        self.read = Some(paper.count);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announce(value: Option<&[u8]>, hashes: &[u64]) -> Vec<u8> {
        let decision = Announce { hashes: hashes.to_vec() }.step(&[value], 1_000_000);
        match decision.writes.into_iter().next() {
            Some(Write::Put(value)) => value.bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn readers_get_what_they_have_missed_or_know_that_they_can_not() {
        let first = announce(None, &[1, 2]);
        let paper = Paper::decode(&first).expect("news");
        assert_eq!(paper, Paper { count: 1_000_002, hashes: vec![1, 2] });
        assert_eq!(paper.since(1_000_002), Some([].as_slice()));
        assert_eq!(paper.since(1_000_001), Some([2].as_slice()));
        assert_eq!(paper.since(1_000_000), Some([1, 2].as_slice()));
        // Before there were any, or after they were lost and began anew.
        assert_eq!((paper.since(0), paper.since(999_999), paper.since(1_000_003)), (None, None, None));
        let many: Vec<u64> = (0..1000).collect();
        let paper = Paper::decode(&announce(Some(&first), &many)).expect("news");
        assert_eq!((paper.count, paper.hashes.len()), (1_001_002, TOLD));
        assert_eq!(paper.since(1_001_000), Some([998, 999].as_slice()));
        assert_eq!(paper.since(1_000_002), None);
        // Something else in the cell is no news.
        assert_eq!(Paper::decode(&announce(Some(b"x"), &[3])).map(|paper| paper.hashes), Some(vec![3]));
    }
}
