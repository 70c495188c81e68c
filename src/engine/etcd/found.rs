//! What was read of a name.

use serde::{Deserialize, Serialize};

use super::record::{Shown, Stored, WaiterRow};
use crate::claim::{OwnerId, Seat, State};
use crate::engine::table::buffered::{Rest, Snapshot};

/// How many waiters are read at first: nearly always enough.
pub(super) const FEW: usize = 8;
/// All of them.
pub(super) const ALL: usize = 0;

/// What was read of a name, all at one moment.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) revision: u64,
    /// The revision by which the key was written; 0 if it is not there.
    pub(super) version: i64,
    pub(super) known: Known,
    /// How many were asked for.
    pub(super) most: usize,
    /// The row of the asker, if it waits.
    pub(super) own: Option<(u64, WaiterRow)>,
    /// False for what is remembered: it may have changed since. Then it is good for a write, which
    /// finds out, and not for an answer.
    pub(super) fresh: bool,
}

/// What is known of a name and of the first that wait for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) stored: Option<Stored>,
    /// The first waiters, in order, by their place.
    pub(super) first: Vec<(u64, WaiterRow)>,
    /// There are no others.
    pub(super) whole: bool,
}

impl Found {
    /// What was known when the name was written by that revision.
    pub(super) fn remembered(known: Known, version: i64) -> Found {
        let revision = version.max(0).cast_unsigned();
        Found { revision, version, known, most: FEW, own: None, fresh: false }
    }

    fn state(&self) -> Option<&State> {
        self.known.state()
    }

    /// True if there are waiters although the name says that it has none: its key was deleted.
    pub(super) fn has_orphans(&self) -> bool {
        !self.known.first.is_empty() && self.state().is_none_or(|state| state.waiting() == 0)
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let row = |(place, row): &(u64, WaiterRow)| (*place, row.waiter.clone());
        Snapshot {
            record: self.known.stored.as_ref().map(|stored| stored.record.clone()),
            floor: 0,
            first: self.known.first.iter().map(row).collect(),
            rest: if self.known.whole { Rest::None } else { Rest::Unread },
            own: self.own.as_ref().map(row),
        }
    }

    /// The seats that the rule may ask for.
    pub(super) fn seats(&self) -> Vec<Seat> {
        let claims = self.state().map_or(&[][..], State::kept_claims);
        let claims = claims.iter().map(|claim| claim.seat);
        let waiters = self.known.first.iter().map(|(_, row)| row.waiter.seat);
        let mut seats: Vec<Seat> = claims.chain(waiters).collect();
        seats.sort_unstable();
        seats.dedup();
        seats
    }

    /// The row at a place, if it was read.
    pub(super) fn row(&self, place: u64) -> Option<&WaiterRow> {
        self.known.first.iter().chain(&self.own).find(|(other, _)| *other == place).map(|(_, row)| row)
    }

    /// What is shown of an owner that holds or waits.
    pub(super) fn shown(&self, owner: OwnerId) -> Option<Shown> {
        let waiting = || {
            let rows = self.known.first.iter().chain(&self.own);
            rows.map(|(_, row)| row.shown).find(|shown| shown.owner == owner)
        };
        self.known.stored.as_ref().and_then(|stored| stored.shown(owner)).or_else(waiting)
    }
}

impl Known {
    pub(super) fn state(&self) -> Option<&State> {
        self.stored.as_ref().map(|stored| &stored.record.state)
    }
}
