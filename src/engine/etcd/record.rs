//! What is stored of a name, and of a waiter.
//!
//! The rules of `claim` count in revisions of the store here, because etcd has no clock that a
//! client could read. So leases and times in a [`State`](crate::claim::State) mean nothing: a claim
//! ends with its session. What people are shown of lengths and times is stored beside it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::claim::{Claim, LOG_KEPT, Micros, OwnerId, Waiter};
use crate::engine::table::row::{Record, decode, encode};
use crate::engine::{HeldClaim, View};

/// Each revision has room for this many tokens. A grant reserves less, so that whatever was given
/// at one revision is below what is given at the next.
pub(super) const TOKENS: u64 = 1 << 10;
/// As many as a grant can have.
pub(super) const MOST_TOKENS: u32 = 512;

/// A lease by which nothing ends: sessions end claims.
pub(super) const FOREVER: Duration = Duration::from_micros(1 << 60);

/// The value of the key of a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stored {
    /// Tokens count from the revision by which this was written: who wrote it did not know it yet.
    relative: bool,
    pub(super) record: Record,
    shown: Vec<Shown>,
    /// Since when nobody holds it or waits, by the clock of whoever went last: for the sweep.
    idle_since: Option<Micros>,
}

/// What people are shown of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Shown {
    pub(super) owner: OwnerId,
    pub(super) lease: Micros,
    /// By the clock of the one who waited or asked.
    pub(super) since: Micros,
}

/// The value of the key of a waiter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WaiterRow {
    pub(super) waiter: Waiter,
    pub(super) shown: Shown,
}

impl Stored {
    /// What is written by somebody who knows the revision of the store.
    pub(super) fn new(record: Record, shown: Vec<Shown>) -> Stored {
        Stored { relative: false, ..Stored::relative(record, shown) }
    }

    /// What is written by somebody who does not.
    pub(super) fn relative(record: Record, shown: Vec<Shown>) -> Stored {
        let idle = record.state.kept_claims().is_empty() && record.state.waiting() == 0;
        Stored { relative: true, record, shown, idle_since: idle.then(wall_clock) }
    }

    /// The same, once it is written by that revision.
    pub(super) fn written_by(mut self, revision: i64) -> Stored {
        if std::mem::take(&mut self.relative) {
            self.record.state.shift_tokens(tokens_of(revision));
        }
        self
    }

    pub(super) fn encode(&self) -> postcard::Result<Vec<u8>> {
        encode(self)
    }

    /// Reads a value that was written at that revision.
    pub(super) fn decode(bytes: &[u8], revision: i64) -> postcard::Result<Stored> {
        Ok(decode::<Stored>(bytes)?.written_by(revision))
    }

    /// True if nobody has used it for so long that what it remembers is of no use any more.
    pub(super) fn is_forgotten(&self, now: Micros) -> bool {
        let kept = Micros::try_from(LOG_KEPT.as_micros()).unwrap_or(Micros::MAX);
        self.idle_since.is_some_and(|since| since.saturating_add(kept) < now)
    }

    pub(super) fn shown(&self, owner: OwnerId) -> Option<Shown> {
        self.shown.iter().find(|shown| shown.owner == owner).copied()
    }

    /// Puts in a view what people are shown.
    pub(super) fn show(&self, view: &mut View) {
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
    pub(super) fn now(owner: OwnerId, lease: Duration) -> Shown {
        Shown {
            owner,
            lease: Micros::try_from(lease.as_micros()).unwrap_or(Micros::MAX),
            since: wall_clock(),
        }
    }

    pub(super) fn put_in(&self, claim: &mut Claim) {
        claim.lease = self.lease;
        claim.since = self.since;
    }
}

impl WaiterRow {
    pub(super) fn encode(&self) -> postcard::Result<Vec<u8>> {
        encode(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> postcard::Result<WaiterRow> {
        decode(bytes)
    }
}

/// The first token of a revision.
pub(super) fn tokens_of(revision: i64) -> u64 {
    revision.max(0).cast_unsigned() * TOKENS
}

/// Microseconds since 1970, by the clock of this machine.
pub(super) fn wall_clock() -> Micros {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros::try_from(now.as_micros()).unwrap_or(Micros::MAX)
}

/// How long ago that was, by clocks that may differ.
pub(super) fn since(then: Micros) -> Duration {
    Duration::from_micros(wall_clock().saturating_sub(then))
}
