//! What time it is at the database, as far as this client knows.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::claim::Micros;
use crate::clock::{Clock as _, SystemClock};

/// The database's clock, as it was last heard.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    /// Its clock less ours. 0 until it was heard: our clock counts from when the machine booted, so
    /// everything is then too late, and those who ask take the long way.
    ahead: AtomicI64,
}

impl ServerClock {
    /// Notes a time that the database has just told.
    pub(crate) fn heard(&self, now: Micros) {
        self.ahead.store(now.cast_signed() - local(), Ordering::Relaxed);
    }

    /// The time at the database in so long. Rather too early than too late: the answer that told
    /// the time was under way.
    pub(crate) fn after(&self, time: Duration) -> Micros {
        let now = self.ahead.load(Ordering::Relaxed) + local();
        let time = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        now.saturating_add(time).max(0).cast_unsigned()
    }
}

fn local() -> i64 {
    SystemClock.now().as_micros().cast_signed()
}
