//! The rules of sessions on generated sequences, over a store of cells in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::id::{Handle, SessionId};
use super::record::{Entry, Index, Record, decode_epoch};
use super::rule::{Answer, Ask, Lifetimes, Step};
use crate::claim::Micros;
use crate::client::cell::TypedRule as _;
use crate::engine::{Rule as _, Write};

const LIFETIMES: Lifetimes =
    Lifetimes { idle: Duration::from_micros(1000), whole: Duration::from_micros(5000) };

/// Cells with expiry, as an engine keeps them: 0 is the epoch, 1 the index, the rest are sessions.
#[derive(Default)]
struct Store {
    now: Micros,
    cells: BTreeMap<u128, (Vec<u8>, Micros)>,
}

impl Store {
    fn ask(&mut self, cells: &[u128], ask: Ask) -> Answer {
        let now = self.now;
        self.cells.retain(|_, (_, until)| *until > now);
        let step = Step { ask, lifetimes: LIFETIMES };
        let values: Vec<Option<&[u8]>> =
            cells.iter().map(|cell| self.cells.get(cell).map(|(bytes, _)| bytes.as_slice())).collect();
        let decision = step.step(&values, now);
        for (cell, write) in cells.iter().zip(decision.writes) {
            match write {
                Write::Keep => {}
                Write::Delete => drop(self.cells.remove(cell)),
                Write::Put(put) => {
                    let until = now + u64::try_from(put.lives.as_micros()).expect("short");
                    self.cells.insert(*cell, (put.bytes, until));
                }
            }
        }
        step.read(&decision.answer).expect("an answer")
    }

    fn create(&mut self, handle: u128, epoch: u64, most: usize) -> Answer {
        let (user, data) = (Some("ada".to_owned()), handle.to_be_bytes().to_vec());
        self.ask(&[0, 1, handle], Ask::Create { handle: Handle(handle), user, data, epoch, most })
    }
}

#[derive(Clone, Debug)]
enum Act {
    Create,
    Load(usize),
    Save(usize),
    Slide(usize),
    End(usize),
    EndAll,
    Sweep(usize),
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Create),
        4 => (0..40usize).prop_map(Act::Load),
        2 => (0..40usize).prop_map(Act::Save),
        3 => (0..40usize).prop_map(Act::Slide),
        2 => (0..40usize).prop_map(Act::End),
        1 => Just(Act::EndAll),
        2 => (0..5usize).prop_map(Act::Sweep),
        3 => (1..600u64).prop_map(Act::Pass),
    ]
}

proptest! {
    /// A session is valid from its creation until it was ended, alone or with all others, or is
    /// over; what is valid is listed; and when nothing is valid and all was swept, no cell is left.
    #[test]
    fn what_was_ended_stays_ended_and_what_is_valid_is_listed(
        acts in proptest::collection::vec(act(), 1..200)
    ) {
        let mut store = Store { now: 1_000_000, ..Store::default() };
        // Handles, and until when each is valid at the least.
        let mut valid: BTreeMap<u128, Micros> = BTreeMap::new();
        let mut ended: BTreeSet<u128> = BTreeSet::new();
        let mut made: Vec<u128> = vec![];
        for (number, act) in acts.into_iter().enumerate() {
            let pick = |index: usize| made.get(index % made.len().max(1)).copied().unwrap_or(2);
            match act {
                Act::Create => {
                    let handle = 100 + number as u128;
                    let answer = store.create(handle, 7 + number as u64, 1000);
                    let Answer::Found { record, .. } = answer else { panic!("{answer:?}") };
                    valid.insert(handle, record.until);
                    made.push(handle);
                }
                Act::Load(index) => {
                    let handle = pick(index);
                    let found = matches!(store.ask(&[0, handle], Ask::Load), Answer::Found { .. });
                    prop_assert_eq!(found, valid.get(&handle).is_some_and(|until| *until > store.now));
                }
                Act::Save(index) => {
                    let handle = pick(index);
                    if let Answer::Found { record, .. } = store.ask(&[0, handle], Ask::Load) {
                        let save = Ask::Save { version: record.version, data: record.data.clone() };
                        let again = Ask::Save { version: record.version, data: vec![] };
                        let saved = store.ask(&[0, handle], save);
                        prop_assert!(matches!(saved, Answer::Found { .. }), "{:?}", saved);
                        let again = store.ask(&[0, handle], again);
                        prop_assert!(matches!(again, Answer::Changed { .. }), "{:?}", again);
                    } else {
                        let save = Ask::Save { version: 1, data: vec![] };
                        prop_assert_eq!(store.ask(&[0, handle], save), Answer::None);
                    }
                }
                Act::Slide(index) => {
                    let handle = pick(index);
                    let answer = store.ask(&[0, 1, handle], Ask::Slide { handle: Handle(handle) });
                    if let Answer::Found { record, .. } = answer {
                        let until = valid.get_mut(&handle).expect("only what is valid is used");
                        prop_assert!(record.until >= *until && record.until <= record.born + 5000);
                        *until = record.until;
                    }
                }
                Act::End(index) => {
                    let handle = pick(index);
                    let was = valid.remove(&handle).is_some_and(|until| until > store.now);
                    let answer = store.ask(&[0, 1, handle], Ask::End { handle: Handle(handle) });
                    prop_assert_eq!(answer, Answer::Ended { count: u64::from(was), left: vec![] });
                    ended.insert(handle);
                }
                Act::EndAll => {
                    let live = valid.values().filter(|until| **until > store.now).count();
                    let answer = store.ask(&[0, 1], Ask::EndAll);
                    let Answer::Ended { count, .. } = answer else { panic!("{answer:?}") };
                    prop_assert_eq!(count, live as u64);
                    ended.extend(valid.keys());
                    valid.clear();
                }
                Act::Sweep(most) => drop(sweep(&mut store, most)),
                Act::Pass(time) => store.now += time,
            }
            for handle in &ended {
                prop_assert_eq!(store.ask(&[0, *handle], Ask::Load), Answer::None);
            }
            let listed = store.ask(&[0, 1], Ask::List);
            let Answer::Listed { index, now } = listed else { panic!("{listed:?}") };
            let listed: BTreeSet<u128> = index.0.iter().map(|entry| entry.handle.0).collect();
            let live = valid.iter().filter(|(_, until)| **until > now).map(|(handle, _)| *handle);
            prop_assert_eq!(listed, live.collect::<BTreeSet<_>>());
        }
        store.ask(&[0, 1], Ask::EndAll);
        while sweep(&mut store, 14) > 0 {}
        let now = store.now;
        store.cells.retain(|_, (_, until)| *until > now);
        prop_assert!(store.cells.is_empty(), "{:?}", store.cells.keys());
    }

    #[test]
    fn bytes_of_something_else_are_none_of_ours(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Some(record) = Record::decode(&bytes) {
            prop_assert_eq!(Record::decode(&record.encode()), Some(record));
        } else {
            let step = Step { ask: Ask::Load, lifetimes: LIFETIMES };
            let decision = step.step(&[None, Some(&bytes)], 5);
            prop_assert_eq!(step.read(&decision.answer), Some(Answer::Foreign));
        }
        if let Some(index) = Index::decode(&bytes) {
            prop_assert_eq!(index.encode(), bytes);
        }
    }
}

