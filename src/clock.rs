//! The clock that deadlines are counted on.
//!
//! It must run while the machine sleeps, or a laptop that wakes up would believe in leases that
//! ended hours ago. On Linux that is `CLOCK_BOOTTIME`; `std::time::Instant` stops during suspend.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Once;
use std::time::{Duration, Instant};

/// A point in time on a [`Clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// A moment that never comes.
    pub const NEVER: Moment = Moment(u64::MAX);

    /// The moment that many microseconds after the clock's zero.
    pub const fn from_micros(micros: u64) -> Moment {
        Moment(micros)
    }

    /// Microseconds after the clock's zero.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment; zero if it is not earlier.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, duration: Duration) -> Moment {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(micros))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;

    fn sub(self, duration: Duration) -> Moment {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_sub(micros))
    }
}

/// A clock that never goes back.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Moment;
}

/// The machine's clock since it booted, sleep included.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        // On macOS and the BSDs this clock includes sleep.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

        let now = rustix::time::clock_gettime(CLOCK);
        Moment(now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000)
    }
}

/// Tokio's clock, for tests that pause time with `tokio::time::pause`: see
/// [`crate::Options::clock`].
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    zero: tokio::time::Instant,
}

impl TokioClock {
    /// A clock that starts now.
    pub fn new() -> TokioClock {
        TokioClock { zero: tokio::time::Instant::now() }
    }
}

impl Default for TokioClock {
    fn default() -> TokioClock {
        TokioClock::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment(1) + self.zero.elapsed()
    }
}

/// Sleeps until a moment on the clock.
///
/// Timers do not run while the machine sleeps, so a long sleep is taken in slices and the clock is
/// asked after each.
pub(crate) async fn sleep_until(clock: &dyn Clock, moment: Moment) {
    const SLICE: Duration = Duration::from_secs(1);
    loop {
        let left = moment.since(clock.now());
        if left.is_zero() {
            return;
        }
        let slice = left.min(SLICE);
        let started = Instant::now();
        tokio::time::sleep(slice).await;
        // Tokio skipped the time, and our clock did not: this loop would turn until the real time
        // has passed.
        if started.elapsed() < slice / 2 && moment.since(clock.now()) > left - slice / 2 {
            warn_of_paused_time();
        }
    }
}

/// True while tokio's time stands still in this runtime, as in tests with paused time.
pub(crate) fn tokio_time_is_paused() -> bool {
    let (before, started) = (tokio::time::Instant::now(), Instant::now());
    // At most some nanoseconds: until the machine's own clock shows that time has passed.
    while Instant::now() == started {
        std::hint::spin_loop();
    }
    tokio::time::Instant::now() == before
}

#[cold]
fn warn_of_paused_time() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            target: "leasehold",
            "tokio's time is paused, and a client counts leases by another clock; connect with \
             `Options::new().clock(TokioClock::new())`"
        );
    });
}
