//! The rules on generated sequences.

mod cases;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::bucket::{Bucket, Record, ReservationId, State, units_of_buyer};
use super::head::{Head, Layout};
use super::heads::{self, Ask, Fill, Heads, Swept};
use super::reserve::{Part, Reserve, Reserved};
use super::settle::{Event, Settle, Settled};
use super::terms::{MOST_SHARDS, Terms};
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::Write;

const START: Micros = 1_700_000_000_000_000;
const SECOND: Micros = 1_000_000;

/// The cells of a sale, and the time.
struct World {
    cells: BTreeMap<String, Vec<u8>>,
    /// When a cell would be gone.
    ends: BTreeMap<String, Micros>,
    now: Micros,
    terms: Terms,
    /// Units that the database did not have.
    lost: u32,
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn head(shard: u8) -> String {
    format!("head/{shard}")
}

fn bucket(shard: u8, number: u16) -> String {
    format!("bucket/{shard}/{number}")
}

fn buyer(name: &str) -> String {
    format!("buyer/{name}")
}

impl World {
    fn new(terms: Terms) -> World {
        let (cells, ends) = (BTreeMap::new(), BTreeMap::new());
        let mut world = World { cells, ends, now: START, terms: terms.clone(), lost: 0 };
        assert_eq!(world.heads(Ask::Open(terms)), heads::Answer::Yes);
        world
    }

    fn apply<R: TypedRule>(&mut self, names: &[String], rule: &R) -> R::Answer {
        let values: Vec<Option<&[u8]>> =
            names.iter().map(|name| self.cells.get(name).map(Vec::as_slice)).collect();
        let decision = rule.step(&values, self.now);
        for (name, write) in names.iter().zip(decision.writes) {
            match write {
                Write::Keep => {}
                Write::Delete => {
                    self.cells.remove(name);
                    self.ends.remove(name);
                }
                Write::Put(put) => {
                    assert!(put.lives > Duration::ZERO, "{rule:?} writes what is gone at once");
                    self.cells.insert(name.clone(), put.bytes);
                    let lives = Micros::try_from(put.lives.as_micros()).expect("a time");
                    self.ends.insert(name.clone(), self.now + lives);
                }
            }
        }
        rule.read(&decision.answer).expect("an answer")
    }

    fn heads(&mut self, ask: Ask) -> heads::Answer {
        let names: Vec<_> = (0..MOST_SHARDS).map(head).collect();
        self.apply(&names, &Heads { ask })
    }

    fn layout(&self) -> Layout {
        self.head(0).layout
    }

    fn head(&self, shard: u8) -> Head {
        Head::decode(&self.cells[&head(shard)]).expect("a head")
    }

    fn bucket(&self, shard: u8, number: u16) -> Bucket {
        let cell = self.cells.get(&bucket(shard, number)).map(Vec::as_slice);
        Bucket::of(self.layout().epoch, cell).expect("a bucket")
    }

    fn records(&self) -> Vec<Record> {
        let Layout { shards, buckets, .. } = self.layout();
        let places = (0..shards).flat_map(|shard| (0..buckets).map(move |number| (shard, number)));
        places.flat_map(|(shard, number)| self.bucket(shard, number).records).collect()
    }

    /// The step of some who ask together.
    fn take(&mut self, shard: u8, rule: &Reserve) -> Vec<Reserved> {
        let parts = rule.parts().iter().map(|part| match part {
            Part::Buyer(name) => buyer(name),
            Part::Bucket(number) => bucket(shard, *number),
        });
        let names: Vec<_> = std::iter::once(head(shard)).chain(parts).collect();
        self.apply(&names, rule)
    }

    fn reserve(&mut self, name: &str, quantity: u32, number: u128) -> Reserved {
        let mut rule = Reserve::of(self.layout());
        assert!(rule.add(ReservationId(number), name, quantity));
        self.take(self.layout().place(number).0, &rule).remove(0)
    }

    fn gather(&mut self, home: u8, quantity: u32) -> heads::Answer {
        let Layout { epoch, shards, .. } = self.layout();
        let names: Vec<_> = (0..shards).map(head).collect();
        self.apply(&names, &Heads { ask: Ask::Gather { epoch, home, quantity } })
    }

    /// Reserves as callers do: other shards are asked before it is sold out.
    fn buy(&mut self, name: &str, quantity: u32, number: u128) -> Reserved {
        match self.reserve(name, quantity, number) {
            Reserved::TooFew { .. } => match self.gather(self.layout().place(number).0, quantity) {
                heads::Answer::Yes => self.reserve(name, quantity, number),
                heads::Answer::TooFew(left) => Reserved::TooFew { left },
                other => panic!("{other:?}"),
            },
            answer => answer,
        }
    }

