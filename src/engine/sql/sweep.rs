//! Clearing away what nobody may ask for again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::claims::How;
use super::row::{NameRow, name_of};
use super::{Database, Failure, Sql};
use crate::engine::table::Sweep;
use crate::error::Result;

/// Every so many requests a few rows are swept, or after so long.
const EVERY_REQUESTS: u32 = 256;
const EVERY: Duration = Duration::from_secs(30);
/// How many rows are looked at. More than requests can have added since.
const ROWS: usize = 512;

/// How far the table has been swept.
#[derive(Debug)]
pub(super) struct Sweeper {
    requests: AtomicU32,
    state: Mutex<State>,
}

/// Where to go on.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    names: Vec<u8>,
    cells: Vec<u8>,
}

#[derive(Debug)]
struct State {
    from: Cursor,
    last: Instant,
    sweeping: bool,
}

impl Sweeper {
    /// Starts at a place that differs from client to client.
    pub(super) fn new(start: u64) -> Sweeper {
        const FAMILIES: [u8; 3] = *b"els";
        let family = FAMILIES[(start % 3) as usize];
        let second = (start >> 8) as u8 & 0x7f;
        let from = Cursor { names: vec![family, second], cells: vec![b'c', second] };
        let state = State { from, last: Instant::now(), sweeping: false };
        Sweeper { requests: AtomicU32::new(0), state: Mutex::new(state) }
    }

    /// Where to sweep now, if it is time to.
    fn due(&self) -> Option<Cursor> {
        let requests = self.requests.fetch_add(1, Ordering::Relaxed);
        let by_count = requests % EVERY_REQUESTS == EVERY_REQUESTS - 1;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.sweeping || !(by_count || state.last.elapsed() >= EVERY) {
            return None;
        }
        state.sweeping = true;
        Some(state.from.clone())
    }

    fn swept(&self, next: Option<Cursor>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = next {
            state.from = next;
        }
        state.last = Instant::now();
        state.sweeping = false;
    }
}

/// Ends a sweep however it ends.
struct Sweeping<'a> {
    sweeper: &'a Sweeper,
    next: Option<Cursor>,
}

impl Drop for Sweeping<'_> {
    fn drop(&mut self) {
        self.sweeper.swept(self.next.take());
    }
}

impl<D: Database> Sql<D> {
    /// Sweeps a few rows in the background, now and then.
    pub(super) fn sweep_now_and_then(self: &Arc<Self>) {
        let Some(from) = self.sweeper.due() else { return };
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
        if !swept.unclear.is_empty() {
            let (_, rows) = self.database.read_names(&swept.unclear).await.map_err(Failure::into_error)?;
            for (key, row) in rows {
                let Ok(Some(record)) = NameRow::record(&row) else { continue };
                let Some(name) = name_of(&key, &record) else { continue };
                self.on_name(&name, &Sweep, How::flushed()).await?;
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
