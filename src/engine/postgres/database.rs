//! The statements of the engine, over its connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use super::connection::Server;
use super::listener::{Listener, Message, changed_channel, seat_channel};
use super::pool::Pool;
use super::prepared::Parameter;
use super::promises::GUARANTEES;
use super::shared::Shared;
use super::url::Place;
use crate::claim::{Micros, OwnerId, Seat};
use crate::engine::sql::row::{Columns, NameRow, WaiterRow, key_of, owner_bytes};
use crate::engine::sql::{
    Attempt, CellWrite, Database, Durability, Found, GiveBack, KeyedRows, NameWrite, RowWrite, Swept, Take,
};
use crate::engine::table::Notice;
use crate::engine::table::cell::StoredCell;
use crate::engine::{Connection, Guarantees, Hint, Hints};
use crate::error::Result;
use crate::name::Name;

/// A PostgreSQL database.
#[derive(Debug)]
pub(crate) struct Postgres {
    shared: Arc<Shared>,
    listener: Listener,
}

/// In place of a key: a statement for many of them goes over the connection that there is for sure.
const MANY: &[u8] = &[];

impl Postgres {
    /// Connects, and says what time it is at the server.
    pub(super) async fn open(place: Place, seat: Seat) -> Result<(Postgres, Micros)> {
        let (connections, listen) = (place.connections, place.listen);
        let server = Arc::new(Server::new(place)?);
        let pool = Pool::open(Arc::clone(&server), connections).await?;
        let now = pool.connected_now().map_or(0, |connected| connected.now);
        let shared = Arc::new(Shared { server, pool, seat });
        let listener = Listener::new(Arc::clone(&shared), listen);
        Ok((Postgres { shared, listener }, now))
    }
}

/// A number as the server has it. What is larger than it can have is far away in any case.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn uint(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The columns of a row as parameters.
struct ColumnValues {
    at: i64,
    last: i64,
    idle_after: Option<i64>,
    first_token: Option<i64>,
    last_token: Option<i64>,
    ends: Option<i64>,
}

impl From<&Columns> for ColumnValues {
    fn from(columns: &Columns) -> ColumnValues {
        ColumnValues {
            at: int(columns.at),
            last: int(columns.last),
            idle_after: columns.idle_after.map(int),
            first_token: columns.sole.map(|sole| int(sole.first_token)),
            last_token: columns.sole.map(|sole| int(sole.last_token)),
            ends: columns.sole.map(|sole| int(sole.ends)),
        }
    }
}

/// Rows of names with the time in the last column. A row without a key tells the time only.
fn name_rows(rows: &[Row]) -> Understood<(Micros, KeyedRows)> {
    let mut named = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(key) = row.try_get(0)? {
            named.push((key, name_row(row)?));
        }
    }
    Ok((time(rows)?, named))
}

/// What is in rows, or why that can not be.
type Understood<T> = std::result::Result<T, tokio_postgres::Error>;

/// The time, where rows have it in their sixth column.
fn time(rows: &[Row]) -> Understood<Micros> {
    rows.first().map_or(Ok(0), |row| row.try_get(5).map(uint))
}

fn name_row(row: &Row) -> Understood<NameRow> {
    Ok(NameRow {
        version: row.try_get(1)?,
        at: uint(row.try_get(2)?),
        last: uint(row.try_get(3)?),
        record: row.try_get(4)?,
    })
}

fn waiter_row(row: &Row) -> Understood<WaiterRow> {
    Ok(WaiterRow {
        place: uint(row.try_get(1)?),
        alive_until: uint(row.try_get(2)?),
        waiter: row.try_get(4)?,
    })
}

