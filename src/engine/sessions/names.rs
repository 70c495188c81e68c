//! What one client of a store has: its connection, its sessions, and what it remembers.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::failure::Failure;
use super::found::{FEW, Found};
use super::held::{Asked, Held, Queued};
use super::mail::{Letter, name_of};
use super::seats::Seats;
use super::seen::Seen;
use super::store::{Store, Version};
use crate::claim::{CONFIRM, Grant, OwnerId, Seat, State};
use crate::clock::{Clock as _, Moment, SystemClock};
use crate::engine::Hint;
use crate::engine::gates::Gates;
use crate::error::Error;
use crate::name::Name;

pub(crate) fn now() -> Moment {
    SystemClock.now()
}

/// Something that a store has heard.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The session of some client has ended.
    Ended(Seat),
    /// What this client was told, by a write of that version.
    Mail(Vec<Letter>, Version),
    /// The place of this waiter of ours is gone: it was granted the name, or has left.
    #[cfg_attr(not(feature = "zookeeper"), allow(dead_code, reason = "etcd's clients get mail"))]
    Left { name: Name, owner: OwnerId, place: u64 },
    /// An election or a cell has changed.
    Changed(Name),
    /// From now on nothing is heard.
    Deaf,
    /// Everything is heard again. Anything may have happened meanwhile.
    Missed,
}

/// One client of a store.
#[derive(Debug)]
pub(crate) struct Names<S: Store> {
    pub(crate) store: S,
    pub(crate) seats: Seats,
    pub(crate) seen: Seen,
    pub(crate) asked: Asked,
    pub(crate) gates: Gates,
    /// Where requests run that go on without their callers.
    pub(crate) runtime: Handle,
}

impl<S: Store> Names<S> {
    /// The names of a store, which then passes on what it hears with [`Names::hear`].
    pub(crate) fn new(store: S) -> Arc<Names<S>> {
        Arc::new(Names {
            store,
            seats: Seats::default(),
            seen: Seen::default(),
            asked: Asked::default(),
            gates: Gates::default(),
            runtime: Handle::current(),
        })
    }

    pub(crate) fn hear(self: &Arc<Self>, heard: Heard) {
        match heard {
            Heard::Ended(seat) => self.session_ended(seat),
            Heard::Mail(letters, version) => {
                letters.into_iter().for_each(|letter| self.take_letter(letter, version));
            }
            Heard::Left { name, owner, place } => {
                let names = Arc::clone(self);
                self.runtime.spawn(async move { names.left(&name, owner, place).await });
            }
            Heard::Changed(name) => self.store.hint(Hint::Changed(name)),
            Heard::Deaf => self.seats.forget_living(),
            Heard::Missed => {
                self.seats.forget_living();
                self.store.hint(Hint::WakeAll);
                self.store.hint(Hint::Verify);
                for name in self.store.watched() {
                    self.store.hint(Hint::Changed(name));
                }
            }
        }
    }

    /// A session has ended. Its claims are over, and whoever waits behind them finds out.
    fn session_ended(&self, seat: Seat) {
        self.seats.ended(seat);
        if self.store.session_ended(seat) {
            self.store.hint(Hint::Verify);
            self.store.hint(Hint::WakeAll);
            return;
        }
        for owner in self.asked.first_waiters() {
            self.store.hint(Hint::Wake(owner));
        }
    }

    /// Finds out why the place of a waiter is gone.
    async fn left(&self, name: &Name, owner: OwnerId, place: u64) {
        let waits = || self.asked.queued(owner).is_some_and(|queued| queued.place == place);
        if !waits() {
            return;
        }
        let read = self.store.read_heard(name, FEW).await;
        let granted = match read.and_then(|read| Ok(self.found(name, FEW, None, read)?)) {
            Ok(found) => {
                let claims = found.known.state().map_or(&[][..], State::kept_claims);
                let claim = claims.iter().find(|claim| claim.owner == owner && !claim.confirmed);
                claim.map(|claim| (Grant { token: claim.token, tokens: claim.tokens }, found.clone()))
            }
            Err(_) => None,
        };
        match granted {
            Some((grant, found)) if waits() => {
                let letter = Letter::granted(owner, grant, name, Some(found.known));
                self.take_letter(letter, found.version);
            }
            _ => self.store.hint(Hint::Wake(owner)),
        }
    }

    /// Passes on what this client was told by a write of that version.
    pub(crate) fn take_letter(&self, letter: Letter, version: Version) {
        match letter {
            Letter::Granted { owner, token, tokens, family, name, known } => {
                match self.asked.unqueue(owner) {
                    Some(Queued { name, round, mut held, .. }) => {
                        if let Some(known) = known {
                            let found = Found::remembered(*known, version, S::time_of(version));
                            self.seen.note(&name, found, now());
                        }
                        // Its owner believes it for no longer, unless it confirms.
                        held.ends = now() + held.lease.min(CONFIRM);
                        self.asked.note(owner, held);
                        self.store.hint(Hint::Granted { owner, grant: Grant { token, tokens }, round });
                    }
                    None => {
                        // It has just asked again, or it has given up and its word was lost. Then
                        // nobody renews this, and it is given back.
                        if self.asked.held(owner).is_none()
                            && let Some(name) = name_of(family, &name)
                        {
                            let unwanted = Held::new(&name, None, CONFIRM, Duration::ZERO, now());
                            self.asked.note(owner, unwanted);
                        }
                        self.store.hint(Hint::Wake(owner));
                    }
                }
            }
            Letter::Wake(owner) => self.store.hint(Hint::Wake(owner)),
            Letter::Broken(owner) => self.store.hint(Hint::Broken(owner)),
        }
    }

    /// Whether the owner at a seat lives, if that is known.
    pub(crate) fn is_alive(&self, seat: Seat) -> Option<bool> {
        if let Some(session) = self.store.own(seat) {
            return Some(!session.has_ended());
        }
        self.seats.is_alive(seat).filter(|alive| !*alive || self.store.hears_of_ends())
    }

    /// The error for a caller that can not do anything about a failure.
    pub(crate) fn error(&self, failure: Failure) -> Error {
        failure.into_error(self.store.engine())
    }

    pub(crate) fn unreadable(&self, name: &Name, error: postcard::Error) -> Error {
        Error::Engine {
            engine: self.store.engine(),
            what: format!(
                "what is stored of `{name}` can not be read ({error}): it is not ours, is damaged, or was \
                 written by a newer version; delete it if nobody holds the name"
            ),
            source: Some(Box::new(error)),
        }
    }

    pub(crate) fn unwritable(&self, name: &Name, error: postcard::Error) -> Error {
        Error::Engine {
            engine: self.store.engine(),
            what: format!("what is to be stored of `{name}` can not be written: {error}"),
            source: Some(Box::new(error)),
        }
    }

    pub(crate) fn unavailable(&self, what: String) -> Error {
        Error::Unavailable { engine: self.store.engine(), what, source: None }
    }
}
