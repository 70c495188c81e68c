//! Names kept as records that are replaced by compare-and-swap, and whose holders live as long as
//! their sessions.
//!
//! What is here knows nothing of a protocol. A [`store::Store`] reads a name, writes it if nobody
//! has written it since, and says which sessions live; the rest follows: asking, waiting, handing
//! over, renewing, and cells.
//!
//! The stores behind it agree by majority and end the sessions of clients that are silent. They
//! have no clock that a client could read, so no clock decides who holds a name.

mod acquire;
mod cells;
mod claims;
mod engine;
mod expiry;
mod failure;
mod found;
mod held;
mod mail;
mod names;
mod reads;
mod record;
mod requests;
mod seats;
mod seen;
pub(crate) mod store;
mod sweep;
mod version;
mod writes;

pub(crate) use self::engine::SessionsEngine;
pub(crate) use self::failure::{Attempt, Failure};
#[cfg(feature = "zookeeper")]
pub(crate) use self::mail::Letter;
pub(crate) use self::mail::{read as read_letters, write as write_letters};
pub(crate) use self::names::{Heard, Names, now};
