//! The state of a name, and what each request does to it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "_table")]
use serde::{Deserialize, Serialize};

use crate::claim::{
    Alteration, Answer, Ask, Change, Claim, Grant, LOG_KEPT, LOG_LENGTH, Micros, OwnerId, PATIENCE, Pause,
    Queue, Refused, Released, Seat, Step, Waiter, Wake, World, micros,
};

/// All that is known of one name, except its queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "_table", derive(Serialize, Deserialize))]
pub struct State {
    /// What the users of the name say its capacity is.
    pub(super) declared: u32,
    /// What it is: another number only after a resize.
    pub(super) capacity: u32,
    /// The highest token that was reserved.
    pub(super) last: u64,
    /// The sum of the weights of `claims`.
    pub(super) used: u64,
    /// Sorted by owner. A claim whose time is over may still be listed: see `expire`.
    pub(super) claims: Vec<Claim>,
    /// No claim expires before this.
    pub(super) next_expiry: Micros,
    /// Closed until then, after an expiry with a lock delay.
    pub(super) closed_until: Micros,
    /// The reader that waits to become the writer.
    pub(super) upgrade: Option<Upgrade>,
    /// How many wait in the queue.
    pub(super) waiting: u32,
    /// Who led, for elections.
    pub(super) log: Option<Log>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "_table", derive(Serialize, Deserialize))]
pub(super) struct Upgrade {
    pub(super) owner: OwnerId,
    pub(super) alive_until: Micros,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "_table", derive(Serialize, Deserialize))]
pub(super) struct Log {
    pub(super) count: u64,
    /// When the last change was.
    pub(super) changed_at: Micros,
    pub(super) changes: VecDeque<Change>,
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

    /// Until when a reader that waits to become the writer keeps others out, if there is one.
    pub fn upgrading_until(&self) -> Option<Micros> {
        self.upgrade.map(|upgrade| upgrade.alive_until)
    }

    /// Notes that the engine has given or spoilt tokens up to `last` by other means.
    pub fn skip_tokens(&mut self, last: u64) {
        self.last = self.last.max(last);
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
    /// The engine must start the next record of the name with a floor that is not below that
    /// number. A number in the past needs no care, because tokens follow the clock; only one that
    /// is ahead of the clock (a block that was reserved an instant ago) has to be remembered, for
    /// all names together.
    pub fn retire(&self, now: Micros) -> Option<u64> {
        let idle = self.claims.is_empty()
            && self.waiting == 0
            && self.closed_until <= now
            && self.capacity == self.declared
            && self.log.as_ref().is_none_or(|log| log.changed_at + micros(LOG_KEPT) <= now);
        idle.then_some(self.last)
    }

    /// From when on this state does what one does that nobody uses, if nobody asks before: the end
    /// of the last claim. `None` if more than the passing of time is needed, or if something is
    /// left after it: a waiter, a lock delay, a log, another capacity than the declared one.
    pub fn idle_from(&self) -> Option<Micros> {
        let plain = self.waiting == 0
            && self.log.is_none()
            && self.capacity == self.declared
            && self.claims.iter().all(|claim| claim.lock_delay == 0);
        plain.then(|| self.claims.iter().map(|claim| claim.expires).fold(self.closed_until, Micros::max))
    }

    /// Moves all times and tokens by `offset`.
    ///
    /// The rules compare times and tokens with each other and with the time that they are given, on
    /// one number line. So what is decided at 0 and then moved is what would have been decided
    /// then.
    pub fn shift(&mut self, offset: Micros) {
        // What stands for "none" stays.
        let move_all_but = |none: u64| {
            move |number: &mut u64| {
                if *number != none {
                    *number += offset;
                }
            }
        };
        self.last += offset;
        move_all_but(Micros::MAX)(&mut self.next_expiry);
        move_all_but(0)(&mut self.closed_until);
        for claim in &mut self.claims {
            claim.token += offset;
            claim.expires += offset;
            claim.since += offset;
        }
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.alive_until += offset;
        }
        if let Some(log) = &mut self.log {
            log.changed_at += offset;
            log.changes.iter_mut().for_each(|change| move_all_but(0)(&mut change.token));
        }
    }

    /// Moves all tokens by `offset`, for a store that knows where its tokens start once it has
    /// written.
    pub fn shift_tokens(&mut self, offset: u64) {
        self.last += offset;
        self.claims.iter_mut().for_each(|claim| claim.token += offset);
        let changes = self.log.iter_mut().flat_map(|log| &mut log.changes);
        // 0 stands for no leader.
        changes.filter(|change| change.token != 0).for_each(|change| change.token += offset);
    }

    /// Notes that the owner of a claim lives elsewhere; false if it has none.
    pub fn reseat(&mut self, owner: OwnerId, seat: Seat) -> bool {
        self.claim_mut(owner).map(|claim| claim.seat = seat).is_some()
    }

    /// Every claim that is kept, those whose time is over too.
    pub fn kept_claims(&self) -> &[Claim] {
        &self.claims
    }

