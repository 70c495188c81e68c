//! The terms of a sale.

use std::time::Duration;

use super::head::Layout;
use crate::error::{Error, Result};

/// The most shards of a sale.
///
/// All of them are decided together when one runs out, so there are as many as cells of one call.
pub const MOST_SHARDS: u8 = 16;
/// The most units of a sale.
pub const LARGEST_STOCK: u32 = 100_000_000;
/// The most buckets of a shard.
const MOST_BUCKETS: u32 = 1024;
/// Units per bucket of a small sale: a bucket is written whole for each reservation.
const UNITS_PER_BUCKET: u32 = 16;
/// What comes after the end of the sale is remembered for this long.
const DEFAULT_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// As long as a worker repeats, by default, what fails: an order that is to end must not be
/// forgotten before its database is told.
const LEAST_KEPT: Duration = Duration::from_secs(10 * 60);
/// Longer times are a mistake, and times that are added up must stay whole numbers in Lua.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// What is sold, when, and to whom.
///
/// The engine's clock decides when the sale opens and closes, so the times are given from now on.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use leasehold::kit::sale::Terms;
///
/// let hour = Duration::from_secs(60 * 60);
/// let terms = Terms::new(100).limit(2).opens_in(hour).open_for(hour).pay_within(hour / 4);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    pub(super) epoch: u32,
    pub(super) stock: u32,
    pub(super) limit: u32,
    pub(super) opens_in: Duration,
    pub(super) open_for: Duration,
    pub(super) pay_within: Duration,
    pub(super) kept: Duration,
    pub(super) shards: u8,
    /// What a rebuilt sale has beside its stock: its buckets must hold that, too.
    pub(super) orders: u32,
}

impl Terms {
    /// So many units, at once and for a day, one for each buyer, to be paid within 15 minutes.
    pub fn new(stock: u32) -> Terms {
        Terms {
            epoch: 1,
            stock,
            limit: 1,
            opens_in: Duration::ZERO,
            open_for: Duration::from_secs(24 * 60 * 60),
            pay_within: Duration::from_secs(15 * 60),
            kept: DEFAULT_KEPT,
            shards: 1,
            orders: 0,
        }
    }

    /// How many units a buyer may have, reserved and bought together: 1 by default.
    #[must_use]
    pub fn limit(mut self, units: u32) -> Terms {
        self.limit = units;
        self
    }

    /// When it opens: now by default.
    #[must_use]
    pub fn opens_in(mut self, time: Duration) -> Terms {
        self.opens_in = time;
        self
    }

    /// How long it is open: a day by default.
    #[must_use]
    pub fn open_for(mut self, time: Duration) -> Terms {
        self.open_for = time;
        self
    }

    /// How long a reservation is kept for its buyer: 15 minutes by default.
    #[must_use]
    pub fn pay_within(mut self, time: Duration) -> Terms {
        self.pay_within = time;
        self
    }

    /// How long the sale is remembered after its last reservation can have been paid: a day by
    /// default, and at least ten minutes. What workers have not ended by then is forgotten.
    #[must_use]
    pub fn kept_for(mut self, time: Duration) -> Terms {
        self.kept = time;
        self
    }

    /// Over how many shards the stock is split: 1 by default. On `postgres:` and `mysql:` those who
    /// ask wait for each other's row, and with shards there are more rows. It is worth nothing on
    /// other engines, which decide one at a time anyway. Up to [`MOST_SHARDS`].
    #[must_use]
    pub fn shards(mut self, shards: u8) -> Terms {
        self.shards = shards;
        self
    }

    /// The epoch: 1 by default. Whoever rebuilds a sale, or opens it again after it was
    /// [forgotten](super::Sale::forget), gives it a greater one than it ever had.
    #[must_use]
    pub fn epoch(mut self, epoch: u32) -> Terms {
        self.epoch = epoch;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.stock > LARGEST_STOCK {
            return Err(Error::invalid(format!(
                "a stock of {} is out of range: up to {LARGEST_STOCK}",
                self.stock
            )));
        }
        if self.shards == 0 || self.shards > MOST_SHARDS {
            return Err(Error::invalid(format!(
                "{} shards are out of range: 1 to {MOST_SHARDS}",
                self.shards
            )));
        }
        if self.limit == 0 {
            return Err(Error::invalid("a limit of 0 units for each buyer sells nothing; give at least 1"));
        }
        if self.epoch == 0 {
            return Err(Error::invalid("epochs count from 1"));
        }
        if self.pay_within.is_zero() || self.open_for.is_zero() {
            return Err(Error::invalid(
                "a sale that is open for no time, or is to be paid within none, sells nothing",
            ));
        }
        if self.kept < LEAST_KEPT {
            return Err(Error::invalid(format!(
                "a sale must be kept for at least {LEAST_KEPT:?}, so that orders that nobody has paid for are \
                 ended; {:?} is too short",
                self.kept
            )));
        }
        for time in [self.opens_in, self.open_for, self.pay_within, self.kept] {
            if time > LONGEST {
                return Err(Error::invalid(format!("{time:?} is more than ten years")));
            }
        }
        Ok(())
    }

    pub(super) fn layout(&self) -> Layout {
        let of_shard = self.stock.saturating_add(self.orders) / u32::from(self.shards.max(1));
        let buckets = of_shard.div_ceil(UNITS_PER_BUCKET).clamp(1, MOST_BUCKETS);
        Layout { epoch: self.epoch, shards: self.shards, buckets: u16::try_from(buckets).unwrap_or(1) }
    }

    /// The stock of each shard.
    pub(super) fn split(&self, stock: u32) -> impl Iterator<Item = (u8, u32)> {
        let shards = u32::from(self.shards.max(1));
        (0..self.shards).map(move |shard| {
            let more = u32::from(u32::from(shard) < stock % shards);
            (shard, stock / shards + more)
        })
    }
}
