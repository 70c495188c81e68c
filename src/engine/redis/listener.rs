//! What is heard from the servers, made into hints.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::engine::{Hint, Hints};
use crate::name::Name;
use crate::redis::holder;
use crate::redis::link::Heard;

/// Where messages go.
#[derive(Debug, Default)]
pub(super) struct Listener {
    pub(super) hints: OnceLock<Hints>,
    /// The elections and cells that are watched, by channel.
    watched: Mutex<HashMap<String, Name>>,
    /// A claim counts only when replicas have it: whoever is told of a grant asks.
    confirmed: bool,
}

impl Listener {
    /// `confirmed` if replicas must confirm claims.
    pub(super) fn new(confirmed: bool) -> Listener {
        Listener { confirmed, ..Listener::default() }
    }

    pub(super) fn watched(&self) -> MutexGuard<'_, HashMap<String, Name>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hear(&self, heard: Heard) {
        let Some(hints) = self.hints.get() else { return };
        match heard {
            Heard::Reconnected => {
                hints.give(Hint::Verify);
                hints.give(Hint::WakeAll);
                let watched: Vec<Name> = self.watched().values().cloned().collect();
                watched.into_iter().for_each(|name| hints.give(Hint::Changed(name)));
            }
            Heard::Missed => hints.give(Hint::WakeAll),
            Heard::Connection(hint) => hints.give(hint),
            Heard::Message(channel, text) => {
                let watched = self.watched().get(&channel).cloned();
                match watched {
                    Some(name) => hints.give(Hint::Changed(name)),
                    None => match holder::hint(&text) {
                        Hint::Granted { owner, .. } if self.confirmed => hints.give(Hint::Wake(owner)),
                        hint => hints.give(hint),
                    },
                }
            }
        }
    }
}
