//! The rules of a claim: a pure state machine.
//!
//! A claim is `weight` out of `capacity` on a name, for an owner, for a lease. [`State`] is all that is
//! known of one name; every request is a method that is given the time and answers what happened and
//! whom to wake. Claims are granted in the order in which they were asked for; expired claims and
//! waiters that no longer live are passed over.
//!
//! Nothing here does I/O, reads a clock or picks a random number, so the same code runs in the
//! embedded engines, under the model explorer (`tests/model.rs`) and as the yardstick for engines that
//! restate the rules in another language.
//!
//! Time is in microseconds of the engine's clock. Tokens are drawn from the same number line: a token is
//! the larger of "one more than the last" and "now", so that a name whose record was thrown away starts
//! above every token it gave before. See [`State::retire`] for what makes that sound.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "file")]
use serde::{Deserialize, Serialize};

/// Microseconds of an engine's clock.
pub type Micros = u64;

/// The weight that stands for "all of it": what a writer takes, and the capacity of a lock with readers.
pub const WHOLE: u32 = u32::MAX;

/// How long a waiter is believed to live after it last asked.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long a waiter that was handed the name has to say that it heard.
///
/// A waiter may have died since it last asked. A grant that nobody confirms ends after this time and not
/// after a whole lease.
pub const CONFIRM: Duration = Duration::from_secs(3);

/// How many changes of leadership are remembered for observers.
pub const LOG_LENGTH: usize = 32;

/// One acquisition: not a thread, not a host. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "file", derive(Serialize, Deserialize))]
pub struct OwnerId(pub u128);

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Where an owner lives, in the engine's own numbering: what is woken, and what can be seen to have died.
pub type Seat = u64;

/// Who holds, for humans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "file", derive(Serialize, Deserialize))]
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
    /// Who asks. Asking again with the same owner is harmless and is how a waiter learns of its grant.
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
    /// From writer to reader of this weight.
    Downgrade(u32),
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
#[cfg_attr(feature = "file", derive(Serialize, Deserialize))]
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
#[cfg_attr(feature = "file", derive(Serialize, Deserialize))]
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
#[cfg_attr(feature = "file", derive(Serialize, Deserialize))]
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

/// The waiters of one name, first come first.
///
/// A trait because the queue may be long: an engine keeps it as rows and touches only those that change.
pub trait Queue {
    /// What can go wrong when rows are read or written.
    type Error;
    /// The waiter that came first.
    fn first(&self) -> Result<Option<Waiter>, Self::Error>;
    /// Adds a waiter at the end.
    fn push(&mut self, waiter: Waiter) -> Result<(), Self::Error>;
    /// Notes that a waiter lives; false if there is no such waiter.
    fn touch(&mut self, owner: OwnerId, alive_until: Micros) -> Result<bool, Self::Error>;
    /// Takes a waiter out; false if there is no such waiter.
    fn remove(&mut self, owner: OwnerId) -> Result<bool, Self::Error>;
}

/// A queue in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryQueue {
    next: u64,
    places: BTreeMap<OwnerId, u64>,
    waiters: BTreeMap<u64, Waiter>,
}

impl MemoryQueue {
    /// The waiters in order.
    pub fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.values()
    }
}

impl Queue for MemoryQueue {
    type Error = std::convert::Infallible;

    fn first(&self) -> Result<Option<Waiter>, Self::Error> {
        Ok(self.waiters.values().next().cloned())
    }

    fn push(&mut self, waiter: Waiter) -> Result<(), Self::Error> {
        self.places.insert(waiter.owner, self.next);
        self.waiters.insert(self.next, waiter);
        self.next += 1;
        Ok(())
    }

    fn touch(&mut self, owner: OwnerId, alive_until: Micros) -> Result<bool, Self::Error> {
        let waiter = self.places.get(&owner).and_then(|place| self.waiters.get_mut(place));
        Ok(waiter.map(|waiter| waiter.alive_until = alive_until).is_some())
    }

