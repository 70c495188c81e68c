//! The database that orders are placed in.

use std::fmt;

use super::answer::Reservation;

/// Where reservations become orders: usually a database, which decides.
///
/// Both calls may come several times for one reservation, from several processes, also at the same
/// time and late: the database must make them one, by the id of the reservation. docs/sale.md has
/// the statements.
///
/// An error means that nobody knows whether it has happened: the call is repeated after a pause. So
/// is one that takes longer than [`Worker::call_limit`](super::Worker::call_limit).
pub trait Orders: Send + Sync {
    /// What goes wrong.
    type Error: fmt::Display + Send;

    /// Places the order of a reservation, unless there is one. If [`Orders::expire`] was called for
    /// it before, the order must not be placed any more: that is [`Placed::Refused`]. Nor if it was
    /// [`Placed::NoStock`] before in the same epoch, although there may be units again.
    fn place(&self, reservation: &Reservation) -> impl Future<Output = Result<Placed, Self::Error>> + Send;

    /// Ends the order of a reservation, whether it is there or not, unless it is paid. It must
    /// leave a mark, so that a call of [`Orders::place`] that is late does nothing.
    fn expire(&self, reservation: &Reservation) -> impl Future<Output = Result<Expired, Self::Error>> + Send;
}

/// What became of an order that was to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It is there, from this call or an earlier one.
    Yes,
    /// It is not wanted. The units can be sold to others.
    Refused,
    /// The database has no units for it: the store has more than there are. They are taken out of
    /// the sale. It must leave a mark: another call for the same reservation must be answered the
    /// same, or the database would have an order that the sale has refused.
    NoStock,
}

/// What became of an order that was to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// It is over, and the database has its units back if it had given them.
    Yes,
    /// It is paid: it was paid before this call.
    Paid,
}

/// For a sale without a database, in which the engine decides alone.
impl Orders for () {
    type Error = std::convert::Infallible;

    async fn place(&self, _reservation: &Reservation) -> Result<Placed, Self::Error> {
        Ok(Placed::Yes)
    }

    async fn expire(&self, _reservation: &Reservation) -> Result<Expired, Self::Error> {
        Ok(Expired::Yes)
    }
}

impl<O: Orders> Orders for &O {
    type Error = O::Error;

    fn place(&self, reservation: &Reservation) -> impl Future<Output = Result<Placed, Self::Error>> + Send {
        (**self).place(reservation)
    }

    fn expire(&self, reservation: &Reservation) -> impl Future<Output = Result<Expired, Self::Error>> + Send {
        (**self).expire(reservation)
    }
}
