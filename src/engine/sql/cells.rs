//! Cells.

use super::database::{CellWrite, Database, Failure};
use super::row::{cell_of, key_of, keys_with};
use super::state::Sql;
use super::tries::Tries;
use crate::claim::Micros;
use crate::engine::cell::check_cells;
use crate::engine::table::cell::{CellChange, Loaded, Stamps, StoredCell};
use crate::engine::{Cells, Decision, Rule, Swap, Swapped, Write};
use crate::error::{Error, Result};
use crate::name::{Family, Name};

use std::sync::Arc;
use std::time::Duration;

/// For how long it is tried to write before others do.
const TRIED_FOR: Duration = Duration::from_secs(4);

impl<D: Database> Sql<D> {
    /// The rows of cells, and the time.
    async fn load_cells(
        &self,
        keys: &[Vec<u8>],
        tries: &mut Tries,
    ) -> Result<(Micros, Vec<Option<StoredCell>>)> {
        loop {
            match self.database.read_cells(keys).await {
                Ok(found) => return Ok(found),
                Err(Failure::Conflict(error)) => tries.again(|| error).await.map_err(Failure::into_error)?,
                Err(failure) => return Err(failure.into_error()),
            }
        }
    }

    /// Reads cells at one moment.
    pub(super) async fn read_cells(&self, names: &[Name]) -> Result<Cells> {
        check_cells(names.iter())?;
        let keys: Vec<_> = names.iter().map(key_of).collect();
        let (now, rows) = self.load_cells(&keys, &mut Tries::new(TRIED_FOR)).await?;
        Ok(Loaded::new(rows.iter().map(Option::as_ref), now).cells())
    }

    /// The cells that there are.
    pub(super) async fn list_cells(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Name>> {
        const PAGE: usize = 1000;
        let (mut from, to) = keys_with(Family::Cell, prefix);
        if let Some(after) = after {
            from = from.max(keys_with(Family::Cell, after).0);
        }
        let mut found = Vec::new();
        loop {
            let keys = self.database.list_cells(&from, &to, PAGE).await.map_err(Failure::into_error)?;
            let names = keys.iter().filter_map(|key| cell_of(key)).filter(|name| {
                name.as_str().starts_with(prefix) && after.is_none_or(|after| name.as_str() > after)
            });
            found.extend(names.take(limit - found.len()));
            match keys.last() {
                Some(last) if keys.len() == PAGE && found.len() < limit => {
                    from.clone_from(last);
                    from.push(0);
                }
                _ => return Ok(found),
            }
        }
    }

    /// Writes to cells if all of them are still what the caller saw.
    pub(super) async fn swap_cells(self: &Arc<Self>, swaps: Vec<Swap>) -> Result<Swapped> {
        check_cells(swaps.iter().map(|swap| &swap.name))?;
        let names: Vec<Name> = swaps.iter().map(|swap| swap.name.clone()).collect();
        let keys: Vec<_> = names.iter().map(key_of).collect();
        let mut tries = Tries::new(TRIED_FOR);
        loop {
            let (now, rows) = self.load_cells(&keys, &mut tries).await?;
            let loaded = Loaded::new(rows.iter().map(Option::as_ref), now);
            if !loaded.are_at(&swaps) {
                return Ok(Swapped::No(loaded.cells()));
            }
            let writes: Vec<Write> = swaps.iter().map(|swap| swap.write.clone()).collect();
            if self.write_cells(&names, &keys, &rows, &loaded.stamps(0), writes, now, &mut tries).await? {
                return Ok(Swapped::Yes);
            }
        }
    }

    /// Applies a rule to cells.
    pub(super) async fn apply_rule(self: &Arc<Self>, names: &[Name], rule: &dyn Rule) -> Result<Vec<u8>> {
        check_cells(names.iter())?;
        let keys: Vec<_> = names.iter().map(key_of).collect();
        // The cells of one call have one gate: that of the first. It saves tries and is no lock.
        let _passed = self.gates.pass(&keys[0]).await;
        let mut tries = Tries::new(TRIED_FOR);
        loop {
            let (now, rows) = self.load_cells(&keys, &mut tries).await?;
            let loaded = Loaded::new(rows.iter().map(Option::as_ref), now);
            let Decision { mut writes, answer } = loaded.decide(rule)?;
            writes.resize(names.len(), Write::Keep);
            if self.write_cells(names, &keys, &rows, &loaded.stamps(0), writes, now, &mut tries).await? {
                return Ok(answer);
            }
        }
    }

    /// Writes to cells that were read; false, after a pause, if one of them has changed since.
    #[allow(clippy::too_many_arguments, reason = "what was read, and what is made of it")]
    async fn write_cells(
        self: &Arc<Self>,
        names: &[Name],
        keys: &[Vec<u8>],
        rows: &[Option<StoredCell>],
        stamps: &Stamps,
        writes: Vec<Write>,
        now: Micros,
        tries: &mut Tries,
    ) -> Result<bool> {
        let mut changed = Vec::new();
        let mut statement = Vec::with_capacity(keys.len());
        for (number, write) in writes.into_iter().enumerate() {
            let cell = match stamps.change(number, write) {
                None => None,
                Some(CellChange::Put(cell)) => Some(cell),
                // It stays as a row that has expired, with a version of its own.
                Some(CellChange::Delete { floor }) => Some(StoredCell {
                    version: (floor + 1).max(now),
                    changed_at: 0,
                    expires: 0,
                    bytes: Vec::new(),
                }),
            };
            if cell.is_some() {
                changed.push(names[number].clone());
            }
            let expected = rows[number].as_ref().map(|row| row.version);
            statement.push(CellWrite { key: keys[number].clone(), expected, cell });
        }
        if changed.is_empty() {
            return Ok(true);
        }
        let crowded = || Error::Unavailable {
            engine: self.word(),
            what: format!("could not write the cell `{}` in time: others write it all the time", names[0]),
            source: None,
        };
        match self.database.write_cells(&statement).await {
            Ok(true) => {
                self.sweep_now_and_then(changed.len());
                self.deliver(Vec::new(), changed);
                Ok(true)
            }
            Ok(false) => tries.again(crowded).await.map(|()| false).map_err(Failure::into_error),
            Err(Failure::Conflict(error)) => {
                tries.again(|| error).await.map(|()| false).map_err(Failure::into_error)
            }
            Err(failure) => Err(failure.into_error()),
        }
    }
}
