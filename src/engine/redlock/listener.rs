//! What is heard from the servers, made into hints.
//!
//! A name that is given back is free on each server a moment sooner or later. A waiter that asks
//! when the first of them says so finds the others taken, and gets in the way of the release. So a
//! wake-up counts when a majority has sent it, or after a moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::rules::majority;
use crate::claim::OwnerId;
use crate::engine::{Hint, Hints};
use crate::redis::holder;
use crate::redis::link::Heard;

/// How long the others have to say the same.
const MOMENT: Duration = Duration::from_millis(12);

/// Where messages go.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) hints: OnceLock<Hints>,
    servers: usize,
    runtime: Handle,
    /// Who was called, by which servers.
    called: Mutex<HashMap<OwnerId, u32>>,
    /// A server may have been restarted.
    pub(super) look: Arc<Notify>,
}

impl Listener {
    pub(super) fn new(servers: usize, runtime: Handle) -> Listener {
        Listener { hints: OnceLock::new(), servers, runtime, called: Mutex::default(), look: Arc::default() }
    }

    fn called(&self) -> MutexGuard<'_, HashMap<OwnerId, u32>> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, hint: Hint) {
        if let Some(hints) = self.hints.get() {
            hints.give(hint);
        }
    }

    pub(super) fn hear(self: &Arc<Listener>, number: usize, heard: Heard) {
        match heard {
            Heard::Reconnected | Heard::Missed => {
                self.look.notify_one();
                self.give(Hint::Verify);
                self.give(Hint::WakeAll);
            }
            Heard::Connection(hint) => self.give(hint),
            Heard::Message(_, text) => match holder::hint(&text) {
                Hint::Wake(owner) => self.call(number, owner),
                hint => self.give(hint),
            },
        }
    }

    fn call(self: &Arc<Listener>, number: usize, owner: OwnerId) {
        let mut called = self.called();
        let by = called.entry(owner).or_default();
        let first = *by == 0;
        *by |= 1 << number;
        if usize::try_from(by.count_ones()).unwrap_or(0) >= majority(self.servers) {
            called.remove(&owner);
            drop(called);
            self.give(Hint::Wake(owner));
        } else if first {
            drop(called);
            let listener: Weak<Listener> = Arc::downgrade(self);
            self.runtime.spawn(async move {
                tokio::time::sleep(MOMENT).await;
                let Some(listener) = listener.upgrade() else { return };
                if listener.called().remove(&owner).is_some() {
                    listener.give(Hint::Wake(owner));
                }
            });
        }
    }
}
