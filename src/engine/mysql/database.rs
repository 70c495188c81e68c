//! The statements that keep claims and cells in a MySQL database.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::errors::{is_duplicate, is_locked};
use super::neighbours;
use super::packet::Packet;
use super::pool::{Over, Pool};
use super::promises::GUARANTEES;
use super::rows::{self, Names, column, last};
use super::statement::{Tables, Value};
use super::url::Place;
use crate::claim::{Micros, OwnerId, Seat};
use crate::engine::sql::row::{Columns, owner_bytes};
use crate::engine::sql::{
    Attempt, CellWrite, Database, Found, GiveBack, InsertWaiter, NameWrite, RowWrite, Swept, Take,
};
use crate::engine::table::Notice;
use crate::engine::table::cell::StoredCell;
use crate::engine::{Connection, Guarantees, Hints};
use crate::error::Result;
use crate::name::Name;

/// A packet of a batch is cut at about this many bytes. No server allows less than twice as much.
const LARGE: usize = 400_000;

/// One client's connections to a database.
pub(crate) struct Mysql {
    place: Arc<Place>,
    pool: Arc<Pool>,
    batch_opened: AtomicBool,
    seat: Seat,
    hints: Arc<OnceLock<Hints>>,
    /// The tables that it uses, for its neighbours.
    address: String,
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mysql").field("server", &self.place.blame.server).finish_non_exhaustive()
    }
}

impl Drop for Mysql {
    fn drop(&mut self) {
        neighbours::leave(self.seat);
    }
}

impl Mysql {
    /// Connects, and makes the tables if there are none. Also gives the time at the server.
    pub(super) async fn open(place: Place, seat: Seat) -> Result<(Mysql, Micros)> {
        let place = Arc::new(place);
        let hints = Arc::default();
        let (pool, now) = Pool::open(Arc::clone(&place), Arc::clone(&hints)).await?;
        let blame = &place.blame;
        let address = format!("{} {} {}", blame.server, blame.database, blame.tables.prefix);
        let (pool, batch_opened) = (Arc::new(pool), AtomicBool::new(false));
        Ok((Mysql { place, pool, batch_opened, seat, hints, address }, now))
    }

    /// Makes the connection for renewals in the background, once somebody has something to renew.
    fn open_batch(&self) {
        if !self.batch_opened.swap(true, Ordering::Relaxed) {
            let pool = Arc::downgrade(&self.pool);
            tokio::spawn(async move {
                if let Some(pool) = pool.upgrade() {
                    pool.open_batch().await;
                }
            });
        }
    }

    fn tables(&self) -> &Tables {
        &self.place.blame.tables
    }

    fn statement(&self, text: &str, values: &[Value<'_>]) -> String {
        self.tables().statement(text, values)
    }

    /// Sends one statement, and gives the number of rows that it changed.
    async fn change(&self, over: Over<'_>, text: &str, values: &[Value<'_>]) -> Attempt<u64> {
        let answers = self.pool.send(over, Packet::plain(self.statement(text, values))).await?;
        Ok(answers.first().map_or(0, |answer| answer.affected))
    }

