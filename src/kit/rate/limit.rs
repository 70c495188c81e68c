//! Which limit: how much in which time, by which algorithm.

use std::time::Duration;

use super::algorithm::{Algorithm, Shape};
use super::bucket::{Bucket, Kind};
use super::fixed_window::FixedWindow;
use super::sliding_log::SlidingLog;
use super::sliding_window::SlidingWindow;
use crate::claim::Micros;
use crate::error::{Error, Result};

/// The longest period of a limit.
pub const LONGEST_PERIOD: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);
/// The highest limit of [`Limit::sliding_log`], which keeps the time of each request.
pub const LONGEST_LOG: u32 = 4096;
/// The most slices of [`Limit::sliding_window`].
pub const MOST_SLICES: u32 = 100;

/// The largest amount in the state of a bucket. A number in Lua is exact up to four times that, so
/// sums and remainders are exact too.
pub(super) const LARGEST: u64 = 1 << 51;
/// No time in a state is as late as this: a number in Lua is exact up to here.
pub(super) const LATEST: Micros = 1 << 53;

const SECOND: Duration = Duration::from_secs(1);
const DEFAULT_SLICES: u32 = 10;

/// How much may pass in which time, and by which algorithm that is decided.
///
/// | | at most, in any period | kept per key |
/// | --- | --- | --- |
/// | [`token_bucket`](Limit::token_bucket) | burst + amount, and burst + rate × t in any time t | 22 bytes |
/// | [`fixed_window`](Limit::fixed_window) | twice the amount | 12 bytes |
/// | [`sliding_log`](Limit::sliding_log) | exactly the amount | some bytes per request |
/// | [`sliding_window`](Limit::sliding_window) | never more than the amount; comes back up to a slice late | some bytes per slice |
/// | [`leaky_bucket`](Limit::leaky_bucket) | goes evenly: one per interval | 22 bytes |
///
/// # Examples
///
/// ```
/// use leasehold::kit::rate::Limit;
/// use std::time::Duration;
///
/// let steady = Limit::per_second(100).burst(20);
/// let strict = Limit::sliding_window(1000, Duration::from_secs(24 * 60 * 60));
/// let shaper = Limit::leaky_bucket(10, Duration::from_secs(1)).queue(50);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    amount: u32,
    period: Duration,
    by: By,
    pub(super) batch: Option<Batch>,
    /// The first option that was given and does not belong to the algorithm.
    misplaced: Option<&'static str>,
}

/// By which algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    TokenBucket { burst: Option<u32> },
    FixedWindow,
    SlidingLog,
    SlidingWindow { slices: u32 },
    LeakyBucket { queue: Option<u32> },
}

/// Tokens that a process takes in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) size: u32,
    pub(super) hold: Duration,
}

impl Limit {
    fn new(amount: u32, period: Duration, by: By) -> Limit {
        Limit { amount, period, by, batch: None, misplaced: None }
    }

    /// A token bucket with `amount` tokens a second: see [`Limit::token_bucket`].
    pub fn per_second(amount: u32) -> Limit {
        Limit::token_bucket(amount, SECOND)
    }

    /// A token bucket with `amount` tokens a minute: see [`Limit::token_bucket`].
    pub fn per_minute(amount: u32) -> Limit {
        Limit::token_bucket(amount, 60 * SECOND)
    }

    /// A token bucket with `amount` tokens an hour: see [`Limit::token_bucket`].
    pub fn per_hour(amount: u32) -> Limit {
        Limit::token_bucket(amount, 60 * 60 * SECOND)
    }

    /// A token bucket with `amount` tokens a day: see [`Limit::token_bucket`].
    pub fn per_day(amount: u32) -> Limit {
        Limit::token_bucket(amount, 24 * 60 * 60 * SECOND)
    }

    /// A token bucket (GCRA): `amount` tokens come back in each `period`, one by one. There are at
    /// most as many as [`Limit::burst`] says, by default `amount`.
    ///
    /// In any time t at most burst + amount × t / period pass. So with the default burst twice the
    /// amount can pass in one period: a full bucket, and what comes back meanwhile. Choose a small
    /// burst, or [`Limit::sliding_window`], where that is too much.
    pub fn token_bucket(amount: u32, period: Duration) -> Limit {
        Limit::new(amount, period, By::TokenBucket { burst: None })
    }

