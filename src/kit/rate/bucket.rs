//! Token bucket and leaky bucket: one rule (GCRA), in exact whole numbers.
//!
//! A bucket has a debt: what was taken and has not come back. A token is `cost` units of debt, and
//! `refill` units come back in a microsecond, so a rate of 3 a second is exact without fractions.
//! An empty state is a bucket without debt.

use super::algorithm::{Receipt, Usage};
use super::limit::{LARGEST, LATEST};
use crate::claim::Micros;
use crate::kit::bytes::{Reader, Writer};

/// Tokens that come back at a steady rate, up to `burst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    /// Units that come back in a microsecond.
    pub(super) refill: u64,
    /// Units of a token.
    pub(super) cost: u64,
    /// The most tokens that there can be.
    pub(super) burst: u32,
    pub(super) kind: Kind,
}

/// What a bucket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Whoever gets a token goes at once.
    Token,
    /// Whoever gets a token is told when to go, so that all go evenly. The burst is the queue, and
    /// one that goes.
    Leaky,
}

impl Kind {
    /// As in the names of cells.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Token => "bucket",
            Kind::Leaky => "leaky",
        }
    }

    pub(super) fn tag(self) -> u8 {
        match self {
            Kind::Token => 0x41,
            Kind::Leaky => 0x51,
        }
    }
}

/// The debt at a moment.
#[derive(Debug)]
pub(super) struct Debt {
    rule: Bucket,
    now: Micros,
    units: u64,
}

impl Bucket {
    /// A bucket for `amount` in `period`. `None` if the numbers are too large.
    ///
    /// The rate is exact if its numbers allow it. If not, it is lower by less than one microsecond
    /// between two tokens.
    pub(super) fn new(amount: u32, period: Micros, burst: u32, kind: Kind) -> Option<Bucket> {
        let (amount, burst_units) = (u64::from(amount), u64::from(burst));
        let divisor = gcd(amount, period);
        let (refill, cost) = (amount / divisor, period / divisor);
        if burst_units.checked_mul(cost).is_some_and(|capacity| capacity <= LARGEST) {
            return Some(Bucket { refill, cost, burst, kind });
        }
        // As many units in a microsecond as there is room for. Rounded up: rather slower than
        // faster.
        let interval = period.div_ceil(amount).max(1);
        let refill = LARGEST.checked_div(burst_units.checked_mul(interval)?)?.min(refill);
        let cost = (u128::from(refill) * u128::from(period)).div_ceil(u128::from(amount));
        let cost = u64::try_from(cost).ok()?;
        let fits = refill > 0 && burst_units.checked_mul(cost)? <= LARGEST;
        fits.then_some(Bucket { refill, cost, burst, kind })
    }

    fn capacity(&self) -> u64 {
        u64::from(self.burst) * self.cost
    }

    /// `None` if the state is not one of such a bucket.
    pub(super) fn load(self, state: Option<&[u8]>, now: Micros) -> Option<Debt> {
        let Some(state) = state else { return Some(Debt { rule: self, now, units: 0 }) };
        let mut reader = Reader::new(state, self.kind.tag())?;
        let (cost, at, mut units) = (reader.wide()?, reader.wide()?, reader.wide()?);
        reader.end()?;
        if cost == 0 || cost > LARGEST || units > LARGEST || at >= LATEST {
            return None;
        }
        if cost != self.cost {
            // The limit was changed: as many tokens are owed as before, rounded up.
            units = units.div_ceil(cost).saturating_mul(self.cost).min(self.capacity());
        }
        // A clock that was set back gives nothing back.
        let now = now.max(at);
        let units = units.saturating_sub(self.refill.saturating_mul(now - at));
        Some(Debt { rule: self, now, units })
    }
}

impl Debt {
    fn units_of(&self, cost: u32) -> u64 {
        u64::from(cost) * self.rule.cost
    }
}

impl Usage for Debt {
    fn capacity(&self) -> u32 {
        self.rule.burst
    }

    fn now(&self) -> Micros {
        self.now
    }

    fn left(&self) -> u32 {
        let left = self.rule.capacity().saturating_sub(self.units) / self.rule.cost;
        // Not above the burst, which is a u32.
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn retry_after(&self, cost: u32) -> Micros {
        let above = (self.units + self.units_of(cost)).saturating_sub(self.rule.capacity());
        above.div_ceil(self.rule.refill)
    }

    fn delay(&self) -> Micros {
        match self.rule.kind {
            Kind::Token => 0,
            Kind::Leaky => self.units.div_ceil(self.rule.refill),
        }
    }

    fn take(&mut self, cost: u32) {
        self.units += self.units_of(cost);
    }

    fn refund(&mut self, receipt: Receipt) {
        let taken = self.units_of(receipt.cost.min(self.rule.burst));
        let back = match self.rule.kind {
            // What has come back since then by itself does not come back twice. Had the tokens not
            // been taken, the bucket might have been full all the while.
            Kind::Token => {
                let since = self.now.saturating_sub(receipt.at);
                taken.saturating_sub(self.rule.refill.saturating_mul(since))
            }
            // Only the last in the queue can leave: those behind have been told when to go. If
            // several go in a microsecond, it is not known which is the last.
            Kind::Leaky if self.rule.cost < self.rule.refill => 0,
            Kind::Leaky => {
                // When the last in the queue goes, or went, if it has taken as much as this one.
                let (now, refill) = (self.now.cast_signed(), self.rule.refill.cast_signed());
                let place = self.units.cast_signed() - taken.cast_signed();
                let goes = now + (place + refill - 1).div_euclid(refill);
                if goes == receipt.goes().cast_signed() { taken } else { 0 }
            }
        };
        self.units = self.units.saturating_sub(back);
    }

    fn reset_after(&self) -> Micros {
        self.units.div_ceil(self.rule.refill)
    }

    fn encode(&self) -> Vec<u8> {
        Writer::new(self.rule.kind.tag()).wide(self.rule.cost).wide(self.now).wide(self.units).done()
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}
