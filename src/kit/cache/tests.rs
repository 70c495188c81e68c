//! The rule of an entry under every order of events that fits into a small world, and under many
//! long ones by chance.
//!
//! The world has a source whose versions are its values, writers that change it and then
//! invalidate, readers that look, load and store, leases that are lost, loads that fail, answers
//! that are lost and calls that are made again, and for sources with versions a replica that lags
//! behind. Such a source may also begin without the row, so that the replica has none of it, and
//! may have it deleted later. What must hold: what a reader finds is not older than the last
//! invalidation that was acknowledged before it looked, and what is stored is not of an earlier
//! version than what it replaces. The memories of processes have a model of their own, in
//! `tests/local.rs`.

mod local;

use std::time::Duration;

use super::rule::{Answer, Ask, Step};
use crate::claim::Micros;
use crate::client::cell::TypedRule as _;
use crate::engine::{Rule as _, Write};

const LEASE: Duration = Duration::from_micros(10);
const FRESH: Duration = Duration::from_micros(25);
const STALE: Duration = Duration::from_micros(15);

/// A way to be wrong, which must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Whoever has loaded stores, whether the cell names it or not.
    AnybodyStores,
    /// An invalidation forgets the value, and not who loads.
    LoadsSurvive,
    /// An invalidation makes the value stale instead of forgetting it.
    StaleSurvives,
    /// An invalidation with a version is not remembered.
    VersionForgotten,
    /// A cell that is gone takes any value.
    EmptyTakesAll,
    /// Invalidation before the source is changed.
    InvalidatedFirst,
    /// A store that is asked for again, because its answer was lost, is taken without a look.
    RepeatedStore,
    /// "None" without a version is not compared with what was invalidated.
    NoneAfterInvalidation,
    /// Nor with what is there.
    NoneOverValue,
}

/// The ways of a step that is carried out and whose answer is lost.
const LOST: u8 = 0x80;

/// What an actor has still to do. Every actor does one step at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Actor {
    Reader { owner: u128, state: Reading },
    Writer { left: u32, state: Writing },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Looks,
    Loads,
    /// Has read this version of the source.
    Stores(u64),
    /// Has stored it, and was not answered.
    StoresAgain(u64),
    Rests,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Writes,
    Invalidates(u64),
}

#[derive(Clone, Debug)]
struct World {
    fault: Fault,
    versioned: bool,
    /// The source begins with nothing, which has no version. Even versions are deletions.
    begins_empty: bool,
    now: Micros,
    cell: Option<(Vec<u8>, Micros)>,
    source: u64,
    /// What a replica still has.
    replica: u64,
    /// The version of the last invalidation that was acknowledged.
    acknowledged: u64,
    actors: Vec<Actor>,
    owners: u128,
    /// Time that may still pass by itself.
    jumps: u32,
    /// Answers that may still be lost.
    losses: u32,
    looks: u32,
    stored: u64,
    discarded: u64,
    served: u64,
    behind: u64,
    lost: u64,
}

impl World {
    fn new(fault: Fault, versioned: bool, readers: u32, writes: u32, jumps: u32, looks: u32) -> World {
        let reader = |_| Actor::Reader { owner: 0, state: Reading::Looks };
        let mut actors: Vec<Actor> = (0..readers).map(reader).collect();
        actors.push(Actor::Writer { left: writes, state: Writing::Writes });
        World {
            fault,
            versioned,
            begins_empty: false,
            now: 1000,
            cell: None,
            source: 1,
            replica: 1,
            acknowledged: 0,
            actors,
            owners: 0,
            jumps,
            losses: 0,
            looks,
            stored: 0,
            discarded: 0,
            served: 0,
            behind: 0,
            lost: 0,
        }
    }

    /// The same, with a source that begins with nothing.
    fn that_begins_empty(self) -> World {
        World { begins_empty: true, source: 0, replica: 0, ..self }
    }

