//! The statements of a table of ShedLock.
//!
//! They do what those of ShedLock with `usingDbTime()` do: columns without a time zone that keep
//! UTC. The time is read when the statement runs (`clock_timestamp()`), not when it began.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connection::Server;
use super::pool::Pool;
use super::prepared::Parameter;
use super::promises::{ENGINE, SHEDLOCK};
use super::shared::Shared;
use super::statements::with_settings;
use super::url::Place;
use crate::claim::{Micros, Seat};
use crate::engine::shedlock::{LONGEST_TEXT, LockRow, LockTable, MARK, Seen, Shedlock, Take};
use crate::engine::sql::{Attempt, Failure};
use crate::engine::{Connection, Guarantees, Hints};
use crate::error::{Error, Result};

/// The longest name where the column sets no limit.
const LONGEST_NAME: usize = 255;

/// The columns of a table: names, types, and how long or how exact they are.
const COLUMNS: &str = "select a.attname::text, a.atttypid::regtype::text, a.atttypmod from pg_attribute a \
     where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped";

/// Connects, and makes sure that the table is one of ShedLock.
pub(super) async fn open(place: Place, seat: Seat) -> Result<Shedlock<PostgresTable>> {
    let connections = place.connections;
    let Some(shedlock) = place.shedlock.clone() else { return Err(Error::invalid("no table is named")) };
    let server = Arc::new(Server::new(place)?);
    let pool = Pool::open(Arc::clone(&server), connections).await?;
    let now = pool.connected_now().map_or(0, |connected| connected.now);
    let shared = Shared { server, pool, seat };
    let columns = shared.rows(&[], COLUMNS, &[(&shedlock.table, Type::TEXT)]).await;
    let columns = columns.map_err(Failure::into_error)?;
    let longest_name = check(&columns, &shedlock.table, &shared.server.names.server)?;
    let statements = Statements::new(&shedlock.table);
    Ok(Shedlock::new(PostgresTable { shared, statements, longest_name }, shedlock.at_least, now))
}

/// How many characters a name may have; an error if the columns are not those of ShedLock.
fn check(columns: &[Row], table: &str, server: &str) -> Result<usize> {
    let wrong = |what: String| {
        Err(Error::Engine {
            engine: ENGINE,
            what: format!("{table} at `{server}` is not a table of ShedLock: {what}"),
            source: None,
        })
    };
    let find = |name: &str| columns.iter().find(|row| row.get::<_, String>(0) == name);
    let mut lengths = [LONGEST_NAME; 2];
    for (column, length) in ["name", "locked_by"].into_iter().zip(&mut lengths) {
        let Some(row) = find(column) else { return wrong(format!("it has no column `{column}`")) };
        // Of a text with a limit, the server says 4 more.
        if let Some(limit) = row.get::<_, i32>(2).checked_sub(4).and_then(|limit| usize::try_from(limit).ok())
        {
            *length = limit;
        }
    }
    if lengths[1] < LONGEST_TEXT {
        return wrong(format!("`locked_by` has room for {}, and {LONGEST_TEXT} are needed", lengths[1]));
    }
    for column in ["lock_until", "locked_at"] {
        let Some(row) = find(column) else { return wrong(format!("it has no column `{column}`")) };
        let (kind, exactness): (String, i32) = (row.get(1), row.get(2));
        // With a time zone, what ShedLock writes depends on the zone of each session.
        if kind != "timestamp without time zone" || (0..3).contains(&exactness) {
            return wrong(format!("`{column}` must be a `timestamp`, without time zone and exact to 1 ms"));
        }
    }
    Ok(lengths[0])
}

#[derive(Debug)]
struct Statements {
    take: String,
    extend: String,
    give_back: String,
    read: String,
    list: String,
    end: String,
}

impl Statements {
    fn new(table: &str) -> Statements {
        let statement = |text: &str| {
            let text = with_settings(text).replace(":utc", "timezone('utc', clock_timestamp())");
            text.replace(":mark", &MARK.to_string()).replace(":table", table)
        };
        Statements {
            take: statement(include_str!("shedlock/take.sql")),
            extend: statement(include_str!("shedlock/extend.sql")),
            give_back: statement(include_str!("shedlock/give_back.sql")),
            read: statement(include_str!("shedlock/read.sql")),
            list: statement(include_str!("shedlock/list.sql")),
            end: statement(include_str!("shedlock/end.sql")),
        }
    }
}

