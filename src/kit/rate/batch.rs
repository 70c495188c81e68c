//! Tokens that a process has taken in advance and gives out by itself.

use std::sync::{Arc, Mutex, PoisonError};

use super::bounded::Bounded;
use crate::clock::Moment;

/// The batch of a key. It is locked while it is filled, so that one caller asks the engine and the
/// others spend what comes.
pub(super) type Held = Arc<tokio::sync::Mutex<Tokens>>;

/// Tokens that may be spent for a while.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) left: u32,
    /// After this they are worth nothing.
    pub(super) until: Moment,
    /// Counts the batches of a key: what was taken from another batch can not be given back to
    /// this.
    pub(super) number: u64,
}

impl Tokens {
    /// Spends from the batch; false if there is not enough.
    pub(super) fn spend(&mut self, cost: u32, now: Moment) -> bool {
        if self.until <= now {
            self.left = 0;
        }
        let enough = self.left >= cost;
        if enough {
            self.left -= cost;
        }
        enough
    }
}

/// The batches of all keys.
#[derive(Debug)]
pub(super) struct Batches(Mutex<Bounded<Held>>);

impl Batches {
    pub(super) fn new(most: usize) -> Batches {
        Batches(Mutex::new(Bounded::new(most)))
    }

    /// The batch of a key, kept at least until then. `None` if there is no room for it.
    pub(super) fn of(&self, key: &str, now: Moment, until: Moment) -> Option<Held> {
        let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, held)) = batches.get(key, now) {
            return Some(Arc::clone(held));
        }
        let held = Arc::new(tokio::sync::Mutex::new(Tokens { left: 0, until: now, number: 0 }));
        batches.put(key, Arc::clone(&held), now, until).then_some(held)
    }

    /// Keeps the batch of a key for longer.
    pub(super) fn keep(&self, key: &str, held: &Held, now: Moment, until: Moment) {
        let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        batches.put(key, Arc::clone(held), now, until);
    }

    pub(super) fn find(&self, key: &str, now: Moment) -> Option<Held> {
        let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        batches.get(key, now).map(|(_, held)| Arc::clone(held))
    }

    pub(super) fn forget(&self, key: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