    /// At most `amount` in a window that starts with its first request and lasts for `period`.
    ///
    /// Twice the amount can pass in a moment: at the end of one window and at the start of the
    /// next.
    pub fn fixed_window(amount: u32, period: Duration) -> Limit {
        Limit::new(amount, period, By::FixedWindow)
    }

    /// Exactly `amount` in any `period`, because the time of each request is kept. The amount is at
    /// most [`LONGEST_LOG`].
    pub fn sliding_log(amount: u32, period: Duration) -> Limit {
        Limit::new(amount, period, By::SlidingLog)
    }

    /// Never more than `amount` in any `period`. What was used comes back up to a tenth of the
    /// period late; [`Limit::slices`] makes that finer.
    pub fn sliding_window(amount: u32, period: Duration) -> Limit {
        Limit::new(amount, period, By::SlidingWindow { slices: DEFAULT_SLICES })
    }

    /// A leaky bucket, or shaper: `amount` go in each `period`, evenly. Whoever comes early is told
    /// how long to wait; how many can wait says [`Limit::queue`], by default `amount`.
    pub fn leaky_bucket(amount: u32, period: Duration) -> Limit {
        Limit::new(amount, period, By::LeakyBucket { queue: None })
    }

    /// The most tokens that a token bucket can have.
    #[must_use]
    pub fn burst(mut self, tokens: u32) -> Limit {
        match &mut self.by {
            By::TokenBucket { burst } => *burst = Some(tokens),
            _ => self.misplace("burst"),
        }
        self
    }

    /// How many can wait in a leaky bucket, beside the one that goes.
    #[must_use]
    pub fn queue(mut self, places: u32) -> Limit {
        match &mut self.by {
            By::LeakyBucket { queue } => *queue = Some(places),
            _ => self.misplace("queue"),
        }
        self
    }

    /// Into how many slices a sliding window is cut: from 1 to [`MOST_SLICES`], 10 by default.
    #[must_use]
    pub fn slices(mut self, number: u32) -> Limit {
        match &mut self.by {
            By::SlidingWindow { slices } => *slices = number,
            _ => self.misplace("slices"),
        }
        self
    }

    /// Lets each process take up to `size` at once and give them out by itself for up to `hold`.
    ///
    /// The bound of the limit stays what it is. For that, all who share the limit must say the same
    /// here, and it costs a part of the limit: the burst of a token bucket is lower by what comes
    /// back during `hold`, and a sliding window or log is longer by `hold`. A fixed window costs
    /// nothing.
    ///
    /// A process that takes a batch and then needs no more of it strands up to `size` tokens per
    /// key for up to `hold`. A leaky bucket can not do this.
    #[must_use]
    pub fn batches(mut self, size: u32, hold: Duration) -> Limit {
        match self.by {
            By::LeakyBucket { .. } => self.misplace("batches"),
            _ => self.batch = Some(Batch { size, hold }),
        }
        self
    }

    fn misplace(&mut self, option: &'static str) {
        self.misplaced.get_or_insert(option);
    }

    /// How much in [`Limit::period`].
    pub fn amount(&self) -> u32 {
        self.amount
    }