    /// The claim of a name that one owner holds whole.
    pub fn sole_claim(&self) -> Option<&Claim> {
        match &*self.claims {
            [claim] if claim.weight == self.capacity => Some(claim),
            _ => None,
        }
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
        let expired = self.expire(now);

        // Asked before and granted: the same grant, counted from now.
        if let Some(grant) = self.extend(ask.owner, Some(ask.lease), now) {
            // What another's end has freed is for those who wait.
            if expired {
                self.advance(queue, world, &mut wakes)?;
            }
            self.note_change(now);
            return Ok(Step { answer: Answer::Granted(grant), wakes });
        }

        if !self.agrees(ask.capacity) {
            // Only the living hold a name to its capacity.
            self.bury(world);
            self.advance(queue, world, &mut wakes)?;
        }
        if let Some(refused) = self.agree_on_capacity(ask) {
            if expired {
                self.advance(queue, world, &mut wakes)?;
            }
            self.note_change(now);
            return Ok(Step { answer: Answer::Refused(refused), wakes });
        }
        // Not before it is agreed: a name with a log is not forgotten at once.
        if ask.logged && self.log.is_none() {
            self.log = Some(Log { changed_at: now, ..Log::default() });
        }

        let fits = |state: &State| state.admits(ask.weight, now);
        if self.waiting == 0 && fits(self) {
            let answer = Answer::Granted(self.grant(Waiter::new(ask, seat, now), world, true));
            self.note_change(now);
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
            Answer::Granted(self.grant(Waiter::new(ask, seat, now), world, true))
        } else {
            if ask.wait && !queued {
                queue.push(Waiter::new(ask, seat, now))?;
                self.waiting += 1;
            }
            let pause = self.pause(queue, now)?;
            if ask.wait || queued { Answer::Queued(pause) } else { Answer::Busy(pause) }
        };
        self.note_change(now);
        Ok(Step { answer, wakes })
    }

    /// Renews a claim; false if it is not there any more, and then it never comes back.
    pub fn renew(&mut self, owner: OwnerId, lease: Duration, now: Micros) -> bool {
        self.expire(now);
        self.extend(owner, Some(lease), now).is_some()
    }

    /// Extends the claims whose time is over by another lease, where `kept` says so for their seat;
    /// true if there were any.
    ///
    /// For an engine that can see that the work of a seat goes on although nobody is left who
    /// renews. It is called before a rule runs, for every rule begins by taking away what has
    /// expired. A grant that its owner never confirmed protects no work, and ends.
    pub fn keep_claims(&mut self, now: Micros, kept: impl Fn(Seat) -> bool) -> bool {
        if now < self.next_expiry {
            return false;
        }
        let mut any = false;
        for claim in &mut self.claims {
            if claim.expires <= now && claim.confirmed && kept(claim.seat) {
                claim.expires = now + claim.lease;
                any = true;
            }
        }
        self.next_expiry = self.claims.iter().map(|claim| claim.expires).min().unwrap_or(Micros::MAX);
        any
    }

