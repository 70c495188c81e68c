//! How a sale stands, and how that compares with the database.

use std::time::Duration;

use super::head::{Head, Mode};
use super::sell::Sale;
use crate::claim::Micros;
use crate::engine::Cells;
use crate::error::Result;

/// How a sale stands, in units.
///
/// `stock = available + reserved + ordered + paid + ending + dead`, and
/// `taken = reserved + ordered + paid + ending + dead + returned`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// The epoch of the sale.
    pub epoch: u32,
    /// The shards of its stock.
    pub shards: u8,
    /// True while it is rebuilt and sells nothing.
    pub rebuilding: bool,
    /// How long until it opens.
    pub opens_in: Duration,
    /// How long until it closes.
    pub closes_in: Duration,
    /// All that there is, less what the database did not have.
    pub stock: u64,
    /// Can be reserved.
    pub available: u64,
    /// Reserved, and not ordered yet.
    pub reserved: u64,
    /// Ordered, and not paid.
    pub ordered: u64,
    /// Paid.
    pub paid: u64,
    /// Cancelled or expired, and not told to the database yet.
    pub ending: u64,
    /// Given up by a worker.
    pub dead: u64,
    /// Reserved since the epoch began, whatever has become of it.
    pub taken: u64,
    /// Came back since the epoch began.
    pub returned: u64,
}

/// What the database says of a sale, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Not ordered.
    pub left: u64,
    /// Ordered, and not paid.
    pub unpaid: u64,
    /// Paid.
    pub paid: u64,
}

/// What a sale has more (or less, if negative) than the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// Available and reserved, beside what the database has left.
    pub left: i64,
    /// Ordered, beside what the database has as unpaid.
    pub unpaid: i64,
    /// Paid.
    pub paid: i64,
    /// What is on its way from one to the other explains a difference of up to so many.
    pub in_flight: u64,
}

impl Difference {
    /// No figure differs by more than is on its way. At rest nothing is on its way.
    pub fn is_explained(&self) -> bool {
        [self.left, self.unpaid, self.paid].iter().all(|by| by.unsigned_abs() <= self.in_flight)
    }
}

impl Figures {
    fn add(&mut self, head: &Head, now: Micros) {
        self.epoch = head.layout.epoch;
        self.shards = head.layout.shards;
        self.rebuilding |= head.mode == Mode::Rebuilding;
        self.opens_in = Duration::from_micros(head.opens.saturating_sub(now));
        self.closes_in = Duration::from_micros(head.closes.saturating_sub(now));
        self.stock += u64::from(head.stock);
        self.available += u64::from(head.available);
        self.reserved += u64::from(head.units.reserved);
        self.ordered += u64::from(head.units.ordered);
        self.paid += u64::from(head.units.paid);
        self.ending += u64::from(head.units.expiring);
        self.dead += u64::from(head.units.dead);
        self.taken += head.taken;
        self.returned += head.returned;
    }

    /// Compares with the database.
    pub fn compare(&self, ledger: &Ledger) -> Difference {
        let by = |ours: u64, theirs: u64| {
            let differ = i128::from(ours) - i128::from(theirs);
            i64::try_from(differ).unwrap_or(if differ < 0 { i64::MIN } else { i64::MAX })
        };
        Difference {
            // Those that end may have been ordered or not.
            left: by(self.available + self.reserved, ledger.left),
            unpaid: by(self.ordered, ledger.unpaid),
            paid: by(self.paid, ledger.paid),
            in_flight: self.reserved + self.ending + self.dead,
        }
    }
}

impl Sale {
    /// How the sale stands at one moment; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads: dropping the future changes nothing.
    pub async fn figures(&self) -> Result<Option<Figures>> {
        let Cells { now, cells } = self.client.inner.read_cells(&self.all_heads()?).await?;
        let mut figures = Figures::default();
        for bytes in cells.iter().filter_map(|cell| cell.value.as_deref()) {
            let head = Head::decode(bytes).ok_or_else(|| self.foreign())?;
            if !head.is_gone(now) {
                figures.add(&head, now);
            }
        }
        Ok((figures.epoch > 0).then_some(figures))
    }

    /// Compares the sale with what the database says; `None` if there is no sale.
    ///
    /// Read the database first. What is paid or ordered in between is on its way then; ask again
    /// before you believe in a difference. One that stays is a reason to [rebuild](Sale::rebuild).
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads: dropping the future changes nothing.
    pub async fn reconcile(&self, ledger: &Ledger) -> Result<Option<Difference>> {
        Ok(self.figures().await?.map(|figures| figures.compare(ledger)))
    }
}
