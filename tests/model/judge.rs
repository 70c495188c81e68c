//! What every single step of the engine is held to, whatever was asked.

use leasehold::claim::{Micros, Wake};

use crate::few::Few;
use crate::setup::{Setup, Sight, Sights};
use crate::world::{Body, Violation, World, owner_id};

/// The request behind a step. An owner of `u8::MAX` stands for an operator's break, no body for no
/// client.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) client: u8,
    pub(crate) owner: u8,
    pub(crate) body: Option<Body>,
}

#[derive(Clone, Copy, Default)]
struct Held {
    owner: u128,
    seat: u64,
    weight: u32,
    token: u64,
    expires: Micros,
}

#[derive(Clone, Copy, Default)]
struct Place {
    owner: u128,
    seat: u64,
    alive_until: Micros,
}

/// What is compared with what is there after the step.
pub(crate) struct Before {
    held: Few<Held, 16>,
    places: Few<Place, 16>,
}

impl Before {
    pub(crate) fn new(world: &World) -> Before {
        Before { held: held(world), places: places(world) }
    }
}

fn held(world: &World) -> Few<Held, 16> {
    let listed = world.state.claims(0);
    listed
        .map(|claim| Held {
            owner: claim.owner.0,
            seat: claim.seat,
            weight: claim.weight,
            token: claim.token,
            expires: claim.expires,
        })
        .collect()
}

fn places(world: &World) -> Few<Place, 16> {
    let waiters = world.line.iter();
    waiters
        .map(|waiter| Place { owner: waiter.owner.0, seat: waiter.seat, alive_until: waiter.alive_until })
        .collect()
}

impl World {
    pub(crate) fn judge(
        &mut self,
        before: &Before,
        request: Request,
        wakes: &[Wake],
        setup: &Setup,
        sights: &mut Sights,
    ) -> Result<(), Violation> {
        let after = held(self);
        let line = places(self);
        self.judge_others(before, &after, request, setup, sights)?;
        self.judge_queue(before, &after, &line, request, wakes, setup, sights)?;
        self.judge_tokens(before, &after)?;
        self.note_upgrader(request, setup);
        // A renewal is only about its own claim, and so is to ask again for what is held, unless it
        // ends another's.
        let held =
            before.held.iter().any(|old| old.owner == u128::from(request.owner) && old.expires > self.now);
        let own = match request.body {
            Some(Body::Renew) => true,
            Some(Body::Ask { .. }) => held && after.len() == before.held.len(),
            _ => false,
        };
        self.judge_use(&after, &line, own, setup)
    }

    /// X4: what others hold is untouched.
    fn judge_others(
        &self,
        before: &Before,
        after: &[Held],
        request: Request,
        setup: &Setup,
        sights: &mut Sights,
    ) -> Result<(), Violation> {
        let now = self.now;
        let broken = request.owner == u8::MAX;
        for old in before.held.iter() {
            let new = after.iter().find(|new| new.owner == old.owner);
            if old.expires <= now {
                if new.is_none() {
                    sights.note(Sight::Expiry);
                } else if new.is_some_and(|new| new.expires > now && new.token == old.token) {
                    return Err("X4: a claim whose time was over came back");
                }
                continue;
            }
            if old.owner == u128::from(request.owner) || broken {
                continue;
            }
            let Some(new) = new else {
                if self.alive(old.seat, setup) {
                    return Err("X4: a request took another's claim away");
                }
                sights.note(Sight::Buried);
                continue;
            };
            // Another's upgrade may be completed on the way; nothing else may change.
            let upgraded = new.weight == setup.capacity && new.token > old.token;
            let same = new.weight == old.weight && new.token == old.token;
            if new.expires != old.expires || !(same || upgraded) {
                return Err("X4: a request changed another's claim");
            }
        }
        let mine = |held: &&Held| held.owner == u128::from(request.owner);
        match request.body {
            Some(Body::Renew) if after.len() > before.held.len() => Err("X4: a renewal made a claim"),
            Some(Body::Renew)
                if after.iter().any(|new| before.held.iter().all(|old| old.owner != new.owner)) =>
            {
                Err("X4: a renewal made a claim")
            }
            Some(Body::Release { .. }) if after.iter().any(|held| mine(&held)) => {
                Err("X4: a claim outlived its release")
            }
            _ => Ok(()),
        }
    }

