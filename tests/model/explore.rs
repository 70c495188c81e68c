//! Breadth first through all that can happen, so that the first violation found is a shortest one.
//!
//! States are remembered by a 64-bit fingerprint. Times and tokens count in it relative to now, and
//! what is so long ago that it can no longer matter counts as the same; so the worlds of all times
//! fall together, and small ones are explored to the end.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::{Duration, Instant};

use leasehold::claim::Micros;

use crate::fingerprint::{Taken, mix};
use crate::setup::{AHEAD, START, Setup, Sights, TICK};
use crate::world::{Action, Violation, World};

pub(crate) struct Explored {
    pub(crate) states: u64,
    pub(crate) transitions: u64,
    pub(crate) depth: u32,
    /// There is nothing more to see.
    pub(crate) complete: bool,
    pub(crate) elapsed: Duration,
    pub(crate) sights: Sights,
    pub(crate) violation: Option<(Violation, Vec<Action>)>,
}

/// The state before, by state.
type Seen = HashMap<u64, u64, BuildHasherDefault<Taken>>;

pub(crate) fn explore(setup: &Setup, depth: u32) -> Explored {
    let started = Instant::now();
    let first = World::new(setup);
    let root = first.fingerprint(setup);
    let mut seen = Seen::default();
    seen.insert(root, root);
    let mut found = Explored {
        states: 1,
        transitions: 0,
        depth: 0,
        complete: false,
        elapsed: Duration::ZERO,
        sights: Sights::default(),
        violation: None,
    };
    let mut frontier = vec![first];
    let mut actions = Vec::new();
    'all: while found.depth < depth && !frontier.is_empty() {
        let mut next = Vec::new();
        for world in frontier.drain(..) {
            let parent = world.fingerprint(setup);
            world.actions(setup, &mut actions);
            for &action in &actions {
                found.transitions += 1;
                let mut child = world.clone();
                let mut verdict = child.apply(action, setup, &mut found.sights);
                let print = child.fingerprint(setup);
                if verdict.is_ok() {
                    let Entry::Vacant(vacant) = seen.entry(print) else { continue };
                    vacant.insert(parent);
                    found.states += 1;
                    verdict = child.free_in_time(setup);
                    if verdict.is_ok() && setup.serves_all {
                        verdict = child.serves_all(setup);
                    }
                }
                if let Err(violation) = verdict {
                    let mut trace = path(&seen, root, parent, setup);
                    trace.push(action);
                    found.violation = Some((violation, trace));
                    break 'all;
                }
                // The last level is judged and not gone on from.
                if found.depth + 1 < depth {
                    next.push(child);
                }
            }
        }
        frontier = next;
        found.depth += 1;
    }
    found.complete = found.depth < depth && found.violation.is_none();
    found.elapsed = started.elapsed();
    found
}

/// The steps from the start to a state. Only states are remembered, so each step is found by
/// trying.
fn path(seen: &Seen, root: u64, last: u64, setup: &Setup) -> Vec<Action> {
    let mut prints = vec![last];
    while let Some(&print) = prints.last().filter(|&&print| print != root) {
        prints.push(seen[&print]);
    }
    let mut world = World::new(setup);
    let mut trace = Vec::new();
    let mut actions = Vec::new();
    for &print in prints.iter().rev().skip(1) {
        world.actions(setup, &mut actions);
        let step = actions.iter().find_map(|&action| {
            let mut child = world.clone();
            child.apply(action, setup, &mut Sights::default()).ok()?;
            (child.fingerprint(setup) == print).then_some((action, child))
        });
        let (action, child) = step.expect("a state that was reached is reached again");
        trace.push(action);
        world = child;
    }
    trace
}

impl World {
    fn fingerprint(&self, setup: &Setup) -> u64 {
        let relative = Relative {
            print: 0x9e37_79b9_7f4a_7c15,
            now: self.now,
            // What ended before now matters as long as a lock delay counts from it.
            horizon: setup.lock_delay * TICK,
            last: self.state.last_token().max(self.floor),
        };
        let mut whole = relative;
        self.state.hash(&mut whole);
        for waiter in self.line.iter() {
            waiter.hash(&mut whole);
        }
        for client in self.clients.iter() {
            (client.stage, client.owner, client.weight).hash(&mut whole);
            (client.upgrading, client.broken).hash(&mut whole);
            whole.write_u64(client.token);
            whole.write_u64(client.last_token);
            whole.write_u64(client.deadline);
            whole.write_u64(client.lapsed);
        }
        (self.duplicates, self.deaths, self.breaks).hash(&mut whole);
        whole.write_u64(self.highest);
        whole.write_u64(self.floor);
        // The order of the messages means nothing.
        let messages = self.messages.iter().map(|message| {
            let mut one = relative;
            message.hash(&mut one);
            one.finish()
        });
        whole.mix(messages.fold(0, u64::wrapping_add));
        whole.finish()
    }
}

/// A hasher for which times and tokens are relative.
#[derive(Clone, Copy)]
struct Relative {
    print: u64,
    now: Micros,
    horizon: Micros,
    last: u64,
}

impl Relative {
    fn mix(&mut self, value: u64) {
        self.print = mix(self.print, value);
    }
}

impl Hasher for Relative {
    fn finish(&self) -> u64 {
        self.print ^ (self.print >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.mix(u64::from(byte)));
    }

    fn write_u64(&mut self, value: u64) {
        const NEVER: u64 = u64::MAX / 4;
        // Tokens ahead of the clock are compared with each other only; a few back is as far as it
        // matters.
        const BACK: u64 = 64;
        self.mix(match value {
            NEVER.. => value,
            AHEAD.. => (1 << 40) + (value + BACK).saturating_sub(self.last),
            START.. => (value + self.horizon + 1).saturating_sub(self.now),
            _ => value,
        });
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u128(&mut self, value: u128) {
        self.mix(value as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.mix(value as u64);
    }
}
