//! One write to the store: all of it is stored, or nothing.

use std::ops::Bound;

use heed::RwTxn;

use super::failure::failed;
use super::rows::{SWEPT, Table};
use crate::error::Result;

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Commit,
    Abort,
}

/// A write that is going on: all of it is stored, or nothing.
pub(super) struct Transaction<'a> {
    pub(super) txn: RwTxn<'a>,
    pub(super) table: Table,
    pub(super) now: u64,
    pub(super) end: End,
}

impl Transaction<'_> {
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.table.get(&self.txn, key).map_err(failed)
    }

    pub(super) fn put(&mut self, key: &[u8], row: &[u8]) -> Result<()> {
        self.table.put(&mut self.txn, key, row).map_err(failed)
    }

    pub(super) fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.table.delete(&mut self.txn, key).map(|_| ()).map_err(failed)
    }

    /// The keys that start with `prefix`.
    pub(super) fn keys(&self, prefix: &[u8]) -> Result<Vec<Vec<u8>>> {
        let rows = self.table.prefix_iter(&self.txn, prefix).map_err(failed)?;
        rows.map(|row| Ok(row.map_err(failed)?.0.to_vec())).collect()
    }

    /// The keys of names and cells from `start` on, at most so many.
    pub(super) fn keys_from(&self, start: &[u8], most: usize) -> Result<Vec<Vec<u8>>> {
        let range = (Bound::Included(start.max(SWEPT.start)), Bound::Excluded(SWEPT.end));
        let rows = self.table.range(&self.txn, &range).map_err(failed)?;
        rows.take(most).map(|row| Ok(row.map_err(failed)?.0.to_vec())).collect()
    }
}
