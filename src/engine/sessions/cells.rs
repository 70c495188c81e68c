//! Cells, and rules over them.
//!
//! A cell is a value of the store. Its version is the number of the change that wrote it, which no
//! other write ever has. The stores have no clock that a client could read, so *now* is the wall
//! clock of the client that applies a rule; for one cell it never goes back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::failure::Attempt;
use super::names::Names;
use super::record::wall_clock;
use super::store::{Store, Value, ValueWrite, Version};
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
    versions: Vec<Version>,
}

impl Rows {
    fn loaded(&self) -> Loaded<'_> {
        Loaded::new(self.rows.iter().map(Option::as_ref), self.now)
    }
}

impl<S: Store> Names<S> {
    fn cell(&self, name: &Name, value: &Value) -> Result<Option<StoredCell>> {
        let Some(bytes) = &value.bytes else { return Ok(None) };
        let cell: StoredCell = decode(bytes).map_err(|error| self.unreadable(name, error))?;
        Ok(Some(StoredCell { version: value.version.written, ..cell }))
    }

    fn rows(&self, names: &[Name], values: &[Value]) -> Result<Rows> {
        let cells = names.iter().zip(values).map(|(name, value)| self.cell(name, value));
        Ok(Rows {
            now: wall_clock(),
            rows: cells.collect::<Result<_>>()?,
            versions: values.iter().map(|value| value.version).collect(),
        })
    }

    async fn load_cells(&self, names: &[Name]) -> Attempt<Rows> {
        let values = self.store.read_values(names).await?;
        Ok(self.rows(names, &values)?)
    }

    /// Reads cells at one moment.
    pub(crate) async fn read_cells(&self, names: &[Name]) -> Result<Cells> {
        check_cells(names.iter())?;
        // After a write of this client whose caller is gone: it is still on its way.
        let key = self.store.key(&names[0]);
        let _passed = self.gates.pass(&key).await;
        let rows = self.load_cells(names).await.map_err(|failure| self.error(failure))?;
        Ok(rows.loaded().cells())
    }

    /// The cells that there are.
    pub(crate) async fn list_cells(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Name>> {
        let mut listed = Vec::new();
        let mut after = after.map(str::to_owned);
        while listed.len() < limit {
            let page = self.store.page(Family::Cell, prefix, after.as_deref(), 1000).await;
            let page = page.map_err(|failure| self.error(failure))?;
            let now = wall_clock();
            for (name, value) in page.names {
                let cell = self.cell(&name, &value)?;
                if cell.is_some_and(|cell| cell.expires > now) && listed.len() < limit {
                    listed.push(name);
                }
            }
            after = page.more_after;
            if after.is_none() {
                break;
            }
        }
        Ok(listed)
    }

    /// Writes to cells if all of them are still what the caller saw.
    pub(crate) async fn swap_cells(self: Arc<Self>, swaps: Vec<Swap>) -> Result<Swapped> {
        check_cells(swaps.iter().map(|swap| &swap.name))?;
        let names: Vec<Name> = swaps.iter().map(|swap| swap.name.clone()).collect();
        let key = self.store.key(&names[0]);
        let _passed = self.gates.pass(&key).await;
        let mut rows = self.load_cells(&names).await.map_err(|failure| self.error(failure))?;
        loop {
            let loaded = rows.loaded();
            if !loaded.are_at(&swaps) {
                return Ok(Swapped::No(loaded.cells()));
            }
            let writes = swaps.iter().map(|swap| swap.write.clone()).collect();
            match self.write_cells(&names, &rows, writes).await.map_err(|failure| self.error(failure))? {
                None => return Ok(Swapped::Yes),
                Some(newer) => rows = newer,
            }
        }
    }

    /// Applies a rule to cells.
    ///
    /// It goes on if the caller is gone: whoever passes the gate next sees what came of it.
    pub(crate) async fn apply_rule(
        self: Arc<Self>,
        names: Vec<Name>,
        rule: Arc<dyn Rule>,
    ) -> Result<Vec<u8>> {
        let names = names.as_slice();
        check_cells(names.iter())?;
        let key = self.store.key(&names[0]);
        // The cells of one call have one gate: that of the first. It saves tries and is no lock.
        let _passed = self.gates.pass(&key).await;
        let started = Instant::now();
        let mut rows = self.load_cells(names).await.map_err(|failure| self.error(failure))?;
        loop {
            let Decision { mut writes, answer } = rows.loaded().decide(&*rule)?;
            writes.resize(names.len(), Write::Keep);
            match self.write_cells(names, &rows, writes).await.map_err(|failure| self.error(failure))? {
                None => return Ok(answer),
                Some(newer) => rows = newer,
            }
            if started.elapsed() > TRIED_FOR {
                return Err(self.unavailable(format!(
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
        let mut values = Vec::new();
        for (number, write) in writes.into_iter().enumerate() {
            let name = &names[number];
            let write = match stamps.change(number, write) {
                Some(CellChange::Put(cell)) => {
                    Some(ValueWrite::Put(encode(&cell).map_err(|error| self.unwritable(name, error))?))
                }
                // A version is never given twice.
                Some(CellChange::Delete { .. }) if rows.rows[number].is_some() => Some(ValueWrite::Delete),
                Some(CellChange::Delete { .. }) | None => None,
            };
            values.push((name, rows.versions[number], write));
        }
        if values.iter().all(|(_, _, write)| write.is_none()) {
            return Ok(None);
        }
        match self.store.write_values(&values).await? {
            None => Ok(None),
            Some(newer) => Ok(Some(self.rows(names, &newer)?)),
        }
    }
}
