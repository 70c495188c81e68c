//! The rules of the engine `redlock`, explored: every order of events in small worlds.
//!
//! The code that is explored is the engine's own (`redlock/rules.rs`), with the rules of one server
//! that its scripts restate (`spec.rs`). Breadth first, so that the first violation found is a
//! shortest one. Servers are alike, so worlds that differ in their order only are one.
//!
//! `LEASEHOLD_MODEL=deep` goes further, which takes minutes and some GB.

#[path = "../model/fingerprint.rs"]
mod fingerprint;
mod spec;
mod world;

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::Instant;

use fingerprint::{Taken, mix};
use leasehold::engine::redlock::rules;
use world::{Action, Bug, Setup, World};

const PLAIN: Setup = Setup {
    name: "",
    servers: 3,
    readers: &[false, false],
    early: 0,
    doubled: 0,
    forgets: 0,
    renewals: 0,
    strangers: 0,
    guesses: true,
    punctual: false,
    bug: Bug::None,
};

struct Explored {
    states: usize,
    transitions: u64,
    depth: u32,
    complete: bool,
    /// The most grants in one world.
    grants: usize,
    violation: Option<(&'static str, Vec<Action>)>,
}

fn explore<const N: usize>(setup: &Setup, most_states: usize) -> Explored {
    let mut seen: HashSet<u64, BuildHasherDefault<Taken>> = HashSet::default();
    let first = World::<N>::new();
    seen.insert(print(&first));
    // Worlds of a level, each with the place of its parent in the level before and the action that
    // led to it.
    let mut level = vec![first];
    let mut history: Vec<Vec<(u32, Action)>> = Vec::new();
    let mut found =
        Explored { states: 1, transitions: 0, depth: 0, complete: false, grants: 0, violation: None };
    let mut actions = Vec::new();
    while !level.is_empty() && seen.len() < most_states {
        let (mut next, mut steps) = (Vec::new(), Vec::new());
        for (parent, world) in level.iter().enumerate() {
            world.actions(setup, &mut actions);
            for &action in &actions {
                found.transitions += 1;
                let mut child = *world;
                let verdict = child.apply(action, setup);
                let parent = u32::try_from(parent).expect("fewer states");
                if let Err(violation) = verdict {
                    found.violation = Some((violation, trace(&history, parent, action)));
                    found.states = seen.len();
                    return found;
                }
                let child = child.sorted();
                if seen.insert(print(&child)) {
                    found.grants = found.grants.max(child.held());
                    next.push(child);
                    steps.push((parent, action));
                }
            }
            if seen.len() >= most_states {
                break;
            }
        }
        level = next;
        history.push(steps);
        found.depth += 1;
    }
    found.complete = level.is_empty();
    found.states = seen.len();
    found
}

/// The steps to a violation. The numbers of servers are those of the sorted world before each step.
fn trace(history: &[Vec<(u32, Action)>], mut parent: u32, last: Action) -> Vec<Action> {
    let mut trace = vec![last];
    for level in history.iter().rev() {
        let (before, action) = level[usize::try_from(parent).expect("few")];
        trace.push(action);
        parent = before;
    }
    trace.reverse();
    trace
}

fn print<const N: usize>(world: &World<N>) -> u64 {
    let mut mixer = Mixer(0x9e37_79b9_7f4a_7c15);
    world.hash(&mut mixer);
    mixer.finish()
}

struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, value: u64) {
        self.0 = mix(self.0, value);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}

fn run(setup: &Setup, most_states: usize) -> Explored {
    let started = Instant::now();
    let found = match setup.servers {
        3 => explore::<3>(setup, most_states),
        5 => explore::<5>(setup, most_states),
        other => panic!("no world of {other} servers"),
    };
    let Explored { states, transitions, depth, complete, grants, .. } = found;
    let end = match (&found.violation, complete) {
        (Some((violation, trace)), _) => format!("{violation}, in {} steps", trace.len()),
        (None, true) => "explored to its end".to_owned(),
        (None, false) => "explored in part".to_owned(),
    };
    println!(
        "{:<42} {:>18} {states:>10} states {transitions:>11} transitions, depth {depth:>2}, up to {grants} grants, {:.1?}: {end}",
        setup.name,
        format!("{:?}", setup.bug),
        started.elapsed()
    );
    found
}

fn deep() -> bool {
    std::env::var_os("LEASEHOLD_MODEL").is_some_and(|mode| mode == "deep")
}