    /// What the source has at a version.
    fn value(&self, version: u64) -> Option<Vec<u8>> {
        let none = self.begins_empty && version.is_multiple_of(2);
        (!none).then(|| version.to_be_bytes().to_vec())
    }

    /// What is stored, whether it has ended or not.
    fn entry(&self) -> Option<super::entry::Entry<'_>> {
        let live = self.cell.as_ref().filter(|(_, ends)| *ends > self.now);
        live.and_then(|(bytes, _)| super::entry::decode(bytes))
    }

    /// The version of what is held.
    fn held(&self) -> u64 {
        let held = |entry: &super::entry::Entry<'_>| {
            entry.held != super::entry::Held::Nothing && entry.ends > self.now
        };
        self.entry().filter(held).map_or(0, |entry| entry.version)
    }

    /// The same, and so many answers may be lost.
    fn losing(self, losses: u32) -> World {
        World { losses, ..self }
    }

    fn apply(&mut self, ask: Ask) -> Answer {
        let value = self.cell.as_ref().filter(|(_, ends)| *ends > self.now).map(|(bytes, _)| bytes.clone());
        let before = value.clone();
        let step = Step(ask);
        let decision = step.step(&[value.as_deref()], self.now);
        match decision.writes.into_iter().next() {
            None | Some(Write::Keep) => {}
            Some(Write::Delete) => self.cell = None,
            Some(Write::Put(put)) => {
                let lives = u64::try_from(put.lives.as_micros()).expect("short");
                assert!(lives > 0, "a cell that is over is not written");
                self.cell = Some((put.bytes, self.now + lives));
            }
        }
        self.break_rule(&step.0, before.as_deref());
        step.read(&decision.answer).expect("an answer")
    }

    /// Does what a wrong rule would have done.
    fn break_rule(&mut self, ask: &Ask, before: Option<&[u8]>) {
        let Ask::Invalidate { .. } = ask else { return };
        match self.fault {
            Fault::LoadsSurvive => {
                // The owner of before goes on loading.
                if let Some(entry) = before.and_then(super::entry::decode)
                    && entry.loader == super::entry::Loader::Loads
                {
                    let after = super::entry::Entry {
                        loader: entry.loader,
                        owner: entry.owner,
                        loads_until: entry.loads_until,
                        ..super::entry::Entry::EMPTY
                    };
                    self.cell = Some((after.encode(), self.now + 40));
                }
            }
            Fault::StaleSurvives => {
                if let Some(mut entry) = before.and_then(super::entry::decode) {
                    entry.fresh_until = self.now;
                    self.cell = Some((entry.encode(), entry.over_at().max(self.now + 1)));
                }
            }
            Fault::VersionForgotten => self.cell = None,
            _ => {}
        }
    }

    /// What can happen next: a step of an actor in one of its ways.
    fn choices(&self) -> Vec<(usize, u8)> {
        let mut choices = Vec::new();
        for (number, actor) in self.actors.iter().enumerate() {
            let ways: u8 = match actor {
                Actor::Reader { state: Reading::Looks, .. } if self.looks == 0 => 0,
                Actor::Reader { state: Reading::Looks, .. } => 1,
                // From the source, or from the replica; or it fails.
                Actor::Reader { state: Reading::Loads, .. } => {
                    if self.versioned && self.replica < self.source { 3 } else { 2 }
                }
                Actor::Reader { state: Reading::Stores(_) | Reading::StoresAgain(_), .. } => 1,
                Actor::Reader { state: Reading::Rests, .. } => 0,
                Actor::Writer { left: 0, .. } => 0,
                Actor::Writer { .. } => 1,
            };
            choices.extend((0..ways).map(|way| (number, way)));
            let asks = match actor {
                Actor::Reader { state, .. } => *state != Reading::Loads,
                Actor::Writer { state, .. } => matches!(state, Writing::Invalidates(_)),
            };
            if self.losses > 0 && ways > 0 && asks {
                choices.push((number, LOST));
            }
        }
        if self.jumps > 0 {
            choices.push((usize::MAX, 0));
            choices.push((usize::MAX, 1));
        }
        if self.versioned && self.replica < self.source {
            choices.push((usize::MAX, 2));
        }
        choices
    }

    /// False if something is wrong.
    fn go(&mut self, (number, way): (usize, u8)) -> bool {
        if number == usize::MAX {
            match way {
                // Past a lease, or past the end of what is fresh.
                0 => self.now += 12,
                1 => self.now += 30,
                _ => {
                    self.replica = self.source;
                    return true;
                }
            }
            self.jumps -= 1;
            return true;
        }
        self.now += 1;
        let lost = way == LOST;
        if lost {
            self.losses -= 1;
            self.lost += 1;
        }
        match self.actors[number].clone() {
            Actor::Reader { state: Reading::Looks, .. } => {
                self.looks -= 1;
                self.owners += 1;
                let owner = self.owners;
                let answer =
                    self.apply(Ask::Look { owner, lease: LEASE, may_load: true, at_least: 0, early: 0 });
                if lost {
                    // It may load, and does not know: the others wait for its lease.
                    return true;
                }
                let (found, loads) = match answer {
                    Answer::Fresh(found) | Answer::Stale(found) => (Some(found), false),
                    Answer::Refresh(found) => (Some(found), true),
                    Answer::Load => (None, true),
                    Answer::Wait(_) | Answer::Pause(_) => (None, false),
                    other => panic!("{other:?}"),
                };
                let state = if loads { Reading::Loads } else { Reading::Looks };
                self.actors[number] = Actor::Reader { owner, state };
                let Some(found) = found else { return true };
                self.served += 1;
                let version = match found.value {
                    Some(value) => u64::from_be_bytes(value.try_into().expect("a number")),
                    None => {
                        assert!(self.begins_empty, "the source has it");
                        found.version
                    }
                };
                version >= self.acknowledged
            }
            Actor::Reader { owner, state: Reading::Loads } => {
                let state = match way {
                    0 => Reading::Stores(self.source),
                    2 => Reading::Stores(self.replica),
                    _ => {
                        let pause = Duration::from_micros(3);
                        self.apply(Ask::Release { owner, pause });
                        Reading::Looks
                    }
                };
                self.actors[number] = Actor::Reader { owner, state };
                true
            }
            Actor::Reader { owner, state: state @ (Reading::Stores(read) | Reading::StoresAgain(read)) } => {
                let (asked, mut owner) = (owner, owner);
                let named = self.entry().map(|entry| entry.owner);
                let again = matches!(state, Reading::StoresAgain(_));
                match (self.fault, named) {
                    (Fault::AnybodyStores, Some(named)) => owner = named,
                    (Fault::EmptyTakesAll | Fault::AnybodyStores, None) => {
                        self.let_load(owner);
                    }
                    (Fault::RepeatedStore, _) if again => self.let_load(owner),
                    _ => {}
                }
                let held = self.held();
                let known = if read == 0 { self.forget_versions(owner) } else { None };
                let answer = self.apply(Ask::Store {
                    owner,
                    value: self.value(read),
                    version: if self.versioned { read } else { 0 },
                    fresh: FRESH,
                    stale: STALE,
                    cost: 1,
                    pause: Duration::from_micros(3),
                });
                if let Some(known) = known {
                    self.remember_versions(known, &answer);
                }
                if self.versioned && self.held() < held {
                    return false;
                }
                if lost {
                    self.actors[number] = Actor::Reader { owner: asked, state: Reading::StoresAgain(read) };
                    return true;
                }
                match answer {
                    Answer::Done => self.stored += 1,
                    Answer::NotYours => self.discarded += 1,
                    Answer::Older(_) => self.behind += 1,
                    other => panic!("{other:?}"),
                }
                let state = if self.looks == 0 { Reading::Rests } else { Reading::Looks };
                self.actors[number] = Actor::Reader { owner, state };
                true
            }
            Actor::Reader { state: Reading::Rests, .. } => true,
            Actor::Writer { left, state: Writing::Writes } => {
                let version = self.source + 1;
                if self.fault == Fault::InvalidatedFirst {
                    self.invalidate(version);
                } else {
                    self.source = version;
                }
                self.actors[number] = Actor::Writer { left, state: Writing::Invalidates(version) };
                true
            }
            Actor::Writer { left, state: Writing::Invalidates(version) } => {
                if self.fault == Fault::InvalidatedFirst {
                    self.source = version;
                } else {
                    self.invalidate(version);
                }
                if lost {
                    // It is made again.
                    return true;
                }
                self.acknowledged = version;
                self.actors[number] = Actor::Writer { left: left - 1, state: Writing::Writes };
                true
            }
        }
    }

    /// Takes from the cell what a wrong rule does not compare with: the version of the last
    /// invalidation, and of what is held.
    fn forget_versions(&mut self, owner: u128) -> Option<(u64, u64)> {
        let (bytes, ends) = self.cell.clone()?;
        let mut entry = super::entry::decode(&bytes)?;
        if entry.loader != super::entry::Loader::Loads || entry.owner != owner {
            return None;
        }
        let known = (entry.least, entry.version);
        match self.fault {
            Fault::NoneAfterInvalidation => entry.least = 0,
            Fault::NoneOverValue => entry.version = 0,
            _ => return None,
        }
        self.cell = Some((entry.encode(), ends));
        Some(known)
    }

    fn remember_versions(&mut self, (least, version): (u64, u64), answer: &Answer) {
        let Some((bytes, ends)) = self.cell.clone() else { return };
        let Some(mut entry) = super::entry::decode(&bytes) else { return };
        entry.least = least;
        if *answer != Answer::Done {
            entry.version = version;
        }
        self.cell = Some((entry.encode(), ends));
    }

    /// The cell waits for this owner's load.
    fn let_load(&mut self, owner: u128) {
        let (loader, loads_until) = (super::entry::Loader::Loads, self.now + 5);
        let entry = super::entry::Entry { loader, owner, loads_until, ..super::entry::Entry::EMPTY };
        self.cell = Some((entry.encode(), loads_until));
    }

    fn invalidate(&mut self, version: u64) {
        let version = if self.versioned { version } else { 0 };
        // A replica lags behind for a shorter time than versions are kept.
        let answer = self.apply(Ask::Invalidate { version, kept: Duration::from_secs(1) });
        assert_eq!(answer, Answer::Done);
    }
}