/// Deletes some of what is left; how much is left then.
fn sweep(store: &mut Store, most: usize) -> usize {
    let Answer::Swept { mut left, .. } = store.ask(&[0, 1], Ask::Sweep { handles: vec![] }) else {
        panic!("swept");
    };
    left.truncate(most);
    let cells: Vec<u128> = [0, 1].into_iter().chain(left.iter().map(|handle| handle.0)).collect();
    match store.ask(&cells, Ask::Sweep { handles: left }) {
        Answer::Swept { left, .. } => left.len(),
        other => panic!("{other:?}"),
    }
}

/// Stores keep these: they never change.
#[test]
fn what_is_stored_is_pinned() {
    let record = Record {
        epoch: 1,
        version: 2,
        born: 3,
        seen: 4,
        until: 5,
        user: Some("ada".to_owned()),
        data: vec![9],
    };
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let pinned = "83000000000000000100000000000000020000000000000300000000000004000000000000050461646109";
    assert_eq!(hex(record.encode()), pinned);
    assert_eq!(Record::decode(&record.encode()), Some(record));
    let entry = Entry { handle: Handle(1), epoch: 2, born: 3, seen: 4, until: 5 };
    let pinned = "820000000000000000000000000000000100000000000000020000000000000300000000000004\
                  00000000000005";
    assert_eq!(hex(Index(vec![entry]).encode()), pinned);
    assert_eq!(decode_epoch(&super::record::encode_epoch(7)), Some(7));
}

#[test]
fn an_id_is_never_shown_by_accident() {
    let id = SessionId::random(Some("ada")).expect("random");
    let text = id.expose();
    assert_eq!(text.len(), 64);
    assert_eq!(text.parse::<SessionId>().expect("an id"), id);
    assert_eq!(format!("{id:?}"), "SessionId(…)");
    assert!(!format!("{:?}", id.key()).contains(&text[32..]));
    for wrong in ["", "x", &text[1..], &format!("+{}", &text[1..]), &format!("{text}0")] {
        let error = wrong.parse::<SessionId>().expect_err("no id");
        assert!(wrong.len() < 10 || !error.to_string().contains(wrong));
    }
    // The same user, another session.
    let other = SessionId::random(Some("ada")).expect("random").expose();
    assert_eq!(text[..32], other[..32]);
    assert_ne!(text[32..], other[32..]);
}

#[test]
fn a_user_with_too_many_is_refused_until_some_are_over() {
    let mut store = Store { now: 1_000_000, ..Store::default() };
    for handle in [100, 101] {
        assert!(matches!(store.create(handle, 1, 2), Answer::Found { .. }));
    }
    assert_eq!(store.create(102, 1, 2), Answer::TooMany);
    store.now += 1000;
    assert!(matches!(store.create(102, 1, 2), Answer::Found { .. }));
}
