//! A flash sale that never sells more than there is, and loses no order.
//!
//! A [`Sale`] is a name with a stock. [`Sale::reserve`] is one atomic step that checks the window
//! of the sale, the buyer's limit and the stock, takes the units, writes the reservation and queues
//! it for the workers. That is one round trip on Redis; on SQL, etcd and ZooKeeper a step is a read
//! and a write. [`Sale::work`] turns reservations into orders in a database (see [`Orders`]) and
//! lets those expire that nobody pays for.
//!
//! What it promises:
//!
//! * Units that are reserved, ordered and paid are never more than the stock; what is released can
//!   be bought again; and a sale with shards is sold out only if no shard has a unit left.
//! * Whoever got no answer asks again with the same [`ReservationId`], and takes nothing twice.
//! * Every reservation is given to [`Orders`] at least once, whichever processes die. Of a payment
//!   and the expiry of a reservation one wins.
//!
//! What it does not promise: that a server which loses data (a fail-over of Redis) remembers what
//! it has sold. The database decides; [`Sale::rebuild`] begins a new epoch from what it says.

mod answer;
mod batch;
mod bucket;
mod figures;
mod head;
mod heads;
mod letters;
mod orders;
mod pass;
mod rebuild;
mod reserve;
mod sell;
mod settle;
mod store;
mod terms;
#[cfg(test)]
mod tests;
mod worker;

pub use self::answer::{Answer, Payment, Reservation, Standing};
pub use self::bucket::ReservationId;
pub use self::figures::{Difference, Figures, Ledger};
pub use self::orders::{Expired, Orders, Placed};
pub use self::rebuild::{Begun, Rebuild};
pub use self::reserve::{Part, Reserve};
pub use self::sell::{LONGEST_BUYER, Sale};
pub use self::terms::{LARGEST_STOCK, MOST_SHARDS, Terms};
pub use self::worker::{Worked, Worker};
