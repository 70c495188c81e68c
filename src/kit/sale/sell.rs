//! A sale, as its callers use it.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::answer::{Answer, Payment, Reservation, Standing};
use super::batch::{Batcher, Wish};
use super::bucket::{Bucket, ReservationId, State};
use super::head::{Head, Layout};
use super::heads::{self, Ask, Heads};
use super::reserve::Reserved;
use super::settle::{Event, Settle, Settled};
use super::store::Known;
use super::terms::{MOST_SHARDS, Terms};
use crate::client::Client;
use crate::clock::Moment;
use crate::engine::Cells;
use crate::error::{Error, Result};
use crate::kit::cells;

/// The longest name of a buyer, in bytes.
pub const LONGEST_BUYER: usize = 200;
/// How often a call is repeated because the sale is laid out in another way than it was believed.
const MOST_TRIES: usize = 16;

/// A sale. Made by [`Client::sale`].
///
/// # Examples
///
/// ```
/// use leasehold::kit::sale::{Answer, ReservationId, Terms};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let sale = client.sale("shoes")?;
/// sale.open(&Terms::new(100)).await?;
/// let id = ReservationId::random()?;
/// match sale.reserve("alice", 1, id).await? {
///     Answer::Reserved(reservation) => println!("pay within {:?}", reservation.pay_within),
///     other => println!("no: {other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sale {
    pub(super) client: Client,
    pub(super) name: Arc<str>,
    /// What the names of all its cells start with: one hash tag, so one slot of a cluster.
    pub(super) prefix: Arc<str>,
    pub(super) known: Arc<Mutex<Known>>,
    /// One for each shard.
    pub(super) batchers: Arc<[Batcher; MOST_SHARDS as usize]>,
    sold_out_for: Duration,
}

impl fmt::Debug for Sale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sale").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Client {
    /// A sale with a name.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is too long; [`Error::Unsupported`] if the engine has no
    /// cells.
    pub fn sale(&self, name: impl AsRef<str>) -> Result<Sale> {
        self.inner.needs_cells("a sale is kept in")?;
        let mut prefix = String::from("sale/{");
        if name.as_ref().is_empty() {
            // An empty hash tag is none.
            prefix.push('%');
        }
        cells::part(name.as_ref(), &mut prefix);
        prefix.push('}');
        let sale = Sale {
            client: self.clone(),
            name: name.as_ref().into(),
            prefix: prefix.into(),
            known: Arc::default(),
            batchers: Arc::default(),
            sold_out_for: Duration::ZERO,
        };
        sale.buyer_cell(&"x".repeat(LONGEST_BUYER))?;
        Ok(sale)
    }
}

impl Sale {
    /// After an answer that nothing is left, answers the same for this long without asking the
    /// engine: not by default. It spares the engine the crowd that comes too late; what comes back
    /// meanwhile is sold that much later. Somebody who asks again after a lost answer is told that
    /// it is sold out, too, although a unit may be theirs; [`Sale::find`] tells.
    #[must_use]
    pub fn remember_sold_out(mut self, time: Duration) -> Sale {
        self.sold_out_for = time;
        self
    }

    /// Begins the sale, unless there is one with this name.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the terms can not be kept, or a sale with this name and this or a
    /// greater epoch was [forgotten](Sale::forget) or has just ended: the error says which epoch to
    /// use. [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// The sale was opened or not. It can be asked again.
    pub async fn open(&self, terms: &Terms) -> Result<super::Begun> {
        terms.check()?;
        match self.ask_heads(Ask::Open(terms.clone())).await? {
            heads::Answer::Yes => Ok(super::Begun::Now),
            heads::Answer::Epoch(epoch) => Ok(super::Begun::Before { epoch }),
            heads::Answer::Forgotten(epoch) => Err(self.forgotten(epoch)),
            _ => Err(self.foreign()),
        }
    }

    /// Forgets the sale of an epoch, whatever is reserved in it. True if it was there.
    ///
    /// Until the sale would have ended, its name is used again with a greater
    /// [epoch](Terms::epoch).
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// The sale was forgotten or not. It can be asked again.
    pub async fn forget(&self, epoch: u32) -> Result<bool> {
        match self.ask_heads(Ask::Close { epoch }).await? {
            heads::Answer::Foreign => Err(self.foreign()),
            answer => Ok(answer == heads::Answer::Yes),
        }
    }

