//! A circuit breaker: how parts of the kit find out that their engine is away.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Moment;

/// So many calls must fail until the engine counts as away.
const FAILURES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// So many calls in a row must succeed until failures and pauses are forgotten.
const SUCCESSES: u32 = 20;

/// A circuit breaker: an engine that does not answer is asked by nobody who would have to wait for
/// it.
#[derive(Debug, Default)]
pub(crate) struct Breaker(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Failures that are not forgotten.
    failures: u32,
    /// Successes in a row.
    successes: u32,
    /// While it is away: when to try again.
    away_until: Option<Moment>,
    pause: Duration,
}

impl Default for State {
    fn default() -> State {
        State { failures: 0, successes: 0, away_until: None, pause: FIRST_PAUSE }
    }
}

/// Whether the engine may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    Ask,
    /// Not for so long.
    Away(Duration),
    /// Not by a caller: but somebody should try, in the background.
    Probe(Duration),
}

impl Breaker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn permit(&self, now: Moment) -> Permit {
        let mut state = self.state();
        match state.away_until {
            None => Permit::Ask,
            Some(until) if until > now => Permit::Away(until.since(now)),
            Some(_) => {
                // The next may try when this one has had the time to fail.
                let pause = state.pause;
                state.away_until = Some(now + pause);
                Permit::Probe(pause)
            }
        }
    }

    pub(crate) fn succeeded(&self) {
        let mut state = self.state();
        if state.away_until.take().is_some() {
            // One failure is enough now, and the pause stays as long as it was, until it has been
            // back for a while.
            *state = State { failures: FAILURES - 1, successes: 0, away_until: None, pause: state.pause };
        } else {
            state.successes += 1;
            if state.successes >= SUCCESSES {
                *state = State::default();
            }
        }
    }

    pub(crate) fn failed(&self, now: Moment) {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1);
        state.successes = 0;
        if state.failures >= FAILURES {
            if state.away_until.is_some() || state.failures > FAILURES {
                state.pause = (state.pause * 2).min(LONGEST_PAUSE);
            }
            state.away_until = Some(now + state.pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_is_away_is_asked_by_nobody() {
        let at = |millis: u64| Moment::from_micros(millis * 1000);
        let ms = Duration::from_millis;
        let breaker = Breaker::default();
        for _ in 0..FAILURES - 1 {
            breaker.failed(at(0));
            assert_eq!(breaker.permit(at(0)), Permit::Ask);
        }
        breaker.failed(at(0));
        assert_eq!(breaker.permit(at(40)), Permit::Away(ms(60)));
        // One tries; the others do not.
        assert_eq!(breaker.permit(at(100)), Permit::Probe(ms(100)));
        assert_eq!(breaker.permit(at(110)), Permit::Away(ms(90)));
        // It fails: the pause is longer.
        breaker.failed(at(120));
        assert_eq!(breaker.permit(at(120)), Permit::Away(ms(200)));
        let mut now = 120;
        for _ in 0..20 {
            now += 10_000;
            breaker.failed(at(now));
        }
        assert_eq!(breaker.permit(at(now)), Permit::Away(LONGEST_PAUSE));
        // It is back, and one failure is enough to believe that it is not.
        breaker.succeeded();
        assert_eq!(breaker.permit(at(now)), Permit::Ask);
        breaker.failed(at(now));
        assert_eq!(breaker.permit(at(now)), Permit::Away(LONGEST_PAUSE));
        // Until it has answered for a while.
        (0..=SUCCESSES).for_each(|_| breaker.succeeded());
        breaker.failed(at(now));
        assert_eq!(breaker.permit(at(now)), Permit::Ask);
    }

    #[test]
    fn failures_that_are_far_apart_do_not_count() {
        let breaker = Breaker::default();
        for _ in 0..10 {
            breaker.failed(Moment::from_micros(0));
            breaker.failed(Moment::from_micros(0));
            (0..SUCCESSES).for_each(|_| breaker.succeeded());
            assert_eq!(breaker.permit(Moment::from_micros(0)), Permit::Ask);
        }
    }
}
