//! A queue of which only some rows were read: for engines whose rows are behind a network.
//!
//! The rules are synchronous and a query is not. So the engine reads what a rule can need
//! beforehand, in the transaction that will write: the row of the name, the first few waiters and
//! the asker's own row. [`plan`] runs the rule on that and gives the changes back as data. If the
//! rule needs a waiter that was not read, nothing has happened: the engine reads more rows and
//! calls again.

use std::collections::BTreeMap;

use super::row::Record;
use super::{Keep, Notice, Request, Waiters, run};
use crate::claim::{Micros, OwnerId, Queue, Waiter, World};
use crate::name::Name;

/// What was read of a name, all at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// The record of the name, if there is one.
    pub(crate) record: Option<Record>,
    /// What a new record starts with. Needed only if there is none.
    pub(crate) floor: u64,
    /// The first waiters, in order, by their place.
    pub(crate) first: Vec<(u64, Waiter)>,
    /// Whether there are more.
    pub(crate) rest: Rest,
    /// The row of [`Request::owner`], if it waits. It may be among the first.
    pub(crate) own: Option<(u64, Waiter)>,
}

/// Whether there are waiters that were not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rest {
    /// There may be.
    #[default]
    Unread,
    /// There are none.
    None,
}

/// What a request came to, for the engine to write in the transaction that read the snapshot.
#[derive(Debug)]
#[must_use = "the changes must be written and the notices delivered"]
pub(crate) struct Plan<T> {
    pub(crate) answer: T,
    pub(crate) row: RowChange,
    /// What becomes of waiters, by their place.
    pub(crate) queue: BTreeMap<u64, QueueChange>,
    /// Delivered after the commit.
    pub(crate) notices: Vec<Notice>,
    /// Those who watch the name are told, after the commit.
    #[cfg_attr(not(feature = "_sql"), allow(dead_code, reason = "etcd's own watches tell of changes"))]
    pub(crate) changed: bool,
}

/// What becomes of the row of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowChange {
    /// It stays as it was read.
    Unchanged,
    /// It is written.
    Put(Box<Record>),
    /// It is deleted if there is one, after the floor was raised to this.
    Delete { floor: Option<u64> },
}

/// What becomes of one waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueueChange {
    Insert(Waiter),
    /// Only `alive_until` is another one.
    Touch {
        owner: OwnerId,
        alive_until: Micros,
    },
    Delete {
        owner: OwnerId,
    },
}

/// The rule needs more of the first waiters than were read. Nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MoreWaiters;

/// Runs a request on what was read. `longest` is the longest key that the store can have.
pub(crate) fn plan<R: Request>(
    name: &Name,
    longest: usize,
    snapshot: &Snapshot,
    world: World<'_>,
    request: &R,
) -> Result<Plan<R::Answer>, MoreWaiters> {
    let new = || Record::new(name, longest, snapshot.floor);
    let mut record = snapshot.record.clone().unwrap_or_else(new);
    let mut queue = BufferedQueue::new(snapshot, request.owner(), &mut record.next_place);
    let outcome = run(&mut record.state, &mut queue, world, request)?;
    let queue = queue.changes;
    let row = match outcome.keep {
        Keep::Forget { floor } => RowChange::Delete { floor },
        Keep::Store if snapshot.record.as_ref() == Some(&record) => RowChange::Unchanged,
        Keep::Store => RowChange::Put(Box::new(record)),
    };
    Ok(Plan { answer: outcome.answer, row, queue, notices: outcome.notices, changed: outcome.changed })
}

/// The queue of a name as far as it was read, and what is to be written of it.
struct BufferedQueue<'a> {
    /// The waiters that are known, by their place: also the asker and those that joined.
    known: BTreeMap<u64, Waiter>,
    /// All waiters with a place below this are known.
    known_below: u64,
    asker: Option<OwnerId>,
    next_place: &'a mut u64,
    changes: BTreeMap<u64, QueueChange>,
}

impl<'a> BufferedQueue<'a> {
    fn new(snapshot: &Snapshot, asker: Option<OwnerId>, next_place: &'a mut u64) -> BufferedQueue<'a> {
        let known: BTreeMap<u64, Waiter> = snapshot.first.iter().chain(&snapshot.own).cloned().collect();
        let known_below = match (snapshot.rest, snapshot.first.last()) {
            (Rest::None, _) => u64::MAX,
            (Rest::Unread, Some((place, _))) => place + 1,
            (Rest::Unread, None) => 0,
        };
        BufferedQueue { known, known_below, asker, next_place, changes: BTreeMap::new() }
    }

    /// The place of a waiter; an error if it may have one that was not read.
    fn place_of(&self, owner: OwnerId) -> Result<Option<u64>, MoreWaiters> {
        let known = self.known.iter().find(|(_, waiter)| waiter.owner == owner);
        match known {
            Some((place, _)) => Ok(Some(*place)),
            None if self.known_below == u64::MAX || self.asker == Some(owner) => Ok(None),
            None => Err(MoreWaiters),
        }
    }
}

impl Queue for BufferedQueue<'_> {
    type Error = MoreWaiters;

    fn first(&self) -> Result<Option<Waiter>, MoreWaiters> {
        match self.known.first_key_value() {
            Some((place, waiter)) if *place < self.known_below => Ok(Some(waiter.clone())),
            None if self.known_below == u64::MAX => Ok(None),
            // Another one may come before it.
            _ => Err(MoreWaiters),
        }
    }

    fn push(&mut self, waiter: Waiter) -> Result<(), MoreWaiters> {
        let place = *self.next_place;
        *self.next_place += 1;
        self.changes.insert(place, QueueChange::Insert(waiter.clone()));
        self.known.insert(place, waiter);
        Ok(())
    }

    fn touch(&mut self, owner: OwnerId, alive_until: Micros) -> Result<bool, MoreWaiters> {
        let Some(place) = self.place_of(owner)? else { return Ok(false) };
        if let Some(waiter) = self.known.get_mut(&place) {
            waiter.alive_until = alive_until;
        }
        match self.changes.get_mut(&place) {
            Some(QueueChange::Insert(waiter)) => waiter.alive_until = alive_until,
            _ => drop(self.changes.insert(place, QueueChange::Touch { owner, alive_until })),
        }
        Ok(true)
    }

    fn remove(&mut self, owner: OwnerId) -> Result<bool, MoreWaiters> {
        let Some(place) = self.place_of(owner)? else { return Ok(false) };
        self.known.remove(&place);
        match self.changes.get(&place) {
            // Never stored.
            Some(QueueChange::Insert(_)) => drop(self.changes.remove(&place)),
            _ => drop(self.changes.insert(place, QueueChange::Delete { owner })),
        }
        Ok(true)
    }
}

impl Waiters for BufferedQueue<'_> {
    fn waiters(&self) -> Result<Vec<Waiter>, MoreWaiters> {
        if self.known_below < u64::MAX {
            return Err(MoreWaiters);
        }
        Ok(self.known.values().cloned().collect())
    }
}

#[cfg(test)]
mod tests;