    /// Gives back a claim or a place in the queue. `used` is the highest token that was used of the
    /// claim's block.
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
            // Tokens that were reserved and not used are free again, unless others were given
            // since.
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
        self.note_change(world.now);
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
            Alteration::Downgrade { weight, token } => self.downgrade(queue, owner, weight, token, world),
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
        token: u64,
        world: World<'_>,
    ) -> Result<Step<Answer>, Q::Error> {
        let mut wakes = Vec::new();
        self.expire(world.now);
        let granted = |claim: &&mut Claim| (claim.token..=claim.last_token()).contains(&token);
        let Some(claim) = self.claim_mut(owner).filter(granted) else {
            self.advance(queue, world, &mut wakes)?;
            return Ok(Step { answer: Answer::Refused(Refused::NotHeld), wakes });
        };
        let before = claim.weight;
        claim.weight = weight.min(before);
        let (after, grant) = (claim.weight, claim.grant());
        self.used -= u64::from(before - after);
        self.advance(queue, world, &mut wakes)?;
        Ok(Step { answer: Answer::Granted(grant), wakes })
    }

    /// Turns a reader into the writer, under a new token, once it is alone. It goes before the
    /// queue, for the queue waits for it; a second one is refused, for the two would wait for each
    /// other.
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
            self.advance(queue, world, &mut wakes)?;
            return Ok(Step { answer: Answer::Refused(Refused::NotHeld), wakes });
        }
        if let Some(other) = self.live_upgrade(now).filter(|upgrade| upgrade.owner != owner) {
            self.upgrade = Some(other);
            self.advance(queue, world, &mut wakes)?;
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
        self.note_change(now);
        Step { answer: Answer::Granted(grant), wakes: Vec::new() }
    }

    /// Changes the capacity for everybody, while the name is in use.
    ///
    /// Those who hold keep what they hold: after a cut the sum may be above the capacity until
    /// enough of it is released, and nothing is granted until then.
    pub fn resize<Q: Queue>(
        &mut self,
        queue: &mut Q,
        declared: u32,
        capacity: u32,
        world: World<'_>,
    ) -> Result<Step<Result<(), Refused>>, Q::Error> {
        let mut wakes = Vec::new();
        self.expire(world.now);
        if !self.agrees(declared) {
            self.bury(world);
            self.advance(queue, world, &mut wakes)?;
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
        self.note_change(world.now);
        Ok(Step { answer: broken, wakes })
    }

    /// Takes away what a dead seat held, and hands it on.
    pub fn sweep<Q: Queue>(&mut self, queue: &mut Q, world: World<'_>) -> Result<Step<()>, Q::Error> {
        let mut wakes = Vec::new();
        self.expire(world.now);
        self.bury(world);
        self.advance(queue, world, &mut wakes)?;
        self.note_change(world.now);
        Ok(Step { answer: (), wakes })
    }

    fn in_use(&self) -> bool {
        !self.claims.is_empty() || self.waiting > 0
    }

    fn agrees(&self, capacity: u32) -> bool {
        capacity == self.declared || capacity == self.capacity
    }

    fn agree_on_capacity(&mut self, ask: &Ask) -> Option<Refused> {
        if !self.agrees(ask.capacity) {
            if self.in_use() {
                return Some(Refused::Capacity { has: self.capacity, asked: ask.capacity });
            }
            self.declared = ask.capacity;
            self.capacity = ask.capacity;
        }
        (ask.weight > self.capacity)
            .then_some(Refused::Weight { capacity: self.capacity, weight: ask.weight })
    }

    pub(super) fn admits(&self, weight: u32, now: Micros) -> bool {
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
        // What is over does not come back when the clock is set back.
        if self.closed_until <= now {
            self.closed_until = 0;
        }
        self.upgrade = self.live_upgrade(now);
        if let Some(Upgrade { owner, .. }) = self.upgrade {
            self.finish_upgrade(owner, world, wakes);
        }
        while self.waiting > 0 {
            let Some(mut first) = queue.first()? else { break };
            // By a clock that was set back since: it is believed to live as if it had asked now,
            // and no longer.
            let latest = now + micros(PATIENCE);
            if first.alive_until > latest {
                queue.touch(first.owner, latest)?;
                first.alive_until = latest;
            }
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
            // After a cut of the capacity a waiter may want more than there is. It is woken to be
            // told.
            if !too_much {
                self.grant(first, world, false);
            }
        }
        Ok(())
    }

    fn live_upgrade(&self, now: Micros) -> Option<Upgrade> {
        self.upgrade.filter(|upgrade| upgrade.alive_until > now && self.position(upgrade.owner).is_ok())
    }

    fn finish_upgrade(&mut self, owner: OwnerId, world: World<'_>, wakes: &mut Vec<Wake>) {
        let now = world.now;
        let capacity = self.capacity;
        let token = (self.last + 1).max(world.tokens_from);
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

    fn grant(&mut self, waiter: Waiter, world: World<'_>, confirmed: bool) -> Grant {
        let now = world.now;
        let token = (self.last + 1).max(world.tokens_from);
        let mut claim = Claim {
            owner: waiter.owner,
            seat: waiter.seat,
            weight: waiter.weight,
            token,
            tokens: waiter.tokens.max(1),
            lease: waiter.lease,
            expires: now,
            lock_delay: waiter.lock_delay,
            since: now,
            confirmed,
            holder: waiter.holder,
            value: waiter.value,
        };
        claim.expires += claim.believed();
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

    /// Takes away the claims whose time is over; false if there are none.
    fn expire(&mut self, now: Micros) -> bool {
        if now < self.next_expiry {
            return false;
        }
        let before = self.claims.len();
        self.drop_claims(|claim| claim.expires <= now, |claim| claim.expires);
        self.claims.len() < before
    }

    /// Takes away the claims of the dead.
    fn bury(&mut self, world: World<'_>) {
        self.drop_claims(|claim| !(world.alive)(claim.seat), |_| world.now);
        self.believe_until(world.now);
    }

    /// Believes nobody for longer than if all that was said had been said now.
    ///
    /// What ends later than that was said before the engine's clock was set back. Its owner counts
    /// its own deadline from before it said so, so a lease that is counted from now ends no earlier
    /// than the owner expects.
    fn believe_until(&mut self, now: Micros) {
        for claim in &mut self.claims {
            let latest = now + claim.believed();
            if claim.expires > latest {
                claim.expires = latest;
                self.next_expiry = self.next_expiry.min(latest);
            }
        }
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.alive_until = upgrade.alive_until.min(now + micros(PATIENCE));
        }
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
        // Whether the first still lives matters to the others only if there is something left for
        // them.
        if self.waiting > 1
            && self.used < u64::from(self.capacity)
            && let Some(first) = queue.first()?
        {
            next = next.min(first.alive_until);
        }
        Ok(Pause { at_most: Duration::from_micros(next.saturating_sub(now)) })
    }

    /// Writes the log of an election: a new leader, a new word of the same leader, or nobody.
    fn note_change(&mut self, now: Micros) {
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
            log.changed_at = now;
            change.number = log.count;
            log.changes.push_back(change);
            if log.changes.len() > LOG_LENGTH {
                log.changes.pop_front();
            }
        }
    }

    pub(super) fn position(&self, owner: OwnerId) -> Result<usize, usize> {
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
