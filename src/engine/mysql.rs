//! Claims kept in a MySQL or MariaDB database.
//!
//! A name is a row of a table. It is taken and given back by one statement each where nobody else
//! uses it, and read and replaced by compare-and-set where somebody does: see `engine::sql`. What
//! must be written together goes to the server in one packet with its `start transaction` and
//! `commit`, so a client that is stopped never holds a lock in the database. Time is read from the
//! server (`utc_timestamp(6)`), never from the caller.
//!
//! Nothing depends on a session: claims survive the end of a connection and of the server. The
//! server can not call a client, so waiters of other processes ask again, often at first and then
//! every tenth of a second. A replica that is promoted before it has heard of the last grants may
//! give them again; always check the token. Galera and groups with several primaries are refused.

use crate::engine::Engine;
use crate::engine::sql::SqlEngine;
use crate::error::Result;
use crate::random;

use self::database::Mysql;
use self::url::Place;

mod advisory;
mod certificates;
mod connection;
mod database;
mod errors;
mod neighbours;
mod packet;
mod pool;
pub(crate) mod promises;
mod requirements;
mod rows;
mod schema;
mod shedlock;
mod statement;
#[cfg(feature = "mysql-tls")]
mod tls;
mod url;

pub use self::schema::migration;

/// Connects to the database at a URL.
pub(crate) async fn open(url: &str) -> Result<Box<dyn Engine>> {
    let place = Place::parse(url)?;
    if place.advisory {
        return Ok(Box::new(advisory::open(place).await?));
    }
    if place.blame.shedlock.is_some() {
        return Ok(Box::new(shedlock::open(place).await?));
    }
    let seat = random::number()?;
    let (database, now) = Mysql::open(place, seat).await?;
    Ok(Box::new(SqlEngine::open(database, seat, now)?))
}
