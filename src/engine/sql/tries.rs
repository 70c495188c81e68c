//! Pauses between the tries of a request that others are in the way of.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::database::{Attempt, Failure};
use crate::error::Error;
use crate::random;

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The pauses between tries of one request.
#[derive(Debug)]
pub(super) struct Tries {
    pub(super) started: Instant,
    pause: Duration,
    limit: Duration,
}

impl Tries {
    pub(super) fn new(limit: Duration) -> Tries {
        Tries { started: Instant::now(), pause: FIRST_PAUSE, limit }
    }

    /// What is left of the time for the request.
    pub(super) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.started.elapsed())
    }

    /// Waits for a moment, up to half as long again and growing; `error` if it has taken too long.
    pub(super) async fn again(&mut self, error: impl FnOnce() -> Error) -> Attempt<()> {
        if self.left() < self.pause {
            return Err(Failure::Conflict(error()));
        }
        sleep(jitter(self.pause)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// Up to half as long again.
pub(crate) fn jitter(pause: Duration) -> Duration {
    const STEPS: u64 = 1024;
    let share = random::number().unwrap_or(0) % STEPS;
    pause + pause.mul_f64(share as f64 / (2 * STEPS) as f64)
}
