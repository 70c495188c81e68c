//! What is looked at now and then where nobody is called.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::claim::{OwnerId, OwnerMap};
use crate::name::Name;

/// What is looked at.
#[derive(Debug, Default)]
pub(super) struct Polled {
    held: Mutex<OwnerMap<Arc<[u8]>>>,
    /// What was last seen of a name that is watched, and how often it is.
    watched: Mutex<HashMap<Name, (i64, usize)>>,
    pub(super) running: AtomicBool,
    /// Somebody has waited, watched or held for long.
    pub(super) wanted: AtomicBool,
}

impl Polled {
    pub(super) fn held(&self) -> MutexGuard<'_, OwnerMap<Arc<[u8]>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watched(&self) -> MutexGuard<'_, HashMap<Name, (i64, usize)>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An owner holds a name from now on.
    pub(super) fn hold(&self, owner: OwnerId, key: &[u8]) {
        // Owners that never release pile up: those who lost their names.
        const MOST: usize = 1 << 17;
        let mut held = self.held();
        if held.len() >= MOST {
            held.clear();
        }
        held.insert(owner, key.into());
    }

    /// It does not any more.
    pub(super) fn let_go(&self, owner: OwnerId) {
        self.held().remove(&owner);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.held().is_empty() && self.watched().is_empty()
    }
}
