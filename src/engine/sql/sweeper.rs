//! When the tables are swept, and where the next sweep goes on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Every so many requests a few rows are swept, or after so long.
const EVERY_REQUESTS: u32 = 256;
const EVERY: Duration = Duration::from_secs(30);

/// How far the table has been swept.
#[derive(Debug)]
pub(super) struct Sweeper {
    requests: AtomicU32,
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
        Sweeper { requests: AtomicU32::new(0), state: Mutex::new(state) }
    }

    /// Where to sweep now, if it is time to.
    pub(super) fn due(&self) -> Option<Cursor> {
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
pub(super) struct Sweeping<'a> {
    pub(super) sweeper: &'a Sweeper,
    pub(super) next: Option<Cursor>,
}

impl Drop for Sweeping<'_> {
    fn drop(&mut self) {
        self.sweeper.swept(self.next.take());
    }
}
