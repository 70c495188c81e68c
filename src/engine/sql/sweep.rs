//! Clearing away what nobody may ask for again.

use std::sync::Arc;

use super::claims::How;
use super::database::{Database, Failure};
use super::row::{NameRow, name_of};
use super::state::Sql;
use super::sweeper::{Cursor, Sweeping};
use crate::engine::table::Sweep;
use crate::error::Result;

/// How many rows are looked at. More than requests can have added since.
const ROWS: usize = 512;

impl<D: Database> Sql<D> {
    /// Sweeps a few rows in the background, now and then: so many more are written.
    pub(super) fn sweep_now_and_then(self: &Arc<Self>, rows: usize) {
        let Some(from) = self.sweeper.due(rows) else { return };
        let this = Arc::downgrade(self);
        self.runtime.spawn(async move {
            let Some(this) = this.upgrade() else { return };
            let mut sweeping = Sweeping { sweeper: &this.sweeper, next: None };
            match this.sweep(&from).await {
                Ok(next) => sweeping.next = Some(next),
                // It is done later.
                Err(error) => tracing::debug!(target: "leasehold", %error, "not swept"),
            }
        });
    }

    /// Sweeps a few rows, and says where to go on.
    pub(super) async fn sweep(&self, from: &Cursor) -> Result<Cursor> {
        let swept = self.database.sweep_names(&from.names, ROWS).await.map_err(Failure::into_error)?;
        // A row that is damaged, or that somebody has locked, must not stop the sweep there. What
        // is left out has its turn in the next round.
        let left_out = |error| tracing::debug!(target: "leasehold", %error, "not swept");
        let rows = match swept.unclear.as_slice() {
            [] => Vec::new(),
            unclear => match self.database.read_names(unclear).await {
                Ok((_, rows)) => rows,
                Err(failure) => {
                    left_out(failure.into_error());
                    Vec::new()
                }
            },
        };
        for (key, row) in rows {
            let Ok(Some(record)) = NameRow::record(&row) else { continue };
            let Some(name) = name_of(&key, &record) else { continue };
            if let Err(error) = self.on_name(&name, &Sweep, How::flushed()).await {
                left_out(error);
            }
        }
        let cells = self.database.sweep_cells(&from.cells, ROWS).await.map_err(Failure::into_error)?;
        // From the start again when the end was reached.
        let after = |last: Option<Vec<u8>>| {
            let mut next = last.unwrap_or_default();
            next.push(0);
            next
        };
        Ok(Cursor { names: after(swept.last), cells: after(cells) })
    }
}
