//! Exactly so many in any window, by the time of each request.
//!
//! The state grows with the limit. [`super::sliding_window`] gives the same bound in a fixed space.

use std::collections::VecDeque;

use super::algorithm::{Receipt, Usage};
use super::limit::LATEST;
use crate::claim::Micros;
use crate::kit::bytes::{Reader, Writer};

/// At most `limit` in any period of `period` microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlidingLog {
    pub(super) limit: u32,
    pub(super) period: Micros,
}

pub(super) const TAG: u8 = 0x21;

/// The requests of the last period at a moment.
#[derive(Debug)]
pub(super) struct Log {
    rule: SlidingLog,
    now: Micros,
    used: u32,
    /// When, and how much; oldest first.
    entries: VecDeque<(Micros, u32)>,
}

impl SlidingLog {
    /// `None` if the state is not a log.
    pub(super) fn load(self, state: Option<&[u8]>, now: Micros) -> Option<Log> {
        let mut log = Log { rule: self, now, used: 0, entries: VecDeque::new() };
        let Some(state) = state else { return Some(log) };
        let mut reader = Reader::new(state, TAG)?;
        let mut at = reader.wide().filter(|at| *at < LATEST)?;
        while !reader.is_empty() {
            at = at.checked_add(reader.short()?).filter(|at| *at < LATEST)?;
            log.entries.push_back((at, u32::try_from(reader.short()?).ok()?));
        }
        // The newest is at `at`: a clock that was set back does not make it one of the future.
        log.now = now.max(at);
        while log.entries.front().is_some_and(|(at, _)| at + self.period <= log.now) {
            log.entries.pop_front();
        }
        log.used = log.entries.iter().fold(0, |used, (_, cost)| used.saturating_add(*cost));
        Some(log)
    }
}

impl Usage for Log {
    fn capacity(&self) -> u32 {
        self.rule.limit
    }

    fn now(&self) -> Micros {
        self.now
    }

    fn left(&self) -> u32 {
        self.rule.limit.saturating_sub(self.used)
    }

    fn retry_after(&self, cost: u32) -> Micros {
        // `used` may be above a limit that was lowered.
        let mut missing = u64::from(self.used) + u64::from(cost);
        for (at, used) in &self.entries {
            missing -= u64::from(*used);
            if missing <= u64::from(self.rule.limit) {
                return at + self.rule.period - self.now;
            }
        }
        0
    }

    fn take(&mut self, cost: u32) {
        self.used = self.used.saturating_add(cost);
        match self.entries.back_mut() {
            Some((at, used)) if *at == self.now => *used = used.saturating_add(cost),
            _ => self.entries.push_back((self.now, cost)),
        }
    }

    fn refund(&mut self, receipt: Receipt) {
        if let Some((_, used)) = self.entries.iter_mut().find(|(at, _)| *at == receipt.at) {
            let back = receipt.cost.min(*used);
            *used -= back;
            self.used -= back;
            self.entries.retain(|(_, used)| *used > 0);
        }
    }

    fn reset_after(&self) -> Micros {
        self.entries.back().map_or(0, |(at, _)| at + self.rule.period - self.now)
    }

    fn encode(&self) -> Vec<u8> {
        let first = self.entries.front().map_or(self.now, |(at, _)| *at);
        let mut writer = Writer::new(TAG).wide(first);
        let mut before = first;
        for (at, cost) in &self.entries {
            writer.short(at - before);
            writer.short(u64::from(*cost));
            before = *at;
        }
        writer.done()
    }
}
