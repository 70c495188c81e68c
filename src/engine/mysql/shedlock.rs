//! The statements of a table of ShedLock.
//!
//! They do what those of ShedLock with `usingDbTime()` do: columns that keep `utc_timestamp(3)`. In
//! a column of type `timestamp` that is taken for a time in the zone of the session, which is the
//! server's for ShedLock's sessions and for ours.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mysql_async::Row;

use super::packet::{Answer, Packet};
use super::pool::{Over, Pool};
use super::promises::{ENGINE, SHEDLOCK};
use super::rows::{column, last};
use super::statement::Value;
use super::url::Place;
use crate::claim::Micros;
use crate::engine::shedlock::{LONGEST_TEXT, LockRow, LockTable, MARK, Seen, Shedlock, Take};
use crate::engine::sql::{Attempt, Failure};
use crate::engine::{Connection, Guarantees, Hints};
use crate::error::{Error, Result};

/// The columns of a table: names, types, and how long or how exact they are.
const COLUMNS: &str = "select column_name, data_type, \
     cast(coalesce(character_maximum_length, datetime_precision, 0) as signed) \
     from information_schema.columns where table_schema = database() and table_name = $1";

/// The server's time as ShedLock writes it.
const UTC: &str = "utc_timestamp(3)";

/// Connects, and makes sure that the table is one of ShedLock.
pub(super) async fn open(place: Place) -> Result<Shedlock<MysqlTable>> {
    let (at_least, name) = (place.at_least, place.blame.shedlock.clone().unwrap_or_default());
    let (place, hints) = (Arc::new(place), Arc::default());
    let (pool, now) = Pool::open(Arc::clone(&place), Arc::clone(&hints)).await?;
    let mut table = MysqlTable { place, pool, hints, name: format!("`{name}`"), longest_name: 0 };
    let columns = table.rows(&[], COLUMNS, &[Value::Text(&name)]).await.map_err(Failure::into_error)?;
    table.longest_name = table.check(columns)?;
    Ok(Shedlock::new(table, at_least, now))
}

/// A table of ShedLock in a MySQL or MariaDB database.
pub(crate) struct MysqlTable {
    place: Arc<Place>,
    pool: Pool,
    hints: Arc<OnceLock<Hints>>,
    /// In quotes.
    name: String,
    longest_name: usize,
}

impl fmt::Debug for MysqlTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = &self.place.blame.server;
        f.debug_struct("MysqlTable").field("server", server).field("name", &self.name).finish_non_exhaustive()
    }
}

