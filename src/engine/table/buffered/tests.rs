//! A queue of which few rows were read, beside the one in memory, on generated sequences.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{Acquire, Alter, Break, Look, Release, Resize, Sweep, row};
use super::*;
use crate::claim::{Alteration, Ask, MemoryQueue, Seat, State};
use crate::name::Family;

const OWNERS: u8 = 8;
const CAPACITY: u32 = 4;

#[derive(Clone, Debug)]
enum Event {
    Ask {
        number: u8,
        weight: u32,
        wait: bool,
    },
    Release {
        number: u8,
    },
    Downgrade {
        number: u8,
    },
    Upgrade {
        number: u8,
    },
    Resize {
        capacity: u32,
    },
    Look,
    Break,
    Sweep,
    Die {
        number: u8,
    },
    Pass {
        millis: u64,
    },
    /// The server's clock is set back.
    SetBack {
        millis: u64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let number = || 1..=OWNERS;
    prop_oneof![
        10 => (number(), 1..=CAPACITY, prop::bool::weighted(0.8))
            .prop_map(|(number, weight, wait)| Event::Ask { number, weight, wait }),
        5 => number().prop_map(|number| Event::Release { number }),
        1 => number().prop_map(|number| Event::Downgrade { number }),
        1 => number().prop_map(|number| Event::Upgrade { number }),
        1 => (1..=CAPACITY).prop_map(|capacity| Event::Resize { capacity }),
        1 => Just(Event::Look),
        1 => Just(Event::Break),
        1 => Just(Event::Sweep),
        1 => number().prop_map(|number| Event::Die { number }),
        4 => (0..4000u64).prop_map(|millis| Event::Pass { millis }),
        1 => (0..4000u64).prop_map(|millis| Event::SetBack { millis }),
    ]
}

fn owner(number: u8) -> OwnerId {
    OwnerId(u128::from(number))
}

fn ask(number: u8, weight: u32, wait: bool) -> Ask {
    Ask {
        owner: owner(number),
        weight,
        capacity: CAPACITY,
        lease: Duration::from_secs(6),
        lock_delay: Duration::from_millis(if number == 1 { 1500 } else { 0 }),
        tokens: u32::from(number),
        wait,
        answer_within: Duration::from_secs(5),
        round: 1,
        holder: Arc::default(),
        value: Arc::default(),
        logged: number == 2,
    }
}

/// What a database would hold of one name.
#[derive(Default)]
struct Rows {
    row: Option<Vec<u8>>,
    floor: u64,
    queue: BTreeMap<u64, Waiter>,
}

impl Rows {
    /// What a query for the first `most` waiters and for the asker's row would find.
    fn read(&self, most: usize, asker: Option<OwnerId>) -> Snapshot {
        let row = |(place, waiter): (&u64, &Waiter)| (*place, waiter.clone());
        let own = |(_, waiter): &(&u64, &Waiter)| Some(waiter.owner) == asker;
        Snapshot {
            record: self.row.as_ref().map(|bytes| row::decode(bytes).expect("a row")),
            floor: if self.row.is_none() { self.floor } else { 0 },
            first: self.queue.iter().take(most).map(row).collect(),
            rest: if self.queue.len() < most { Rest::None } else { Rest::Unread },
            own: self.queue.iter().find(own).map(row),
        }
    }

    fn write<T>(&mut self, plan: &Plan<T>) {
        for (place, change) in &plan.queue {
            match change {
                QueueChange::Insert(waiter) => {
                    assert_eq!(self.queue.insert(*place, waiter.clone()), None, "a place is new");
                }
                QueueChange::Touch { owner, alive_until } => {
                    let waiter = self.queue.get_mut(place).expect("it was read");
                    assert_eq!(waiter.owner, *owner);
                    waiter.alive_until = *alive_until;
                }
                QueueChange::Delete { owner } => {
                    assert_eq!(self.queue.remove(place).expect("it was read").owner, *owner);
                }
            }
        }
        match &plan.row {
            RowChange::Unchanged => {}
            RowChange::Put(record) => self.row = Some(row::encode(record).expect("a row")),
            RowChange::Delete { floor } => {
                self.floor = self.floor.max(floor.unwrap_or(0));
                self.row = None;
            }
        }
    }
}

/// One name, kept twice.
struct Pair {
    name: Name,
    state: State,
    queue: MemoryQueue,
    floor: u64,
    rows: Rows,
    /// How many waiters are read at first.
    most: usize,
    now: Micros,
    dead: Vec<Seat>,
    /// How often more had to be read, and how often less than all was enough.
    again: u32,
    partial: u32,
}

impl Pair {
    fn new(most: usize) -> Pair {
        Pair {
            name: Name::new(Family::Lock, "x".repeat(100)).expect("a name"),
            state: State::new(0),
            queue: MemoryQueue::default(),
            floor: 0,
            rows: Rows::default(),
            most,
            now: 1_000_000_000,
            dead: Vec::new(),
            again: 0,
            partial: 0,
        }
    }

