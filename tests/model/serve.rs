//! The engine's side of a world: the real rules, or the real rules in a broken setting.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use leasehold::claim::{
    Alteration, Answer, Ask, Grant, Holder, Micros, PATIENCE, Queue, Refused, Released, State, Step, Wake,
};

use crate::judge::{Before, Request};
use crate::line::Line;
use crate::setup::{Bug, Setup, Sight, Sights, TICK};
use crate::world::{Body, Message, Stage, Violation, World, owner_id};

pub(crate) fn ask(owner: u8, weight: u32, capacity: u32, wait: bool, setup: &Setup) -> Ask {
    thread_local! {
        // One for all: worlds are copied all the time, and only the counts of these change.
        static NOBODY: OnceCell<(Arc<Holder>, Arc<[u8]>)> = const { OnceCell::new() };
    }
    let (holder, value) = NOBODY.with(|nobody| nobody.get_or_init(Default::default).clone());
    // A claim that is made first and given its expiry by a second request.
    let lease = if setup.is(Bug::ExpirySetLater) { 1 << 40 } else { setup.lease() };
    let delay = if setup.is(Bug::LockDelayForgotten) { 0 } else { setup.lock_delay * TICK };
    Ask {
        owner: owner_id(owner),
        weight,
        capacity,
        lease: Duration::from_micros(lease),
        lock_delay: Duration::from_micros(delay),
        tokens: setup.tokens,
        wait,
        answer_within: Duration::from_secs(5),
        holder,
        value,
        round: 1,
        logged: false,
    }
}

