//! The rules of a claim: a pure state machine.
//!
//! A claim is `weight` out of `capacity` on a name, for an owner, for a lease. [`State`] is all
//! that is known of one name; every request is a method that is given the time and answers what
//! happened and whom to wake. Claims are granted in the order in which they were asked for; expired
//! claims and waiters that no longer live are passed over.
//!
//! Nothing here does I/O, reads a clock or picks a random number, so the same code runs in the
//! embedded engines, under the model explorer (`tests/model`) and as the yardstick for engines that
//! restate the rules in another language.
//!
//! Time is in microseconds of the engine's clock. Tokens are drawn from the same number line: a
//! token is the larger of "one more than the last" and "now", so that a name whose record was
//! thrown away starts above every token it gave before. See [`State::retire`] for what makes that
//! sound. An engine whose clock does not go on by itself says where its tokens start
//! ([`World::tokens_from`]).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "_table")]
use serde::{Deserialize, Serialize};

mod owner;
mod queue;
mod state;

pub use owner::OwnerId;
pub(crate) use owner::OwnerMap;
pub use queue::{MemoryQueue, Queue};
pub use state::State;

/// Microseconds of an engine's clock.
pub type Micros = u64;

/// The weight that stands for "all of it": what a writer takes, and the capacity of a lock with
/// readers.
pub const WHOLE: u32 = u32::MAX;

/// How long a waiter is believed to live after it last asked.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long a waiter that was handed the name has to say that it heard.
///
/// A waiter may have died since it last asked. A grant that nobody confirms ends after this time
/// and not after a whole lease.
pub const CONFIRM: Duration = Duration::from_secs(3);

/// How many changes of leadership are remembered for observers.
pub const LOG_LENGTH: usize = 32;

/// How long the log of an election that nobody takes part in is kept.
pub const LOG_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Where an owner lives, in the engine's own numbering: what is woken, and what can be seen to have
/// died.
pub type Seat = u64;

/// Who holds, for humans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "_table", derive(Serialize, Deserialize))]
pub struct Holder {
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// What the caller said it is doing.
    pub label: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.label.is_empty() {
            write!(f, "{} ", self.label)?;
        }
        write!(f, "(pid {} on {})", self.pid, self.host)
    }
}

/// A request for a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Who asks. Asking again with the same owner is harmless and is how a waiter learns of its
    /// grant.
    pub owner: OwnerId,
    /// How much of the capacity.
    pub weight: u32,
    /// The capacity that the asker believes the name to have.
    pub capacity: u32,
    /// How long the claim lives unless renewed.
    pub lease: Duration,
    /// How long the name stays closed after this claim *expired* (not after a release).
    pub lock_delay: Duration,
    /// How many tokens to reserve, for hand-over inside the asker's process. At least 1.
    pub tokens: u32,
    /// Join the queue when the claim can not be granted at once.
    pub wait: bool,
    /// How long the asker waits for the answer. An engine that can not see that its caller has gone
    /// must not grant later than this, in its own time.
    pub answer_within: Duration,
    /// How many times this owner has asked, this time included. An engine that tells of a grant
    /// says which asking it answers.
    pub round: u32,
    /// Who asks, for humans.
    pub holder: Arc<Holder>,
    /// What the claim carries, for elections.
    pub value: Arc<[u8]>,
    /// Keep a log of who held the name, for observers.
    pub logged: bool,
}

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The claim is held.
    Granted(Grant),
    /// The asker is in the queue.
    Queued(Pause),
    /// Not free, and the asker did not want to wait.
    Busy(Pause),
    /// Not possible as asked; waiting would not help.
    Refused(Refused),
}

/// A claim that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The first of the reserved tokens.
    pub token: u64,
    /// How many are reserved.
    pub tokens: u32,
}

/// When it is worth asking again, if nothing is heard before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The time until something can change by the passing of time alone.
    pub at_most: Duration,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The name is in use with another capacity.
    Capacity {
        /// What it has.
        has: u32,
        /// What was asked with.
        asked: u32,
    },
    /// More than there is.
    Weight {
        /// What there is.
        capacity: u32,
        /// What was asked for.
        weight: u32,
    },
    /// Another reader is already waiting to become the writer, and each would wait for the other.
    Upgrading,
    /// The claim to change is not there (any more).
    NotHeld,
}