    fn settle(&mut self, number: u128, event: Event) -> Option<(State, bool)> {
        let layout = self.layout();
        let (shard, place) = layout.place(number);
        let record = self.bucket(shard, place).records.into_iter().find(|record| record.number == number);
        let buyers: Vec<_> = record.iter().map(|record| record.buyer.clone()).collect();
        let names: Vec<_> = [head(shard), bucket(shard, place)]
            .into_iter()
            .chain(buyers.iter().map(|name| buyer(name)))
            .collect();
        let rule = Settle { epoch: layout.epoch, bucket: place, buyers, events: vec![(number, event)] };
        let Settled::Now(states) = self.apply(&names, &rule) else { panic!("{event:?}") };
        if let (Event::NoStock, Some((State::Refused, true))) = (event, states[0]) {
            self.lost += record.expect("it was there").quantity;
        }
        states[0]
    }

    /// What must hold whatever has happened.
    fn check(&self) {
        let Layout { epoch, shards, buckets } = self.layout();
        let (mut stock, mut owned) = (0, HashMap::<String, u32>::new());
        for shard in 0..shards {
            let head = self.head(shard);
            assert_eq!(u64::from(head.stock), u64::from(head.available) + head.units.sum(), "{head:?}");
            assert_eq!(head.taken, head.units.sum() + head.returned, "{head:?}");
            stock += head.stock;
            let mut units = [0; 8];
            for number in 0..buckets {
                let bucket = self.bucket(shard, number);
                assert_eq!(head.is_pending(number), bucket.is_pending(), "{head:?} {bucket:?}");
                for record in bucket.records {
                    assert_eq!(self.layout().place(record.number), (shard, number));
                    units[usize::from(record.state.byte())] += record.quantity;
                    if !record.state.has_ended() {
                        *owned.entry(record.buyer).or_default() += record.quantity;
                        assert!(
                            !matches!(record.state, State::Reserved | State::Ordered)
                                || record.deadline >= head.due,
                            "due before anybody looks"
                        );
                    }
                }
            }
            let of = |state: State| units[usize::from(state.byte())];
            let expected = [
                (head.units.reserved, of(State::Reserved)),
                (head.units.ordered, of(State::Ordered)),
                (head.units.paid, of(State::Paid)),
                (head.units.expiring, of(State::Expiring)),
                (head.units.dead, of(State::DeadPlacing) + of(State::DeadExpiring)),
            ];
            assert!(expected.iter().all(|(counted, there)| counted == there), "{head:?} {units:?}");
        }
        assert_eq!(stock + self.lost, self.terms.stock, "units were made or lost");
        for (name, cell) in &self.cells {
            if let Some(name) = name.strip_prefix("buyer/") {
                let units = units_of_buyer(epoch, Some(cell)).expect("a buyer");
                assert_eq!(units, owned.remove(name).unwrap_or(0), "{name}");
                assert!(units <= self.terms.limit, "{name} has {units}");
            }
        }
        assert!(owned.is_empty(), "{owned:?} are nobody's");
        let of_heads = |is_head: bool| {
            let ends = self.ends.iter().filter(move |(name, _)| name.starts_with("head/") == is_head);
            ends.map(|(_, ends)| *ends)
        };
        assert!(of_heads(false).max() < of_heads(true).min(), "a cell outlives its head");
    }