    fn remove(&mut self, owner: OwnerId) -> Result<bool, Self::Error> {
        let place = self.places.remove(&owner);
        Ok(place.and_then(|place| self.waiters.remove(&place)).is_some())
    }
}

/// What the rules are told about the world: the time, and who is known to have died.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// The engine's clock.
    pub now: Micros,
    /// False for a seat whose process is known to be gone. Engines that can not see this say true.
    pub alive: &'a dyn Fn(Seat) -> bool,
}

impl fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now).finish_non_exhaustive()
    }
}

/// All that is known of one name, except its queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "file", derive(Serialize, Deserialize))]
pub struct State {
    /// What the users of the name say its capacity is.
    declared: u32,
    /// What it is: another number only after a resize.
    capacity: u32,
    /// The highest token that was reserved.
    last: u64,
    /// The sum of the weights of `claims`.
    used: u64,
    /// Sorted by owner. A claim whose time is over may still be listed: see `expire`.
    claims: Vec<Claim>,
    /// No claim expires before this.
    next_expiry: Micros,
    /// Closed until then, after an expiry with a lock delay.
    closed_until: Micros,
    /// The reader that waits to become the writer.
    upgrade: Option<Upgrade>,
    /// How many wait in the queue.
    waiting: u32,
    /// Who led, for elections.
    log: Option<Log>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "file", derive(Serialize, Deserialize))]
struct Upgrade {
    owner: OwnerId,
    alive_until: Micros,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "file", derive(Serialize, Deserialize))]
struct Log {
    count: u64,
    changes: VecDeque<Change>,
}

fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX / 4)
}

impl State {
    /// A name that nobody uses, on an engine that has given no token above `floor` for it.
    pub fn new(floor: u64) -> State {
        State {
            declared: 0,
            capacity: 0,
            last: floor,
            used: 0,
            claims: Vec::new(),
            next_expiry: Micros::MAX,
            closed_until: 0,
            upgrade: None,
            waiting: 0,
            log: None,
        }
    }

