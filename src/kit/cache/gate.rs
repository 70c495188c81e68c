//! What stands before the loader: a limit of loads at once (a bulkhead), and a pause after failures
//! (a circuit breaker).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::clock::Moment;

/// So many loads in a row must fail until none is begun.
const FAILURES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Gate {
    loads: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Failures since the last success.
    failures: u32,
    closed_until: Option<Moment>,
    pause: Duration,
}

const OPEN: State = State { failures: 0, closed_until: None, pause: FIRST_PAUSE };

impl Gate {
    pub(super) fn new(loads_at_once: usize) -> Gate {
        let loads = Semaphore::new(loads_at_once.clamp(1, Semaphore::MAX_PERMITS));
        Gate { loads, state: Mutex::new(OPEN) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long no load may begin, if so.
    pub(super) fn closed_for(&self, now: Moment) -> Option<Duration> {
        self.state().closed_until.filter(|until| *until > now).map(|until| until.since(now))
    }

    /// Begins a load, or tells how long none may. When a pause is over one may begin; the next have
    /// to wait for what comes of it.
    pub(super) fn begin(&self, now: Moment) -> Result<(), Duration> {
        let mut state = self.state();
        match state.closed_until {
            Some(until) if until > now => Err(until.since(now)),
            Some(_) => {
                state.closed_until = Some(now + state.pause);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Waits for one of the places of those who load.
    pub(super) async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.loads.acquire().await.ok()
    }

    pub(super) fn succeeded(&self) {
        *self.state() = OPEN;
    }

    pub(super) fn failed(&self, now: Moment) {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1);
        if state.failures >= FAILURES {
            if state.failures > FAILURES {
                state.pause = (state.pause * 2).min(LONGEST_PAUSE);
            }
            state.closed_until = Some(now + state.pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_that_fails_is_left_alone_and_tried_by_one() {
        let at = |millis: u64| Moment::from_micros(millis * 1000);
        let ms = Duration::from_millis;
        let gate = Gate::new(1);
        for _ in 0..FAILURES - 1 {
            gate.failed(at(0));
            assert_eq!(gate.closed_for(at(0)), None);
        }
        gate.failed(at(0));
        assert_eq!(gate.closed_for(at(40)), Some(ms(60)));
        assert_eq!(gate.begin(at(40)), Err(ms(60)));
        // One tries; the others do not. Who only looks does not count.
        assert_eq!((gate.closed_for(at(100)), gate.closed_for(at(100))), (None, None));
        assert_eq!(gate.begin(at(100)), Ok(()));
        assert_eq!(gate.closed_for(at(110)), Some(ms(90)));
        gate.failed(at(120));
        assert_eq!(gate.closed_for(at(120)), Some(ms(200)));
        for now in 1..20 {
            gate.failed(at(now * 10_000));
        }
        assert_eq!(gate.closed_for(at(190_000)), Some(LONGEST_PAUSE));
        gate.succeeded();
        assert_eq!(gate.closed_for(at(190_000)), None);
        // Failures count only in a row.
        for _ in 0..3 {
            gate.failed(at(0));
            gate.succeeded();
            gate.failed(at(0));
        }
        assert_eq!(gate.closed_for(at(0)), None);
    }
}
