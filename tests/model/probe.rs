//! What must come to pass from every state: promises about time, tried out.

use leasehold::claim::{Answer, CONFIRM, Micros, PATIENCE};

use crate::serve::ask;
use crate::setup::{Bug, Setup, Sights, TICK};
use crate::world::{Action, Stage, Violation, World};

/// A stranger that comes when everybody else has stopped.
const STRANGER: u8 = 99;

impl World {
    /// X6: everybody stops now, unseen. Somebody new who wants all there is gets it in time.
    ///
    /// The stranger asks at every tick, so dead waiters are handed the name on the way, one after
    /// the other; that must not take longer than it is believed of them that they live, and one
    /// confirmation.
    pub(crate) fn free_in_time(&self, setup: &Setup) -> Result<(), Violation> {
        let (patience, confirm) = (PATIENCE.as_micros() as Micros, CONFIRM.as_micros() as Micros);
        let bound = (setup.lease() + setup.lock_delay * TICK).max(patience) + confirm;
        let capacity = if self.state.capacity() == 0 { setup.capacity } else { self.state.capacity() };
        let ask = ask(STRANGER, capacity, capacity, true, setup);
        let (mut state, mut line) = (self.state.clone(), self.line.clone());
        for tick in 0..=bound.div_ceil(TICK) {
            let now = self.now + tick * TICK;
            if setup.is(Bug::DeadWaiterKept) {
                let owners: Vec<_> = line.iter().map(|waiter| waiter.owner).collect();
                for owner in owners {
                    let Ok(_) = leasehold::claim::Queue::touch(&mut line, owner, now + patience);
                }
            }
            let world = leasehold::claim::World::at(now, &|_| true);
            let Ok(step) = state.ask(&mut line, &ask, u64::from(STRANGER), world);
            if matches!(step.answer, Answer::Granted(_)) {
                return Ok(());
            }
            if setup.is(Bug::HandOverUnconfirmed) {
                for wake in &step.wakes {
                    state.renew(wake.owner, std::time::Duration::from_micros(setup.lease()), now);
                }
            }
        }
        Err("X6: everybody stopped, and the name was not free in time")
    }

    /// X7: nothing is lost or late from now on, and holders release. Everybody gets what it waits
    /// for.
    pub(crate) fn serves_all(&self, setup: &Setup) -> Result<(), Violation> {
        const ROUNDS: usize = 12;
        let mut world = self.clone();
        (world.deaths, world.duplicates, world.breaks) = (0, 0, 0);
        let mut sights = Sights::default();
        for _ in 0..ROUNDS {
            world.deliver_all(setup, &mut sights)?;
            for index in 0..world.clients.len() {
                let number = index as u8;
                let client = world.clients[index];
                let action = match client.stage {
                    Stage::Asking => Action::AskAgain(number),
                    Stage::Holding if client.upgrading && client.believes(world.now) => {
                        world.apply(Action::Renew(number), setup, &mut sights)?;
                        world.deliver_all(setup, &mut sights)?;
                        Action::Upgrade(number)
                    }
                    Stage::Holding => Action::Release(number),
                    Stage::Idle | Stage::Dead => continue,
                };
                world.apply(action, setup, &mut sights)?;
                world.deliver_all(setup, &mut sights)?;
            }
            if world.clients.iter().all(|client| matches!(client.stage, Stage::Idle | Stage::Dead)) {
                return Ok(());
            }
            world.apply(Action::Tick, setup, &mut sights)?;
        }
        Err("X7: everybody waits, and nobody can move")
    }

    fn deliver_all(&mut self, setup: &Setup, sights: &mut Sights) -> Result<(), Violation> {
        while !self.messages.is_empty() {
            self.apply(Action::Deliver(0), setup, sights)?;
        }
        Ok(())
    }
}