    /// The time that [`Limit::amount`] is for.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// What decides.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a number is out of range, or an option does not belong to the
    /// algorithm.
    pub fn algorithm(&self) -> Result<Algorithm> {
        if let Some(option) = self.misplaced {
            return Err(Error::invalid(format!("`{option}` is not an option of a {}", self.word())));
        }
        if self.amount == 0 {
            return Err(Error::invalid("a limit of 0 would never let anything pass; give at least 1"));
        }
        if self.period < Duration::from_micros(1) || self.period > LONGEST_PERIOD {
            return Err(Error::invalid(format!(
                "a limit per {:?} is out of range: from a microsecond to ten years",
                self.period
            )));
        }
        let hold = self.hold()?;
        let period = micros(self.period);
        Ok(Algorithm(match self.by {
            By::TokenBucket { burst } => self.bucket(burst.unwrap_or(self.amount), hold, Kind::Token)?,
            By::LeakyBucket { queue } => {
                let queue = queue.unwrap_or(self.amount);
                self.bucket(queue.saturating_add(1), 0, Kind::Leaky)?
            }
            By::FixedWindow => Shape::FixedWindow(FixedWindow { limit: self.amount, period }),
            By::SlidingLog => {
                if self.amount > LONGEST_LOG {
                    return Err(Error::invalid(format!(
                        "a sliding log keeps the time of each request, of at most {LONGEST_LOG}; for {} \
                         use a sliding window",
                        self.amount
                    )));
                }
                Shape::SlidingLog(SlidingLog { limit: self.amount, period: period + hold })
            }
            By::SlidingWindow { slices } => {
                if slices == 0 || slices > MOST_SLICES {
                    return Err(Error::invalid(format!(
                        "{slices} slices are out of range: from 1 to {MOST_SLICES}"
                    )));
                }
                let width = (period + hold).div_ceil(u64::from(slices));
                Shape::SlidingWindow(SlidingWindow { limit: self.amount, slices, width })
            }
        }))
    }

    fn bucket(&self, burst: u32, hold: Micros, kind: Kind) -> Result<Shape> {
        // What comes back while a batch is held could be taken beside it.
        let meanwhile =
            (u128::from(self.amount) * u128::from(hold)).div_ceil(u128::from(micros(self.period)));
        let reserved = u32::try_from(meanwhile).unwrap_or(u32::MAX);
        if reserved >= burst {
            return Err(Error::invalid(match reserved {
                0 => "a burst of 0 would never let anything pass; give at least 1".to_owned(),
                _ => format!(
                    "{reserved} tokens come back while a batch is held, and the burst is only {burst}; hold \
                     batches for a shorter time, or give a larger burst"
                ),
            }));
        }
        let bucket = Bucket::new(self.amount, micros(self.period), burst - reserved, kind);
        bucket.map(Shape::Bucket).ok_or_else(|| {
            Error::invalid(format!(
                "it would take more than 70 years until {burst} tokens have come back at {} per {:?}",
                self.amount, self.period
            ))
        })
    }

    /// How long a batch is held, in microseconds.
    fn hold(&self) -> Result<Micros> {
        let Some(Batch { size, hold }) = self.batch else { return Ok(0) };
        if size == 0 || hold.is_zero() || hold > self.period {
            return Err(Error::invalid(format!(
                "batches of {size} held for {hold:?} are out of range: at least 1, for at most the period of \
                 the limit"
            )));
        }
        Ok(micros(hold))
    }

    /// The part of this limit that one of `nodes` processes may give out by itself. `None` if that
    /// is less than one.
    pub(super) fn share(&self, nodes: u32) -> Option<Algorithm> {
        let nodes = nodes.max(1);
        let part = |whole: u32| (whole / nodes > 0).then_some(whole / nodes);
        let mut share = Limit { batch: None, ..self.clone() };
        match &mut share.by {
            // The rate is shared by a longer period, so that nothing is rounded.
            By::TokenBucket { burst } => {
                *burst = Some(part(burst.unwrap_or(self.amount))?);
                share.period = self.period.checked_mul(nodes)?;
            }
            By::LeakyBucket { queue } => {
                *queue = Some(part(queue.unwrap_or(self.amount).saturating_add(1))? - 1);
                share.period = self.period.checked_mul(nodes)?;
            }
            By::FixedWindow | By::SlidingLog | By::SlidingWindow { .. } => share.amount = part(self.amount)?,
        }
        share.algorithm().ok()
    }

    fn word(&self) -> &'static str {
        match self.by {
            By::TokenBucket { .. } => "token bucket",
            By::FixedWindow => "fixed window",
            By::SlidingLog => "sliding log",
            By::SlidingWindow { .. } => "sliding window",
            By::LeakyBucket { .. } => "leaky bucket",
        }
    }
}

/// Rounded up: what is limited is rather limited for longer.
fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}