/// A name with those who wait for it: the first column says what a row is.
fn found(rows: &[Row]) -> Understood<Found> {
    let mut found = Found { now: 0, row: None, first: Vec::new(), own: None };
    for row in rows {
        match row.try_get::<_, i32>(0)? {
            0 => {
                found.now = uint(row.try_get(5)?);
                if row.try_get::<_, Option<i64>>(1)?.is_some() {
                    found.row = Some(name_row(row)?);
                }
            }
            1 => found.first.push(waiter_row(row)?),
            _ => found.own = Some(waiter_row(row)?),
        }
    }
    // The parts of a union have no order.
    found.first.sort_unstable_by_key(|waiter| waiter.place);
    Ok(found)
}

/// The first column of all rows.
fn firsts<T: for<'a> FromSql<'a>>(rows: &[Row]) -> Understood<Vec<T>> {
    rows.iter().map(|row| row.try_get(0)).collect()
}

impl Database for Postgres {
    fn guarantees(&self) -> Guarantees {
        GUARANTEES
    }

    async fn take(&self, take: &Take<'_>) -> Attempt<Option<Micros>> {
        let values = ColumnValues::from(take.columns);
        let not_after = int(take.not_after);
        self.shared
            .read(
                take.key,
                &self.shared.server.statements.take,
                &[
                    (&take.key, Type::BYTEA),
                    (&take.version, Type::INT8),
                    (&values.last, Type::INT8),
                    (&values.idle_after, Type::INT8),
                    (&values.first_token, Type::INT8),
                    (&values.last_token, Type::INT8),
                    (&values.ends, Type::INT8),
                    (&take.columns.record, Type::BYTEA),
                    (&not_after, Type::INT8),
                ],
                |rows| rows.first().map(|row| row.try_get(0).map(uint)).transpose(),
            )
            .await
    }

    async fn give_back(&self, give_back: &GiveBack<'_>) -> Attempt<bool> {
        let last = int(give_back.last);
        let count = self
            .shared
            .count(
                give_back.key,
                &self.shared.server.statements.give_back,
                &[
                    (&give_back.key, Type::BYTEA),
                    (&give_back.expected, Type::INT8),
                    (&give_back.version, Type::INT8),
                    (&last, Type::INT8),
                ],
            )
            .await?;
        Ok(count > 0)
    }

    async fn read_name(&self, key: &[u8], own: Option<OwnerId>, most: usize) -> Attempt<Found> {
        let own = own.map(owner_bytes);
        let own: Option<&[u8]> = own.as_ref().map(<[u8; 16]>::as_slice);
        let most = int(most as u64);
        let parameters: [Parameter<'_>; 3] = [(&key, Type::BYTEA), (&most, Type::INT8), (&own, Type::BYTEA)];
        self.shared.read(key, &self.shared.server.statements.read_name, &parameters, found).await
    }

    async fn write_name(&self, write: &NameWrite) -> Attempt<bool> {
        let RowWrite { key, expected, version, columns } = &write.row;
        let key = key.as_slice();
        let values = ColumnValues::from(columns);
        let not_after = write.not_after.map(int);
        let flushed = write.durability == Durability::Flushed;
        let mut parameters: Vec<Parameter<'_>> = vec![
            (&key, Type::BYTEA),
            (expected, Type::INT8),
            (version, Type::INT8),
            (&values.at, Type::INT8),
            (&values.last, Type::INT8),
            (&values.idle_after, Type::INT8),
            (&values.first_token, Type::INT8),
            (&values.last_token, Type::INT8),
            (&values.ends, Type::INT8),
            (&columns.record, Type::BYTEA),
            (&not_after, Type::INT8),
            (&flushed, Type::BOOL),
        ];
        let statements = &self.shared.server.statements;
        if write.insert.is_empty() && write.touch.is_empty() && write.delete.is_empty() {
            let statement = match expected {
                Some(_) => &statements.update_name,
                None => &statements.insert_name,
            };
            return Ok(!self.shared.rows(key, statement, &parameters).await?.is_empty());
        }
        let places: Vec<i64> = write.insert.iter().map(|waiter| int(waiter.row.place)).collect();
        let owners: Vec<Vec<u8>> =
            write.insert.iter().map(|waiter| owner_bytes(waiter.owner).to_vec()).collect();
        let alive: Vec<i64> = write.insert.iter().map(|waiter| int(waiter.row.alive_until)).collect();
        let waiters: Vec<&[u8]> = write.insert.iter().map(|waiter| waiter.row.waiter.as_slice()).collect();
        let (touched, until): (Vec<i64>, Vec<i64>) =
            write.touch.iter().map(|(place, until)| (int(*place), int(*until))).unzip();
        let deleted: Vec<i64> = write.delete.iter().map(|place| int(*place)).collect();
        parameters.extend([
            (&places as &(dyn ToSql + Sync), Type::INT8_ARRAY),
            (&owners, Type::BYTEA_ARRAY),
            (&alive, Type::INT8_ARRAY),
            (&waiters, Type::BYTEA_ARRAY),
            (&touched, Type::INT8_ARRAY),
            (&until, Type::INT8_ARRAY),
            (&deleted, Type::INT8_ARRAY),
        ]);
        let statement = match expected {
            Some(_) => &statements.update_name_and_queue,
            None => &statements.insert_name_and_queue,
        };
        Ok(!self.shared.rows(key, statement, &parameters).await?.is_empty())
    }

