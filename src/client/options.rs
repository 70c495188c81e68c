//! What can be chosen for a client.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};

/// The lease of a lock that does not say.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// The shortest lease.
pub const SHORTEST_LEASE: Duration = Duration::from_millis(10);
/// The longest lease. A longer hold needs no longer lease: leases renew themselves.
pub const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest label, in bytes: it is written down with every claim.
pub const LONGEST_LABEL: usize = 256;

/// How a client behaves. The defaults suit nearly everybody.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) lease: Duration,
    pub(crate) label: String,
    pub(crate) call_limit: Duration,
    pub(crate) hand_over: Option<Duration>,
    pub(crate) hand_over_tokens: u32,
    pub(crate) clock: Arc<dyn Clock>,
    /// The clock was chosen and is not the default.
    pub(crate) clock_chosen: bool,
    #[cfg(feature = "metrics")]
    pub(crate) metrics_by_name: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            lease: DEFAULT_LEASE,
            label: String::new(),
            call_limit: Duration::from_secs(5),
            hand_over: Some(Duration::from_millis(50)),
            hand_over_tokens: 65,
            clock: Arc::new(SystemClock),
            clock_chosen: false,
            #[cfg(feature = "metrics")]
            metrics_by_name: false,
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// The lease of locks that do not say: 30 seconds by default, from 10 milliseconds to a day.
    ///
    /// It is how long others wait after this process was cut off or paused, not how long a name can
    /// be held.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Options {
        self.lease = lease;
        self
    }

    /// What holders are called for humans, beside host and process: at most [`LONGEST_LABEL`]
    /// bytes. Empty by default.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Options {
        self.label = label.into();
        self
    }

    /// How long the engine has to answer one call: 5 seconds by default. [`crate::Guard::release`]
    /// and [`crate::Client::close`] take no longer than this either.
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Options {
        self.call_limit = limit;
        self
    }

    /// How long, and how many times in a row, a name may go from task to task inside this process
    /// before waiters of other processes come first: 50 milliseconds and 64 times by default.
    ///
    /// `Duration::ZERO` switches the local queue off: every caller asks the engine itself and is
    /// served strictly in the engine's order.
    #[must_use]
    pub fn hand_over(mut self, time: Duration, times: u32) -> Options {
        self.hand_over = (!time.is_zero() && times > 0).then_some(time);
        self.hand_over_tokens = times.saturating_add(1);
        self
    }

    /// Gives the metrics of this client the name as a label, beside engine and family.
    ///
    /// Only for programs with few names: each is a time series of its own, for ever.
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    #[must_use]
    pub fn metrics_by_name(mut self) -> Options {
        self.metrics_by_name = true;
        self
    }

    /// The clock that deadlines are counted on, for tests: the machine's by default.
    ///
    /// A test with paused time (`tokio::time::pause`, `#[tokio::test(start_paused = true)]`) needs
    /// [`TokioClock`](crate::TokioClock), which stands still and jumps with it. A client that is
    /// made while time is paused and has no such clock is refused. Engines outside the process
    /// (`file:` and servers) can not be used with paused time: tokio skips the time in which they
    /// would answer.
    ///
    /// # Examples
    ///
    /// ```
    /// use leasehold::{Options, TokioClock};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// tokio::time::pause();
    /// let options = Options::new().clock(TokioClock::new());
    /// let client = leasehold::connect_with("memory:", options).await?;
    /// let guard = client.mutex("stock/42")?.lock().await?;
    /// tokio::time::sleep(std::time::Duration::from_secs(3600)).await; // an hour, at once
    /// assert!(guard.is_held()); // renewed all the while
    /// # guard.release().await
    /// # }
    /// ```
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Options {
        self.clock_chosen = true;
        self.clock = Arc::new(clock);
        self
    }
}

pub(crate) fn check_label(label: &str) -> Result<()> {
    if label.len() <= LONGEST_LABEL {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the label is {} bytes long, more than the {LONGEST_LABEL} that are allowed; shorten it",
        label.len()
    )))
}

pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    if (SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a lease of {lease:?} is out of range: from {SHORTEST_LEASE:?} to {LONGEST_LEASE:?} (leases renew \
         themselves, so a long hold needs no long lease)"
    )))
}