    fn run<R: Request>(&mut self, request: &R)
    where
        R::Answer: Debug,
    {
        let dead = self.dead.clone();
        let alive = |seat| !dead.contains(&seat);
        let world = World::at(self.now, &alive);
        let Ok(expected) = run(&mut self.state, &mut self.queue, world, request);
        let waiting = self.rows.queue.len();
        let mut most = self.most;
        let plan = loop {
            match plan(&self.name, 50, &self.rows.read(most, request.owner()), world, request) {
                Ok(plan) => break plan,
                Err(MoreWaiters) => {
                    assert!(most <= waiting, "all {waiting} waiters were read");
                    self.again += 1;
                    most += 1;
                }
            }
        };
        self.partial += u32::from(most < waiting);
        self.rows.write(&plan);

        assert_eq!(format!("{:?}", plan.answer), format!("{:?}", expected.answer));
        assert_eq!(plan.notices, expected.notices);
        assert_eq!(plan.changed, expected.changed);
        if let Keep::Forget { floor } = expected.keep {
            self.floor = self.floor.max(floor.unwrap_or(0));
            self.state = State::new(self.floor);
            self.queue = MemoryQueue::default();
        }
        assert!(self.rows.queue.values().eq(self.queue.iter()), "the same waiters in the same order");
        assert_eq!(self.rows.floor, self.floor);
        if let Some(bytes) = &self.rows.row {
            let record: Record = row::decode(bytes).expect("a row");
            assert_eq!(record.state, self.state);
            assert_eq!(record.text.as_deref(), Some(self.name.as_str()), "the key has a part of it");
        } else {
            assert_eq!(self.state, State::new(self.floor));
        }
    }

    fn happen(&mut self, event: &Event) {
        let sender = match *event {
            Event::Ask { number, .. }
            | Event::Release { number }
            | Event::Downgrade { number }
            | Event::Upgrade { number } => Seat::from(number),
            _ => 0,
        };
        // The dead send nothing.
        if self.dead.contains(&sender) {
            return;
        }
        match *event {
            Event::Ask { number, weight, wait } => {
                self.run(&Acquire { ask: Cow::Owned(ask(number, weight, wait)), seat: sender });
            }
            Event::Release { number } => self.run(&Release { owner: owner(number), used: 0 }),
            Event::Downgrade { number } => {
                let claims = self.state.claims(self.now);
                let token = claims.filter(|claim| claim.owner == owner(number)).map(|claim| claim.token);
                let alteration = Alteration::Downgrade { weight: 1, token: token.max().unwrap_or(0) };
                self.run(&Alter { owner: owner(number), alteration });
            }
            Event::Upgrade { number } => {
                self.run(&Alter { owner: owner(number), alteration: Alteration::Upgrade });
            }
            Event::Resize { capacity } => self.run(&Resize { declared: CAPACITY, capacity }),
            Event::Look => self.run(&Look { seen: 0 }),
            Event::Break => self.run(&Break),
            Event::Sweep => self.run(&Sweep),
            Event::Die { number } => self.dead.push(Seat::from(number)),
            Event::Pass { millis } => self.now += millis * 1000,
            Event::SetBack { millis } => self.now -= millis * 1000,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn few_rows_give_the_same_answers(most in 0..4usize, events in vec(event(), 1..120)) {
        let mut pair = Pair::new(most);
        for event in &events {
            pair.happen(event);
        }
    }
}

#[test]
fn most_requests_need_few_rows() {
    let mut pair = Pair::new(1);
    for number in 1..=OWNERS {
        pair.happen(&Event::Ask { number, weight: CAPACITY, wait: true });
    }
    // The last one asks again, the second one leaves, and the first one gives back.
    let (again, partial) = (pair.again, pair.partial);
    pair.happen(&Event::Ask { number: OWNERS, weight: CAPACITY, wait: true });
    pair.happen(&Event::Release { number: 5 });
    assert_eq!((pair.again, pair.partial), (again, partial + 2));
    // The next one is granted, which is known only when the one after it was looked at.
    pair.happen(&Event::Release { number: 1 });
    assert_eq!((pair.again, pair.partial), (again + 1, partial + 3));
}

#[test]
fn a_request_that_changes_nothing_writes_nothing() {
    let mut pair = Pair::new(2);
    pair.happen(&Event::Ask { number: 1, weight: CAPACITY, wait: false });
    let world = World::at(pair.now, &|_| true);
    let busy = Acquire { ask: Cow::Owned(ask(3, 1, false)), seat: 3 };
    let plan = plan(&pair.name, 50, &pair.rows.read(2, busy.owner()), world, &busy).expect("a plan");
    assert_eq!((plan.row, plan.queue.len()), (RowChange::Unchanged, 0));
}