    /// The claims that are live at `now`.
    pub fn claims(&self, now: Micros) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(move |claim| claim.expires > now)
    }

    /// The capacity now; 0 for a name that was never used.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The highest token that was reserved.
    pub fn last_token(&self) -> u64 {
        self.last
    }

    /// How many wait.
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Until when the name is closed by a lock delay.
    pub fn closed_until(&self) -> Micros {
        self.closed_until
    }

    /// The changes of leadership after number `seen`, oldest first, as far as they are remembered.
    pub fn changes(&self, seen: u64) -> Vec<Change> {
        let changes = self.log.iter().flat_map(|log| &log.changes);
        changes.filter(|change| change.number > seen).cloned().collect()
    }

    /// The number of the last change of leadership.
    pub fn change_count(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.count)
    }

    /// If the record of the name can be thrown away, the highest token it ever gave.
    ///
    /// The engine must start the next record of the name with a floor that is not below that number. A
    /// number in the past needs no care, because tokens follow the clock; only one that is ahead of the
    /// clock (a block that was reserved an instant ago) has to be remembered, for all names together.
    pub fn retire(&self, now: Micros) -> Option<u64> {
        let idle = self.claims.is_empty()
            && self.waiting == 0
            && self.closed_until <= now
            && self.capacity == self.declared
            && self.log.is_none();
        idle.then_some(self.last)
    }

    /// Asks for a claim, or asks again.
    pub fn ask<Q: Queue>(
        &mut self,
        queue: &mut Q,
        ask: &Ask,
        seat: Seat,
        world: World<'_>,
    ) -> Result<Step<Answer>, Q::Error> {
        let now = world.now;
        let mut wakes = Vec::new();
        if ask.logged && self.log.is_none() {
            self.log = Some(Log::default());
        }
        self.expire(now);

        // Asked before and granted: the same grant, counted from now.
        if let Some(grant) = self.extend(ask.owner, Some(ask.lease), now) {
            self.note_change();
            return Ok(Step { answer: Answer::Granted(grant), wakes });
        }

        if let Some(refused) = self.agree_on_capacity(ask) {
            return Ok(Step { answer: Answer::Refused(refused), wakes });
        }

        let fits = |state: &State| state.admits(ask.weight, now);
        if self.waiting == 0 && fits(self) {
            let answer = Answer::Granted(self.grant(Waiter::new(ask, seat, now), now, true));
            self.note_change();
            return Ok(Step { answer, wakes });
        }

        // Contended. Whoever has died makes room first, then whoever came first goes first.
        self.bury(world);
        let queued = self.waiting > 0 && queue.touch(ask.owner, now + micros(PATIENCE))?;
        self.advance(queue, world, &mut wakes)?;
        let answer = if let Some(grant) = self.extend(ask.owner, None, now) {
            wakes.retain(|wake| wake.owner != ask.owner);
            Answer::Granted(grant)
        } else if !queued && self.waiting == 0 && fits(self) {
            Answer::Granted(self.grant(Waiter::new(ask, seat, now), now, true))
        } else {
            if ask.wait && !queued {
                queue.push(Waiter::new(ask, seat, now))?;
                self.waiting += 1;
            }
            let pause = self.pause(queue, now)?;
            if ask.wait || queued { Answer::Queued(pause) } else { Answer::Busy(pause) }
        };
        self.note_change();
        Ok(Step { answer, wakes })
    }

    /// Renews a claim; false if it is not there any more, and then it never comes back.
    pub fn renew(&mut self, owner: OwnerId, lease: Duration, now: Micros) -> bool {
        self.expire(now);
        self.extend(owner, Some(lease), now).is_some()
    }

    /// Gives back a claim or a place in the queue. `used` is the highest token that was used of the claim's
    /// block.
    pub fn release<Q: Queue>(
        &mut self,
        queue: &mut Q,
        owner: OwnerId,
        used: u64,
        world: World<'_>,
    ) -> Result<Step<Released>, Q::Error> {
        let mut wakes = Vec::new();
        self.expire(world.now);
        let answer = if let Some(claim) = self.take(owner) {
            // Tokens that were reserved and not used are free again, unless others were given since.
            if claim.last_token() == self.last {
                self.last = used.clamp(claim.token, claim.last_token());
            }
            Released::Claim
        } else if self.waiting > 0 && queue.remove(owner)? {
            self.waiting -= 1;
            Released::Place
        } else {
            Released::Nothing
        };
        self.advance(queue, world, &mut wakes)?;
        self.note_change();
        Ok(Step { answer, wakes })
    }

    /// Changes a claim that is held.
    pub fn alter<Q: Queue>(
        &mut self,
        queue: &mut Q,
        owner: OwnerId,
        alteration: Alteration,
        world: World<'_>,
    ) -> Result<Step<Answer>, Q::Error> {
        match alteration {
            Alteration::Downgrade(weight) => self.downgrade(queue, owner, weight, world),
            Alteration::TryUpgrade => self.upgrade(queue, owner, false, world),
            Alteration::Upgrade => self.upgrade(queue, owner, true, world),
            Alteration::Value(value) => Ok(self.put(owner, value, world.now)),
        }
    }

    /// Turns a writer into a reader. It keeps its token.
    fn downgrade<Q: Queue>(
        &mut self,
        queue: &mut Q,
        owner: OwnerId,
        weight: u32,
        world: World<'_>,
    ) -> Result<Step<Answer>, Q::Error> {
        let mut wakes = Vec::new();
        self.expire(world.now);
        let Some(claim) = self.claim_mut(owner) else {
            return Ok(Step { answer: Answer::Refused(Refused::NotHeld), wakes });
        };
        let before = claim.weight;
        claim.weight = weight.min(before);
        let (after, grant) = (claim.weight, claim.grant());
        self.used -= u64::from(before - after);
        self.advance(queue, world, &mut wakes)?;
        Ok(Step { answer: Answer::Granted(grant), wakes })
    }

    /// Turns a reader into the writer, under a new token, once it is alone. It goes before the queue, for
    /// the queue waits for it; a second one is refused, for the two would wait for each other.
    fn upgrade<Q: Queue>(
        &mut self,
        queue: &mut Q,
        owner: OwnerId,
        wait: bool,
        world: World<'_>,
    ) -> Result<Step<Answer>, Q::Error> {
        let now = world.now;
        let mut wakes = Vec::new();
        self.expire(now);
        self.bury(world);
        if self.extend(owner, None, now).is_none() {
            return Ok(Step { answer: Answer::Refused(Refused::NotHeld), wakes });
        }
        if let Some(other) = self.live_upgrade(now).filter(|upgrade| upgrade.owner != owner) {
            self.upgrade = Some(other);
            return Ok(Step { answer: Answer::Refused(Refused::Upgrading), wakes });
        }
        self.upgrade = Some(Upgrade { owner, alive_until: now + micros(PATIENCE) });
        self.advance(queue, world, &mut wakes)?;
        wakes.retain(|wake| wake.owner != owner);
        let capacity = self.capacity;
        let grant = self.claim_mut(owner).filter(|claim| claim.weight == capacity).map(|claim| claim.grant());
        let answer = match grant {
            Some(grant) => {
                self.upgrade = None;
                Answer::Granted(grant)
            }
            None if wait => Answer::Queued(self.pause(queue, now)?),
            None => {
                self.upgrade = None;
                self.advance(queue, world, &mut wakes)?;
                Answer::Busy(self.pause(queue, now)?)
            }
        };
        Ok(Step { answer, wakes })
    }

    /// Changes what a claim carries.
    fn put(&mut self, owner: OwnerId, value: Arc<[u8]>, now: Micros) -> Step<Answer> {
        self.expire(now);
        let Some(claim) = self.claim_mut(owner) else {
            return Step { answer: Answer::Refused(Refused::NotHeld), wakes: Vec::new() };
        };
        claim.value = value;
        let grant = claim.grant();
        self.note_change();
        Step { answer: Answer::Granted(grant), wakes: Vec::new() }
    }

    /// Changes the capacity for everybody, while the name is in use.
    ///
    /// Those who hold keep what they hold: after a cut the sum may be above the capacity until enough of it
    /// is released, and nothing is granted until then.
    pub fn resize<Q: Queue>(
        &mut self,
        queue: &mut Q,
        declared: u32,
        capacity: u32,
        world: World<'_>,
    ) -> Result<Step<Result<(), Refused>>, Q::Error> {
        let mut wakes = Vec::new();
        self.expire(world.now);
        if declared != self.declared && declared != self.capacity {
            if self.in_use() {
                let refused = Refused::Capacity { has: self.capacity, asked: declared };
                return Ok(Step { answer: Err(refused), wakes });
            }
            self.declared = declared;
        }
        self.capacity = capacity;
        self.advance(queue, world, &mut wakes)?;
        Ok(Step { answer: Ok(()), wakes })
    }

    /// Takes every claim away from its holder, at an operator's word.
    pub fn break_claims<Q: Queue>(
        &mut self,
        queue: &mut Q,
        world: World<'_>,
    ) -> Result<Step<Vec<Claim>>, Q::Error> {
        let mut wakes = Vec::new();
        self.expire(world.now);
        let broken = std::mem::take(&mut self.claims);
        self.used = 0;
        self.next_expiry = Micros::MAX;
        self.closed_until = 0;
        self.upgrade = None;
        self.advance(queue, world, &mut wakes)?;
        self.note_change();
        Ok(Step { answer: broken, wakes })
    }

    /// Takes away what a dead seat held, and hands it on.
    pub fn sweep<Q: Queue>(&mut self, queue: &mut Q, world: World<'_>) -> Result<Step<()>, Q::Error> {
        let mut wakes = Vec::new();
        self.expire(world.now);
        self.bury(world);
        self.advance(queue, world, &mut wakes)?;
        self.note_change();
        Ok(Step { answer: (), wakes })
    }

    fn in_use(&self) -> bool {
        !self.claims.is_empty() || self.waiting > 0
    }

    fn agree_on_capacity(&mut self, ask: &Ask) -> Option<Refused> {
        let agreed = ask.capacity == self.declared || ask.capacity == self.capacity;
        if !agreed {
            if self.in_use() {
                return Some(Refused::Capacity { has: self.capacity, asked: ask.capacity });
            }
            self.declared = ask.capacity;
            self.capacity = ask.capacity;
        }
        (ask.weight > self.capacity)
            .then_some(Refused::Weight { capacity: self.capacity, weight: ask.weight })
    }

    fn admits(&self, weight: u32, now: Micros) -> bool {
        self.closed_until <= now
            && self.upgrade.is_none()
            && self.used + u64::from(weight) <= u64::from(self.capacity)
    }

    /// Grants what can be granted, first come first served.
    fn advance<Q: Queue>(
        &mut self,
        queue: &mut Q,
        world: World<'_>,
        wakes: &mut Vec<Wake>,
    ) -> Result<(), Q::Error> {
        let now = world.now;
        self.upgrade = self.live_upgrade(now);
        if let Some(Upgrade { owner, .. }) = self.upgrade {
            self.finish_upgrade(owner, now, wakes);
        }
        while self.waiting > 0 {
            let Some(first) = queue.first()? else { break };
            let dead = first.alive_until <= now || !(world.alive)(first.seat);
            let too_much = first.weight > self.capacity;
            if !dead && !too_much && !self.admits(first.weight, now) {
                break;
            }
            queue.remove(first.owner)?;
            self.waiting -= 1;
            if dead {
                continue;
            }
            wakes.push(Wake { owner: first.owner, seat: first.seat });
            // After a cut of the capacity a waiter may want more than there is. It is woken to be told.
            if !too_much {
                self.grant(first, now, false);
            }
        }
        Ok(())
    }

    fn live_upgrade(&self, now: Micros) -> Option<Upgrade> {
        self.upgrade.filter(|upgrade| upgrade.alive_until > now && self.position(upgrade.owner).is_ok())
    }

    fn finish_upgrade(&mut self, owner: OwnerId, now: Micros, wakes: &mut Vec<Wake>) {
        let capacity = self.capacity;
        let token = (self.last + 1).max(now);
        let alone = self.claims.len() == 1 && self.closed_until <= now;
        if let Some(claim) = self.claim_mut(owner).filter(|_| alone) {
            claim.weight = capacity;
            claim.token = token;
            claim.tokens = 1;
            claim.since = now;
            wakes.push(Wake { owner, seat: claim.seat });
            self.used = u64::from(capacity);
            self.last = token;
            self.upgrade = None;
        }
    }

    fn grant(&mut self, waiter: Waiter, now: Micros, confirmed: bool) -> Grant {
        let token = (self.last + 1).max(now);
        let believed = if confirmed { waiter.lease } else { waiter.lease.min(micros(CONFIRM)) };
        let claim = Claim {
            owner: waiter.owner,
            seat: waiter.seat,
            weight: waiter.weight,
            token,
            tokens: waiter.tokens.max(1),
            lease: waiter.lease,
            expires: now + believed,
            lock_delay: waiter.lock_delay,
            since: now,
            confirmed,
            holder: waiter.holder,
            value: waiter.value,
        };
        self.last = claim.last_token();
        self.used += u64::from(claim.weight);
        self.next_expiry = self.next_expiry.min(claim.expires);
        let grant = claim.grant();
        if let Err(position) = self.position(claim.owner) {
            self.claims.insert(position, claim);
        }
        grant
    }

    /// Counts the owner's lease from now; its grant, if it has one.
    fn extend(&mut self, owner: OwnerId, lease: Option<Duration>, now: Micros) -> Option<Grant> {
        let claim = self.claim_mut(owner)?;
        if let Some(lease) = lease {
            claim.lease = micros(lease);
        }
        claim.expires = now + claim.lease;
        claim.confirmed = true;
        let (grant, expires) = (claim.grant(), claim.expires);
        self.next_expiry = self.next_expiry.min(expires);
        Some(grant)
    }

    /// Takes away the claims whose time is over.
    fn expire(&mut self, now: Micros) {
        if now < self.next_expiry {
            return;
        }
        self.drop_claims(|claim| claim.expires <= now, |claim| claim.expires);
    }

    /// Takes away the claims of the dead.
    fn bury(&mut self, world: World<'_>) {
        self.drop_claims(|claim| !(world.alive)(claim.seat), |_| world.now);
    }

    fn drop_claims(&mut self, ended: impl Fn(&Claim) -> bool, at: impl Fn(&Claim) -> Micros) {
        let State { claims, used, closed_until, .. } = self;
        claims.retain(|claim| {
            let ended = ended(claim);
            if ended {
                *used -= u64::from(claim.weight);
                // Who never heard of its grant has nothing under way that the delay would wait for.
                if claim.confirmed && claim.lock_delay > 0 {
                    *closed_until = (*closed_until).max(at(claim) + claim.lock_delay);
                }
            }
            !ended
        });
        self.next_expiry = self.claims.iter().map(|claim| claim.expires).min().unwrap_or(Micros::MAX);
    }

    fn pause<Q: Queue>(&self, queue: &Q, now: Micros) -> Result<Pause, Q::Error> {
        let mut next = self.next_expiry;
        if self.closed_until > now {
            next = next.min(self.closed_until);
        }
        if let Some(upgrade) = self.upgrade {
            next = next.min(upgrade.alive_until);
        }
        if self.waiting > 1
            && let Some(first) = queue.first()?
        {
            next = next.min(first.alive_until);
        }
        Ok(Pause { at_most: Duration::from_micros(next.saturating_sub(now)) })
    }

    /// Writes the log of an election: a new leader, a new word of the same leader, or nobody.
    fn note_change(&mut self) {
        let Some(log) = &mut self.log else { return };
        let nobody = || Change { number: 0, token: 0, holder: Arc::default(), value: Arc::default() };
        let leader = self.claims.first();
        let mut change = leader.map_or_else(nobody, |claim| Change {
            number: 0,
            token: claim.token,
            holder: Arc::clone(&claim.holder),
            value: Arc::clone(&claim.value),
        });
        let before = log.changes.back();
        let same = before
            .map_or(change.token == 0, |before| before.token == change.token && before.value == change.value);
        if !same {
            log.count += 1;
            change.number = log.count;
            log.changes.push_back(change);
            if log.changes.len() > LOG_LENGTH {
                log.changes.pop_front();
            }
        }
    }

    fn position(&self, owner: OwnerId) -> Result<usize, usize> {
        self.claims.binary_search_by_key(&owner, |claim| claim.owner)
    }

    fn claim_mut(&mut self, owner: OwnerId) -> Option<&mut Claim> {
        let position = self.position(owner).ok()?;
        self.claims.get_mut(position)
    }

    fn take(&mut self, owner: OwnerId) -> Option<Claim> {
        let position = self.position(owner).ok()?;
        let claim = self.claims.remove(position);
        self.used -= u64::from(claim.weight);
        Some(claim)
    }
}

impl Claim {
    fn grant(&self) -> Grant {
        Grant { token: self.token, tokens: self.tokens }
    }

    fn last_token(&self) -> u64 {
        self.token + u64::from(self.tokens) - 1
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
