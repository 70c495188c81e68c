//! Names that this client has left free, and how: the next one who asks for them need not look.
//!
//! A version counts the writes to one node. A node that nobody uses is deleted some minutes after
//! it was last written, and the versions of the next one start again. So what is remembered is good
//! for much less than that: later it might be the version of another node, which somebody uses.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::sessions::store::Version;
use crate::name::Name;

/// How many names are remembered, and for how long.
const MOST: usize = 8192;
pub(super) const KEPT: Duration = Duration::from_secs(60);

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Free(Mutex<HashMap<Name, (Version, Moment)>>);

impl Free {
    fn table(&self) -> MutexGuard<'_, HashMap<Name, (Version, Moment)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name was left free by a write that was sent then.
    pub(super) fn note(&self, name: &Name, version: Version, sent: Moment) {
        let mut table = self.table();
        if table.len() >= MOST {
            table.retain(|_, (_, since)| *since + KEPT > sent);
        }
        if table.len() < MOST || table.contains_key(name) {
            table.insert(name.clone(), (version, sent));
        }
    }

    /// It is not free, or not in that way.
    pub(super) fn forget(&self, name: &Name) {
        self.table().remove(name);
    }

    /// How it was left, if that is known and not long ago.
    pub(super) fn version(&self, name: &Name, now: Moment) -> Option<Version> {
        let (version, since) = *self.table().get(name)?;
        (since + KEPT > now).then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Family;

    #[test]
    fn what_is_old_is_not_believed() {
        let (free, name) = (Free::default(), Name::new(Family::Lock, "x").unwrap());
        let at = |seconds: u64| Moment::from_micros(seconds * 1_000_000);
        let version = Version { written: 7, count: 3 };
        free.note(&name, version, at(100));
        assert_eq!(free.version(&name, at(159)), Some(version));
        assert_eq!(free.version(&name, at(160)), None);
        free.note(&name, version, at(200));
        free.forget(&name);
        assert_eq!(free.version(&name, at(200)), None);
    }
}
