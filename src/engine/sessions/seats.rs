//! Which sessions of other clients are known to live.
//!
//! A session is a key that its lease takes along when it ends, and is never made again. So *dead*
//! is final. *Alive* is good for as long as the watch on the ends of sessions stands: it was
//! opened before the session was seen alive.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::claim::Seat;

/// How many dead sessions are remembered. One that was forgotten is looked for again.
const MOST_DEAD: usize = 4096;

/// What is known of sessions.
#[derive(Debug, Default)]
pub(crate) struct Seats(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    alive: HashSet<Seat>,
    dead: HashSet<Seat>,
    /// The dead, in the order in which they were heard of.
    order: VecDeque<Seat>,
}

impl Seats {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a session lives, if that is known.
    pub(crate) fn is_alive(&self, seat: Seat) -> Option<bool> {
        let known = self.known();
        if known.dead.contains(&seat) {
            return Some(false);
        }
        known.alive.contains(&seat).then_some(true)
    }

    /// A session was seen, or looked for in vain.
    pub(crate) fn seen(&self, seat: Seat, alive: bool) {
        if !alive {
            self.ended(seat);
            return;
        }
        let mut known = self.known();
        // Its end may have been heard of before the answer that still has it.
        if !known.dead.contains(&seat) {
            known.alive.insert(seat);
        }
    }

    /// A session has ended.
    pub(crate) fn ended(&self, seat: Seat) {
        let mut known = self.known();
        known.alive.remove(&seat);
        if known.dead.insert(seat) {
            known.order.push_back(seat);
            if known.order.len() > MOST_DEAD
                && let Some(oldest) = known.order.pop_front()
            {
                known.dead.remove(&oldest);
            }
        }
    }

    /// Ends of sessions may have been missed.
    pub(crate) fn forget_living(&self) {
        self.known().alive.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_stay_dead() {
        let seats = Seats::default();
        assert_eq!(seats.is_alive(1), None);
        seats.seen(1, true);
        assert_eq!(seats.is_alive(1), Some(true));
        seats.ended(1);
        // An answer from before its end.
        seats.seen(1, true);
        assert_eq!(seats.is_alive(1), Some(false));
        seats.seen(2, true);
        seats.forget_living();
        assert_eq!((seats.is_alive(2), seats.is_alive(1)), (None, Some(false)));
    }
}