/// A change to a claim that is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Alteration {
    /// From writer to reader.
    Downgrade {
        /// How much is kept.
        weight: u32,
        /// The writer's token. One that is late, for a grant that is over, is not obeyed.
        token: u64,
    },
    /// From reader to writer, now or not at all.
    TryUpgrade,
    /// From reader to writer, before the queue.
    Upgrade,
    /// Another value.
    Value(Arc<[u8]>),
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The owner's claim, now gone.
    Claim,
    /// The owner's place in the queue, now gone.
    Place,
    /// Nothing of this owner's: released before, expired, or broken.
    Nothing,
}

/// An owner that was granted its claim while it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wake {
    /// Whom to wake.
    pub owner: OwnerId,
    /// Where it lives.
    pub seat: Seat,
}

/// An answer, and whom to wake because of the request.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "owners that were granted their claims must be woken"]
pub struct Step<T> {
    /// The answer to the request.
    pub answer: T,
    /// Owners whose claims were granted on the way.
    pub wakes: Vec<Wake>,
}

/// A live claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "_table", derive(Serialize, Deserialize))]
pub struct Claim {
    /// Whose it is.
    pub owner: OwnerId,
    /// Where the owner lives.
    pub seat: Seat,
    /// How much it takes.
    pub weight: u32,
    /// The first token of the grant.
    pub token: u64,
    /// How many tokens were reserved.
    pub tokens: u32,
    /// The length of the lease.
    pub lease: Micros,
    /// When it ends unless renewed.
    pub expires: Micros,
    /// How long the name stays closed if it does.
    pub lock_delay: Micros,
    /// When it was granted.
    pub since: Micros,
    /// False between a hand-over and the new owner's first word.
    pub confirmed: bool,
    /// Who, for humans.
    pub holder: Arc<Holder>,
    /// What it carries.
    pub value: Arc<[u8]>,
}

/// A place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "_table", derive(Serialize, Deserialize))]
pub struct Waiter {
    /// Who waits.
    pub owner: OwnerId,
    /// Where it lives.
    pub seat: Seat,
    /// How much it wants.
    pub weight: u32,
    /// How many tokens it wants reserved.
    pub tokens: u32,
    /// The lease it asked for.
    pub lease: Micros,
    /// The lock delay it asked for.
    pub lock_delay: Micros,
    /// When it joined.
    pub since: Micros,
    /// Until when it is believed to live.
    pub alive_until: Micros,
    /// Who, for humans.
    pub holder: Arc<Holder>,
    /// What its claim will carry.
    pub value: Arc<[u8]>,
}

/// One entry in the log of an election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "_table", derive(Serialize, Deserialize))]
pub struct Change {
    /// Its number, counted from 1 without gaps.
    pub number: u64,
    /// The token of the leader, or 0 where there is none.
    pub token: u64,
    /// Who leads.
    pub holder: Arc<Holder>,
    /// What the leader says.
    pub value: Arc<[u8]>,
}

/// What the rules are told about the world: the time, and who is known to have died.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// The engine's clock.
    pub now: Micros,
    /// No token below this is given: the clock, where tokens are drawn from the same number line.
    pub tokens_from: u64,
    /// False for a seat whose process is known to be gone. Engines that can not see this say true.
    pub alive: &'a dyn Fn(Seat) -> bool,
}

impl<'a> World<'a> {
    /// The world at a time from which tokens are drawn, too.
    pub fn at(now: Micros, alive: &'a dyn Fn(Seat) -> bool) -> World<'a> {
        World { now, tokens_from: now, alive }
    }
}

impl fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now).finish_non_exhaustive()
    }
}

fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX / 4)
}

impl Claim {
    fn grant(&self) -> Grant {
        Grant { token: self.token, tokens: self.tokens }
    }

    fn last_token(&self) -> u64 {
        self.token + u64::from(self.tokens) - 1
    }

    /// How long it lasts after its owner was last heard of.
    fn believed(&self) -> Micros {
        if self.confirmed { self.lease } else { self.lease.min(micros(CONFIRM)) }
    }
}

impl Waiter {
    fn new(ask: &Ask, seat: Seat, now: Micros) -> Waiter {
        Waiter {
            owner: ask.owner,
            seat,
            weight: ask.weight,
            tokens: ask.tokens,
            lease: micros(ask.lease),
            lock_delay: micros(ask.lock_delay),
            since: now,
            alive_until: now + micros(PATIENCE),
            holder: Arc::clone(&ask.holder),
            value: Arc::clone(&ask.value),
        }
    }
}

#[cfg(test)]
mod tests;
