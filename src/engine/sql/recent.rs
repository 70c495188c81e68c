//! What a client remembers of its own writes, to need fewer statements. It may forget.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::seen::Seen;
use crate::claim::{OwnerId, OwnerMap};

/// More than this is not remembered.
const MOST: usize = 1 << 16;
/// For how long a name that was found in use is expected to be in use.
const BUSY_FOR: Duration = Duration::from_secs(1);
/// So many names are remembered as they were written, each for so long. A hand-over counts from the
/// time of what is remembered, and a waiter has three seconds to take it up.
const MOST_SEEN: usize = 1 << 10;
const SEEN_FOR: Duration = Duration::from_millis(300);

/// What a client remembers.
#[derive(Debug, Default)]
pub(super) struct Recent {
    taken: Mutex<OwnerMap<Taken>>,
    busy: Mutex<HashMap<Vec<u8>, Instant>>,
    seen: Mutex<HashMap<Vec<u8>, (Seen, Instant)>>,
}

/// A row in which an owner has the name whole, with nothing else in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// The version that was written. While the row has it, it is as it was written.
    pub(super) version: i64,
    pub(super) first_token: u64,
    pub(super) last_token: u64,
}

impl Recent {
    fn taken(&self) -> MutexGuard<'_, OwnerMap<Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn busy(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Instant>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn took(&self, owner: OwnerId, taken: Taken) {
        let mut all = self.taken();
        // Owners that never release pile up: those who lost their names.
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(owner, taken);
    }

    /// What the owner took; it is forgotten.
    pub(super) fn forget(&self, owner: OwnerId) -> Option<Taken> {
        self.taken().remove(&owner)
    }

    /// Notes what is known of a name that others use, too.
    pub(super) fn saw(&self, key: &[u8], seen: Option<Seen>) {
        let Some(seen) = seen else { return };
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_SEEN {
            all.clear();
        }
        all.insert(key.to_vec(), (seen, Instant::now()));
    }

    /// What is known of a name; it is forgotten.
    pub(super) fn recall(&self, key: &[u8]) -> Option<Seen> {
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, since) = all.remove(key)?;
        (since.elapsed() < SEEN_FOR).then_some(seen)
    }

    /// Notes whether a name was found in use.
    pub(super) fn found(&self, key: &[u8], in_use: bool) {
        let mut busy = self.busy();
        if !in_use {
            busy.remove(key);
            return;
        }
        if busy.len() >= MOST {
            busy.clear();
        }
        busy.insert(key.to_vec(), Instant::now());
    }

    /// True if the name was in use a moment ago.
    pub(super) fn is_busy(&self, key: &[u8]) -> bool {
        let busy = self.busy();
        !busy.is_empty() && busy.get(key).is_some_and(|since| since.elapsed() < BUSY_FOR)
    }
}