    /// X7: first come, first served; who is passed over was dead; who is served is told.
    #[expect(clippy::too_many_arguments, reason = "two sides of a step, and what is known of it")]
    fn judge_queue(
        &self,
        before: &Before,
        after: &[Held],
        line: &[Place],
        request: Request,
        wakes: &[Wake],
        setup: &Setup,
        sights: &mut Sights,
    ) -> Result<(), Violation> {
        let requester = u128::from(request.owner);
        let new_claim = |owner: u128| {
            after.iter().any(|new| new.owner == owner) && before.held.iter().all(|old| old.owner != owner)
        };
        let mut left = line.iter();
        let mut someone_waits = false;
        let mut last_token = 0;
        for place in before.places.iter() {
            let mut rest = left.clone();
            if rest.any(|other| other.owner == place.owner) {
                // Still waiting, behind whoever was before it.
                left = rest;
                someone_waits = true;
                continue;
            }
            if line.iter().any(|other| other.owner == place.owner) {
                return Err("X7: the order of the queue changed");
            }
            if let Some(held) = after.iter().find(|held| held.owner == place.owner) {
                if someone_waits {
                    return Err("X7: a waiter was served before one that came first");
                }
                if held.token <= last_token {
                    return Err("X2: tokens do not follow the queue");
                }
                last_token = held.token;
                if place.owner == requester {
                    continue;
                }
                sights.note(Sight::HandOver);
                if !wakes.iter().any(|wake| wake.owner.0 == place.owner && wake.seat == place.seat) {
                    return Err("X7: a waiter was served and not woken");
                }
                if !self.alive(place.seat, setup) {
                    return Err("X7: the name was handed to a process that is known to be gone");
                }
                continue;
            }
            let dead = place.alive_until <= self.now || !self.alive(place.seat, setup);
            if place.owner != requester && !dead {
                return Err("X7: a waiter that lives was dropped");
            }
            if place.owner != requester {
                sights.note(Sight::PassedOver);
            }
        }
        let queued = before.places.iter().any(|place| place.owner == requester);
        if someone_waits && !queued && new_claim(requester) {
            return Err("X7: a newcomer was served before one that waits");
        }
        if wakes.iter().any(|wake| after.iter().all(|held| held.owner != wake.owner.0)) {
            return Err("X7: a waiter was woken for nothing");
        }
        Ok(())
    }

    /// X2: a grant's token is above every token that was granted or used before.
    fn judge_tokens(&mut self, before: &Before, after: &[Held]) -> Result<(), Violation> {
        let mut highest = self.highest;
        for new in after {
            let old = before.held.iter().find(|old| old.owner == new.owner);
            if old.is_some_and(|old| old.token == new.token) {
                continue;
            }
            if new.token <= self.highest {
                return Err("X2: a grant's token is not above every token before");
            }
            highest = highest.max(new.token);
        }
        self.highest = highest;
        Ok(())
    }

    fn note_upgrader(&mut self, request: Request, setup: &Setup) {
        let owner = owner_id(request.owner);
        if request.body == Some(Body::Upgrade)
            && self.upgrader_waits(setup) != Some(request.owner)
            && self.upgrader_waits(setup).is_some()
        {
            return;
        }
        if request.body == Some(Body::Upgrade)
            && self.state.claims(self.now).any(|claim| claim.owner == owner)
        {
            let patience = leasehold::claim::PATIENCE.as_micros() as Micros;
            self.upgrader = (request.owner, self.now + patience);
        }
    }

    /// The claim that waits to become the writer.
    fn upgrader_waits(&self, setup: &Setup) -> Option<u8> {
        let (owner, alive_until) = self.upgrader;
        let mut claims = self.state.claims(self.now);
        let waits = claims.any(|claim| claim.owner == owner_id(owner) && claim.weight != setup.capacity);
        (waits && alive_until > self.now).then_some(owner)
    }

    /// X8: no more is used than there is. X7: nobody waits for what is free.
    fn judge_use(&self, after: &[Held], line: &[Place], own: bool, setup: &Setup) -> Result<(), Violation> {
        let live = after.iter().filter(|held| held.expires > self.now);
        let used: u64 = live.map(|held| u64::from(held.weight)).sum();
        let capacity = u64::from(self.state.capacity());
        if used > capacity {
            return Err("X8: more is granted than there is");
        }
        if own {
            return Ok(());
        }
        let Some(first) = line.first().and_then(|_| self.line.iter().next()) else { return Ok(()) };
        let fits = used + u64::from(first.weight) <= capacity;
        let open = self.state.closed_until() <= self.now && self.upgrader_waits(setup).is_none();
        if fits && open {
            return Err("X7: the first in the queue waits for what is free");
        }
        Ok(())
    }
}
