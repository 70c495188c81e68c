//! Tokens of locks that were taken without ado, until they are written down.
//!
//! Such a lock is taken by one transaction that can not know its own token. Whoever looks at the lock wants to see it, so
//! it is written to the holder's key a moment later, if the lock is still held: most are not, and cost nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use super::keys::NameKeys;
use super::link::Link;
use super::reply::owner_text;
use super::scripts::{Invocation, SCRIPTS};
use crate::claim::OwnerId;

/// How long a lock is held before it is worth a note.
pub(super) const AFTER: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Notes {
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tokens: HashMap<OwnerId, Note>,
    /// A task is on its way to write them down.
    under_way: bool,
}

#[derive(Debug)]
struct Note {
    token: u64,
    /// The holder's key and the state's; gone once written down.
    keys: Option<(String, String)>,
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

    pub(super) fn forget(&self, owner: OwnerId) {
        self.lock().tokens.remove(&owner);
    }

    pub(super) fn add(self: &Arc<Notes>, link: &Link, keys: &NameKeys, owner: OwnerId, token: u64) {
        let mut state = self.lock();
        let keys = Some((keys.holder.clone(), keys.state.clone()));
        state.tokens.insert(owner, Note { token, keys });
        if state.under_way {
            return;
        }
        state.under_way = true;
        drop(state);
        let (notes, writer) = (Arc::clone(self), link.writer());
        self.runtime.spawn(async move {
            tokio::time::sleep(AFTER).await;
            let Some(script) = notes.script() else { return };
            // It is for those who look: if it is lost, they see no token.
            writer.run(&script).await;
        });
    }

    /// What is to be written, and a clean slate.
    fn script(&self) -> Option<Invocation> {
        let mut state = self.lock();
        state.under_way = false;
        let mut script = SCRIPTS.note.prepare();
        let mut any = false;
        for (owner, note) in &mut state.tokens {
            if let Some((holder, name_state)) = note.keys.take() {
                script.key(holder).key(name_state).arg(owner_text(*owner)).arg(note.token);
                any = true;
            }
        }
        any.then_some(script)
    }
}
