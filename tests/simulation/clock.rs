//! The clocks of the clients: each runs as it likes, within what the library promises to stand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Clock, Moment};
use tokio::time::Instant;

/// A clock that runs a little too fast or too slow, and jumps forward when it is told to.
#[derive(Clone, Debug)]
pub(crate) struct DriftingClock {
    zero: Instant,
    /// Of 1000.
    rate: u64,
    jumped: Arc<AtomicU64>,
}

impl DriftingClock {
    pub(crate) fn new(rate: u64) -> DriftingClock {
        DriftingClock { zero: Instant::now(), rate, jumped: Arc::default() }
    }

    /// Of 1000.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    pub(crate) fn jump(&self, by: Duration) {
        self.jumped.fetch_add(u64::try_from(by.as_micros()).expect("not for ever"), Ordering::Relaxed);
    }

    /// By how much it has jumped.
    pub(crate) fn jumped(&self) -> Duration {
        Duration::from_micros(self.jumped.load(Ordering::Relaxed))
    }

    /// How long this clock takes to show that `time` has passed, and a little more.
    pub(crate) fn takes(&self, time: Duration) -> Duration {
        time.max(time.mul_f64(1000.0 / self.rate as f64))
    }
}

impl Clock for DriftingClock {
    fn now(&self) -> Moment {
        let elapsed = u64::try_from(self.zero.elapsed().as_micros()).expect("not for ever");
        Moment::from_micros(1 + elapsed * self.rate / 1000 + self.jumped.load(Ordering::Relaxed))
    }
}