    /// Reserves units for a buyer, in one step: a round trip on Redis, a read and a write on SQL,
    /// etcd and ZooKeeper. Concurrent callers of one process share it if they use clones of one
    /// sale.
    ///
    /// The id is the caller's: [`ReservationId::random`] for a new reservation, and the same as
    /// before to ask again when an answer was lost.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer: the units were reserved or were not,
    /// and asking again with the same id tells. [`Error::Invalid`] if the quantity is 0, the
    /// buyer's name is longer than [`LONGEST_BUYER`], or the id was used for something else.
    ///
    /// # Cancel safety
    ///
    /// The units were reserved or were not. Asking again with the same id tells; if nobody does,
    /// they come back when the reservation expires.
    pub async fn reserve(&self, buyer: impl AsRef<str>, quantity: u32, id: ReservationId) -> Result<Answer> {
        let buyer = buyer.as_ref();
        if quantity == 0 {
            return Err(Error::invalid("0 units can not be reserved; ask for at least 1"));
        }
        if buyer.len() > LONGEST_BUYER {
            return Err(Error::invalid(format!(
                "the name of the buyer has {} bytes, more than the {LONGEST_BUYER} that are allowed; use an \
                 id or a hash",
                buyer.len()
            )));
        }
        let sent = self.client.inner.clock.now();
        if self.known().sold_out_until.is_some_and(|until| sent < until) {
            return Ok(Answer::SoldOut { left: 0 });
        }
        let Some(mut layout) = self.layout().await? else { return Ok(Answer::NoSale) };
        let buyer: Arc<str> = buyer.into();
        for _ in 0..MOST_TRIES {
            let wish = Wish { layout, id, buyer: Arc::clone(&buyer), quantity };
            match self.ask(wish).await? {
                Reserved::There { state, pay_within, .. } => {
                    let reservation = Reservation {
                        id,
                        epoch: layout.epoch,
                        buyer: String::from(&*buyer),
                        quantity,
                        standing: state.into(),
                        pay_within: Duration::from_micros(pay_within),
                        attempts: 0,
                    };
                    let ended = state.has_ended() || state == State::Expiring;
                    let answer = if ended { Answer::Ended } else { Answer::Reserved };
                    return Ok(answer(reservation));
                }
                Reserved::NotOpen { opens_in } => {
                    return Ok(Answer::NotOpen { opens_in: Duration::from_micros(opens_in) });
                }
                Reserved::Over => return Ok(Answer::Over),
                Reserved::LimitReached { left } => return Ok(Answer::LimitReached { left }),
                Reserved::TooFew { left } if layout.shards == 1 => return Ok(self.sold_out(left, sent)),
                Reserved::TooFew { .. } => match self.gather(layout, layout.place(id.0).0, quantity).await? {
                    heads::Answer::Yes => {}
                    heads::Answer::TooFew(left) => return Ok(self.sold_out(left, sent)),
                    heads::Answer::NoSale => return Ok(Answer::NoSale),
                    heads::Answer::Epoch(_) => match self.look_up_layout().await? {
                        None => return Ok(Answer::NoSale),
                        Some(found) => layout = found,
                    },
                    heads::Answer::Foreign | heads::Answer::Forgotten(_) => return Err(self.foreign()),
                },
                Reserved::NoSale => {
                    self.known().layout = None;
                    return Ok(Answer::NoSale);
                }
                Reserved::Rebuilding => return Ok(Answer::Rebuilding),
                Reserved::Elsewhere(found) => {
                    self.known().layout = Some(found);
                    layout = found;
                }
                Reserved::Mismatch => {
                    return Err(Error::invalid(format!(
                        "the reservation {id} is of another buyer or quantity; draw a new id"
                    )));
                }
                Reserved::Foreign => return Err(self.foreign()),
            }
        }
        // Units were there each time, and others were faster: that is not sold out.
        Err(Error::Unavailable {
            engine: self.client.guarantees().engine,
            what: format!("others were faster {MOST_TRIES} times at the sale `{}`; ask again", self.name),
            source: None,
        })
    }

    fn sold_out(&self, left: u32, sent: Moment) -> Answer {
        if left == 0 && !self.sold_out_for.is_zero() {
            // Counted from before the send: by then nothing was left.
            self.known().sold_out_until = Some(sent + self.sold_out_for);
        }
        Answer::SoldOut { left }
    }

