//! What callers are told.

use std::time::Duration;

use super::bucket::{Record, ReservationId, State};
use crate::claim::Micros;

/// What has become of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// It is the buyer's, and there is no order yet.
    Reserved,
    /// The order is in the database, and not paid.
    Ordered,
    /// It is paid.
    Paid,
    /// It was cancelled or its time is over. The units come back when the database knows.
    Ending,
    /// It was cancelled or its time was over, and the units came back.
    Released,
    /// The database did not take the order.
    Refused,
    /// A worker has given up: see [`Sale::dead_letters`](super::Sale::dead_letters).
    Dead,
}

impl From<State> for Standing {
    fn from(state: State) -> Standing {
        match state {
            State::Reserved => Standing::Reserved,
            State::Ordered => Standing::Ordered,
            State::Paid => Standing::Paid,
            State::Expiring => Standing::Ending,
            State::Released => Standing::Released,
            State::Refused => Standing::Refused,
            State::DeadPlacing | State::DeadExpiring => Standing::Dead,
        }
    }
}

/// A reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reservation {
    /// Its number.
    pub id: ReservationId,
    /// The epoch of the sale in which it was made.
    pub epoch: u32,
    /// Whose it is.
    pub buyer: String,
    /// How many units.
    pub quantity: u32,
    /// What has become of it.
    pub standing: Standing,
    /// How long it is kept for its buyer from now on.
    pub pay_within: Duration,
    /// How often a worker has failed with it.
    pub attempts: u8,
}

impl Reservation {
    pub(super) fn new(record: &Record, epoch: u32, now: Micros) -> Reservation {
        Reservation {
            id: ReservationId(record.number),
            epoch,
            buyer: record.buyer.clone(),
            quantity: record.quantity,
            standing: record.state.into(),
            pay_within: Duration::from_micros(record.deadline.saturating_sub(now)),
            attempts: record.attempts,
        }
    }
}

/// The answer to somebody who wants to buy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The units are reserved, now or by an earlier call with the same id.
    Reserved(Reservation),
    /// An earlier call with the same id has reserved them, and that has ended without a sale.
    Ended(Reservation),
    /// There are not enough units. What is reserved may still come back.
    SoldOut {
        /// So many are left.
        left: u32,
    },
    /// The sale has not begun.
    NotOpen {
        /// When it opens.
        opens_in: Duration,
    },
    /// The sale is over.
    Over,
    /// The buyer has as many as one buyer may have.
    LimitReached {
        /// So many more may be reserved.
        left: u32,
    },
    /// The sale is being rebuilt: ask again in a moment.
    Rebuilding,
    /// There is no such sale: [open](super::Sale::open) it, or [rebuild](super::Sale::rebuild) it
    /// if it was lost.
    NoSale,
}

/// What became of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Payment {
    /// It is paid, now or by an earlier call.
    Paid,
    /// The order is not placed yet: ask again in a moment.
    TooEarly,
    /// The reservation was cancelled, its time is over, or there is no order: see its standing.
    Ended(Standing),
    /// There is no such reservation in this epoch of the sale.
    Unknown,
}
