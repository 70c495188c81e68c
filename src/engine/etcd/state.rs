//! What one client of a cluster has: its connection, its sessions, and what it remembers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

use super::connection::Cluster;
use super::found::Found;
use super::held::{Asked, Held, Queued};
use super::keys::Keys;
use super::mail::{Letter, name_of};
use super::seats::Seats;
use super::seen::Seen;
use super::session::{Sessions, now};
use super::store::Store;
use super::url::Place;
use super::watches::{Heard, Watched, Watches};
use crate::claim::{CONFIRM, Grant, Seat};
use crate::engine::gates::Gates;
use crate::engine::supervise::Supervisor;
use crate::engine::{Hint, Hints};
use crate::error::Result;

/// One client of a cluster.
#[derive(Debug)]
pub(super) struct Etcd {
    pub(super) store: Arc<Store>,
    pub(super) keys: Keys,
    pub(super) watches: Arc<Watches>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) seats: Seats,
    pub(super) seen: Seen,
    pub(super) asked: Asked,
    pub(super) gates: Gates,
    /// Where requests run that go on without their callers.
    pub(super) runtime: Handle,
    /// The latest revision that was heard of.
    revision: AtomicU64,
}

impl Etcd {
    pub(super) async fn open(place: Place) -> Result<Arc<Etcd>> {
        let keys = Keys::new(place.prefix.clone());
        let supervisor = Supervisor::open(Cluster::new(place, &keys)?).await?;
        let store = Arc::new(Store { supervisor });
        let watches = Watches::new(Arc::clone(&store), keys.clone());
        let sessions = Sessions::new(Arc::clone(&store), keys.clone(), Arc::clone(&watches));
        let etcd = Arc::new(Etcd {
            store,
            keys,
            watches,
            sessions,
            seats: Seats::default(),
            seen: Seen::default(),
            asked: Asked::default(),
            gates: Gates::default(),
            runtime: Handle::current(),
            revision: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&etcd);
        etcd.watches.start(Some(Watched::Sessions), move |heard| {
            if let Some(etcd) = weak.upgrade() {
                etcd.hear(heard);
            }
        });
        Ok(etcd)
    }

    pub(super) fn listen(&self, hints: Hints) {
        // Called once; a second sink would never hear anything.
        self.store.supervisor.connector().hints.set(hints).ok();
    }

    pub(super) fn hint(&self, hint: Hint) {
        self.store.supervisor.connector().hint(hint);
    }

    /// Notes a revision of the store.
    pub(super) fn heard(&self, revision: u64) {
        self.revision.fetch_max(revision, Ordering::AcqRel);
    }

    /// The latest revision that was heard of.
    pub(super) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    fn hear(&self, heard: Heard) {
        match heard {
            Heard::Ended(seat) => self.session_ended(seat),
            Heard::Mail(letters, revision) => {
                letters.into_iter().for_each(|letter| self.take_letter(letter, revision));
            }
            Heard::Changed(name) => self.hint(Hint::Changed(name)),
            // Of raw names.
            Heard::Left(_) | Heard::Event { .. } => {}
            Heard::Deaf => self.seats.forget_living(),
            Heard::Missed => {
                self.seats.forget_living();
                self.hint(Hint::WakeAll);
                self.hint(Hint::Verify);
                for name in self.watches.names() {
                    self.hint(Hint::Changed(name));
                }
            }
        }
    }

    /// A session has ended. Its claims are over, and whoever waits behind them finds out.
    fn session_ended(&self, seat: Seat) {
        self.seats.ended(seat);
        if self.sessions.ended(seat) {
            self.hint(Hint::Verify);
            self.hint(Hint::WakeAll);
            return;
        }
        for owner in self.asked.first_waiters() {
            self.hint(Hint::Wake(owner));
        }
    }

    /// Passes on what this client was told by a write of that revision.
    pub(super) fn take_letter(&self, letter: Letter, revision: i64) {
        match letter {
            Letter::Granted { owner, token, tokens, family, name, known } => {
                match self.asked.unqueue(owner) {
                    Some(Queued { name, round, mut held, .. }) => {
                        if let Some(known) = known {
                            self.seen.note(&name, Found::remembered(*known, revision), now());
                        }
                        // Its owner believes it for no longer, unless it confirms.
                        held.ends = now() + held.lease.min(CONFIRM);
                        self.asked.note(owner, held);
                        self.hint(Hint::Granted { owner, grant: Grant { token, tokens }, round });
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
                        self.hint(Hint::Wake(owner));
                    }
                }
            }
            Letter::Wake(owner) => self.hint(Hint::Wake(owner)),
            Letter::Broken(owner) => self.hint(Hint::Broken(owner)),
        }
    }

    /// Whether the owner at a seat lives, if that is known.
    pub(super) fn is_alive(&self, seat: Seat) -> Option<bool> {
        if let Some(session) = self.sessions.own(seat) {
            return Some(!session.has_ended());
        }
        self.seats.is_alive(seat).filter(|alive| !*alive || self.watches.hears_of_ends())
    }
}
