//! The part of a limit that a process gives out by itself while the engine is away.

use std::time::Duration;

use super::algorithm::{Algorithm, Outcome, Receipt, Request};
use super::bounded::Bounded;
use super::limit::Limit;
use super::rule::{Decide, Decided};
use crate::client::cell::TypedRule as _;
use crate::clock::Moment;
use crate::engine::{Rule as _, Write};

/// Limits that this process decides alone.
#[derive(Debug)]
pub(super) struct Share {
    /// `None` if the part is less than one.
    algorithms: Option<Vec<Algorithm>>,
    states: Bounded<Vec<Option<Vec<u8>>>>,
}

impl Share {
    pub(super) fn new<'a>(limits: impl Iterator<Item = &'a Limit>, nodes: u32, most: usize) -> Share {
        Share { algorithms: limits.map(|limit| limit.share(nodes)).collect(), states: Bounded::new(most) }
    }

    /// Decides. `None` if this process has no part of the limit, or no room for another key:
    /// nothing may pass that is not counted.
    pub(super) fn take(&mut self, key: &str, cost: u32, now: Moment) -> Option<Vec<Outcome>> {
        self.run(key, now, |_| Request::Take { least: cost, most: cost })
    }

    pub(super) fn refund(&mut self, key: &str, receipts: &[Receipt], now: Moment) {
        self.run(key, now, |number| {
            receipts.get(number).map_or(Request::Peek(0), |one| Request::Refund(*one))
        });
    }

    pub(super) fn forget(&mut self, key: &str) {
        self.states.remove(key);
    }

    fn run(&mut self, key: &str, now: Moment, request: impl Fn(usize) -> Request) -> Option<Vec<Outcome>> {
        let algorithms = self.algorithms.as_ref()?;
        let parts = algorithms.iter().enumerate().map(|(number, one)| (*one, request(number)));
        let rule = Decide::new(parts.collect());
        let mut states = self.states.get(key, now).map(|(_, states)| states.clone()).unwrap_or_default();
        states.resize(algorithms.len(), None);
        let values: Vec<Option<&[u8]>> = states.iter().map(Option::as_deref).collect();
        let decision = rule.step(&values, now.as_micros());
        let Some(Decided::Outcomes(outcomes)) = rule.read(&decision.answer) else { return None };
        if decision.writes.is_empty() {
            return Some(outcomes);
        }
        let mut until = now;
        for (state, write) in states.iter_mut().zip(decision.writes) {
            match write {
                Write::Keep => {}
                Write::Delete => *state = None,
                Write::Put(value) => {
                    until = until.max(now + value.lives);
                    *state = Some(value.bytes);
                }
            }
        }
        // A state that was kept may live for longer than those that were written.
        let until = self.states.get(key, now).map_or(until, |(before, _)| until.max(before));
        self.states.put(key, states, now, until.max(now + Duration::from_micros(1))).then_some(outcomes)
    }
}
