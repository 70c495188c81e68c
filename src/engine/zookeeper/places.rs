//! What is remembered of queues, and what is to be read of them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::claim::Seat;
use crate::name::Name;

/// Of how many names it is remembered who came first.
const MOST: usize = 8192;

/// Where those stand who came first when a name was read last.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<Name, u64>>);

impl Places {
    /// Who came first, if that is known.
    pub(super) fn first_of(&self, name: &Name) -> Option<u64> {
        self.table().get(name).copied()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Name, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody came first, or nobody waits.
    pub(super) fn note(&self, name: &Name, first: Option<&u64>) {
        let mut table = self.table();
        match first {
            Some(first) if table.len() < MOST || table.contains_key(name) => {
                table.insert(name.clone(), *first);
            }
            _ => drop(table.remove(name)),
        }
    }
}

/// What is to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a> {
    pub(super) name: &'a Name,
    /// How many waiters; 0 for all.
    pub(super) most: usize,
    /// The place of one more.
    pub(super) own: Option<u64>,
    /// Sessions that are looked for.
    pub(super) seats: &'a [Seat],
}
