//! A table in this process, on paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::engine::{AfterDeath, Reach};

use crate::bench::{Bench, Promises, Setup};

pub(crate) fn setups() -> Vec<Arc<dyn Setup>> {
    vec![Arc::new(Memory)]
}

struct Memory;

impl Setup for Memory {
    fn word(&self) -> &'static str {
        "memory"
    }

    fn promises(&self) -> Promises {
        Promises::everything("memory", Reach::Process, AfterDeath::AtOnce)
    }

    fn paused_time(&self) -> bool {
        true
    }

    fn start(&self) -> Box<dyn Bench> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Box::new(Table(COUNT.fetch_add(1, Ordering::Relaxed)))
    }
}

/// A table by its number.
struct Table(u64);

impl Bench for Table {
    fn url(&self) -> String {
        format!("memory:case-{}", self.0)
    }
}
