//! Tokens of locks that were taken without ado, until they are written down.
//!
//! Such a lock is taken by one transaction that can not know its own token. Whoever looks at the lock wants to see it, so
//! it is written to the holder's key a moment later, if the lock is still held: most are not, and cost nothing.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;

use super::scripts::SCRIPTS;
use crate::claim::{OwnerId, OwnerMap};
use crate::redis::holder::owner_text;
use crate::redis::keys::NameKeys;
use crate::redis::link::Writer;
use crate::redis::script::Invocation;

/// How long a lock is held before it is worth a note.
pub(super) const AFTER: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Notes {
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tokens: OwnerMap<Note>,
    /// A task is on its way to write them down.
    under_way: bool,
}

struct Note {
    token: u64,
    /// Where to write it, and what stands there; gone once written down.
    place: Option<Place>,
}

struct Place {
    writer: Writer,
    keys: Arc<NameKeys>,
    text: String,
}

/// What is known of an owner's claim.
#[derive(Debug)]
pub(super) enum Known {
    /// The lock was taken without ado, and just this stands at the holder's key unless somebody else changed it.
    Text(Arc<NameKeys>, String),
    /// It was taken without ado.
    Taken,
    Nothing,
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Note").field("token", &self.token).finish_non_exhaustive()
    }
}

impl Notes {
    pub(super) fn new(runtime: Handle) -> Notes {
        Notes { runtime, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn token(&self, owner: OwnerId) -> Option<u64> {
        self.lock().tokens.get(&owner).map(|note| note.token)
    }

    /// Forgets an owner, and says what was known of it.
    pub(super) fn forget(&self, owner: OwnerId) -> Known {
        match self.lock().tokens.remove(&owner) {
            Some(Note { place: Some(Place { keys, text, .. }), .. }) => Known::Text(keys, text),
            Some(_) => Known::Taken,
            None => Known::Nothing,
        }
    }

    /// A token that stands at the holder's key already.
    pub(super) fn written(&self, owner: OwnerId, token: u64) {
        self.lock().tokens.insert(owner, Note { token, place: None });
    }

    pub(super) fn add(
        self: &Arc<Notes>,
        writer: Option<Writer>,
        keys: &Arc<NameKeys>,
        owner: OwnerId,
        token: u64,
        text: String,
    ) {
        let Some(writer) = writer else { return };
        let place = Place { writer, keys: Arc::clone(keys), text };
        let mut state = self.lock();
        state.tokens.insert(owner, Note { token, place: Some(place) });
        if state.under_way {
            return;
        }
        state.under_way = true;
        drop(state);
        let notes = Arc::clone(self);
        self.runtime.spawn(async move {
            tokio::time::sleep(AFTER).await;
            let written = notes.unwritten().into_iter().map(|(writer, script)| async move {
                // It is for those who look: if it is lost, they see no token.
                writer.run(&script).await;
            });
            join_all(written).await;
        });
    }

    /// What is to be written, and a clean slate.
    fn unwritten(&self) -> Vec<(Writer, Invocation)> {
        let mut state = self.lock();
        state.under_way = false;
        let script = |(owner, note): (&OwnerId, &mut Note)| {
            let Place { writer, keys, .. } = note.place.take()?;
            let mut script = SCRIPTS.note.on(&[&keys.holder]);
            script.arg(owner_text(*owner)).arg(note.token);
            Some((writer, script))
        };
        state.tokens.iter_mut().filter_map(script).collect()
    }
}