    async fn touch_waiter(&self, key: &[u8], place: u64, alive_until: Micros) -> Attempt<()> {
        let (place, alive_until) = (int(place), int(alive_until));
        let parameters: [Parameter<'_>; 3] =
            [(&key, Type::BYTEA), (&place, Type::INT8), (&alive_until, Type::INT8)];
        self.shared.count(key, &self.shared.server.statements.touch_waiter, &parameters).await.map(|_| ())
    }

    async fn delete_waiters(&self, key: &[u8], version: Option<i64>) -> Attempt<()> {
        let statement = &self.shared.server.statements.delete_waiters;
        let parameters: [Parameter<'_>; 2] = [(&key, Type::BYTEA), (&version, Type::INT8)];
        self.shared.count(key, statement, &parameters).await.map(|_| ())
    }

    async fn read_names(&self, keys: &[Vec<u8>]) -> Attempt<(Micros, KeyedRows)> {
        let statement = &self.shared.server.statements.read_names;
        self.shared.read(MANY, statement, &[(&keys, Type::BYTEA_ARRAY)], name_rows).await
    }

    async fn write_names(&self, writes: &[RowWrite]) -> Attempt<Vec<Vec<u8>>> {
        let values: Vec<ColumnValues> = writes.iter().map(|write| (&write.columns).into()).collect();
        let keys: Vec<&[u8]> = writes.iter().map(|write| write.key.as_slice()).collect();
        let expected: Vec<Option<i64>> = writes.iter().map(|write| write.expected).collect();
        let versions: Vec<i64> = writes.iter().map(|write| write.version).collect();
        let last: Vec<i64> = values.iter().map(|values| values.last).collect();
        let idle_after: Vec<Option<i64>> = values.iter().map(|values| values.idle_after).collect();
        let first_token: Vec<Option<i64>> = values.iter().map(|values| values.first_token).collect();
        let last_token: Vec<Option<i64>> = values.iter().map(|values| values.last_token).collect();
        let ends: Vec<Option<i64>> = values.iter().map(|values| values.ends).collect();
        let records: Vec<Option<&[u8]>> =
            writes.iter().map(|write| write.columns.record.as_deref()).collect();
        self.shared
            .read(
                MANY,
                &self.shared.server.statements.write_names,
                &[
                    (&keys, Type::BYTEA_ARRAY),
                    (&expected, Type::INT8_ARRAY),
                    (&versions, Type::INT8_ARRAY),
                    (&last, Type::INT8_ARRAY),
                    (&idle_after, Type::INT8_ARRAY),
                    (&first_token, Type::INT8_ARRAY),
                    (&last_token, Type::INT8_ARRAY),
                    (&ends, Type::INT8_ARRAY),
                    (&records, Type::BYTEA_ARRAY),
                ],
                firsts,
            )
            .await
    }

    async fn list_names(&self, from: &[u8], to: &[u8], most: usize) -> Attempt<(Micros, KeyedRows)> {
        let most = int(most as u64);
        let parameters: [Parameter<'_>; 3] = [(&from, Type::BYTEA), (&to, Type::BYTEA), (&most, Type::INT8)];
        self.shared.read(MANY, &self.shared.server.statements.list_names, &parameters, name_rows).await
    }

    async fn sweep_names(&self, from: &[u8], most: usize) -> Attempt<Swept> {
        let most = int(most as u64);
        let parameters: [Parameter<'_>; 2] = [(&from, Type::BYTEA), (&most, Type::INT8)];
        let swept = |rows: &[Row]| match rows.first() {
            Some(row) => Ok(Swept { last: row.try_get(0)?, unclear: row.try_get(1)? }),
            None => Ok(Swept::default()),
        };
        self.shared.read(MANY, &self.shared.server.statements.sweep_names, &parameters, swept).await
    }

    async fn sweep_cells(&self, from: &[u8], most: usize) -> Attempt<Option<Vec<u8>>> {
        let most = int(most as u64);
        let parameters: [Parameter<'_>; 2] = [(&from, Type::BYTEA), (&most, Type::INT8)];
        let last = |rows: &[Row]| rows.first().map_or(Ok(None), |row| row.try_get(0));
        self.shared.read(MANY, &self.shared.server.statements.sweep_cells, &parameters, last).await
    }

    async fn read_cells(&self, keys: &[Vec<u8>]) -> Attempt<(Micros, Vec<Option<StoredCell>>)> {
        let Some(first) = keys.first() else { return Ok((0, Vec::new())) };
        let statement = &self.shared.server.statements.read_cells;
        let cells = |rows: &[Row]| {
            let mut cells = vec![None; keys.len()];
            for row in rows {
                let (place, version): (i64, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
                let place = usize::try_from(place - 1).ok().and_then(|place| cells.get_mut(place));
                if let (Some(place), Some(version)) = (place, version) {
                    *place = Some(StoredCell {
                        version: uint(version),
                        changed_at: uint(row.try_get(2)?),
                        expires: uint(row.try_get(3)?),
                        bytes: row.try_get(4)?,
                    });
                }
            }
            Ok((time(rows)?, cells))
        };
        self.shared.read(first, statement, &[(&keys, Type::BYTEA_ARRAY)], cells).await
    }

    async fn list_cells(&self, from: &[u8], to: &[u8], most: usize) -> Attempt<Vec<Vec<u8>>> {
        let most = int(most as u64);
        let parameters: [Parameter<'_>; 3] = [(&from, Type::BYTEA), (&to, Type::BYTEA), (&most, Type::INT8)];
        self.shared.read(MANY, &self.shared.server.statements.list_cells, &parameters, firsts).await
    }

    async fn write_cells(&self, writes: &[CellWrite]) -> Attempt<bool> {
        let statements = &self.shared.server.statements;
        if let [CellWrite { key, expected: None, cell: Some(cell) }] = writes {
            let (version, changed_at, expires) = (int(cell.version), int(cell.changed_at), int(cell.expires));
            let parameters: [Parameter<'_>; 5] = [
                (key, Type::BYTEA),
                (&version, Type::INT8),
                (&changed_at, Type::INT8),
                (&expires, Type::INT8),
                (&cell.bytes, Type::BYTEA),
            ];
            return Ok(!self.shared.rows(key, &statements.insert_cell, &parameters).await?.is_empty());
        }
        let Some(first) = writes.first() else { return Ok(true) };
        let missing: Vec<&[u8]> = writes
            .iter()
            .filter(|write| write.expected.is_none())
            .map(|write| write.key.as_slice())
            .collect();
        if !missing.is_empty() {
            let parameters: [Parameter<'_>; 1] = [(&missing, Type::BYTEA_ARRAY)];
            self.shared.count(&first.key, &statements.reserve_cells, &parameters).await?;
        }
        let keys: Vec<&[u8]> = writes.iter().map(|write| write.key.as_slice()).collect();
        let expected: Vec<i64> = writes.iter().map(|write| int(write.expected.unwrap_or(0))).collect();
        let cell = |part: fn(&StoredCell) -> u64| -> Vec<Option<i64>> {
            writes.iter().map(|write| write.cell.as_ref().map(|cell| int(part(cell)))).collect()
        };
        let versions = cell(|cell| cell.version);
        let changed_at = cell(|cell| cell.changed_at);
        let expires = cell(|cell| cell.expires);
        let bytes: Vec<Option<&[u8]>> =
            writes.iter().map(|write| write.cell.as_ref().map(|cell| cell.bytes.as_slice())).collect();
        let held: i64 = self
            .shared
            .read(
                &first.key,
                &statements.write_cells,
                &[
                    (&keys, Type::BYTEA_ARRAY),
                    (&expected, Type::INT8_ARRAY),
                    (&versions, Type::INT8_ARRAY),
                    (&changed_at, Type::INT8_ARRAY),
                    (&expires, Type::INT8_ARRAY),
                    (&bytes, Type::BYTEA_ARRAY),
                ],
                |rows| rows.first().map_or(Ok(0), |row| row.try_get(0)),
            )
            .await?;
        Ok(held == int(writes.len() as u64))
    }

    fn notify(&self, notices: Vec<Notice>, changed: Vec<Name>) {
        let mut messages: BTreeMap<String, String> = BTreeMap::new();
        for Notice { seat, hint } in notices {
            let message = match hint {
                Hint::Wake(owner) => Message::Wake(owner),
                Hint::Granted { owner, grant, round } => Message::Granted { owner, grant, asking: round },
                Hint::Broken(owner) => Message::Broken(owner),
                _ => continue,
            };
            message.append(messages.entry(seat_channel(seat)).or_default());
        }
        for name in changed {
            let text = messages.entry(changed_channel(&self.shared.server.names.tables)).or_default();
            Message::Changed(key_of(&name)).append(text);
        }
        // More than one message holds: those who are left out ask again in time.
        messages.retain(|_, text| text.len() < 8000);
        let shared = Arc::clone(&self.shared);
        // Not before this task goes on: if it wants the name again, its place in the queue is
        // written first and is not in the way of whoever is woken.
        tokio::spawn(async move { shared.send(messages).await });
    }

    fn start_listening(&self) {
        self.listener.start();
    }

    fn hears(&self) -> bool {
        self.listener.hears()
    }

    async fn watch(&self, name: &Name) -> bool {
        self.listener.watch(name).await
    }

    fn unwatch(&self, name: &Name) {
        self.listener.unwatch(name);
    }

    fn listen(&self, hints: Hints) {
        // Called once; a second sink would never hear anything.
        self.shared.server.hints.set(hints).ok();
    }

    fn replace_statement(&self) -> String {
        self.shared.server.statements.replace_cell.clone()
    }

    fn add_statement(&self) -> String {
        self.shared.server.statements.add_cell.clone()
    }

    fn verify_statements(&self) -> (String, String) {
        let select = self.shared.server.statements.verify.clone();
        let or_fail = format!("select 1 / count(*) as held from ({select}) claim");
        (select, or_fail)
    }

    fn connection(&self, key: &[u8]) -> Connection {
        self.shared.pool.connection(key)
    }

    fn trouble(&self) -> Option<String> {
        Some(self.shared.pool.trouble())
    }

    fn close(&self) {
        self.listener.close();
        self.shared.pool.close();
    }

    fn is_closed(&self) -> bool {
        self.shared.pool.is_closed()
    }
}
