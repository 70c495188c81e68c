//! Callers of one process that want the same name go together: one asks, the others get what it
//! got.
//!
//! They stand in line for the flight. Whoever comes to its turn takes what the one before got, if
//! that is of a moment after it began to wait, and asks itself otherwise. So a caller never gets
//! what was read before it asked, and a hot name costs one question at a time. A caller that is
//! dropped leaves the line, and the next one asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::got::Outcome;

const SHARDS: usize = 16;

/// The names that somebody wants now.
#[derive(Debug, Default)]
pub(super) struct Flights([Mutex<ByName>; SHARDS]);

type ByName = HashMap<Arc<str>, Weak<Flight>>;
type Flight = tokio::sync::Mutex<Option<Landed>>;

/// What the caller before got.
#[derive(Debug)]
pub(super) struct Landed {
    pub(super) outcome: Outcome,
    /// The version that it has asked for.
    pub(super) at_least: u64,
}

/// A caller in line.
#[derive(Debug)]
pub(super) struct Boarded<'a> {
    flights: &'a Mutex<ByName>,
    name: Arc<str>,
    pub(super) flight: Arc<Flight>,
}

fn lock(flights: &Mutex<ByName>) -> MutexGuard<'_, ByName> {
    flights.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Flights {
    pub(super) fn board(&self, name: &Arc<str>, hash: u64) -> Boarded<'_> {
        let flights = &self.0[hash as usize % SHARDS];
        let mut by_name = lock(flights);
        let flight = match by_name.get(name).and_then(Weak::upgrade) {
            Some(flight) => flight,
            None => {
                let flight = Arc::new(Flight::default());
                by_name.insert(Arc::clone(name), Arc::downgrade(&flight));
                flight
            }
        };
        Boarded { flights, name: Arc::clone(name), flight }
    }
}

impl Drop for Boarded<'_> {
    fn drop(&mut self) {
        let mut by_name = lock(self.flights);
        // Counted under the lock, under which alone others board.
        if Arc::strong_count(&self.flight) == 1 {
            by_name.remove(&self.name);
        }
    }
}