/// A world must hold, and somebody must have held the name in it.
fn holds(setup: Setup, states: usize, deep_states: usize) {
    let found = run(&setup, if deep() { deep_states } else { states });
    if let Some((violation, trace)) = &found.violation {
        panic!("{}: {violation}: {trace:#?}", setup.name);
    }
    assert!(found.grants >= 1, "{}: nobody ever held the name", setup.name);
}

/// Worlds that are not explored to their end are explored this far.
const SOME: usize = 500_000;
const MILLION: usize = 1_000_000;
const MANY: usize = 25 * MILLION;

#[test]
fn tokens_are_unique_and_rise_whatever_the_clocks_do() {
    let world = Setup { name: "two writers, a claim ends early", early: 1, ..PLAIN };
    holds(world, 5 * MILLION, MANY);
    holds(Setup { name: "two writers, three claims end early", early: 3, ..PLAIN }, SOME, MANY);
    holds(Setup { name: "and votes come twice", early: 3, doubled: 1, ..PLAIN }, SOME, MANY);
    let three = &[false, false, false];
    holds(Setup { name: "three writers, claims end early", early: 2, readers: three, ..PLAIN }, SOME, MANY);
    holds(Setup { name: "five servers, claims end early", early: 3, servers: 5, ..PLAIN }, SOME, MANY);
}

#[test]
fn readers_never_share_a_token() {
    let world = Setup { name: "two readers", readers: &[true, true], ..PLAIN };
    holds(world, SOME, MANY);
    holds(Setup { name: "two readers, claims end early", early: 2, ..world }, SOME, MANY);
    holds(Setup { name: "two readers and a writer", readers: &[true, true, false], ..world }, SOME, MANY);
}

#[test]
fn one_at_a_time_if_leases_last() {
    holds(Setup { name: "two writers, leases last", ..PLAIN }, 3 * MILLION, MANY);
    holds(Setup { name: "renewals, leases last", renewals: 1, ..PLAIN }, SOME, MANY);
    let readers = &[false, true, true];
    holds(Setup { name: "a writer and readers, leases last", readers, ..PLAIN }, SOME, MANY);
    holds(Setup { name: "five servers, leases last", servers: 5, ..PLAIN }, SOME, MANY);
}

#[test]
fn a_server_that_forgets_does_no_harm() {
    let forgets = Setup { name: "one forgets, leases last", forgets: 1, ..PLAIN };
    holds(forgets, SOME, MANY);
    holds(Setup { name: "the same without guesses", guesses: false, ..forgets }, SOME, MANY);
    holds(Setup { name: "one forgets, claims end early", forgets: 1, early: 2, ..PLAIN }, SOME, MANY);
}

#[test]
fn a_renewal_does_not_revive() {
    let one = Setup {
        name: "a holder, a stranger, renewals",
        readers: &[false],
        renewals: 2,
        strangers: 2,
        ..PLAIN
    };
    holds(Setup { early: 3, punctual: true, ..one }, 3 * MILLION, MANY);
    holds(
        Setup {
            name: "two writers, renewals, claims end early",
            renewals: 1,
            early: 2,
            punctual: true,
            ..PLAIN
        },
        SOME,
        MANY,
    );
}

#[test]
fn every_broken_design_is_caught() {
    // Those that are wrong without guesses are found sooner without them.
    let early = Setup { name: "broken", early: 2, guesses: false, ..PLAIN };
    let stranger = Setup { readers: &[false], renewals: 2, strangers: 2, early: 3, punctual: true, ..early };
    let broken = [
        Setup { bug: Bug::MaxOnly, ..early },
        Setup { bug: Bug::NoCounterCheck, early: 1, ..early },
        Setup { bug: Bug::CountedOnly, doubled: 1, early: 1, ..early },
        Setup { bug: Bug::WithoutBy, readers: &[true, true], early: 0, ..early },
        Setup { bug: Bug::RejoinAtOnce, forgets: 1, early: 0, ..early },
        Setup { bug: Bug::RejoinWithCounter, forgets: 1, early: 0, ..early },
        Setup { bug: Bug::HealedCounts, ..stranger },
        Setup { bug: Bug::HealedCountsNext, ..stranger },
        Setup { bug: Bug::ReleaseForgetsCounter, early: 0, ..early },
        Setup { bug: Bug::HalfIsEnough, early: 0, ..early },
        Setup { bug: Bug::AcceptsEqual, guesses: true, ..early },
    ];
    let survivors: Vec<Bug> = broken
        .iter()
        .filter(|setup| run(setup, 12 * MILLION).violation.is_none())
        .map(|setup| setup.bug)
        .collect();
    assert!(survivors.is_empty(), "not caught: {survivors:?}");
}
