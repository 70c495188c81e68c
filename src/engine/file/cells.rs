//! Cells in the store.

use super::failure::{failed, unreadable};
use super::rows::{self, CellRow};
use super::session::{Session, forgotten_floor, raise_forgotten_floor};
use super::store::Transaction;
use crate::claim::Micros;
use crate::engine::table::Notice;
use crate::engine::table::row::{decode, encode};
use crate::engine::{Cell, CellValue, Swapped};
use crate::error::Result;
use crate::name::Name;

impl Session {
    /// Reads a cell.
    pub(super) fn read_cell(&self, name: &Name) -> Result<Cell> {
        let key = rows::cell_key(name);
        self.store
            .read(&self.dir, |txn, table| cell(name, table.get(txn, &key).map_err(failed)?, self.dir.now()))
    }

    /// Replaces a cell if it is still what the caller saw.
    pub(super) fn swap_cell(
        &self,
        transaction: &mut Transaction<'_>,
        name: &Name,
        version: u64,
        value: Option<CellValue>,
    ) -> Result<(Swapped, Vec<Notice>)> {
        let now = transaction.now;
        let key = rows::cell_key(name);
        let found = cell(name, transaction.get(&key)?, now)?;
        if found.version != version {
            return Ok((Swapped::No(found), Vec::new()));
        }
        let next = (forgotten_floor(transaction)?.max(version) + 1).max(now);
        match value {
            Some(CellValue { bytes, lives }) => {
                let expires = now.saturating_add(u64::try_from(lives.as_micros()).unwrap_or(u64::MAX));
                let row = encode(&CellRow { version: next, expires, bytes }).map_err(failed)?;
                transaction.put(&key, &row)?;
            }
            None => {
                raise_forgotten_floor(transaction, version)?;
                transaction.delete(&key)?;
            }
        }
        let mut notices = Vec::new();
        self.notify_watchers(transaction, name, &mut notices)?;
        Ok((Swapped::Yes(next), notices))
    }
}

/// A cell from its row.
fn cell(name: &Name, row: Option<&[u8]>, now: Micros) -> Result<Cell> {
    let row: Option<CellRow> = row.map(decode).transpose().map_err(|error| unreadable(name, error))?;
    Ok(match row.filter(|row| row.expires > now) {
        Some(row) => Cell { version: row.version, value: Some(row.bytes), now },
        None => Cell { version: 0, value: None, now },
    })
}
