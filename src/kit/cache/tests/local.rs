//! The memory of a process under every order of events that fits into a small world.
//!
//! One process reads a name and remembers it; another one, or the same, changes and invalidates it.
//! The memory and the news are the real ones. The order in which a get, an invalidation and a
//! listener use them is that of `fetch.rs`, `handle.rs` and `news.rs`, written down once more. The
//! shared level is as bad as it may be: it has the oldest value that is allowed.
//!
//! What must hold: a process that has invalidated, or has heard of it, does not remember what was
//! before; and nobody does for longer than `local_for` after the invalidation was acknowledged.

use std::sync::Arc;
use std::time::Duration;

use super::super::got::{Got, Origin};
use super::super::local::{Local, Mark, Times};
use super::super::news::{Announce, Paper};
use crate::clock::Moment;
use crate::engine::{Rule as _, Write};

const LOCAL: Duration = Duration::from_micros(100);
const HASH: u64 = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The mark is noted when the answer is there.
    MarkedLate,
    /// The time of a memory begins when it is kept.
    CountedLate,
    /// An invalidation forgets before the engine has heard of it, and not after.
    ForgotEarly,
    /// Who begins to listen forgets nothing.
    FirstNewsIgnored,
    NewsIgnored,
}

#[derive(Clone, Copy, Debug)]
enum Reading {
    Marks,
    Looks(Mark, Moment),
    Keeps(Mark, Moment, u64),
}

#[derive(Clone, Copy, Debug)]
enum Writing {
    Forgets,
    Applies,
    Returns,
    Announces,
    Rests,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Read,
    Hit,
    Write,
    Listen,
    Jump,
}

struct World {
    fault: Fault,
    /// Reader and writer are one process.
    same: bool,
    now: u64,
    local: Local,
    name: Arc<str>,
    reading: Reading,
    writing: Writing,
    /// The last version whose invalidation the engine has carried out.
    applied: u64,
    /// The same, acknowledged; and when.
    acknowledged: Vec<u64>,
    paper: Option<Vec<u8>>,
    /// How far the news are read, and which invalidation that was.
    read: Option<u64>,
    announced: usize,
    heard: usize,
    kept: bool,
    gets: u32,
    hits: u32,
    writes: u32,
    jumps: u32,
    seen: Seen,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    orders: u64,
    hits: u64,
    /// Of what was before, within the bound.
    old: u64,
    broken: bool,
}

impl World {
    fn new(fault: Fault, same: bool) -> World {
        World {
            fault,
            same,
            now: 1000,
            local: Local::new(1 << 20),
            name: Arc::from("k"),
            reading: Reading::Marks,
            writing: Writing::Forgets,
            applied: 0,
            acknowledged: Vec::new(),
            paper: None,
            read: None,
            announced: 0,
            heard: 0,
            kept: false,
            gets: 1,
            hits: 1,
            writes: 1,
            jumps: 1,
            seen: Seen::default(),
        }
    }

    fn choices(&self) -> Vec<Choice> {
        let listens = !self.same && (self.read.is_none() || self.heard < self.announced);
        [
            (Choice::Read, self.gets > 0),
            // What is not remembered yet is no hit, and is not too old.
            (Choice::Hit, self.hits > 0 && self.kept),
            (Choice::Write, !matches!(self.writing, Writing::Rests)),
            (Choice::Listen, listens),
            (Choice::Jump, self.jumps > 0),
        ]
        .into_iter()
        .filter_map(|(choice, possible)| possible.then_some(choice))
        .collect()
    }

