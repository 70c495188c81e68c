//! Claims kept in a PostgreSQL database.
//!
//! A name is a row of a table. It is taken and given back by one statement each where nobody else
//! uses it, and read and replaced by compare-and-set where somebody does: see `engine::sql`. Time
//! is read from the server (`clock_timestamp()`), never from the caller. A grant is on the server's
//! disk before it is answered.
//!
//! Nothing depends on a session: claims survive the end of a connection, of a backend and of the
//! server, and PgBouncer in transaction mode works. A standby that is promoted before it has heard
//! of the last grants may give them again; use synchronous replication where that matters, and
//! always check the token.

use crate::engine::Engine;
use crate::engine::sql::SqlEngine;
use crate::error::Result;
use crate::random;

use self::database::Postgres;
use self::url::Place;

mod advisory;
mod connection;
mod database;
mod errors;
mod listener;
mod one_by_one;
mod pool;
mod prepared;
pub(crate) mod promises;
mod schema;
mod shared;
mod shedlock;
mod statements;
#[cfg(feature = "postgres-tls")]
mod tls;
mod url;

pub use self::schema::migration;

/// Connects to the database at a URL.
pub(crate) async fn open(url: &str) -> Result<Box<dyn Engine>> {
    let place = Place::parse(url)?;
    if place.advisory {
        return Ok(Box::new(advisory::open(place).await?));
    }
    let seat = random::number()?;
    if place.shedlock.is_some() {
        return Ok(Box::new(shedlock::open(place, seat).await?));
    }
    let (database, now) = Postgres::open(place, seat).await?;
    Ok(Box::new(SqlEngine::open(database, seat, now)?))
}
