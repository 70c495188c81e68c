//! Rate limits that all processes share.
//!
//! A [`Limiter`] lets so much pass in a time, for each key: requests of a user, mails to a host.
//! The engine keeps the count and its clock decides, so all processes together keep the limit. Each
//! limit is a pure rule with a bound that is checked on generated schedules: see [`Limit`].
//!
//! * A refusal costs nothing and says when to come back, to the microsecond. What can never pass is
//!   [`Verdict::Impossible`].
//! * A clock that is set back gives nothing away. One that is set forward gives at most a full
//!   bucket per key.
//! * Nothing stays in the store for longer than it counts.
//! * While the engine is away, verdicts are made as [`WhenAway`] says, without waiting, and say so.
//!
//! It does not order those who wait: it is no queue. An answer that is lost may have been counted.

mod algorithm;
mod away;
mod batch;
mod bounded;
mod bucket;
mod fixed_window;
mod limit;
mod limiter;
mod rule;
mod share;
mod shared;
mod sliding_log;
mod sliding_window;
mod stored;
#[cfg(test)]
mod tests;
mod together;
mod verdict;

pub use self::algorithm::{Algorithm, Change, Outcome, Receipt, Request, Step};
pub use self::away::WhenAway;
pub use self::limit::{LONGEST_LOG, LONGEST_PERIOD, Limit, MOST_SLICES};
pub use self::limiter::{DEFAULT_DEADLINE, DEFAULT_KEYS, Limiter, Limits};
pub use self::rule::{Decide, Decided};
pub use self::stored::StoredLimit;
pub use self::verdict::{Allowed, Mode, Quota, Verdict};
