//! Cells in the store.

use std::sync::Arc;

use heed::{RoTxn, WithoutTls};

use super::failure::{failed, unreadable};
use super::rows::{self, Table};
use super::session::{Session, forgotten_floor, raise_forgotten_floor};
use super::transaction::Transaction;
use crate::engine::table::Notice;
use crate::engine::table::cell::{CellChange, Loaded, Stamps, StoredCell};
use crate::engine::table::row::{decode, encode};
use crate::engine::{Cells, Decision, Rule, Swap, Swapped, Write};
use crate::error::Result;
use crate::name::{Family, Name};

impl Session {
    /// Reads cells at one moment.
    pub(super) async fn read_cells(self: &Arc<Session>, names: &[Name]) -> Result<Cells> {
        let names = names.to_vec();
        let read = self.read(move |session, txn, table| {
            let rows = names.iter().map(|name| load(name, txn, table)).collect::<Result<Vec<_>>>()?;
            Ok(Loaded::new(rows.iter().map(Option::as_ref), session.dir.now()).cells())
        });
        read.await
    }

    /// The cells that there are.
    pub(super) async fn list_cells(
        self: &Arc<Session>,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Name>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        let read = self.read(move |session, txn, table| {
            let now = session.dir.now();
            let mut found = Vec::new();
            for row in table.prefix_iter(txn, &rows::cells_prefix(&prefix)).map_err(failed)? {
                let (key, row) = row.map_err(failed)?;
                let Some(text) = rows::text_of_cell(key) else { continue };
                if !text.starts_with(&prefix) || after.as_deref().is_some_and(|after| text <= after) {
                    continue;
                }
                let cell: StoredCell = decode(row).map_err(failed)?;
                if cell.expires > now {
                    found.push(Name::new(Family::Cell, text)?);
                    if found.len() == limit {
                        break;
                    }
                }
            }
            Ok(found)
        });
        read.await
    }

    /// Writes to cells if all of them are still what the caller saw.
    pub(super) fn swap_cells(
        &self,
        transaction: &mut Transaction<'_>,
        swaps: Vec<Swap>,
    ) -> Result<(Swapped, Vec<Notice>)> {
        let rows = swaps.iter().map(|swap| transaction.cell(&swap.name)).collect::<Result<Vec<_>>>()?;
        let loaded = Loaded::new(rows.iter().map(Option::as_ref), transaction.now);
        if !loaded.are_at(&swaps) {
            return Ok((Swapped::No(loaded.cells()), Vec::new()));
        }
        let stamps = loaded.stamps(forgotten_floor(transaction)?);
        let writes = swaps.into_iter().map(|swap| (swap.name, swap.write));
        Ok((Swapped::Yes, self.write_cells(transaction, &stamps, writes)?))
    }

    /// The answer of a rule that writes nothing to the cells as they are now; `None` if it would.
    pub(super) async fn look_by_rule(
        self: &Arc<Session>,
        names: &[Name],
        rule: &Arc<dyn Rule>,
    ) -> Result<Option<Vec<u8>>> {
        let (names, rule) = (names.to_vec(), Arc::clone(rule));
        let read = self.read(move |session, txn, table| {
            let rows = names.iter().map(|name| load(name, txn, table)).collect::<Result<Vec<_>>>()?;
            let loaded = Loaded::new(rows.iter().map(Option::as_ref), session.dir.now());
            let Decision { writes, answer } = loaded.decide(&*rule)?;
            Ok(writes.is_empty().then_some(answer))
        });
        read.await
    }

    /// Applies a rule to cells.
    pub(super) fn apply_rule(
        &self,
        transaction: &mut Transaction<'_>,
        names: &[Name],
        rule: &dyn Rule,
    ) -> Result<(Vec<u8>, Vec<Notice>)> {
        let rows = names.iter().map(|name| transaction.cell(name)).collect::<Result<Vec<_>>>()?;
        let loaded = Loaded::new(rows.iter().map(Option::as_ref), transaction.now);
        let Decision { writes, answer } = loaded.decide(rule)?;
        if writes.is_empty() {
            return Ok((answer, Vec::new()));
        }
        let stamps = loaded.stamps(forgotten_floor(transaction)?);
        let writes = names.iter().cloned().zip(writes);
        Ok((answer, self.write_cells(transaction, &stamps, writes)?))
    }

    fn write_cells(
        &self,
        transaction: &mut Transaction<'_>,
        stamps: &Stamps,
        writes: impl Iterator<Item = (Name, Write)>,
    ) -> Result<Vec<Notice>> {
        let mut notices = self.sweep_now_and_then(transaction, writes.size_hint().0);
        for (number, (name, write)) in writes.enumerate() {
            let key = rows::cell_key(&name);
            match stamps.change(number, write) {
                None => continue,
                Some(CellChange::Put(cell)) => {
                    transaction.put(&key, &encode(&cell).map_err(failed)?)?;
                }
                Some(CellChange::Delete { floor }) => {
                    raise_forgotten_floor(transaction, floor)?;
                    transaction.delete(&key)?;
                }
            }
            self.notify_watchers(transaction, &name, &mut notices)?;
        }
        Ok(notices)
    }
}

impl Transaction<'_> {
    fn cell(&self, name: &Name) -> Result<Option<StoredCell>> {
        read_row(name, self.get(&rows::cell_key(name))?)
    }
}

fn load(name: &Name, txn: &RoTxn<'_, WithoutTls>, table: Table) -> Result<Option<StoredCell>> {
    read_row(name, table.get(txn, &rows::cell_key(name)).map_err(failed)?)
}

fn read_row(name: &Name, row: Option<&[u8]>) -> Result<Option<StoredCell>> {
    row.map(decode).transpose().map_err(|error| unreadable(name, error))
}
