//! At most so many in a window that starts with its first request.
//!
//! The cheapest rule, and the weakest: two windows that touch let twice the limit through in a
//! moment.

use super::algorithm::{Receipt, Usage};
use super::limit::LATEST;
use crate::claim::Micros;
use crate::kit::bytes::{Reader, Writer};

/// At most `limit` in a window of `period` microseconds.
///
/// A window starts with the first request after the last one has ended. In any period of that
/// length at most twice the limit is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FixedWindow {
    pub(super) limit: u32,
    pub(super) period: Micros,
}

pub(super) const TAG: u8 = 0x11;

/// What was used of the window at a moment.
#[derive(Debug)]
pub(super) struct Window {
    rule: FixedWindow,
    now: Micros,
    start: Micros,
    used: u32,
}

impl FixedWindow {
    /// `None` if the state is not one of a fixed window.
    pub(super) fn load(self, state: Option<&[u8]>, now: Micros) -> Option<Window> {
        let fresh = |now| Window { rule: self, now, start: now, used: 0 };
        let Some(state) = state else { return Some(fresh(now)) };
        let mut reader = Reader::new(state, TAG)?;
        let (start, used) = (reader.wide()?, reader.number()?);
        reader.end()?;
        if start >= LATEST {
            return None;
        }
        // A clock that was set back does not start another window.
        let now = now.max(start);
        Some(if now >= start + self.period { fresh(now) } else { Window { rule: self, now, start, used } })
    }
}

impl Usage for Window {
    fn capacity(&self) -> u32 {
        self.rule.limit
    }

    fn now(&self) -> Micros {
        self.now
    }

    fn left(&self) -> u32 {
        self.rule.limit.saturating_sub(self.used)
    }

    fn retry_after(&self, _: u32) -> Micros {
        self.start + self.rule.period - self.now
    }

    fn take(&mut self, cost: u32) {
        self.used = self.used.saturating_add(cost);
    }

    fn refund(&mut self, receipt: Receipt) {
        // Of a window that is over nothing is left to give back.
        if receipt.at >= self.start {
            self.used = self.used.saturating_sub(receipt.cost);
        }
    }

    fn reset_after(&self) -> Micros {
        if self.used == 0 { 0 } else { self.start + self.rule.period - self.now }
    }

    fn encode(&self) -> Vec<u8> {
        Writer::new(TAG).wide(self.start).number(self.used).done()
    }
}