    /// What a worker does that looks for what is due.
    fn sweep(&mut self) {
        let Layout { epoch, shards, buckets } = self.layout();
        for shard in 0..shards {
            let pay_within = self.head(shard).pay_within;
            let mut due = self.now + pay_within;
            for number in 0..buckets {
                for record in self.bucket(shard, number).records {
                    if matches!(record.state, State::Reserved | State::Ordered)
                        && self.settle(record.number, Event::Expire) != Some((State::Expiring, true))
                    {
                        due = due.min(record.deadline);
                    }
                }
            }
            self.apply(&[head(shard)], &Swept { epoch, due });
        }
    }
}

fn event(dice: &mut Dice) -> Event {
    match dice.roll(14) {
        0..3 => Event::Placed,
        3 => Event::Refused,
        4 => Event::NoStock,
        5..7 => Event::Pay,
        7 => Event::Expire,
        8 => Event::Cancel,
        9..11 => Event::Expired,
        11 => Event::PaidBefore,
        12 => Event::Failed { most: 2 },
        _ => Event::Retry,
    }
}

#[test]
fn units_are_never_made_or_lost() {
    let sequences = std::env::var("LEASEHOLD_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..sequences.unwrap_or(150) {
        let mut dice = Dice(seed);
        let shards = [1, 1, 2, 5, MOST_SHARDS][dice.roll(5) as usize];
        let stock = [0, 1, 7, 40, 300][dice.roll(5) as usize];
        let terms = Terms::new(stock)
            .shards(shards)
            .limit(1 + dice.roll(4) as u32)
            .pay_within(Duration::from_secs(2))
            .opens_in(Duration::from_secs(dice.roll(2)))
            .open_for(Duration::from_secs(15));
        let mut world = World::new(terms);
        let mut numbers = Vec::new();
        for _ in 0..250 {
            world.now += [0, 1, 1000, SECOND / 3][dice.roll(4) as usize];
            match dice.roll(20) {
                0..10 => {
                    let again = !numbers.is_empty() && dice.roll(5) == 0;
                    let (number, name, quantity) = if again {
                        numbers[dice.roll(numbers.len() as u64) as usize]
                    } else {
                        (u128::from(dice.roll(1 << 31)) << 64 | u128::from(dice.roll(1 << 31)), 0, 0)
                    };
                    let (name, quantity) = if again && dice.roll(9) > 0 {
                        (name, quantity)
                    } else {
                        (dice.roll(30), 1 + dice.roll(3) as u32)
                    };
                    let before = world.cells.clone();
                    let known = world.records().into_iter().find(|record| record.number == number);
                    let answer = world.buy(&format!("buyer{name}"), quantity, number);
                    let left: u32 = (0..shards).map(|shard| world.head(shard).available).sum();
                    match (&answer, &known) {
                        (Reserved::There { state, .. }, Some(record)) => {
                            assert_eq!((*state, &before), (record.state, &world.cells), "taken twice");
                        }
                        (Reserved::There { state, .. }, None) => {
                            assert_eq!(*state, State::Reserved);
                            numbers.push((number, name, quantity));
                        }
                        (Reserved::TooFew { left: said }, None) => {
                            assert!(left < quantity && *said == left, "not sold out: {left}");
                        }
                        (Reserved::Mismatch, Some(_)) => assert_eq!(before, world.cells),
                        (Reserved::Over | Reserved::NotOpen { .. } | Reserved::LimitReached { .. }, None) => {
                            assert_eq!(before, world.cells, "taken although refused");
                        }
                        other => panic!("{other:?}"),
                    }
                    *seen
                        .entry(format!("{answer:?}").split([' ', '(']).next().unwrap_or("").into())
                        .or_default() += 1;
                }
                10..19 => {
                    if let Some(count) = std::num::NonZero::new(numbers.len()) {
                        let (number, ..) = numbers[dice.roll(count.get() as u64) as usize];
                        let event = event(&mut dice);
                        let before = world.records().into_iter().find(|record| record.number == number);
                        let after = world.settle(number, event);
                        if let (Some(record), Some((state, true))) = (before, after) {
                            *seen.entry(format!("{:?} to {state:?}", record.state)).or_default() += 1;
                        }
                    }
                }
                _ => world.sweep(),
            }
            world.check();
        }
    }
    eprintln!("{seen:?}");
    for what in [
        "There",
        "TooFew",
        "LimitReached",
        "NotOpen",
        "Over",
        "Mismatch",
        "Reserved to Ordered",
        "Reserved to Refused",
        "Reserved to Expiring",
        "Reserved to DeadPlacing",
        "Ordered to Paid",
        "Ordered to Expiring",
        "Expiring to Released",
        "Expiring to Paid",
        "Expiring to DeadExpiring",
        "DeadPlacing to Reserved",
        "DeadExpiring to Expiring",
    ] {
        assert!(seen.contains_key(what), "never happened: {what}");
    }
}

#[test]
fn who_asks_with_others_is_answered_as_if_alone() {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let stock = [0, 3, 12, 60][dice.roll(4) as usize];
        let terms = Terms::new(stock)
            .limit(1 + dice.roll(4) as u32)
            .opens_in(Duration::from_secs(dice.roll(2)))
            .open_for(Duration::from_secs(3));
        let mut world = World::new(terms);
        for _ in 0..20 {
            world.now += [0, 1, SECOND / 3][dice.roll(3) as usize];
            let mut rule = Reserve::of(world.layout());
            let (cells, ends) = (world.cells.clone(), world.ends.clone());
            let mut alone = World { cells, ends, terms: world.terms.clone(), ..world };
            let mut one_by_one = Vec::new();
            // Few numbers and buyers, so that some come twice, also in one step.
            for _ in 0..=dice.roll(20) {
                let (number, name) = (dice.roll(40).into(), format!("buyer{}", dice.roll(16)));
                let quantity = 1 + dice.roll(3) as u32;
                if !rule.add(ReservationId(number), &name, quantity) {
                    *seen.entry("no room".into()).or_default() += 1;
                    break;
                }
                one_by_one.push(alone.reserve(&name, quantity, number));
            }
            let together = world.take(0, &rule);
            assert_eq!(together, one_by_one, "{rule:?}");
            assert_eq!(world.cells, alone.cells, "{rule:?}");
            world.check();
            for answer in together {
                let word = format!("{answer:?}");
                *seen.entry(word.split([' ', '(']).next().unwrap_or("").into()).or_default() += 1;
            }
        }
    }
    eprintln!("{seen:?}");
    for what in ["There", "TooFew", "LimitReached", "NotOpen", "Over", "Mismatch", "no room"] {
        assert!(seen.contains_key(what), "never happened: {what}");
    }
}