#[derive(Debug, Default)]
struct Seen {
    interleavings: u64,
    steps: u64,
    served: u64,
    stored: u64,
    discarded: u64,
    behind: u64,
    lost: u64,
    /// The first choices that led to a value that was too old.
    broken: Option<Vec<(usize, u8)>>,
}

/// Goes through all orders of events.
fn explore(world: &World, path: &mut Vec<(usize, u8)>, seen: &mut Seen) {
    let choices = world.choices();
    if choices.is_empty() {
        seen.interleavings += 1;
        seen.served += world.served;
        seen.stored += world.stored;
        seen.discarded += world.discarded;
        seen.behind += world.behind;
        seen.lost += world.lost;
        return;
    }
    for choice in choices {
        if seen.broken.is_some() {
            return;
        }
        let mut next = world.clone();
        seen.steps += 1;
        path.push(choice);
        if next.go(choice) {
            explore(&next, path, seen);
        } else {
            seen.broken = Some(path.clone());
        }
        path.pop();
    }
}

fn explored(world: &World) -> Seen {
    let mut seen = Seen::default();
    explore(world, &mut Vec::new(), &mut seen);
    seen
}

#[test]
fn no_order_of_events_serves_what_was_invalidated() {
    let (mut interleavings, mut steps) = (0, 0);
    // `LEASEHOLD_MODEL=deep` goes through several times as many.
    let deep = std::env::var("LEASEHOLD_MODEL").is_ok_and(|word| word == "deep");
    let (looks, losses) = if deep { (4, 2) } else { (3, 1) };
    for (versioned, readers, writes, jumps, looks, losses) in [
        (false, 2, 2, 1, looks, 0),
        (false, 3, 1, 1, looks, 0),
        (true, 2, 1, 1, looks, 0),
        (true, 2, 2, 0, 4, 0),
        (false, 2, 2, 0, 3, losses),
        (false, 2, 1, 1, looks, losses),
        (true, 2, 1, 0, 3, losses),
    ] {
        let world = World::new(Fault::None, versioned, readers, writes, jumps, looks).losing(losses);
        let seen = explored(&world);
        assert_eq!(seen.broken, None, "{versioned} {readers} {writes} {jumps} {looks} {losses}");
        // A world in which nothing happens would prove nothing.
        assert!(seen.served > 0 && seen.stored > 0 && seen.discarded > 0, "{seen:?}");
        assert_eq!((seen.behind > 0, seen.lost > 0), (versioned, losses > 0), "{seen:?}");
        interleavings += seen.interleavings;
        steps += seen.steps;
    }
    // A row is inserted, and deleted.
    for (readers, writes, jumps, looks, losses) in [(2, 1, 1, 3, 0), (2, 2, 0, 3, 0), (2, 1, 0, 3, losses)] {
        let world = World::new(Fault::None, true, readers, writes, jumps, looks).that_begins_empty();
        let seen = explored(&world.losing(losses));
        assert_eq!(seen.broken, None, "from nothing: {readers} {writes} {jumps} {looks} {losses}");
        assert!(seen.served > 0 && seen.stored > 0 && seen.behind > 0, "{seen:?}");
        interleavings += seen.interleavings;
        steps += seen.steps;
    }
    println!("{interleavings} orders of events, {steps} steps");
    assert!(interleavings >= 100_000, "{interleavings}");
}

