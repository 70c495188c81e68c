//! The waiters of a name, in order.

use std::collections::BTreeMap;

use crate::claim::{Micros, OwnerId, Waiter};

/// The waiters of one name, first come first.
///
/// A trait because the queue may be long: an engine keeps it as rows and touches only those that
/// change.
pub trait Queue {
    /// What can go wrong when rows are read or written.
    type Error;
    /// The waiter that came first.
    fn first(&self) -> Result<Option<Waiter>, Self::Error>;
    /// Adds a waiter at the end.
    fn push(&mut self, waiter: Waiter) -> Result<(), Self::Error>;
    /// Notes that a waiter lives; false if there is no such waiter.
    fn touch(&mut self, owner: OwnerId, alive_until: Micros) -> Result<bool, Self::Error>;
    /// Takes a waiter out; false if there is no such waiter.
    fn remove(&mut self, owner: OwnerId) -> Result<bool, Self::Error>;
}

/// A queue in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryQueue {
    next: u64,
    places: BTreeMap<OwnerId, u64>,
    waiters: BTreeMap<u64, Waiter>,
}

impl MemoryQueue {
    /// The waiters in order.
    pub fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.values()
    }
}

impl Queue for MemoryQueue {
    type Error = std::convert::Infallible;

    fn first(&self) -> Result<Option<Waiter>, Self::Error> {
        Ok(self.waiters.values().next().cloned())
    }

    fn push(&mut self, waiter: Waiter) -> Result<(), Self::Error> {
        self.places.insert(waiter.owner, self.next);
        self.waiters.insert(self.next, waiter);
        self.next += 1;
        Ok(())
    }

    fn touch(&mut self, owner: OwnerId, alive_until: Micros) -> Result<bool, Self::Error> {
        let waiter = self.places.get(&owner).and_then(|place| self.waiters.get_mut(place));
        Ok(waiter.map(|waiter| waiter.alive_until = alive_until).is_some())
    }

    fn remove(&mut self, owner: OwnerId) -> Result<bool, Self::Error> {
        let place = self.places.remove(&owner);
        Ok(place.and_then(|place| self.waiters.remove(&place)).is_some())
    }
}
