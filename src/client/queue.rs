//! The local queue: callers of one process that want the same name.
//!
//! They stand in one line. Only its front talks to the engine: one caller that wants all of the
//! name, or a few that share it, and no more of them once the engine has told one to wait. So ten
//! thousand tasks are few waiters there. A guard that is released while others stand in line goes
//! to the next of them with a reserved token and without a word to the engine, within a budget;
//! then the engine's own queue comes first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::claim::{Grant, OwnerId};
use crate::client::hold::Hold;

/// At most this many callers that share a name ask at the same time. More would only fill the
/// engine's queue.
const MOST_ASKING: usize = 8;

/// What a caller asks for, as far as it decides who can take over from whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) weight: u32,
    pub(crate) capacity: u32,
    pub(crate) lease: Duration,
    pub(crate) lock_delay: Duration,
}

/// Whether a caller is alone on the name while it holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Alone,
    Shared,
}

/// The line for one name.
#[derive(Debug, Default)]
pub(crate) struct Line(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Somebody asks for all of the name, or holds all of it.
    alone: bool,
    /// How many ask for a share.
    asking: usize,
    /// How many of those were told to wait.
    waiting: usize,
    /// Not empty only while somebody asks, or holds alone: whoever ends that looks here.
    places: VecDeque<Place>,
    /// Somebody has stood in line since it was last empty.
    crowded: bool,
    /// At this length the places of callers that gave up are thrown out.
    swept_at: usize,
    /// Tokens for those who take over a share.
    block: Option<Block>,
    /// The highest token that was given in this process.
    newest: u64,
}

#[derive(Debug)]
struct Place {
    terms: Terms,
    usage: Use,
    pass: oneshot::Sender<Pass>,
}

/// The tokens that the newest share has reserved. Several shares are held at the same time; if each
/// drew from its own block, a later holder could get a lower token than an earlier one.
#[derive(Debug)]
struct Block {
    /// Whose claim it came with. When that claim is given back, the engine gives the unused tokens
    /// to others.
    owner: OwnerId,
    next: u64,
    last: u64,
}

/// What a caller in line is given.
#[derive(Debug)]
pub(crate) enum Pass {
    /// It may ask the engine.
    Turn(Turn),
    /// It holds the name: its predecessor handed it over.
    Hold(Hold),
}

/// What a caller finds.
#[derive(Debug)]
pub(crate) enum Entered {
    /// It may ask the engine.
    Front(Turn),
    /// It stands in line.
    InLine(oneshot::Receiver<Pass>),
    /// Others came first, and it does not want to wait.
    Busy,
}

/// The right to ask the engine for the name. Dropped, it goes to the next in line.
#[derive(Debug)]
pub(crate) struct Turn {
    line: Arc<Line>,
    usage: Use,
    /// The engine has told this caller to wait.
    waits: bool,
}

impl State {
    /// True if somebody may ask now, were it its turn.
    fn admits(&self, usage: Use) -> bool {
        match usage {
            Use::Alone => !self.alone && self.asking == 0,
            Use::Shared => !self.alone && self.waiting == 0 && self.asking < MOST_ASKING,
        }
    }

    fn begin(&mut self, usage: Use) {
        match usage {
            Use::Alone => self.alone = true,
            Use::Shared => self.asking += 1,
        }
    }

    /// The next in line that may ask now.
    fn next_to_ask(&mut self) -> Option<Place> {
        loop {
            let next = self.places.front()?;
            if !next.pass.is_closed() && !self.admits(next.usage) {
                return None;
            }
            let next = self.places.pop_front()?;
            if !next.pass.is_closed() {
                self.begin(next.usage);
                return Some(next);
            }
        }
    }
}

impl Line {
    pub(crate) fn enter(self: &Arc<Line>, terms: Terms, usage: Use, wait: bool) -> Entered {
        let mut state = self.lock();
        if state.places.is_empty() && state.admits(usage) {
            state.begin(usage);
            return Entered::Front(Turn { line: Arc::clone(self), usage, waits: false });
        }
        if !wait {
            return Entered::Busy;
        }
        if state.places.len() >= state.swept_at {
            state.places.retain(|place| !place.pass.is_closed());
            state.swept_at = state.places.len() * 2 + 16;
        }
        let (pass, place) = oneshot::channel();
        state.places.push_back(Place { terms, usage, pass });
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

    /// Notes what the engine granted. Those who take over a share get tokens from here on, or none.
    pub(crate) fn granted(&self, owner: OwnerId, usage: Use, grant: Grant) {
        let mut state = self.lock();
        // An older grant may be heard of later. Its tokens are below some that were given
        // meanwhile.
        if grant.token < state.newest {
            return;
        }
        state.newest = grant.token;
        let reserved = usage == Use::Shared && grant.tokens > 1;
        let (next, last) = (grant.token + 1, grant.token + u64::from(grant.tokens) - 1);
        state.block = reserved.then_some(Block { owner, next, last });
    }

    /// A token for somebody who takes over a share: higher than all that were given in this
    /// process.
    pub(crate) fn next_token(&self) -> Option<u64> {
        let mut state = self.lock();
        let block = state.block.as_mut().filter(|block| block.next <= block.last)?;
        let token = block.next;
        block.next += 1;
        state.newest = token;
        Some(token)
    }

    /// Gives no more tokens of an owner's block, and says which was the last that it gave.
    pub(crate) fn close_block(&self, owner: OwnerId) -> Option<u64> {
        let mut state = self.lock();
        let block = state.block.take_if(|block| block.owner == owner)?;
        Some(block.next - 1)
    }
}

impl Turn {
    /// The engine has told this caller to wait: others need not ask, it would tell them the same.
    pub(crate) fn waits(&mut self) {
        if self.usage == Use::Shared && !self.waits {
            self.waits = true;
            self.line.lock().waiting += 1;
        }
    }

    pub(crate) fn usage(&self) -> Use {
        self.usage
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        match self.usage {
            Use::Alone => state.alone = false,
            Use::Shared => state.asking -= 1,
        }
        if self.waits {
            state.waiting -= 1;
        }
        while let Some(next) = state.next_to_ask() {
            let turn = Turn { line: Arc::clone(&self.line), usage: next.usage, waits: false };
            drop(state);
            // One that has gone meanwhile drops its turn, which goes on from there.
            next.pass.send(Pass::Turn(turn)).ok();
            state = self.line.lock();
        }
        if !state.alone && state.asking == 0 && state.places.is_empty() {
            state.crowded = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_for_those_who_share_never_go_back() {
        let line = Line::default();
        let grant = |owner, token, tokens| line.granted(OwnerId(owner), Use::Shared, Grant { token, tokens });
        grant(1, 10, 3);
        assert_eq!([line.next_token(), line.next_token(), line.next_token()], [Some(11), Some(12), None]);
        // Heard of in the other order: the older block is below a token that was given already.
        grant(3, 36, 1);
        grant(2, 20, 16);
        assert_eq!(line.next_token(), None);
        grant(4, 40, 16);
        assert_eq!(line.next_token(), Some(41));
        // What is left of it is the engine's again.
        assert_eq!((line.close_block(OwnerId(2)), line.close_block(OwnerId(4))), (None, Some(41)));
        assert_eq!(line.next_token(), None);
    }
}
