//! Rate limits that all processes share.

mod algorithm;
mod bucket;
mod bytes;
mod fixed_window;
mod limit;
mod sliding_log;
mod sliding_window;
#[cfg(test)]
mod tests;

pub use self::algorithm::{Algorithm, Change, Outcome, Receipt, Request, Step};
pub use self::limit::{LONGEST_LOG, LONGEST_PERIOD, Limit, MOST_SLICES};
