//! What the engines share that keep their claims in an SQL database.
//!
//! A name is a row, and so is each of its waiters and each cell. The rules run in this process
//! ([`crate::engine::table`]); SQL only reads rows and replaces them if they are still what was
//! read. So a client that is stopped in the middle of something holds no lock and no transaction in
//! the database.
//!
//! * **A name that nobody uses** is taken by one statement and given back by one. What the row will
//!   say is decided beforehand, at time 0, and the statement adds the time (see
//!   [`row::Columns::at`]). Of the rules SQL knows one number: from when on a row is as good as
//!   none.
//! * **Everything else** reads the row and the waiters that matter, runs the rule, and writes if
//!   the row still has the version that was read. If it does not, it is done again. One process
//!   does not compete with itself: its requests on a name go one after the other
//!   ([`crate::engine::gates`]).
//!
//! A [`Database`] has the statements and the connections. [`SqlEngine`] is an engine on top of it.
//! docs/internals/sql.md has the tables.

mod askings;
mod cells;
mod claims;
mod database;
mod engine;
mod list;
mod poll;
mod polled;
mod recent;
mod renew;
pub(crate) mod row;
mod seen;
mod server_clock;
mod slot;
mod state;
mod sweep;
mod sweeper;
mod tries;

pub(crate) use self::database::*;
pub(crate) use self::engine::SqlEngine;
pub(crate) use self::row::Found;
pub(crate) use self::server_clock::ServerClock;
pub(crate) use self::slot::Slot;
pub(crate) use self::tries::jitter;