#[test]
fn every_known_fault_is_found() {
    for (fault, versioned) in [
        (Fault::AnybodyStores, false),
        (Fault::LoadsSurvive, false),
        (Fault::StaleSurvives, false),
        (Fault::EmptyTakesAll, false),
        (Fault::InvalidatedFirst, false),
        (Fault::VersionForgotten, true),
        (Fault::RepeatedStore, false),
    ] {
        let losses = u32::from(fault == Fault::RepeatedStore);
        let found = explored(&World::new(fault, versioned, 2, 2, 1, 4).losing(losses)).broken;
        println!("{fault:?}: {found:?}");
        assert!(found.is_some(), "{fault:?} was not found");
    }
    for fault in [Fault::NoneAfterInvalidation, Fault::NoneOverValue] {
        let found = explored(&World::new(fault, true, 2, 1, 1, 4).that_begins_empty()).broken;
        println!("{fault:?}: {found:?}");
        assert!(found.is_some(), "{fault:?} was not found");
    }
}

/// Long runs with more of everything, by chance.
#[test]
fn long_runs_serve_nothing_that_was_invalidated() {
    let runs =
        std::env::var("LEASEHOLD_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(500) * 10;
    let mut served = 0;
    for seed in 0..runs {
        let mut chance: u64 = seed;
        let mut roll = move |below: usize| {
            chance = chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
            usize::try_from(super::hash::mix(chance) % below as u64).expect("small")
        };
        let mut world = World::new(Fault::None, seed % 2 == 0, 5, 20, 30, 150).losing(20);
        if seed % 4 == 0 {
            world = world.that_begins_empty();
        }
        let mut path = Vec::new();
        loop {
            let choices = world.choices();
            if choices.is_empty() {
                break;
            }
            let choice = choices[roll(choices.len())];
            path.push(choice);
            assert!(world.go(choice), "seed {seed}: {path:?}");
        }
        served += world.served;
    }
    assert!(served > runs * 10, "{served}");
}
