//! Never more than so many in any window, in a fixed space.
//!
//! Time is cut into slices. A request counts until its whole slice has left the window, so what was
//! used comes back up to one slice late, and the limit is never exceeded.

use super::algorithm::{Receipt, Usage};
use super::limit::LATEST;
use crate::claim::Micros;
use crate::kit::bytes::{Reader, Writer};

/// At most `limit` in any period of `slices` times `width` microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlidingWindow {
    pub(super) limit: u32,
    pub(super) slices: u32,
    pub(super) width: Micros,
}

pub(super) const TAG: u8 = 0x31;

/// What was used in each slice at a moment.
#[derive(Debug)]
pub(super) struct Slices {
    rule: SlidingWindow,
    now: Micros,
    /// The number of the slice of `now`, counted from the zero of time.
    newest: u64,
    /// What was used in the newest slice, in the one before it, and so on: one more than `slices`,
    /// for a window that ends in the newest one begins in the oldest.
    used: Vec<u32>,
}

impl SlidingWindow {
    fn fresh(self, now: Micros) -> Slices {
        let used = vec![0; self.slices as usize + 1];
        Slices { rule: self, now, newest: now / self.width, used }
    }

    /// `None` if the state is not one of a sliding window.
    pub(super) fn load(self, state: Option<&[u8]>, now: Micros) -> Option<Slices> {
        let Some(state) = state else { return Some(self.fresh(now)) };
        let mut reader = Reader::new(state, TAG)?;
        let (width, newest) = (reader.wide()?, reader.wide()?);
        let start = newest.checked_mul(width).filter(|start| *start < LATEST)?;
        if width == 0 || width >= LATEST {
            return None;
        }
        // A clock that was set back stays in the newest slice.
        let mut loaded = self.fresh(now.max(start));
        let mut slice = Some(newest);
        while !reader.is_empty() {
            let (number, used) = (slice?, u32::try_from(reader.short()?).ok()?);
            // If the limit was changed and slices have another width now, what was used counts as
            // late as it can have been.
            let number = if width == self.width {
                number
            } else {
                ((number + 1).checked_mul(width)? - 1).min(loaded.now) / self.width
            };
            loaded.add(number, used);
            slice = slice?.checked_sub(1);
        }
        Some(loaded)
    }
}

impl Slices {
    /// Counts what was used in a slice, if it is still in the window.
    fn add(&mut self, number: u64, used: u32) {
        let age = usize::try_from(self.newest.saturating_sub(number)).unwrap_or(usize::MAX);
        if let Some(slice) = self.used.get_mut(age) {
            *slice = slice.saturating_add(used);
        }
    }

    fn sum(&self) -> u64 {
        self.used.iter().map(|used| u64::from(*used)).sum()
    }

    /// How long until a slice has left the window.
    fn leaves_in(&self, age: usize) -> Micros {
        let number = self.newest - age as u64;
        (number + u64::from(self.rule.slices) + 1) * self.rule.width - self.now
    }
}

impl Usage for Slices {
    fn capacity(&self) -> u32 {
        self.rule.limit
    }

    fn now(&self) -> Micros {
        self.now
    }

    fn left(&self) -> u32 {
        let left = u64::from(self.rule.limit).saturating_sub(self.sum());
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn retry_after(&self, cost: u32) -> Micros {
        let mut missing = self.sum() + u64::from(cost);
        for (age, used) in self.used.iter().enumerate().rev() {
            missing -= u64::from(*used);
            if missing <= u64::from(self.rule.limit) {
                return self.leaves_in(age);
            }
        }
        0
    }

    fn take(&mut self, cost: u32) {
        self.add(self.newest, cost);
    }

    fn refund(&mut self, receipt: Receipt) {
        let number = receipt.at / self.rule.width;
        let age = self.newest.checked_sub(number).and_then(|age| usize::try_from(age).ok());
        if let Some(slice) = age.and_then(|age| self.used.get_mut(age)) {
            *slice = slice.saturating_sub(receipt.cost);
        }
    }

    fn reset_after(&self) -> Micros {
        self.used.iter().position(|used| *used > 0).map_or(0, |age| self.leaves_in(age))
    }

    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(TAG).wide(self.rule.width).wide(self.newest);
        let kept = self.used.iter().rposition(|used| *used > 0).map_or(0, |last| last + 1);
        self.used[..kept].iter().for_each(|used| writer.short(u64::from(*used)));
        writer.done()
    }
}