    fn go(&mut self, choice: Choice) {
        self.now += 1;
        let now = Moment::from_micros(self.now);
        match choice {
            Choice::Read => {
                self.reading = match self.reading {
                    Reading::Marks => Reading::Looks(self.local.mark(HASH), now),
                    Reading::Looks(mark, sent) => Reading::Keeps(mark, sent, self.applied),
                    Reading::Keeps(mark, sent, version) => {
                        let mark = if self.fault == Fault::MarkedLate { self.local.mark(HASH) } else { mark };
                        let sent = if self.fault == Fault::CountedLate { now } else { sent };
                        let got = Got { value: None, version, origin: Origin::Shared };
                        // The memory itself must not forget while the model runs.
                        let times = Times { good: LOCAL, lives: Duration::from_secs(3600) };
                        self.local.keep(&self.name, &got, mark, sent, times);
                        self.kept = true;
                        self.gets -= 1;
                        Reading::Marks
                    }
                }
            }
            Choice::Hit => {
                self.hits -= 1;
                if let Some(got) = self.local.get(&self.name, HASH, now) {
                    self.judge(usize::try_from(got.version).expect("small"));
                }
            }
            Choice::Write => {
                self.writing = match self.writing {
                    Writing::Forgets => {
                        self.forget();
                        Writing::Applies
                    }
                    Writing::Applies => {
                        self.applied += 1;
                        Writing::Returns
                    }
                    Writing::Returns => {
                        if self.fault != Fault::ForgotEarly {
                            self.forget();
                        }
                        self.acknowledged.push(self.now);
                        Writing::Announces
                    }
                    Writing::Announces | Writing::Rests => {
                        let announce = Announce { hashes: vec![HASH] };
                        let decision = announce.step(&[self.paper.as_deref()], self.now);
                        let Some(Write::Put(put)) = decision.writes.into_iter().next() else {
                            panic!("news are written")
                        };
                        self.paper = Some(put.bytes);
                        self.announced = self.acknowledged.len();
                        self.writes -= 1;
                        if self.writes == 0 { Writing::Rests } else { Writing::Forgets }
                    }
                }
            }
            Choice::Listen => {
                let paper = self.paper.as_deref().and_then(Paper::decode).unwrap_or_default();
                match self.read.map(|read| paper.since(read)) {
                    _ if self.fault == Fault::NewsIgnored => {}
                    Some(Some(new)) => new.iter().for_each(|hash| self.local.invalidate(*hash)),
                    None if self.fault == Fault::FirstNewsIgnored => {}
                    None | Some(None) => self.local.invalidate_all(),
                }
                (self.read, self.heard) = (Some(paper.count), self.announced);
            }
            Choice::Jump => {
                self.now += 98;
                self.jumps -= 1;
            }
        }
    }

    /// What the writer's process does, if that has this memory.
    fn forget(&self) {
        if self.same {
            self.local.invalidate(HASH);
        }
    }

    /// A hit gave the value of this version.
    fn judge(&mut self, version: usize) {
        self.seen.hits += 1;
        // The first invalidation that this value did not survive.
        let Some(at) = self.acknowledged.get(version) else { return };
        self.seen.old += 1;
        let late = self.now - at >= u64::try_from(LOCAL.as_micros()).expect("small");
        self.seen.broken |= self.same || version < self.heard || late;
    }
}

/// Goes through all orders, each from the beginning: what a memory has can not be copied.
fn explored(fault: Fault, same: bool, gets: u32, writes: u32) -> Seen {
    let mut all = Seen::default();
    // Which of how many choices was taken at each step.
    let mut path: Vec<(usize, usize)> = Vec::new();
    loop {
        let mut world = World { gets, writes, ..World::new(fault, same) };
        let mut step = 0;
        while !world.choices().is_empty() {
            let choices = world.choices();
            if step == path.len() {
                path.push((0, choices.len()));
            }
            world.go(choices[path[step].0]);
            step += 1;
        }
        all.orders += 1;
        all.hits += world.seen.hits;
        all.old += world.seen.old;
        all.broken |= world.seen.broken;
        while path.pop_if(|(taken, of)| *taken + 1 == *of).is_some() {}
        match path.last_mut() {
            Some((taken, _)) if !all.broken => *taken += 1,
            _ => return all,
        }
    }
}

#[test]
fn no_order_of_events_lets_a_process_remember_for_too_long() {
    let mut orders = 0;
    for (same, gets, writes) in [(true, 2, 1), (false, 1, 1)] {
        let seen = explored(Fault::None, same, gets, writes);
        println!("same process: {same}, {gets} gets, {writes} invalidations: {seen:?}");
        assert!(!seen.broken && seen.hits > 0, "{seen:?}");
        // Without news, a memory of before is allowed for a while.
        assert_eq!(seen.old > 0, !same, "{seen:?}");
        orders += seen.orders;
    }
    println!("{orders} orders of events");
    assert!(orders >= 5_000, "{orders}");
}

#[test]
fn every_known_fault_of_a_memory_is_found() {
    for (fault, same) in [
        (Fault::MarkedLate, true),
        (Fault::ForgotEarly, true),
        (Fault::MarkedLate, false),
        (Fault::CountedLate, false),
        (Fault::FirstNewsIgnored, false),
        (Fault::NewsIgnored, false),
    ] {
        let seen = explored(fault, same, 1, 1);
        println!("{fault:?} in the same process {same}: after {} orders", seen.orders);
        assert!(seen.broken, "{fault:?} was not found");
    }
}
