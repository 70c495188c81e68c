//! Requests of one process on one name, one after the other.
//!
//! Two requests that read the same row would both want to replace it, and one of them would have to
//! do it again. Inside a process that can be avoided.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

/// The names that are being worked on.
#[derive(Debug, Default)]
pub(crate) struct Gates(Mutex<HashMap<Vec<u8>, Weak<tokio::sync::Mutex<()>>>>);

/// The right to work on a name, until it is dropped.
#[derive(Debug)]
pub(crate) struct Passed<'a> {
    gates: &'a Gates,
    key: &'a [u8],
    guard: Option<OwnedMutexGuard<()>>,
}

impl Gates {
    fn table(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Weak<tokio::sync::Mutex<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else in this process works on the name. First come, first served.
    pub(crate) async fn pass<'a>(&'a self, key: &'a [u8]) -> Passed<'a> {
        let gate = {
            let mut table = self.table();
            match table.get(key).and_then(Weak::upgrade) {
                Some(gate) => gate,
                None => {
                    let gate = Arc::default();
                    table.insert(key.to_vec(), Arc::downgrade(&gate));
                    gate
                }
            }
        };
        // Made before the wait: dropped while it waits, it clears up too.
        let mut passed = Passed { gates: self, key, guard: None };
        passed.guard = Some(gate.lock_owned().await);
        passed
    }
}

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut table = self.gates.table();
        if table.get(self.key).is_some_and(|gate| gate.strong_count() == 0) {
            table.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_on_a_name_and_nothing_is_left() {
        let gates = Gates::default();
        let first = gates.pass(b"x").await;
        let other = gates.pass(b"y").await;
        let second = tokio::time::timeout(Duration::from_secs(1), gates.pass(b"x")).await;
        assert!(second.is_err(), "the first is still at it");
        drop((first, other));
        gates.pass(b"x").await;
        assert!(gates.table().is_empty());
    }
}
