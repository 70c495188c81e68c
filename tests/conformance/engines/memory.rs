//! A table in this process, on paused time.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::engine::{AfterDeath, Reach};

use crate::setup::{Bench, Promises, Setup};

pub(crate) fn setups() -> Vec<Setup> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let promises = Promises::everything("memory", Reach::Process, AfterDeath::AtOnce);
    let setup = Setup::new("memory", promises, || Table(COUNT.fetch_add(1, Ordering::Relaxed)));
    vec![Setup { paused_time: true, ..setup }]
}

/// A table by its number.
struct Table(u64);

impl Bench for Table {
    fn url(&self) -> String {
        format!("memory:case-{}", self.0)
    }
}