    /// Sends statements, and gives the rows of the last one.
    async fn query(
        &self,
        over: Over<'_>,
        text: &str,
        values: &[Value<'_>],
    ) -> Attempt<Vec<mysql_async::Row>> {
        Ok(last(self.pool.send(over, Packet::plain(self.statement(text, values))).await?))
    }

    /// Sends a packet that inserts; `None` if there is a row with that key already.
    async fn insert(&self, over: Over<'_>, packet: Packet, number: usize) -> Attempt<Option<u64>> {
        match self.pool.try_send(over, packet).await? {
            Ok(answers) => Ok(Some(answers.get(number).map_or(0, |answer| answer.affected))),
            Err(error) if is_duplicate(&error) => Ok(None),
            Err(error) => Err(self.place.blame.failed(error)),
        }
    }

    /// The statement that writes the row of a name.
    fn replace_name(&self, write: &RowWrite, not_after: Option<Micros>) -> String {
        let mut given = vec![key(&write.key), write.expected.into(), write.version.into()];
        given.extend(values(&write.columns));
        given.push(not_after.unwrap_or(Micros::MAX).into());
        let text = match write.expected {
            Some(_) => include_str!("update_name.sql"),
            None => include_str!("insert_name.sql"),
        };
        self.statement(text, &given)
    }

    /// Replaces rows of names, and says which were replaced. `None` if somebody has one of them
    /// locked.
    async fn write_some(&self, writes: &[&RowWrite]) -> Attempt<Option<Vec<Vec<u8>>>> {
        // A statement for each row, as in write_cell.sql.
        let mut text = "start transaction;\n".to_owned();
        for write in writes {
            text.push_str(&self.replace_name(write, None));
            text.push_str(";\n");
        }
        let keys = writes.iter().map(|write| key(&write.key)).collect();
        text.push_str("commit;\n");
        text.push_str(&self.statement(include_str!("versions.sql"), &[Value::List(keys)]));
        let rows = match self.pool.try_send(Over::Batch, Packet::transaction(text)).await? {
            Ok(answers) => last(answers),
            Err(error) if is_locked(&error) => return Ok(None),
            Err(error) => return Err(self.place.blame.failed(error)),
        };
        let mut replaced = Vec::with_capacity(rows.len());
        for row in &rows {
            let (key, version): (Vec<u8>, i64) = (column(row, 0)?, column(row, 1)?);
            if writes.iter().any(|write| write.version == version && write.key == key) {
                replaced.push(key);
            }
        }
        Ok(Some(replaced))
    }

    /// The same, without those that somebody has locked at this moment.
    async fn write_unlocked(&self, writes: &[&RowWrite]) -> Attempt<Vec<Vec<u8>>> {
        let keys = writes.iter().map(|write| key(&write.key)).collect();
        let rows = self.query(Over::Batch, include_str!("unlocked_names.sql"), &[Value::List(keys)]).await?;
        let unlocked: Vec<Vec<u8>> = rows.iter().map(|row| column(row, 0)).collect::<Attempt<_>>()?;
        let writes: Vec<&RowWrite> =
            writes.iter().copied().filter(|write| unlocked.contains(&write.key)).collect();
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        // Locked since, it is left for the next time.
        Ok(self.write_some(&writes).await?.unwrap_or_default())
    }

    /// Looks at rows of a table; gives the keys of those that have columns 1 and 2 set, and the
    /// last key if there may be more.
    async fn look_at(&self, text: &str, from: &[u8], most: usize) -> Attempt<LookedAt> {
        let rows = self.query(Over::Batch, text, &[key(from), (most as u64).into()]).await?;
        let mut looked = LookedAt::default();
        for row in &rows {
            let name: Vec<u8> = column(row, 0)?;
            if column::<bool>(row, 1)? {
                looked.gone.push(name.clone());
            } else if row.len() > 2 && column::<bool>(row, 2)? {
                looked.unclear.push(name.clone());
            }
            looked.last = Some(name);
        }
        if rows.len() < most {
            looked.last = None;
        }
        Ok(looked)
    }
}

#[derive(Default)]
struct LookedAt {
    gone: Vec<Vec<u8>>,
    unclear: Vec<Vec<u8>>,
    last: Option<Vec<u8>>,
}

fn key(key: &[u8]) -> Value<'_> {
    Value::Bytes(key)
}

fn list(keys: &[Vec<u8>]) -> Value<'_> {
    Value::List(keys.iter().map(|one| key(one)).collect())
}

/// The columns of a name behind its version.
fn values(columns: &Columns) -> [Value<'_>; 7] {
    let sole = columns.sole;
    [
        columns.at.into(),
        columns.last.into(),
        columns.idle_after.into(),
        sole.map(|sole| sole.first_token).into(),
        sole.map(|sole| sole.last_token).into(),
        sole.map(|sole| sole.ends).into(),
        columns.record.as_deref().into(),
    ]
}

impl Database for Mysql {
    fn guarantees(&self) -> Guarantees {
        GUARANTEES
    }

    async fn take(&self, take: &Take<'_>) -> Attempt<Option<Micros>> {
        let [_, last, idle_after, first_token, last_token, ends, record] = values(take.columns);
        let given = [
            key(take.key),
            take.version.into(),
            last,
            idle_after,
            first_token,
            last_token,
            ends,
            record,
            take.not_after.into(),
        ];
        let rows = self.query(Over::Key(take.key), include_str!("take.sql"), &given).await?;
        self.open_batch();
        rows.first().map(|row| column::<u64>(row, 0)).transpose()
    }

    async fn give_back(&self, give_back: &GiveBack<'_>) -> Attempt<bool> {
        let GiveBack { key: name, expected, version, last } = *give_back;
        let given = [key(name), expected.into(), version.into(), last.into()];
        Ok(self.change(Over::Key(name), include_str!("give_back.sql"), &given).await? > 0)
    }

    async fn read_name(&self, name: &[u8], own: Option<OwnerId>, most: usize) -> Attempt<Found> {
        let own = own.map(owner_bytes);
        let given = [key(name), (most as u64).into(), own.as_ref().map(|own| &own[..]).into()];
        rows::found(&self.query(Over::Key(name), include_str!("read_name.sql"), &given).await?)
    }

