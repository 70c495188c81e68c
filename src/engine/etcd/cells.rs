//! Cells, and rules over them.
//!
//! A cell is a key. Its version is the revision by which it was written, which no other write ever
//! has. etcd has no clock that a client could read, so *now* is the wall clock of the client that
//! applies a rule; for one cell it never goes back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::errors::{Attempt, Failure, unavailable};
use super::messages::{KeyValue, Op};
use super::reads::unreadable;
use super::record::wall_clock;
use super::state::Etcd;
use super::store::{Txn, delete, get, get_all, put, unchanged};
use super::writes::unwritable;
use crate::claim::Micros;
use crate::engine::cell::check_cells;
use crate::engine::table::cell::{CellChange, Loaded, StoredCell};
use crate::engine::table::row::{decode, encode};
use crate::engine::{Cells, Decision, Rule, Swap, Swapped, Write};
use crate::error::Result;
use crate::name::{Family, Name};

/// For how long it is tried to write before others do.
const TRIED_FOR: Duration = Duration::from_secs(4);
/// One write of many that compete succeeds each time, so a short pause is enough.
const PAUSE: Duration = Duration::from_millis(1);

/// The cells of one call, as they were read.
struct Rows {
    now: Micros,
    rows: Vec<Option<StoredCell>>,
    /// The revisions by which they were written; 0 for one that is not there.
    revisions: Vec<i64>,
}

impl Rows {
    fn loaded(&self) -> Loaded<'_> {
        Loaded::new(self.rows.iter().map(Option::as_ref), self.now)
    }
}

impl Etcd {
    fn cell_reads(&self, names: &[Name]) -> Vec<Op> {
        names.iter().map(|name| get(self.keys.name(name))).collect()
    }

    fn rows(names: &[Name], found: Vec<Vec<KeyValue>>) -> Result<Rows> {
        let mut rows = Rows { now: wall_clock(), rows: Vec::new(), revisions: Vec::new() };
        for (name, kvs) in names.iter().zip(found) {
            let kv = kvs.into_iter().next();
            rows.revisions.push(kv.as_ref().map_or(0, |kv| kv.mod_revision));
            let row = kv.map(|kv| {
                let cell: StoredCell = decode(&kv.value)?;
                Ok(StoredCell { version: kv.mod_revision.max(0).cast_unsigned(), ..cell })
            });
            rows.rows.push(row.transpose().map_err(|error| unreadable(name, error))?);
        }
        Ok(rows)
    }

    async fn load_cells(&self, names: &[Name]) -> Attempt<Rows> {
        let outcome = self.store.txn(Txn { then: self.cell_reads(names), ..Txn::default() }).await?;
        Ok(Self::rows(names, outcome.found)?)
    }

    /// Reads cells at one moment.
    pub(super) async fn read_cells(&self, names: &[Name]) -> Result<Cells> {
        check_cells(names.iter())?;
        // After a write of this client whose caller is gone: it is still on its way.
        let key = self.keys.name(&names[0]);
        let _passed = self.gates.pass(&key).await;
        let rows = self.load_cells(names).await.map_err(Failure::into_error)?;
        Ok(rows.loaded().cells())
    }

    /// The cells that there are.
    pub(super) async fn list_cells(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Name>> {
        const PAGE: usize = 1000;
        let mut range = get_all(self.keys.names(Family::Cell, prefix), PAGE);
        if let Some(after) = after {
            range.key = range.key.max([self.keys.names(Family::Cell, after), vec![0]].concat());
        }
        let mut listed = Vec::new();
        while listed.len() < limit && range.key < range.range_end {
            let (_, kvs) = self.store.range(range.clone()).await.map_err(Failure::into_error)?;
            let now = wall_clock();
            for kv in &kvs {
                let Some(name) = self.keys.name_of(Family::Cell, &kv.key) else { continue };
                let cell: StoredCell = decode(&kv.value).map_err(|error| unreadable(&name, error))?;
                if cell.expires > now && listed.len() < limit {
                    listed.push(name);
                }
            }
            match kvs.last() {
                Some(last) if kvs.len() == PAGE => range.key = [last.key.as_slice(), &[0]].concat(),
                _ => break,
            }
        }
        Ok(listed)
    }

    /// Writes to cells if all of them are still what the caller saw.
    pub(super) async fn swap_cells(self: Arc<Self>, swaps: Vec<Swap>) -> Result<Swapped> {
        check_cells(swaps.iter().map(|swap| &swap.name))?;
        let names: Vec<Name> = swaps.iter().map(|swap| swap.name.clone()).collect();
        let key = self.keys.name(&names[0]);
        let _passed = self.gates.pass(&key).await;
        let mut rows = self.load_cells(&names).await.map_err(Failure::into_error)?;
        loop {
            let loaded = rows.loaded();
            if !loaded.are_at(&swaps) {
                return Ok(Swapped::No(loaded.cells()));
            }
            let writes = swaps.iter().map(|swap| swap.write.clone()).collect();
            match self.write_cells(&names, &rows, writes).await.map_err(Failure::into_error)? {
                None => return Ok(Swapped::Yes),
                Some(newer) => rows = newer,
            }
        }
    }

    /// Applies a rule to cells.
    ///
    /// It goes on if the caller is gone: whoever passes the gate next sees what came of it.
    pub(super) async fn apply_rule(
        self: Arc<Self>,
        names: Vec<Name>,
        rule: Arc<dyn Rule>,
    ) -> Result<Vec<u8>> {
        let names = names.as_slice();
        check_cells(names.iter())?;
        let key = self.keys.name(&names[0]);
        // The cells of one call have one gate: that of the first. It saves tries and is no lock.
        let _passed = self.gates.pass(&key).await;
        let started = Instant::now();
        let mut rows = self.load_cells(names).await.map_err(Failure::into_error)?;
        loop {
            let Decision { mut writes, answer } = rows.loaded().decide(&*rule)?;
            writes.resize(names.len(), Write::Keep);
            match self.write_cells(names, &rows, writes).await.map_err(Failure::into_error)? {
                None => return Ok(answer),
                Some(newer) => rows = newer,
            }
            if started.elapsed() > TRIED_FOR {
                return Err(unavailable(format!(
                    "could not write the cell `{}` in time: others write it all the time",
                    names[0]
                )));
            }
            sleep(PAUSE).await;
        }
    }

    /// Writes to cells that were read; how they are now if one of them has changed since.
    async fn write_cells(&self, names: &[Name], rows: &Rows, writes: Vec<Write>) -> Attempt<Option<Rows>> {
        let stamps = rows.loaded().stamps(0);
        let mut then = Vec::new();
        for (number, write) in writes.into_iter().enumerate() {
            let name = &names[number];
            match stamps.change(number, write) {
                None => {}
                Some(CellChange::Put(cell)) => {
                    let value = encode(&cell).map_err(|error| unwritable(name, error))?;
                    then.push(put(self.keys.name(name), value, 0));
                }
                // A version is a revision, and is never given twice.
                Some(CellChange::Delete { .. }) if rows.revisions[number] == 0 => {}
                Some(CellChange::Delete { .. }) => then.push(delete(self.keys.name(name))),
            }
        }
        if then.is_empty() {
            return Ok(None);
        }
        let cells = names.iter().zip(&rows.revisions);
        let conditions = cells.map(|(name, revision)| unchanged(self.keys.name(name), *revision)).collect();
        let outcome = self.store.txn(Txn { conditions, then, otherwise: self.cell_reads(names) }).await?;
        if outcome.succeeded { Ok(None) } else { Ok(Some(Self::rows(names, outcome.found)?)) }
    }
}