/// A table of ShedLock in a PostgreSQL database.
#[derive(Debug)]
pub(crate) struct PostgresTable {
    shared: Shared,
    statements: Statements,
    longest_name: usize,
}

fn micros(duration: Duration) -> f64 {
    // The server multiplies intervals with such numbers; whole microseconds have room in them.
    duration.as_micros() as f64
}

fn uint(number: i64) -> u64 {
    number.max(0).cast_unsigned()
}

/// Rows with the time in the last column. A row without a name tells the time only.
fn lock_rows(rows: &[Row]) -> std::result::Result<(Micros, Vec<LockRow>), tokio_postgres::Error> {
    let now = rows.first().map_or(Ok(0), |row| row.try_get(4).map(uint))?;
    let mut named = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(name) = row.try_get(0)? else { continue };
        let (lock_until, locked_at) = (uint(row.try_get(1)?), uint(row.try_get(2)?));
        named.push(LockRow { name, lock_until, locked_at, locked_by: row.try_get(3)? });
    }
    Ok((now, named))
}

impl LockTable for PostgresTable {
    fn guarantees(&self) -> Guarantees {
        SHEDLOCK
    }

    fn longest_name(&self) -> usize {
        self.longest_name
    }

    async fn take(&self, take: &Take<'_>) -> Attempt<Option<Micros>> {
        let (lease, not_after) = (micros(take.lease), i64::try_from(take.not_after).unwrap_or(i64::MAX));
        let parameters: [Parameter<'_>; 5] = [
            (&take.name, Type::TEXT),
            (&take.owner, Type::TEXT),
            (&take.locked_by, Type::TEXT),
            (&lease, Type::FLOAT8),
            (&not_after, Type::INT8),
        ];
        let taken = |rows: &[Row]| rows.first().map(|row| row.try_get(0).map(uint)).transpose();
        self.shared.read(take.name.as_bytes(), &self.statements.take, &parameters, taken).await
    }

    async fn extend(&self, name: &str, owner: &str, lease: Duration) -> Attempt<bool> {
        let lease = micros(lease);
        let parameters: [Parameter<'_>; 3] =
            [(&name, Type::TEXT), (&owner, Type::TEXT), (&lease, Type::FLOAT8)];
        Ok(self.shared.count(name.as_bytes(), &self.statements.extend, &parameters).await? > 0)
    }

    async fn give_back(&self, name: &str, owner: &str, at_least: Duration) -> Attempt<bool> {
        let at_least = micros(at_least);
        let parameters: [Parameter<'_>; 3] =
            [(&name, Type::TEXT), (&owner, Type::TEXT), (&at_least, Type::FLOAT8)];
        Ok(self.shared.count(name.as_bytes(), &self.statements.give_back, &parameters).await? > 0)
    }

    async fn read(&self, name: &str) -> Attempt<Seen> {
        let parameters: [Parameter<'_>; 1] = [(&name, Type::TEXT)];
        let (now, rows) =
            self.shared.read(name.as_bytes(), &self.statements.read, &parameters, lock_rows).await?;
        Ok(Seen { now, row: rows.into_iter().next() })
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Attempt<(Micros, Vec<LockRow>)> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters: [Parameter<'_>; 3] =
            [(&prefix, Type::TEXT), (&after, Type::TEXT), (&limit, Type::INT8)];
        self.shared.read(&[], &self.statements.list, &parameters, lock_rows).await
    }

    async fn end(&self, name: &str, locked_by: &str) -> Attempt<bool> {
        let parameters: [Parameter<'_>; 2] = [(&name, Type::TEXT), (&locked_by, Type::TEXT)];
        Ok(self.shared.count(name.as_bytes(), &self.statements.end, &parameters).await? > 0)
    }

    fn listen(&self, hints: Hints) {
        // Called once.
        self.shared.server.hints.set(hints).ok();
    }

    fn connection(&self, name: &str) -> Connection {
        self.shared.pool.connection(name.as_bytes())
    }

    fn trouble(&self) -> String {
        self.shared.pool.trouble()
    }

    fn close(&self) {
        self.shared.pool.close();
    }
}
