//! A sale that is begun again from what the database says.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::bucket::{Bucket, Record, ReservationId, State, encode_buyer};
use super::head::micros;
use super::heads::{self, Ask, Fill};
use super::sell::{LONGEST_BUYER, Sale};
use super::terms::Terms;
use crate::engine::MOST_CELLS;
use crate::error::{Error, Result};

/// Whether a sale was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// By this call.
    Now,
    /// There was one with this epoch before. Nothing has changed.
    Before {
        /// Its epoch.
        epoch: u32,
    },
}

/// What a database knows of a sale whose store has lost it.
#[derive(Clone, Debug)]
pub struct Rebuild {
    terms: Terms,
    unpaid: Vec<(ReservationId, String, u32, Duration)>,
    paid: Vec<(ReservationId, String, u32)>,
}

impl Rebuild {
    /// The sale goes on with these terms. Their stock is what the database has left to sell; their
    /// epoch is greater than any that the sale has had; their times count from now on.
    pub fn new(terms: Terms) -> Rebuild {
        Rebuild { terms, unpaid: Vec::new(), paid: Vec::new() }
    }

    /// An order that is placed and not paid: it can be paid, or expires.
    #[must_use]
    pub fn unpaid(
        mut self,
        id: ReservationId,
        buyer: impl Into<String>,
        quantity: u32,
        pay_within: Duration,
    ) -> Rebuild {
        self.unpaid.push((id, buyer.into(), quantity, pay_within));
        self
    }

    /// An order that is paid. Its buyer, who may ask again with the same id, is told so.
    #[must_use]
    pub fn paid(mut self, id: ReservationId, buyer: impl Into<String>, quantity: u32) -> Rebuild {
        self.paid.push((id, buyer.into(), quantity));
        self
    }

    fn check(&self) -> Result<()> {
        self.terms.check()?;
        let buyers =
            self.unpaid.iter().map(|(_, buyer, ..)| buyer).chain(self.paid.iter().map(|(_, buyer, _)| buyer));
        match buyers.into_iter().find(|buyer| buyer.len() > LONGEST_BUYER) {
            Some(buyer) => Err(Error::invalid(format!(
                "the name of the buyer `{}` has more than {LONGEST_BUYER} bytes",
                buyer.chars().take(40).collect::<String>()
            ))),
            None => Ok(()),
        }
    }
}

impl Sale {
    /// Begins a new epoch of the sale from what the database says, after its store has lost it or
    /// may have lost a part of it.
    ///
    /// What was reserved in an earlier epoch and is no order is forgotten, and calls of workers for
    /// an earlier epoch change nothing. While the sale is rebuilt it sells nothing
    /// ([`super::Answer::Rebuilding`]). If this fails or its process dies on the way, it stays so:
    /// rebuild it again, with the next epoch.
    ///
    /// The database must refuse orders of earlier epochs from the moment at which it was read, or
    /// such an order takes units that the new epoch believes to have: see docs/sale.md. It never
    /// sells too much, but somebody's reservation is refused. A process that dies after it has
    /// raised the epoch of the database, and before it has called this, leaves a sale that goes on
    /// with the old epoch while the database refuses its orders. So whoever finds that the epoch of
    /// the database is greater than that of the sale must rebuild it.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the terms can not be kept, or a sale of this or a greater epoch was
    /// [forgotten](Sale::forget); [`Error::Unavailable`] if the engine does not answer: rebuild it
    /// again, with the next epoch.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the sale may stay in the middle: rebuild it again, with the next
    /// epoch.
    pub async fn rebuild(&self, from: &Rebuild) -> Result<Begun> {
        from.check()?;
        let unpaid = from.unpaid.iter().map(|(id, buyer, quantity, pay_within)| {
            (id, buyer, *quantity, State::Ordered, micros(*pay_within))
        });
        let paid = from.paid.iter().map(|(id, buyer, quantity)| (id, buyer, *quantity, State::Paid, 0));
        let orders = || unpaid.clone().chain(paid.clone());
        let ordered = orders().fold(0, |sum: u32, (_, _, quantity, ..)| sum.saturating_add(quantity));
        let terms = &Terms { orders: ordered, ..from.terms.clone() };
        let layout = terms.layout();
        match self.ask_heads(Ask::Pause(terms.clone())).await? {
            heads::Answer::Yes => {}
            heads::Answer::Epoch(epoch) => return Ok(Begun::Before { epoch }),
            heads::Answer::Forgotten(epoch) => return Err(self.forgotten(epoch)),
            _ => return Err(self.foreign()),
        }
        // Nobody but us writes to the cells of this epoch until it is resumed.
        let Some((now, _)) = self.read_head(0).await? else { return Err(self.gone()) };
        let mut buyers: BTreeMap<&str, u32> = BTreeMap::new();
        let mut buckets: HashMap<(u8, u16), Vec<Record>> = HashMap::new();
        let mut shards = vec![[0_u32; 3]; usize::from(terms.shards)];
        for (shard, available) in terms.split(terms.stock) {
            shards[usize::from(shard)][0] = available;
        }
        for (id, buyer, quantity, state, pay_within) in orders() {
            let has = buyers.entry(buyer).or_default();
            *has = has.saturating_add(quantity);
            let place = layout.place(id.0);
            let units = &mut shards[usize::from(place.0)][if state == State::Paid { 2 } else { 1 }];
            *units = units.saturating_add(quantity);
            buckets.entry(place).or_default().push(Record {
                number: id.0,
                state,
                attempts: 0,
                quantity,
                deadline: now.saturating_add(pay_within),
                buyer: buyer.clone(),
            });
        }
        let mut cells = Vec::with_capacity(buyers.len() + buckets.len());
        for (buyer, units) in buyers {
            cells.push((self.buyer_cell(buyer)?, encode_buyer(layout.epoch, units)));
        }
        for ((shard, bucket), records) in buckets {
            let bucket_of = Bucket { epoch: layout.epoch, records };
            cells.push((self.bucket_cell(shard, bucket)?, bucket_of.encode()));
        }
        let head = self.head_cell(0)?;
        for part in cells.chunks(MOST_CELLS - 1) {
            let names: Vec<_> =
                std::iter::once(&head).chain(part.iter().map(|(name, _)| name)).cloned().collect();
            let values = part.iter().map(|(_, value)| value.clone()).collect();
            let fill = Arc::new(Fill { epoch: layout.epoch, values });
            if !self.client.inner.update(&names, &fill).await? {
                return Err(self.gone());
            }
        }
        match self.ask_heads(Ask::Resume { epoch: layout.epoch, shards }).await? {
            heads::Answer::Yes => Ok(Begun::Now),
            _ => Err(self.gone()),
        }
    }

    fn gone(&self) -> Error {
        Error::Engine {
            engine: self.client.guarantees().engine,
            what: format!(
                "the sale `{}` was lost or rebuilt by somebody else while it was rebuilt; rebuild it with the \
                 next epoch if it does not sell",
                self.name
            ),
            source: None,
        }
    }
}