impl MysqlTable {
    async fn send(&self, key: &[u8], text: &str, values: &[Value<'_>]) -> Attempt<Vec<Answer>> {
        let text = text.replace(":table", &self.name).replace(":utc", UTC);
        let text = text.replace(":mark", &MARK.to_string());
        let text = self.place.blame.tables.statement(&text, values);
        self.pool.send(Over::Key(key), Packet::plain(text)).await
    }

    /// The rows of the last statement of a text.
    async fn rows(&self, key: &[u8], text: &str, values: &[Value<'_>]) -> Attempt<Vec<Row>> {
        self.send(key, text, values).await.map(last)
    }

    /// Whether a statement found a row. One that does changes it, so a driver can not count it in
    /// two ways.
    async fn changes(&self, key: &[u8], text: &str, values: &[Value<'_>]) -> Attempt<bool> {
        Ok(self.send(key, text, values).await?.first().is_some_and(|answer| answer.affected > 0))
    }

    /// How many characters a name may have; an error if the columns are not those of ShedLock.
    fn check(&self, columns: Vec<Row>) -> Result<usize> {
        let (table, blame) = (&self.name, &self.place.blame);
        let error = |what: String| Err(Error::Engine { engine: ENGINE, what, source: None });
        if columns.is_empty() {
            return error(format!(
                "there is no table {table} in `{}` on `{}`; `create table {table} (name varchar(64) primary \
                 key, lock_until timestamp(3) not null, locked_at timestamp(3) not null default \
                 current_timestamp(3), locked_by varchar(255) not null)`",
                blame.database, blame.server
            ));
        }
        let wrong = |what: String| {
            error(format!(
                "{table} in `{}` on `{}` is not a table of ShedLock: {what}",
                blame.database, blame.server
            ))
        };
        let columns = columns.into_iter().filter_map(|row| mysql_async::from_row_opt(row).ok());
        let columns: Vec<(String, String, i64)> = columns.collect();
        let find = |name: &str| columns.iter().find(|(column, ..)| column.eq_ignore_ascii_case(name));
        for column in ["lock_until", "locked_at"] {
            match find(column) {
                None => return wrong(format!("it has no column `{column}`")),
                Some((_, kind, 3..=6)) if matches!(kind.as_str(), "timestamp" | "datetime") => {}
                // Cut to seconds, a lease would end before its holder knows.
                Some(_) => return wrong(format!("`{column}` must be a `timestamp(3)`")),
            }
        }
        let length = |column: &str| find(column).and_then(|(.., length)| usize::try_from(*length).ok());
        match (length("name"), length("locked_by")) {
            (None | Some(0), _) => wrong("it has no column `name` with a text".to_owned()),
            (Some(name), Some(room)) if room >= LONGEST_TEXT => Ok(name),
            (_, room) => wrong(format!(
                "`locked_by` has room for {}, and {LONGEST_TEXT} are needed",
                room.unwrap_or_default()
            )),
        }
    }
}

fn micros(duration: Duration) -> Value<'static> {
    Value::Int(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

/// The clock is cut to milliseconds, and so may the column be: both are made up for.
fn lease(lease: Duration) -> Value<'static> {
    micros(lease + Duration::from_millis(2))
}

/// Rows with the time in the last column. A row without a name tells the time only.
fn lock_rows(rows: &[Row]) -> Attempt<(Micros, Vec<LockRow>)> {
    let (mut now, mut named) = (0, Vec::with_capacity(rows.len()));
    for row in rows {
        now = column(row, 4)?;
        if let Some(name) = column::<Option<String>>(row, 0)? {
            let (lock_until, locked_at) = (column(row, 1)?, column(row, 2)?);
            named.push(LockRow { name, lock_until, locked_at, locked_by: column(row, 3)? });
        }
    }
    Ok((now, named))
}

impl LockTable for MysqlTable {
    fn guarantees(&self) -> Guarantees {
        SHEDLOCK
    }

    fn longest_name(&self) -> usize {
        self.longest_name
    }

    async fn take(&self, take: &Take<'_>) -> Attempt<Option<Micros>> {
        let values = [
            Value::Text(take.name),
            Value::Text(take.owner),
            Value::Text(take.locked_by),
            lease(take.lease),
            take.not_after.into(),
        ];
        let rows = self.rows(take.name.as_bytes(), include_str!("shedlock/take.sql"), &values).await?;
        rows.first().map(|row| column(row, 0)).transpose()
    }

    async fn extend(&self, name: &str, owner: &str, time: Duration) -> Attempt<bool> {
        let values = [Value::Text(name), Value::Text(owner), lease(time)];
        let rows = self.rows(name.as_bytes(), include_str!("shedlock/extend.sql"), &values).await?;
        Ok(!rows.is_empty())
    }

    async fn give_back(&self, name: &str, owner: &str, at_least: Duration) -> Attempt<bool> {
        let values = [Value::Text(name), Value::Text(owner), micros(at_least)];
        self.changes(name.as_bytes(), include_str!("shedlock/give_back.sql"), &values).await
    }

    async fn read(&self, name: &str) -> Attempt<Seen> {
        let values = [Value::Text(name)];
        let rows = self.rows(name.as_bytes(), include_str!("shedlock/read.sql"), &values).await?;
        let (now, rows) = lock_rows(&rows)?;
        Ok(Seen { now, row: rows.into_iter().next() })
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Attempt<(Micros, Vec<LockRow>)> {
        let after = after.unwrap_or_default().as_bytes();
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        let values = [prefix.as_bytes().into(), after.into(), limit.into()];
        lock_rows(&self.rows(&[], include_str!("shedlock/list.sql"), &values).await?)
    }

    async fn end(&self, name: &str, locked_by: &str) -> Attempt<bool> {
        let values = [Value::Text(name), Value::Text(locked_by)];
        self.changes(name.as_bytes(), include_str!("shedlock/end.sql"), &values).await
    }

    fn listen(&self, hints: Hints) {
        // Called once.
        self.hints.set(hints).ok();
    }

    fn connection(&self, name: &str) -> Connection {
        self.pool.connection(name.as_bytes())
    }

    fn trouble(&self) -> String {
        self.pool.trouble()
    }

    fn close(&self) {
        self.pool.close();
    }
}
