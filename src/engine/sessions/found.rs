//! What was read of a name.

use serde::{Deserialize, Serialize};

use super::record::{Shown, Stored, WaiterRow};
use super::version::Version;
use crate::claim::{OwnerId, Seat, State};
use crate::engine::table::buffered::{Rest, Snapshot};

/// How many waiters are read at first: nearly always enough.
pub(crate) const FEW: usize = 8;
/// All of them.
pub(crate) const ALL: usize = 0;

/// What was read of a name, all at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// A number of a change of the store, not below that of the record. Tokens count from it.
    pub(crate) number: u64,
    /// What the rules are given for the time.
    pub(crate) now: u64,
    pub(crate) version: Version,
    pub(crate) known: Known,
    /// How many were asked for.
    pub(crate) most: usize,
    /// The row of the asker, if it waits.
    pub(crate) own: Option<(u64, WaiterRow)>,
    /// False for what is remembered: it may have changed since. Then it is good for a write, which
    /// finds out, and not for an answer.
    pub(crate) fresh: bool,
}

/// What is known of a name and of the first that wait for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) stored: Option<Stored>,
    /// The first waiters, in order, by their place.
    pub(crate) first: Vec<(u64, WaiterRow)>,
    /// There are no others.
    pub(crate) whole: bool,
}

impl Found {
    /// What was known when the name was written by that version.
    pub(crate) fn remembered(known: Known, version: Version, now: u64) -> Found {
        Found { number: version.written, now, version, known, most: FEW, own: None, fresh: false }
    }

    fn state(&self) -> Option<&State> {
        self.known.state()
    }

    /// True if there are waiters although the name says that it has none: it was deleted by hand.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.known.first.is_empty() && self.state().is_none_or(|state| state.waiting() == 0)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
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
    pub(crate) fn seats(&self) -> Vec<Seat> {
        let claims = self.state().map_or(&[][..], State::kept_claims);
        let claims = claims.iter().map(|claim| claim.seat);
        let waiters = self.known.first.iter().map(|(_, row)| row.waiter.seat);
        let mut seats: Vec<Seat> = claims.chain(waiters).collect();
        seats.sort_unstable();
        seats.dedup();
        seats
    }

    /// The row at a place, if it was read.
    pub(crate) fn row(&self, place: u64) -> Option<&WaiterRow> {
        self.known.first.iter().chain(&self.own).find(|(other, _)| *other == place).map(|(_, row)| row)
    }

    /// What is shown of an owner that holds or waits.
    pub(crate) fn shown(&self, owner: OwnerId) -> Option<Shown> {
        let waiting = || {
            let rows = self.known.first.iter().chain(&self.own);
            rows.map(|(_, row)| row.shown).find(|shown| shown.owner == owner)
        };
        self.known.stored.as_ref().and_then(|stored| stored.shown(owner)).or_else(waiting)
    }
}

impl Known {
    pub(crate) fn state(&self) -> Option<&State> {
        self.stored.as_ref().map(|stored| &stored.record.state)
    }
}
