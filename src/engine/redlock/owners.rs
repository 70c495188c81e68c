//! What this client knows of its owners.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::claim::{Grant, OwnerId};

/// All owners that have asked and not released.
#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<HashMap<OwnerId, Entry>>);

/// One owner.
#[derive(Debug)]
pub(super) struct Entry {
    /// The servers that may have heard of it, a bit for each.
    pub(super) touched: u32,
    /// The servers that have given its claim back.
    pub(super) removed: u32,
    pub(super) lease: Duration,
    pub(super) held: Option<Held>,
    since: Instant,
}

/// A claim that is held.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) grant: Grant,
    pub(super) shared: bool,
    /// For each server, since which asking or renewal it had the claim when a majority last said
    /// yes. Another number means that there was a gap in which somebody else may have held the
    /// name.
    pub(super) known: Vec<u64>,
    /// The last renewal that was asked for.
    pub(super) renewal: u64,
    /// Seat, process, host and label.
    pub(super) who: String,
}

impl Owners {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that some servers, a bit for each, may hear of an owner from now on.
    pub(super) fn touch(&self, owner: OwnerId, lease: Duration, servers: u32) {
        let new = || Entry { touched: 0, removed: 0, lease, held: None, since: Instant::now() };
        self.lock().entry(owner).or_insert_with(new).touched |= servers;
    }

    /// Notes since which asking or renewal a server has had a claim, as it said to a renewal to
    /// which a majority said yes. When the next renewal is under way it is too late for that.
    pub(super) fn heard(&self, owner: OwnerId, round: u64, server: usize, since: u64) {
        let mut owners = self.lock();
        let held = owners.get_mut(&owner).and_then(|entry| entry.held.as_mut());
        if let Some(held) = held.filter(|held| held.renewal == round) {
            held.known[server] = since;
        }
    }

    /// Forgets an owner; and, if there are many, those that hold nothing and are older than `age`.
    pub(super) fn forget(&self, owner: OwnerId, age: Duration) {
        const MANY: usize = 4096;
        let mut owners = self.lock();
        owners.remove(&owner);
        if owners.len() > MANY {
            owners.retain(|_, entry| entry.held.is_some() || entry.since.elapsed() < age);
        }
    }
}
