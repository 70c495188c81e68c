//! The local queue: callers of one process that want the same name.
//!
//! They stand in one line. Only its head talks to the engine, so ten thousand tasks are one waiter there. A
//! guard that is released while others stand in line goes to the next of them with the next reserved token and
//! without a word to the engine, within a budget; then the engine's own queue comes first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::client::hold::Hold;

/// What a caller asks for, as far as it decides who can take over from whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) weight: u32,
    pub(crate) capacity: u32,
    pub(crate) lease: Duration,
    pub(crate) lock_delay: Duration,
}

/// The line for one name.
#[derive(Debug, Default)]
pub(crate) struct Line(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Somebody asks the engine, or holds alone.
    busy: bool,
    places: VecDeque<Place>,
    /// Somebody has stood in line since it was last empty.
    crowded: bool,
    /// At this length the places of callers that gave up are thrown out.
    swept_at: usize,
}

#[derive(Debug)]
struct Place {
    terms: Terms,
    pass: oneshot::Sender<Pass>,
}

/// What a caller in line is given.
#[derive(Debug)]
pub(crate) enum Pass {
    /// It is the head now, and may ask the engine.
    Turn(Turn),
    /// It holds the name: its predecessor handed it over.
    Hold(Hold),
}

/// What a caller finds.
#[derive(Debug)]
pub(crate) enum Entered {
    /// It is the head.
    Head(Turn),
    /// It stands in line.
    InLine(oneshot::Receiver<Pass>),
    /// Others came first, and it does not want to wait.
    Busy,
}

/// The right to ask the engine for the name. Dropped, it goes to the next in line.
#[derive(Debug)]
pub(crate) struct Turn {
    line: Option<Arc<Line>>,
}

impl Line {
    pub(crate) fn enter(self: &Arc<Line>, terms: Terms, wait: bool) -> Entered {
        let mut state = self.lock();
        if !state.busy {
            state.busy = true;
            return Entered::Head(Turn { line: Some(Arc::clone(self)) });
        }
        if !wait {
            return Entered::Busy;
        }
        if state.places.len() >= state.swept_at {
            state.places.retain(|place| !place.pass.is_closed());
            state.swept_at = state.places.len() * 2 + 16;
        }
        let (pass, place) = oneshot::channel();
        state.places.push_back(Place { terms, pass });
        state.crowded = true;
        Entered::InLine(place)
    }

    /// Others of this process want the name too, so that it is worth reserving tokens for them.
    pub(crate) fn crowded(&self) -> bool {
        self.lock().crowded
    }

    /// Somebody stands first in line who can take over what `terms` hold.
    pub(crate) fn has_heir(&self, terms: &Terms) -> bool {
        self.lock().places.front().is_some_and(|next| next.terms == *terms || next.pass.is_closed())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a hold to the next in line; gives it back if there is nobody who can take it.
    pub(crate) fn hand_over(&self, terms: &Terms, mut hold: Hold) -> Result<(), Hold> {
        loop {
            let Some(heir) = self.next_heir(terms) else { return Err(hold) };
            match heir.send(Pass::Hold(hold)) {
                Err(Pass::Hold(refused)) => hold = refused,
                Ok(()) | Err(Pass::Turn(_)) => return Ok(()),
            }
        }
    }

    /// The next in line, if it can take over what `terms` hold.
    fn next_heir(&self, terms: &Terms) -> Option<oneshot::Sender<Pass>> {
        let mut state = self.lock();
        loop {
            let next = state.places.front()?;
            if !next.pass.is_closed() && next.terms != *terms {
                return None;
            }
            let next = state.places.pop_front()?;
            if !next.pass.is_closed() {
                return Some(next.pass);
            }
        }
    }
}

impl Turn {
    pub(crate) fn line(&self) -> Option<&Arc<Line>> {
        self.line.as_ref()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(line) = self.line.take() else { return };
        let mut turn = Turn { line: Some(Arc::clone(&line)) };
        loop {
            let mut state = line.lock();
            let Some(next) = state.places.pop_front() else {
                state.busy = false;
                state.crowded = false;
                turn.line = None;
                return;
            };
            drop(state);
            match next.pass.send(Pass::Turn(turn)) {
                Err(Pass::Turn(refused)) => turn = refused,
                Ok(()) | Err(Pass::Hold(_)) => return,
            }
        }
    }
}