impl World {
    /// Runs `request` on the name as an engine does, and judges what came of it.
    fn run<T>(
        &mut self,
        request: Request,
        setup: &Setup,
        sights: &mut Sights,
        run: impl FnOnce(&mut State, &mut Line, leasehold::claim::World<'_>) -> Step<T>,
    ) -> Result<(T, Vec<Wake>), Violation> {
        let before = Before::new(self);
        let clients = self.clients;
        let blind = !setup.sees_death || setup.is(Bug::DeadSeatServed) || setup.is(Bug::DeadWaiterKept);
        let alive = move |seat: u64| {
            blind || clients.get(seat as usize - 1).is_none_or(|client| client.stage != Stage::Dead)
        };
        let mut now = self.now;
        if setup.is(Bug::AskersClock) && request.client == 1 {
            // The second client's wall clock is two ticks ahead.
            now += 2 * TICK;
        }
        if setup.is(Bug::DeadWaiterKept) {
            let far = now + PATIENCE.as_micros() as Micros;
            let owners: Vec<_> = self.line.iter().map(|waiter| waiter.owner).collect();
            for owner in owners {
                let Ok(_) = self.line.touch(owner, far);
            }
        }
        let world = leasehold::claim::World::at(now, &alive);
        let step = run(&mut self.state, &mut self.line, world);
        if setup.is(Bug::HandOverUnconfirmed) {
            for wake in &step.wakes {
                self.state.renew(wake.owner, Duration::from_micros(setup.lease()), now);
            }
        }
        self.judge(&before, request, &step.wakes, setup, sights)?;
        if setup.is(Bug::NoRecheck) {
            self.tell_the_woken(&step.wakes, setup);
        }
        if setup.retires
            && let Some(last) = self.state.retire(now)
        {
            self.retire(last, setup, sights);
        }
        Ok((step.answer, step.wakes))
    }

    fn retire(&mut self, last: u64, setup: &Setup, sights: &mut Sights) {
        if self.state.capacity() != 0 {
            sights.note(Sight::Retired);
        }
        // As the memory engine does it: what is behind the clock needs no care.
        if last >= self.now {
            self.floor = self.floor.max(last);
        }
        let floor = if setup.is(Bug::CounterDeleted) { 0 } else { self.floor };
        self.state = State::new(floor);
        self.line = Line::new(setup.bug);
    }

    fn tell_the_woken(&mut self, wakes: &[Wake], setup: &Setup) {
        let room = setup.messages - self.messages.len();
        for wake in wakes.iter().take(room) {
            let claim = self.state.claims(self.now).find(|claim| claim.owner == wake.owner);
            let token = claim.map_or(0, |claim| claim.token);
            self.messages.push(Message {
                client: wake.seat as u8 - 1,
                owner: wake.owner.0 as u8,
                deadline: 0,
                broken: false,
                body: Body::Woken { token },
            });
        }
    }

    /// The engine runs a request, and the answer goes on its way.
    pub(crate) fn serve(
        &mut self,
        message: Message,
        setup: &Setup,
        sights: &mut Sights,
    ) -> Result<(), Violation> {
        let request = Request { client: message.client, owner: message.owner, body: Some(message.body) };
        let reply = match message.body {
            Body::Ask { weight } => self.serve_ask(weight, request, setup, sights)?,
            Body::Renew => Some(self.serve_renewal(request, setup, sights)?),
            Body::Release { used } => self.serve_release(used, request, setup, sights)?,
            Body::Upgrade => self.serve_upgrade(request, setup, sights)?,
            Body::Downgrade => {
                let owner = owner_id(message.owner);
                let (answer, _) = self.run(request, setup, sights, |state, line, world| {
                    // Whatever the token: a late one that is obeyed is what the hall of bugs shows.
                    let token = state
                        .claims(world.now)
                        .find(|claim| claim.owner == owner)
                        .map_or(0, |claim| claim.token);
                    let downgrade = Alteration::Downgrade { weight: 1, token };
                    let Ok(step) = state.alter(line, owner, downgrade, world);
                    step
                })?;
                if matches!(answer, Answer::Granted(_)) {
                    sights.note(Sight::Downgraded);
                }
                None
            }
            _ => None,
        };
        let heard = self.clients[usize::from(message.client)].stage != Stage::Dead;
        if let Some(body) = reply.filter(|_| heard && self.messages.len() < setup.messages) {
            // A no is a no at any time.
            let matters = matches!(body, Body::Granted { .. } | Body::Renewed(true) | Body::Upgraded { .. });
            self.messages.push(Message {
                body,
                deadline: if matters { message.deadline } else { 0 },
                ..message
            });
        }
        Ok(())
    }

    fn serve_ask(
        &mut self,
        weight: u32,
        request: Request,
        setup: &Setup,
        sights: &mut Sights,
    ) -> Result<Option<Body>, Violation> {
        let role = setup.clients[usize::from(request.client)];
        let ask = ask(request.owner, weight, role.capacity, role.waits, setup);
        let seat = u64::from(request.client) + 1;
        let unconfirmed =
            self.state.claims(self.now).any(|claim| claim.owner == ask.owner && !claim.confirmed);
        let (answer, _) = self.run(request, setup, sights, |state, line, world| {
            if setup.is(Bug::CapacityMixed) && state.capacity() != 0 {
                let Ok(step) = state.resize(line, state.capacity(), ask.capacity, world);
                drop(step);
            }
            let Ok(step) = state.ask(line, &ask, seat, world);
            step
        })?;
        Ok(match answer {
            Answer::Granted(Grant { token, tokens }) => {
                if unconfirmed {
                    sights.note(Sight::Confirmed);
                }
                Some(Body::Granted { token, tokens })
            }
            // A waiter asks again whenever it likes; that it was told adds nothing.
            Answer::Queued(_) => {
                if self.state.claims(self.now).next().is_none() && self.state.closed_until() > self.now {
                    sights.note(Sight::Closed);
                }
                None
            }
            Answer::Busy(_) => Some(Body::No),
            Answer::Refused(refused) => {
                if matches!(refused, Refused::Capacity { .. }) {
                    sights.note(Sight::CapacityRefused);
                }
                Some(Body::No)
            }
        })
    }

    fn serve_renewal(
        &mut self,
        request: Request,
        setup: &Setup,
        sights: &mut Sights,
    ) -> Result<Body, Violation> {
        let owner = owner_id(request.owner);
        let lease = Duration::from_micros(setup.lease());
        let capacity = setup.clients[usize::from(request.client)].capacity;
        let weight = self.clients[usize::from(request.client)].weight.max(1);
        let anew = ask(request.owner, weight, capacity, false, setup);
        let (renewed, _) = self.run(request, setup, sights, |state, line, world| {
            let now = world.now;
            let over = state.claims(0).find(|claim| claim.owner == owner && claim.expires <= now);
            if let Some(expires) = over.map(|claim| claim.expires).filter(|_| setup.is(Bug::RenewalOfExpired))
            {
                state.renew(owner, Duration::from_micros(now - expires) + lease, expires - 1);
            }
            let mut renewed = state.renew(owner, lease, now);
            if !renewed && setup.is(Bug::RenewalRecreates) {
                let Ok(step) = state.ask(line, &anew, u64::from(request.client) + 1, world);
                renewed = matches!(step.answer, Answer::Granted(_));
            }
            let other = state.claims(now).next().map(|claim| claim.owner);
            if let Some(other) = other.filter(|_| !renewed && setup.is(Bug::RenewalOfAnyone)) {
                renewed = state.renew(other, lease, now);
            }
            Step { answer: renewed, wakes: Vec::new() }
        })?;
        Ok(Body::Renewed(renewed))
    }

    fn serve_release(
        &mut self,
        used: u64,
        request: Request,
        setup: &Setup,
        sights: &mut Sights,
    ) -> Result<Option<Body>, Violation> {
        let owner = owner_id(request.owner);
        let (released, _) = self.run(request, setup, sights, |state, line, world| {
            let other = state.claims(world.now).next().map(|claim| claim.owner);
            let Ok(step) = state.release(line, owner, used, world);
            match other.filter(|_| setup.is(Bug::ReleaseOfAnyone) && step.answer == Released::Nothing) {
                Some(other) => {
                    let Ok(step) = state.release(line, other, used, world);
                    step
                }
                None => step,
            }
        })?;
        match released {
            Released::Nothing => sights.note(Sight::StaleRelease),
            Released::Place => sights.note(Sight::LeftQueue),
            Released::Claim => {}
        }
        Ok(setup.is(Bug::BelievesWhileReleasing).then_some(Body::Released))
    }

    fn serve_upgrade(
        &mut self,
        request: Request,
        setup: &Setup,
        sights: &mut Sights,
    ) -> Result<Option<Body>, Violation> {
        let owner = owner_id(request.owner);
        let (answer, _) = self.run(request, setup, sights, |state, line, world| {
            let Ok(step) = state.alter(line, owner, Alteration::Upgrade, world);
            step
        })?;
        Ok(match answer {
            Answer::Granted(grant) => Some(Body::Upgraded { token: grant.token }),
            Answer::Refused(Refused::Upgrading) => {
                sights.note(Sight::UpgradeRefused);
                (!setup.is(Bug::TwoUpgraders)).then_some(Body::NotUpgraded)
            }
            Answer::Refused(_) => Some(Body::Renewed(false)),
            Answer::Queued(_) | Answer::Busy(_) => None,
        })
    }

    pub(crate) fn sweep(&mut self, setup: &Setup, sights: &mut Sights) -> Result<(), Violation> {
        let request = Request { client: u8::MAX, owner: 0, body: None };
        self.run(request, setup, sights, |state, line, world| {
            let Ok(step) = state.sweep(line, world);
            step
        })?;
        Ok(())
    }

    /// An operator takes the name from whoever holds it. Nothing is promised to those any more.
    pub(crate) fn break_claims(&mut self, setup: &Setup, sights: &mut Sights) -> Result<(), Violation> {
        self.breaks -= 1;
        for client in self.clients.iter_mut() {
            client.broken |= client.stage == Stage::Holding;
            client.lapsed = 0;
        }
        for message in self.messages.iter_mut() {
            message.broken |= !message.is_request();
        }
        let request = Request { client: u8::MAX, owner: 0, body: None };
        let (broken, _) =
            self.run(Request { owner: u8::MAX, ..request }, setup, sights, |state, line, world| {
                let Ok(step) = state.break_claims(line, world);
                step
            })?;
        if !broken.is_empty() {
            sights.note(Sight::Broken);
        }
        Ok(())
    }
}