    async fn write_name(&self, write: &NameWrite) -> Attempt<bool> {
        let NameWrite { row, not_after, insert, touch, delete, durability: _ } = write;
        let RowWrite { key: name, version, .. } = row;
        let mut text = self.replace_name(row, *not_after);
        let over = Over::Key(name);
        if insert.is_empty() && touch.is_empty() && delete.is_empty() {
            return Ok(self.insert(over, Packet::plain(text), 0).await?.is_some_and(|changed| changed > 0));
        }
        // The whole transaction is in one packet: nobody waits for a client that is stopped in the
        // middle of it. The later statements do nothing if the first one did nothing.
        let mut add = |statement: &str, values: &[Value<'_>]| {
            let mut given = vec![key(name), (*version).into()];
            given.extend_from_slice(values);
            text.push_str(";\n");
            text.push_str(&self.statement(statement, &given));
        };
        if !delete.is_empty() {
            let places = delete.iter().map(|place| (*place).into()).collect();
            add(include_str!("delete_places.sql"), &[Value::List(places)]);
        }
        if !touch.is_empty() {
            let rows = touch.iter().map(|(place, until)| vec![(*place).into(), (*until).into()]).collect();
            add(include_str!("touch_waiters.sql"), &[Value::Table(&["place", "alive_until"], rows)]);
        }
        for InsertWaiter { owner, row } in insert {
            let owner = owner_bytes(*owner);
            let given = [row.place.into(), key(&owner), row.alive_until.into(), key(&row.waiter)];
            add(include_str!("insert_waiter.sql"), &given);
        }
        self.open_batch();
        let packet = Packet::transaction(format!("start transaction;\n{text};\ncommit"));
        // The number of the statement that writes the row.
        Ok(self.insert(over, packet, 1).await?.is_some_and(|changed| changed > 0))
    }

    async fn touch_waiter(&self, name: &[u8], place: u64, alive_until: Micros) -> Attempt<()> {
        let given = [key(name), place.into(), alive_until.into()];
        self.change(Over::Key(name), include_str!("touch_waiter.sql"), &given).await.map(drop)
    }

    async fn delete_waiters(&self, name: &[u8], version: Option<i64>) -> Attempt<()> {
        let text = self.statement(include_str!("delete_waiters.sql"), &[key(name), version.into()]);
        self.pool.send(Over::Key(name), Packet::transaction(text)).await.map(drop)
    }

    async fn read_names(&self, keys: &[Vec<u8>]) -> Attempt<Names> {
        let (mut now, mut names) = (0, Vec::with_capacity(keys.len()));
        // About as many keys as fit.
        for keys in keys.chunks(1000) {
            let rows = self.query(Over::Batch, include_str!("read_names.sql"), &[list(keys)]).await?;
            let (then, found) = rows::names(&rows)?;
            // The earliest: a lease is not over before it is.
            now = if now == 0 { then } else { now.min(then) };
            names.extend(found);
        }
        Ok((now, names))
    }

    async fn write_names(&self, writes: &[RowWrite]) -> Attempt<Vec<Vec<u8>>> {
        // In the order of their keys, so that two of these do not wait for each other.
        let mut sorted: Vec<&RowWrite> = writes.iter().filter(|write| write.expected.is_some()).collect();
        sorted.sort_by(|a, b| a.key.cmp(&b.key));
        let mut replaced = Vec::with_capacity(sorted.len());
        let mut rest = sorted.as_slice();
        while !rest.is_empty() {
            let mut length = 0;
            let fits = rest.iter().take_while(|write| {
                // About so many letters beside the bytes, which are in hexadecimal.
                const STATEMENT: usize = 600;
                length +=
                    4 * write.key.len() + 2 * write.columns.record.as_ref().map_or(0, Vec::len) + STATEMENT;
                length < LARGE
            });
            let (some, others) = rest.split_at(fits.count().max(1));
            match self.write_some(some).await? {
                Some(done) => replaced.extend(done),
                None => replaced.extend(self.write_unlocked(some).await?),
            }
            rest = others;
        }
        Ok(replaced)
    }

    async fn list_names(&self, from: &[u8], to: &[u8], most: usize) -> Attempt<Names> {
        let given = [key(from), key(to), (most as u64).into()];
        rows::names(&self.query(Over::Batch, include_str!("list_names.sql"), &given).await?)
    }

    async fn sweep_names(&self, from: &[u8], most: usize) -> Attempt<Swept> {
        let looked = self.look_at(include_str!("look_for_idle.sql"), from, most).await?;
        if !looked.gone.is_empty() {
            self.change(Over::Batch, include_str!("delete_idle.sql"), &[list(&looked.gone)]).await?;
        }
        Ok(Swept { last: looked.last, unclear: looked.unclear })
    }