    /// Moves units from other shards to one, if there are enough in all of them together.
    async fn gather(&self, layout: Layout, home: u8, quantity: u32) -> Result<heads::Answer> {
        let names = (0..layout.shards).map(|shard| self.head_cell(shard)).collect::<Result<Vec<_>>>()?;
        let rule = Heads { ask: Ask::Gather { epoch: layout.epoch, home, quantity } };
        self.client.inner.update(&names, &Arc::new(rule)).await
    }

    /// A reservation, if there is one with this id in this epoch of the sale.
    ///
    /// Those that ended long ago without a sale are not remembered.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads: dropping the future changes nothing.
    pub async fn find(&self, id: ReservationId) -> Result<Option<Reservation>> {
        for _ in 0..MOST_TRIES {
            let Some(layout) = self.layout().await? else { return Ok(None) };
            let (shard, bucket) = layout.place(id.0);
            let names = [self.head_cell(shard)?, self.bucket_cell(shard, bucket)?];
            let Cells { now, cells } = self.client.inner.read_cells(&names).await?;
            let [head, bucket] = &cells[..] else { return Err(self.foreign()) };
            let Some(head) = head.value.as_deref() else {
                self.known().layout = None;
                return Ok(None);
            };
            let head = Head::decode(head).ok_or_else(|| self.foreign())?;
            if head.is_gone(now) {
                self.known().layout = None;
                return Ok(None);
            }
            if head.layout != layout {
                self.known().layout = Some(head.layout);
                continue;
            }
            let bucket = Bucket::of(layout.epoch, bucket.value.as_deref()).ok_or_else(|| self.foreign())?;
            let record = bucket.records.iter().find(|record| record.number == id.0);
            return Ok(record.map(|record| Reservation::new(record, layout.epoch, now)));
        }
        Ok(None)
    }

    /// Notes that a reservation was paid. Of this and its expiry one wins.
    ///
    /// If the payment is in the database, which decides then, this only tells the sale: see
    /// docs/sale.md.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer: it can be asked again.
    ///
    /// # Cancel safety
    ///
    /// It was noted or not. It can be asked again.
    pub async fn pay(&self, id: ReservationId) -> Result<Payment> {
        Ok(match self.happen(id, Event::Pay).await? {
            None => Payment::Unknown,
            Some((State::Paid, _)) => Payment::Paid,
            Some((State::Reserved | State::DeadPlacing, _)) => Payment::TooEarly,
            Some((state, _)) => Payment::Ended(state.into()),
        })
    }

    /// Cancels a reservation that is not paid. Its units come back when a worker has told the
    /// database. The answer is what has become of the reservation: [`Standing::Ending`] if it was
    /// cancelled now.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer: it can be asked again.
    ///
    /// # Cancel safety
    ///
    /// It was cancelled or not. It can be asked again.
    pub async fn cancel(&self, id: ReservationId) -> Result<Option<Standing>> {
        Ok(self.happen(id, Event::Cancel).await?.map(|(state, _)| state.into()))
    }

    /// Lets something happen to a reservation that gives no units back.
    pub(super) async fn happen(&self, id: ReservationId, event: Event) -> Result<Option<(State, bool)>> {
        for _ in 0..MOST_TRIES {
            let Some(layout) = self.layout().await? else { return Ok(None) };
            let (shard, bucket) = layout.place(id.0);
            let rule =
                Settle { epoch: layout.epoch, bucket, buyers: Vec::new(), events: vec![(id.0, event)] };
            match self.settle(shard, rule).await? {
                Settled::Now(states) => return Ok(states.first().copied().flatten()),
                Settled::NoSale => {
                    self.known().layout = None;
                    return Ok(None);
                }
                Settled::Stale => match self.look_up_layout().await? {
                    Some(found) if found == layout => {
                        return Err(Error::Unavailable {
                            engine: self.client.guarantees().engine,
                            what: format!("the sale `{}` is being rebuilt; ask again in a moment", self.name),
                            source: None,
                        });
                    }
                    Some(_) => {}
                    None => return Ok(None),
                },
                Settled::Foreign => return Err(self.foreign()),
            }
        }
        Ok(None)
    }

    pub(super) async fn settle(&self, shard: u8, rule: Settle) -> Result<Settled> {
        let mut names = vec![self.head_cell(shard)?, self.bucket_cell(shard, rule.bucket)?];
        for buyer in &rule.buyers {
            names.push(self.buyer_cell(buyer)?);
        }
        self.client.inner.update(&names, &Arc::new(rule)).await
    }
}
