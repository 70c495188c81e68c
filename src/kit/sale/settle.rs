//! The rule of everything that happens to reservations after they were made: a pure step over the
//! head of a shard, one bucket, and the buyers whose units come back.

use super::bucket::{Bucket, Record, State, encode_buyer, units_of_buyer};
use super::head::{Head, Mode};
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::{Decision, Rule, Write};

/// What happens to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The order is in the database.
    Placed,
    /// The database does not want it. The units can be sold to others.
    Refused,
    /// The database has no units for it. They are not sold to anybody.
    NoStock,
    /// The buyer has paid.
    Pay,
    /// Its time is over, if it is.
    Expire,
    /// The buyer, or whoever looks after the sale, does not want it any more.
    Cancel,
    /// The database knows that it is over.
    Expired,
    /// The database knows that it was paid before.
    PaidBefore,
    /// A worker has failed, and gives up after so many times.
    Failed { most: u8 },
    /// A worker is to try again what was given up.
    Retry,
}

/// Lets things happen to reservations of one bucket.
///
/// The cells are the head, the bucket, and the buyers in their order. An event that gives units
/// back to a buyer who is not among them does not happen.
#[derive(Clone, Debug)]
pub(super) struct Settle {
    pub(super) epoch: u32,
    pub(super) bucket: u16,
    pub(super) buyers: Vec<String>,
    pub(super) events: Vec<(u128, Event)>,
}

/// What the events came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// For each event the state of its reservation, and whether the event has changed it; `None` if
    /// there is no such reservation.
    Now(Vec<Option<(State, bool)>>),
    NoSale,
    /// The sale has another epoch by now. Nothing has changed.
    Stale,
    Foreign,
}

/// The state of a reservation after an event; `None` if it stays as it is.
fn after(record: &Record, event: Event, now: Micros) -> Option<State> {
    Some(match (record.state, event) {
        (State::Reserved, Event::Placed) => State::Ordered,
        (State::Reserved, Event::Refused | Event::NoStock) => State::Refused,
        // An order must be there before it is paid, or it would never be placed.
        (State::Ordered, Event::Pay) => State::Paid,
        (State::Reserved | State::Ordered, Event::Expire) if record.deadline <= now => State::Expiring,
        (State::Reserved | State::Ordered | State::DeadPlacing | State::DeadExpiring, Event::Cancel) => {
            State::Expiring
        }
        (State::Expiring, Event::Expired) => State::Released,
        (State::Expiring, Event::PaidBefore) => State::Paid,
        (State::Reserved, Event::Failed { most }) if record.attempts.saturating_add(1) >= most => {
            State::DeadPlacing
        }
        (State::Expiring, Event::Failed { most }) if record.attempts.saturating_add(1) >= most => {
            State::DeadExpiring
        }
        (State::DeadPlacing, Event::Retry) => State::Reserved,
        (State::DeadExpiring, Event::Retry) => State::Expiring,
        _ => return None,
    })
}

impl Settle {
    fn decide(&self, values: &[Option<&[u8]>], now: Micros) -> (Vec<Write>, Settled) {
        let no = |answer| (Vec::new(), answer);
        let cell = |number: usize| values.get(number).copied().flatten();
        let Some(bytes) = cell(0) else { return no(Settled::NoSale) };
        let Some(mut head) = Head::decode(bytes) else { return no(Settled::Foreign) };
        if head.is_gone(now) {
            return no(Settled::NoSale);
        }
        if head.layout.epoch != self.epoch || head.mode == Mode::Rebuilding {
            return no(Settled::Stale);
        }
        let Some(mut bucket) = Bucket::of(self.epoch, cell(1)) else { return no(Settled::Foreign) };
        let mut buyers = Vec::with_capacity(self.buyers.len());
        for (number, buyer) in self.buyers.iter().enumerate() {
            match units_of_buyer(self.epoch, cell(number + 2)) {
                Some(units) => buyers.push((buyer, units, false)),
                None => return no(Settled::Foreign),
            }
        }
        let mut changed = false;
        let mut answers = Vec::with_capacity(self.events.len());
        for (number, event) in &self.events {
            let Some(record) = bucket.records.iter_mut().find(|record| record.number == *number) else {
                answers.push(None);
                continue;
            };
            let next = after(record, *event, now).filter(|next| {
                // Without the buyer's cell the limit would not come back.
                !next.has_ended() || buyers.iter().any(|(buyer, ..)| **buyer == record.buyer)
            });
            let Some(next) = next else {
                let failed = matches!(event, Event::Failed { .. }) && record.state.is_pending();
                if failed {
                    record.attempts = record.attempts.saturating_add(1);
                    changed = true;
                }
                answers.push(Some((record.state, failed)));
                continue;
            };
            head.shift(record.state, next, record.quantity);
            if *event == Event::NoStock {
                head.available = head.available.saturating_sub(record.quantity);
                head.stock = head.stock.saturating_sub(record.quantity);
            }
            if *event == Event::Retry {
                record.deadline = now.saturating_add(head.pay_within);
            }
            if next.has_ended()
                && let Some((_, units, touched)) =
                    buyers.iter_mut().find(|(buyer, ..)| **buyer == record.buyer)
            {
                *units = units.saturating_sub(record.quantity);
                *touched = true;
            }
            record.attempts = 0;
            record.state = next;
            changed = true;
            answers.push(Some((next, true)));
        }
        if !changed {
            return no(Settled::Now(answers));
        }
        bucket.forget_ended();
        head.set_pending(self.bucket, bucket.is_pending());
        let mut writes = vec![head.put_head(now), head.put(bucket.encode(), now)];
        writes.extend(buyers.into_iter().map(|(_, units, touched)| match (touched, units) {
            (false, _) => Write::Keep,
            (true, 0) => Write::Delete,
            (true, units) => head.put(encode_buyer(self.epoch, units), now),
        }));
        (writes, Settled::Now(answers))
    }
}

impl Rule for Settle {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        let (writes, answer) = self.decide(values, now);
        Decision { writes, answer: encode(&answer) }
    }
}

/// There is no such reservation.
const NOTHING: u8 = 0xff;
const CHANGED: u8 = 0x80;

fn encode(answer: &Settled) -> Vec<u8> {
    match answer {
        Settled::Foreign => vec![0],
        Settled::NoSale => vec![2],
        Settled::Stale => vec![3],
        Settled::Now(states) => {
            let state = |state: &Option<(State, bool)>| match state {
                None => NOTHING,
                Some((state, changed)) => state.byte() | if *changed { CHANGED } else { 0 },
            };
            std::iter::once(1).chain(states.iter().map(state)).collect()
        }
    }
}

impl TypedRule for Settle {
    type Answer = Settled;

    fn read(&self, answer: &[u8]) -> Option<Settled> {
        let (word, states) = answer.split_first()?;
        Some(match *word {
            0 => Settled::Foreign,
            1 if states.len() == self.events.len() => {
                let state = |byte: &u8| match *byte {
                    NOTHING => Some(None),
                    byte => State::from_byte(byte & !CHANGED).map(|state| Some((state, byte & CHANGED != 0))),
                };
                Settled::Now(states.iter().map(state).collect::<Option<_>>()?)
            }
            2 => Settled::NoSale,
            3 => Settled::Stale,
            _ => return None,
        })
    }
}