    async fn sweep_cells(&self, from: &[u8], most: usize) -> Attempt<Option<Vec<u8>>> {
        let looked = self.look_at(include_str!("look_for_expired.sql"), from, most).await?;
        if !looked.gone.is_empty() {
            self.change(Over::Batch, include_str!("delete_expired.sql"), &[list(&looked.gone)]).await?;
        }
        Ok(looked.last)
    }

    async fn read_cells(&self, keys: &[Vec<u8>]) -> Attempt<(Micros, Vec<Option<StoredCell>>)> {
        let over = Over::Key(keys.first().map_or(&[], Vec::as_slice));
        rows::cells(&self.query(over, include_str!("read_cells.sql"), &[list(keys)]).await?, keys)
    }

    async fn list_cells(&self, from: &[u8], to: &[u8], most: usize) -> Attempt<Vec<Vec<u8>>> {
        let given = [key(from), key(to), (most as u64).into()];
        let rows = self.query(Over::Batch, include_str!("list_cells.sql"), &given).await?;
        rows.iter().map(|row| rows::column(row, 0)).collect()
    }

    async fn write_cells(&self, writes: &[CellWrite]) -> Attempt<bool> {
        let over = Over::Key(writes.first().map_or(&[], |write| write.key.as_slice()));
        if let [CellWrite { key: name, expected, cell: Some(cell) }] = writes {
            let mut given = vec![key(name), (*expected).into()];
            given.extend(cell_values(cell));
            let text = match expected {
                Some(_) => include_str!("update_cell.sql"),
                None => include_str!("insert_cell.sql"),
            };
            let packet = Packet::plain(self.statement(text, &given));
            return Ok(self.insert(over, packet, 0).await?.is_some_and(|changed| changed > 0));
        }
        let count = writes.len() as u64;
        // Where there is no row, one with version 0 is made first.
        let expected = writes.iter().map(|write| vec![key(&write.key), write.expected.unwrap_or(0).into()]);
        let expected = [Value::Table(&["name_key", "expected"], expected.collect())];
        let mut text = self.statement(include_str!("compare_cells.sql"), &expected);
        for (name, cell) in writes.iter().filter_map(|write| Some((&write.key, write.cell.as_ref()?))) {
            let mut given = vec![key(name), count.into()];
            given.extend(cell_values(cell));
            text.push_str(";\n");
            text.push_str(&self.statement(include_str!("write_cell.sql"), &given));
        }
        text.push_str(";\ncommit;\nselect @leasehold_held");
        let packet = Packet::transaction(text);
        let rows = last(self.pool.send(over, packet).await?);
        let held: u64 = rows.first().map_or(Ok(0), |row| column(row, 0))?;
        Ok(held == count)
    }

    fn notify(&self, notices: Vec<Notice>, changed: Vec<Name>) {
        neighbours::tell(self.seat, &self.address, notices, &changed);
    }

    fn start_listening(&self) {}

    /// The server can not call anybody.
    fn hears(&self) -> bool {
        false
    }

    /// Neighbours tell of changes, but others do not.
    async fn watch(&self, name: &Name) -> bool {
        neighbours::watch(self.seat, name, true);
        false
    }

    fn unwatch(&self, name: &Name) {
        neighbours::watch(self.seat, name, false);
    }

    fn listen(&self, hints: Hints) {
        neighbours::join(self.seat, self.address.clone(), hints.clone());
        // Called once.
        self.hints.set(hints).ok();
    }

    fn replace_statement(&self) -> String {
        self.statement(include_str!("replace_cell.sql"), &[])
    }

    fn add_statement(&self) -> String {
        self.statement(include_str!("add_cell.sql"), &[])
    }

    fn verify_statements(&self) -> (String, String) {
        let text = include_str!("verify.sql");
        // A select does not fail by dividing by zero here, but by a subquery with two rows.
        let or_fail = "if(count(*) = 1, 1, (select 1 union select 2))";
        (
            self.statement(&text.replace(":what", "1"), &[]),
            self.statement(&text.replace(":what", or_fail), &[]),
        )
    }

    fn connection(&self, key: &[u8]) -> Connection {
        self.pool.connection(key)
    }

    fn trouble(&self) -> Option<String> {
        Some(self.pool.trouble())
    }

    fn close(&self) {
        neighbours::leave(self.seat);
        self.pool.close();
    }

    fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }
}

fn cell_values(cell: &StoredCell) -> [Value<'_>; 4] {
    [cell.version.into(), cell.changed_at.into(), cell.expires.into(), key(&cell.bytes)]
}
