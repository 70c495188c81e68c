//! What this client has asked for: claims that it holds or may hold, and places in queues.
//!
//! Many claims share one session, which lives on when one of them is not renewed any more. So the
//! client that holds such a claim ends it, when its lease is over; if the client can not, because
//! it has died or was cut off, its session ends too.
//!
//! A request whose outcome is not known may take effect after its owner has given up. It is noted
//! before it is sent, and looked for again some time later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::store::{Session, Version};
use crate::claim::{OwnerId, OwnerMap};
use crate::clock::Moment;
use crate::name::Name;

/// How often, and after which pauses, a request is looked for that may take effect late.
const LOOKS: u32 = 3;
const LOOK_AGAIN: Duration = Duration::from_secs(4);

/// A claim that this client holds or may hold.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) name: Name,
    /// Where its owner believes it to be; `None` for one that nobody asked for any more.
    pub(crate) session: Option<Arc<dyn Session>>,
    pub(crate) lease: Duration,
    pub(crate) lock_delay: Duration,
    /// When it is to be ended unless it is renewed before: later than its owner believes in it.
    pub(crate) ends: Moment,
    /// The version of the name, if it says that this owner holds it, and nothing else.
    pub(crate) sole: Option<Version>,
    /// A request may take effect that nobody has heard the answer of.
    pub(crate) unsure: bool,
    /// How often it was looked for in vain.
    looks: u32,
}

/// A place in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) name: Name,
    pub(crate) place: u64,
    /// The last asking that was answered.
    pub(crate) round: u32,
    /// What it becomes when its turn comes.
    pub(crate) held: Held,
}

/// What this client has asked for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    table: Mutex<Table>,
    /// Something ends earlier than was thought.
    sooner: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Table {
    held: OwnerMap<Held>,
    queued: OwnerMap<Queued>,
    /// When the first claim may end, as far as whoever waits for it knows.
    next: Option<Moment>,
}

impl Held {
    /// A claim that is to be ended a lease and its lock delay from now.
    pub(crate) fn new(
        name: &Name,
        session: Option<&Arc<dyn Session>>,
        lease: Duration,
        lock_delay: Duration,
        now: Moment,
    ) -> Held {
        Held {
            name: name.clone(),
            session: session.cloned(),
            lease,
            lock_delay,
            ends: now + lease + lock_delay,
            sole: None,
            unsure: false,
            looks: 0,
        }
    }

    /// Counts its lease from then.
    pub(crate) fn counts_from(&mut self, moment: Moment) {
        self.ends = moment + self.lease + self.lock_delay;
    }
}

impl Asked {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Heard of by whoever ends claims: something ends earlier than was thought.
    pub(crate) fn sooner(&self) -> Arc<Notify> {
        Arc::clone(&self.sooner)
    }

    /// Notes a request before it is sent, or a grant that was heard of.
    pub(crate) fn note(&self, owner: OwnerId, mut held: Held) {
        let ends = held.ends;
        let mut table = self.table();
        if let Some(before) = table.held.remove(&owner) {
            held.unsure |= before.unsure;
        }
        table.held.insert(owner, held);
        self.expect(&mut table, ends);
    }

    fn expect(&self, table: &mut Table, ends: Moment) {
        if table.next.is_none_or(|next| ends < next) {
            table.next = Some(ends);
            self.sooner.notify_one();
        }
    }

    /// Changes what is known of a claim.
    pub(crate) fn update(&self, owner: OwnerId, change: impl FnOnce(&mut Held)) {
        if let Some(held) = self.table().held.get_mut(&owner) {
            change(held);
        }
    }

    /// A claim, if this client may hold it.
    pub(crate) fn held(&self, owner: OwnerId) -> Option<Held> {
        self.table().held.get(&owner).cloned()
    }

    /// The session of a claim that this client may hold.
    pub(crate) fn session(&self, owner: OwnerId) -> Option<Arc<dyn Session>> {
        self.table().held.get(&owner)?.session.clone()
    }

    /// Forgets a claim, or takes note that it must be looked for again.
    pub(crate) fn forget(&self, owner: OwnerId) -> Option<Held> {
        self.table().held.remove(&owner)
    }

    /// Looks for a request again that was not found, for it may take effect yet.
    pub(crate) fn look_again(&self, owner: OwnerId, mut held: Held, at: Moment) {
        held.looks += 1;
        if held.looks > LOOKS {
            return;
        }
        held.ends = at + LOOK_AGAIN * held.looks;
        held.sole = None;
        let ends = held.ends;
        let mut table = self.table();
        table.held.entry(owner).or_insert(held);
        self.expect(&mut table, ends);
    }

    pub(crate) fn queue(&self, owner: OwnerId, queued: Queued) {
        self.table().queued.insert(owner, queued);
    }

    pub(crate) fn queued(&self, owner: OwnerId) -> Option<Queued> {
        self.table().queued.get(&owner).cloned()
    }

    pub(crate) fn unqueue(&self, owner: OwnerId) -> Option<Queued> {
        self.table().queued.remove(&owner)
    }

    /// Sets the round that an owner in a queue has asked in.
    pub(crate) fn asks_in(&self, owner: OwnerId, round: u32) {
        if let Some(queued) = self.table().queued.get_mut(&owner) {
            queued.round = round;
        }
    }

    /// One owner for each name that this client waits for: the one that came first.
    pub(crate) fn first_waiters(&self) -> Vec<OwnerId> {
        let table = self.table();
        let mut first: HashMap<&Name, (u64, OwnerId)> = HashMap::new();
        for (owner, queued) in &table.queued {
            let place = first.entry(&queued.name).or_insert((queued.place, *owner));
            *place = (*place).min((queued.place, *owner));
        }
        first.into_values().map(|(_, owner)| owner).collect()
    }

    /// The claims whose time is over, and when the next one's is.
    pub(crate) fn over(&self, at: Moment) -> (Vec<OwnerId>, Option<Moment>) {
        let mut table = self.table();
        let over = table.held.iter().filter(|(_, held)| held.ends <= at).map(|(owner, _)| *owner).collect();
        let rest = table.held.values().map(|held| held.ends).filter(|ends| *ends > at).min();
        table.next = rest;
        (over, rest)
    }
}
