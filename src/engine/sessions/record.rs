//! What is stored of a name, and of a waiter.
//!
//! The rules of `claim` count in revisions of the store here, because the stores have no clock that
//! a client could read. So leases and times in a [`State`](crate::claim::State) mean nothing: a claim
//! ends with its session. What people are shown of lengths and times is stored beside it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::claim::{Claim, LOG_KEPT, Micros, OwnerId, Waiter};
use crate::engine::table::row::{Record, decode, encode};
use crate::engine::{HeldClaim, View};

/// A lease by which nothing ends: sessions end claims.
pub(crate) const FOREVER: Duration = Duration::from_micros(1 << 60);

/// What is stored of a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// Tokens count from the change by which this was written: who wrote it did not know it yet.
    relative: bool,
    pub(crate) record: Record,
    shown: Vec<Shown>,
    /// Since when nobody holds it or waits, by the clock of whoever went last: for the sweep.
    idle_since: Option<Micros>,
}

/// What people are shown of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) owner: OwnerId,
    pub(crate) lease: Micros,
    /// By the clock of the one who waited or asked.
    pub(crate) since: Micros,
}

/// What is stored of a waiter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WaiterRow {
    pub(crate) waiter: Waiter,
    pub(crate) shown: Shown,
}

impl Stored {
    /// What is written by somebody who knows what tokens count from.
    pub(crate) fn new(record: Record, shown: Vec<Shown>) -> Stored {
        Stored { relative: false, ..Stored::relative(record, shown) }
    }

    /// What is written by somebody who does not.
    pub(crate) fn relative(record: Record, shown: Vec<Shown>) -> Stored {
        let idle = record.state.kept_claims().is_empty() && record.state.waiting() == 0;
        Stored { relative: true, record, shown, idle_since: idle.then(wall_clock) }
    }

    /// The same, once it is written by a change whose first token is this.
    pub(crate) fn written_by(mut self, first_token: u64) -> Stored {
        if std::mem::take(&mut self.relative) {
            self.record.state.shift_tokens(first_token);
        }
        self
    }

    pub(crate) fn encode(&self) -> postcard::Result<Vec<u8>> {
        encode(self)
    }

    /// Reads what was written by a change whose first token is this.
    pub(crate) fn decode(bytes: &[u8], first_token: u64) -> postcard::Result<Stored> {
        Ok(decode::<Stored>(bytes)?.written_by(first_token))
    }

    /// True if nobody has used it for so long that what it remembers is of no use any more.
    pub(crate) fn is_forgotten(&self, now: Micros) -> bool {
        let kept = Micros::try_from(LOG_KEPT.as_micros()).unwrap_or(Micros::MAX);
        self.idle_since.is_some_and(|since| since.saturating_add(kept) < now)
    }

    pub(crate) fn shown(&self, owner: OwnerId) -> Option<Shown> {
        self.shown.iter().find(|shown| shown.owner == owner).copied()
    }

    /// Puts in a view what people are shown.
    pub(crate) fn show(&self, view: &mut View) {
        for HeldClaim { claim, held_for, ends_in } in &mut view.claims {
            if let Some(shown) = self.shown(claim.owner) {
                shown.put_in(claim);
                *held_for = since(shown.since);
                *ends_in = Duration::from_micros(shown.lease);
            }
        }
    }
}

impl Shown {
    pub(crate) fn now(owner: OwnerId, lease: Duration) -> Shown {
        Shown {
            owner,
            lease: Micros::try_from(lease.as_micros()).unwrap_or(Micros::MAX),
            since: wall_clock(),
        }
    }

    pub(crate) fn put_in(&self, claim: &mut Claim) {
        claim.lease = self.lease;
        claim.since = self.since;
    }
}

impl WaiterRow {
    pub(crate) fn encode(&self) -> postcard::Result<Vec<u8>> {
        encode(self)
    }

    pub(crate) fn decode(bytes: &[u8]) -> postcard::Result<WaiterRow> {
        decode(bytes)
    }
}

/// Microseconds since 1970, by the clock of this machine.
pub(crate) fn wall_clock() -> Micros {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros::try_from(now.as_micros()).unwrap_or(Micros::MAX)
}

/// How long ago that was, by clocks that may differ.
pub(crate) fn since(then: Micros) -> Duration {
    Duration::from_micros(wall_clock().saturating_sub(then))
}
