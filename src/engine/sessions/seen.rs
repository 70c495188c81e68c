//! What this client knows of names that many want: as they were when it wrote them, or was handed
//! them.
//!
//! Where a name changes hands all the time, reading it before each write would be half of the work.
//! What is remembered may be out of date. It is used for writes only, which find out and bring how
//! it is now, and only for a short time: then reading is cheaper than guessing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::found::Found;
use crate::clock::Moment;
use crate::name::Name;

/// How many names are remembered.
const MOST: usize = 1024;
/// For how long. Whoever waits says so again from time to time, and is believed to be gone if it
/// does not: what is known of waiters must not be older than this.
const KEPT: Duration = Duration::from_secs(1);

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<HashMap<Name, (Found, Moment)>>);

impl Seen {
    fn table(&self) -> MutexGuard<'_, HashMap<Name, (Found, Moment)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers how a name is.
    pub(crate) fn note(&self, name: &Name, found: Found, now: Moment) {
        let mut table = self.table();
        if table.get(name).is_some_and(|(other, _)| other.version.written > found.version.written) {
            return;
        }
        if table.len() >= MOST {
            table.retain(|_, (_, since)| *since + KEPT > now);
        }
        if table.len() < MOST || table.contains_key(name) {
            table.insert(name.clone(), (found, now));
        }
    }

    /// How a name was not longer than `within` ago, at most once.
    pub(crate) fn take(&self, name: &Name, within: Duration, now: Moment) -> Option<Found> {
        let (found, since) = self.table().remove(name)?;
        (since + within.min(KEPT) > now).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sessions::found::Known;
    use crate::engine::sessions::version::Version;
    use crate::name::Family;

    #[test]
    fn what_is_old_is_not_used() {
        let (seen, name) = (Seen::default(), Name::new(Family::Lock, "a").unwrap());
        let at = |millis: u64| Moment::from_micros(millis * 1000);
        let found = |written| Found::remembered(Known::default(), Version { written, count: 0 }, 0);
        seen.note(&name, found(7), at(0));
        seen.note(&name, found(6), at(1));
        assert_eq!(seen.take(&name, KEPT, at(10)).map(|found| found.version.written), Some(7));
        assert!(seen.take(&name, KEPT, at(10)).is_none(), "used once");
        seen.note(&name, found(8), at(20));
        assert!(seen.take(&name, Duration::from_millis(5), at(30)).is_none());
        seen.note(&name, found(9), at(40));
        assert!(seen.take(&name, Duration::from_secs(60), at(1041)).is_none());
    }
}
