//! When the tables are swept, and where the next sweep goes on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// For every so many rows that were written a few are swept, or after so long.
const EVERY_ROWS: u32 = 256;
const EVERY: Duration = Duration::from_secs(30);

/// How far the table has been swept.
#[derive(Debug)]
pub(super) struct Sweeper {
    written: AtomicU32,
    state: Mutex<State>,
}

/// Where to go on.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    pub(super) names: Vec<u8>,
    pub(super) cells: Vec<u8>,
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
        Sweeper { written: AtomicU32::new(0), state: Mutex::new(state) }
    }

    /// Where to sweep now, if it is time to: so many rows more are written.
    pub(super) fn due(&self, rows: usize) -> Option<Cursor> {
        let rows = u32::try_from(rows).unwrap_or(EVERY_ROWS);
        let before = self.written.fetch_add(rows, Ordering::Relaxed);
        let by_count = before / EVERY_ROWS != before.wrapping_add(rows) / EVERY_ROWS;
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
pub(super) struct Sweeping<'a> {
    pub(super) sweeper: &'a Sweeper,
    pub(super) next: Option<Cursor>,
}

impl Drop for Sweeping<'_> {
    fn drop(&mut self) {
        self.sweeper.swept(self.next.take());
    }
}
