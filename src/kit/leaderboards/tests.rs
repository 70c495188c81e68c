//! A board over cells in memory beside a sorted set, on generated sequences, with leaves and nodes
//! that are so small that they split and merge all the time.

mod building;

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Ready, ready};

use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::board::Leaderboard;
use super::change::{Act, EVENTS};
use super::key::{Key, Order};
use super::ranked::{Incremented, RebuildEntry};
use super::rule::{Answer, Ask, Fan, Step};
use super::tree::{Building, Child, Head, Leaf, Member, Node, Part, Trash};
use crate::client::cell::TypedRule as _;
use crate::engine::Rule as _;

/// How many steps each of the worlds takes.
const STEPS: u32 = 16_000;

/// A source that has these entries whenever it is read.
fn source<I>(entries: I) -> impl FnOnce() -> Ready<crate::Result<I>> {
    move || ready(Ok(entries))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// What should be so.
#[derive(Default)]
struct Book {
    order: BTreeSet<Key>,
    members: BTreeMap<String, Key>,
    events: BTreeMap<String, Vec<u64>>,
}

impl Book {
    /// Notes a change. When a score was reached is what the store says, and later than before.
    async fn note(&mut self, board: &Leaderboard, member: &str, turned: Option<i64>) {
        let old = self.members.get(member).cloned();
        if old.as_ref().map(|old| old.turned) == turned {
            return;
        }
        if let Some(old) = &old {
            self.order.remove(old);
            self.members.remove(member);
        }
        if let Some(turned) = turned {
            let stored = stored(board, member).await.expect("a member");
            assert_eq!(stored.turned, turned);
            assert!(old.is_none_or(|old| old.reached <= stored.reached), "{stored:?}");
            let latest = self.order.iter().map(|key| key.reached).max().unwrap_or(0);
            assert!(stored.reached >= latest, "{stored:?} is before {latest}");
            let key = stored.key(member);
            self.order.insert(key.clone());
            self.members.insert(member.to_owned(), key);
        } else {
            self.events.remove(member);
        }
    }

    fn place(&self, member: &str) -> Option<u64> {
        let key = self.members.get(member)?;
        Some(self.order.iter().position(|other| other == key)? as u64 + 1)
    }

    fn page(&self, order: Order, from: usize, most: usize) -> Vec<(u64, String, i64)> {
        let all = self.order.iter().zip(1..).skip(from).take(most);
        all.map(|(key, place)| (place, key.member.clone(), order.turn(key.turned))).collect()
    }
}

async fn stored(board: &Leaderboard, member: &str) -> Option<Member> {
    let epoch = board.epoch().await.expect("an answer")?;
    board.see(epoch, Some(member), &[]).await.expect("an answer").member
}

/// The cells of a tree: what each has, by walking from the root. Panics if something does not fit.
async fn check_shape(board: &Leaderboard, book: &Book, strict: bool) {
    let inner = &board.client.inner;
    let all = inner.engine.list_cells("", None, usize::MAX).await.expect("a list");
    let head = board.see(0, None, &[]).await.expect("an answer").head;
    let Some(head) = head else {
        assert!(all.is_empty() && book.order.is_empty(), "{all:?}");
        return;
    };
    assert_eq!((&head.trash, head.building), (&vec![], None));
    let root = head.root.expect("a root");
    let mut keys = Vec::new();
    let mut parts = 0;
    // Cells to come, in reverse: their ids, levels, bounds and counts.
    let mut rest = vec![(root, head.height, Key::first(), None::<Key>, book.order.len() as u64)];
    while let Some((id, level, low, high, count)) = rest.pop() {
        parts += 1;
        let seen = board.see(head.epoch, None, &[id]).await.expect("an answer");
        match seen.part(id).expect("a part") {
            Part::Node(node) => {
                assert!(level > 0 && node.children.len() <= board.fan.node && node.count() == count);
                assert!(!strict || id != root || node.children.len() > 1, "a root with one child");
                let ends = node.children.iter().skip(1).map(|child| Some(child.low.clone())).chain([high]);
                let mut children: Vec<_> = node.children.iter().zip(ends).collect();
                assert!(children[0].0.low <= low || children[0].0.low == low);
                children.reverse();
                for (place, (child, end)) in children.into_iter().enumerate() {
                    let first = place + 1 == node.children.len();
                    let begin = if first { low.clone() } else { child.low.clone() };
                    rest.push((child.id, level - 1, begin, end, child.count));
                }
            }
            Part::Leaf(leaf) => {
                assert!(level == 0 && leaf.keys.len() as u64 == count && leaf.keys.len() <= board.fan.leaf);
                assert_eq!((&leaf.low, &leaf.high), (&low, &high));
                assert!(leaf.keys.iter().all(|key| leaf.covers(key)));
                assert!(!strict || id == root || !leaf.keys.is_empty(), "an empty leaf");
                keys.extend(leaf.keys);
            }
        }
    }
    assert_eq!(keys, book.order.iter().cloned().collect::<Vec<_>>());
    for (member, key) in &book.members {
        assert_eq!(stored(board, member).await.expect("a member").key(member), *key);
    }
    assert_eq!(all.len(), 1 + parts + keys.len(), "a cell is leaked or lost");
}

async fn compare(board: &Leaderboard, book: &Book, dice: &mut Dice) {
    let member = dice.below(40).to_string();
    let rank = board.rank(&member).await.expect("an answer");
    assert_eq!(rank.map(|rank| rank.place), book.place(&member), "the place of {member}");
    if let Some(rank) = rank {
        assert_eq!(rank.of, book.order.len() as u64);
        assert_eq!(rank.score, board.order.turn(book.members[&member].turned));
    }
    assert_eq!(board.get(&member).await.expect("an answer"), rank.map(|rank| rank.score));
    let shown = |list: Vec<super::Ranked>| -> Vec<(u64, String, i64)> {
        list.into_iter().map(|ranked| (ranked.place, ranked.member, ranked.score)).collect()
    };
    match dice.below(4) {
        0 => {
            let (from, most) = (dice.below(45), dice.below(30) as usize);
            let page = shown(board.page(from + 1, most).await.expect("an answer"));
            assert_eq!(page, book.page(board.order, from as usize, most));
        }
        1 => {
            let most = dice.below(20) as usize;
            let around = shown(board.around(&member, most).await.expect("an answer"));
            let expected = book.place(&member).map_or_else(Vec::new, |place| {
                let first = (place as usize - 1).saturating_sub(most);
                book.page(board.order, first, place as usize - first + most)
            });
            assert_eq!(around, expected, "around {member}");
        }
        2 => assert_eq!(board.count().await.expect("an answer"), book.order.len() as u64),
        _ => assert_eq!(shown(board.top(5).await.expect("an answer")), book.page(board.order, 0, 5)),
    }
}

/// One change, by one of several handles.
async fn step(board: &Leaderboard, book: &mut Book, dice: &mut Dice, shrinks: bool) {
    let member = dice.below(40).to_string();
    let score = dice.below(12) as i64 - 6;
    let before = book.members.get(&member).map(|key| board.order.turn(key.turned));
    let turn = |score: i64| Some(board.order.turn(score));
    match dice.below(if shrinks { 14 } else { 9 }) {
        0..3 => {
            assert_eq!(board.set(&member, score).await.expect("set"), before);
            book.note(board, &member, turn(score)).await;
        }
        3..5 => {
            let better = before.is_none_or(|before| board.order.turn(score) < board.order.turn(before));
            assert_eq!(board.best(&member, score).await.expect("set"), better);
            if better {
                book.note(board, &member, turn(score)).await;
            }
        }
        5..7 => {
            let now = before.unwrap_or(0) + score;
            assert_eq!(board.increment(&member, score).await.expect("added"), now);
            book.note(board, &member, turn(now)).await;
        }
        7 => {
            let event = dice.below(30);
            let events = book.events.entry(member.clone()).or_default();
            let repeated = events.iter().rev().take(EVENTS).any(|other| *other == event);
            let now = before.unwrap_or(0) + if repeated { 0 } else { score };
            let expected = if repeated { Incremented::Repeated(now) } else { Incremented::Yes(now) };
            if !repeated {
                events.push(event);
            }
            let added = board.increment_once(&member, score, event.to_be_bytes()).await.expect("added");
            assert_eq!(added, expected);
            book.note(board, &member, turn(now)).await;
        }
        _ => {
            assert_eq!(board.remove(&member).await.expect("removed"), before);
            book.note(board, &member, None).await;
            book.events.remove(&member);
        }
    }
}

fn world(seed: u64, fan: Fan, order: Order, handles: usize) {
    runtime().block_on(async {
        let client = crate::connect("memory:").await.expect("a client");
        let boards: Vec<Leaderboard> = (0..handles)
            .map(|_| Leaderboard { fan, order, ..client.leaderboard("x").expect("a name") })
            .collect();
        let (mut book, mut dice) = (Book::default(), Dice(seed));
        for number in 0..STEPS {
            let board = &boards[dice.below(handles as u64) as usize];
            // It grows and shrinks in turn.
            step(board, &mut book, &mut dice, number / 400 % 2 == 1).await;
            compare(board, &book, &mut dice).await;
            if number % 50 == 0 {
                // With several handles a hint may be wrong, and a thin leaf stay for a while.
                check_shape(board, &book, handles == 1).await;
            }
        }
        boards[0].delete().await.expect("deleted");
        check_shape(&boards[0], &Book::default(), true).await;
    });
}

#[test]
fn a_board_is_a_sorted_set() {
    world(1, Fan { leaf: 2, node: 4 }, Order::HigherFirst, 1);
    world(2, Fan { leaf: 3, node: 4 }, Order::LowerFirst, 1);
    world(3, Fan { leaf: 4, node: 4 }, Order::HigherFirst, 1);
    world(4, Fan { leaf: 4, node: 5 }, Order::HigherFirst, 1);
}

/// What one handle remembers is made wrong by the others all the time.
#[test]
fn hints_are_never_trusted() {
    world(5, Fan { leaf: 3, node: 4 }, Order::HigherFirst, 2);
    world(6, Fan { leaf: 4, node: 4 }, Order::LowerFirst, 3);
    world(7, Fan { leaf: 2, node: 5 }, Order::HigherFirst, 2);
}

#[test]
fn a_rebuilt_board_has_the_right_shape() {
    runtime().block_on(async {
        let client = crate::connect("memory:").await.expect("a client");
        for (leaf, count) in [(4, 0_u64), (4, 1), (4, 3), (4, 4), (4, 300), (8, 1000), (128, 20_000)] {
            let fan = Fan { leaf, node: leaf };
            let board = Leaderboard { fan, ..client.leaderboard("x").expect("a name") };
            let entries = |count: u64| {
                // Three of each score, in the order of their names.
                (0..count).map(move |number| {
                    RebuildEntry::new(
                        format!("{number:06}"),
                        1_000_000 - i64::try_from(number / 3).expect("small"),
                    )
                })
            };
            assert_eq!(board.rebuild(source(entries(count))).await.expect("built"), count);
            let mut book = Book::default();
            for entry in entries(count) {
                book.note(&board, &entry.member, Some(board.order.turn(entry.score))).await;
            }
            check_shape(&board, &book, true).await;
            // It can be changed like any other.
            board.set("new", 1_000_000).await.expect("set");
            book.note(&board, "new", Some(!1_000_000)).await;
            if count > 3 {
                board.remove("000001").await.expect("removed");
                book.note(&board, "000001", None).await;
            }
            check_shape(&board, &book, true).await;
        }
    });
}

#[test]
fn a_rebuild_that_is_given_up_leaves_nothing() {
    runtime().block_on(async {
        let client = crate::connect("memory:").await.expect("a client");
        let board = Leaderboard { fan: Fan { leaf: 4, node: 4 }, ..client.leaderboard("x").expect("a name") };
        board.set("old", 1).await.expect("set");
        let entry = |number: i64| RebuildEntry::new(format!("{number:03}"), -number);
        let wrong = (0..100).map(entry).chain([entry(50)]);
        let error = board.rebuild(source(wrong)).await.expect_err("not in order").to_string();
        assert!(error.contains("`050` does not come after `099`"), "{error}");
        let twice = (0..100).map(entry).chain([RebuildEntry::new("050", -1000)]);
        let error = board.rebuild_when_free(twice).await.expect_err("twice").to_string();
        assert!(error.contains("`050` is there twice"), "{error}");
        let mut book = Book::default();
        // It waits until the unfinished one is given up.
        board.set("new", 2).await.expect("set");
        book.note(&board, "old", Some(!1)).await;
        book.note(&board, "new", Some(!2)).await;
        for _ in 0..200 {
            let head = board.see(0, None, &[]).await.expect("an answer").head.expect("a head");
            if head.trash.is_empty() {
                return check_shape(&board, &book, true).await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("it is not deleted");
    });
}

impl Leaderboard {
    async fn rebuild_when_free(
        &self,
        entries: impl Iterator<Item = RebuildEntry> + Clone,
    ) -> crate::Result<u64> {
        loop {
            match self.rebuild(source(entries.clone())).await {
                Err(crate::Error::Unavailable { .. }) => tokio::task::yield_now().await,
                other => return other,
            }
        }
    }
}

fn key(turned: i64, reached: u64, member: &str) -> Key {
    Key { turned, reached, member: member.to_owned() }
}

/// Stores keep these: they never change.
#[test]
fn what_is_stored_is_pinned() {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let head = Head {
        epoch: 1,
        order: Order::LowerFirst,
        until: Some(2),
        root: Some(3),
        height: 4,
        building: Some(Building { epoch: 5, deadline: 6, reserved: 7 }),
        trash: vec![
            Trash::Tree { epoch: 8, root: 9, height: 1 },
            Trash::Unfinished { epoch: 10, reserved: 300 },
        ],
    };
    let pinned = "a10000000000000001010100000000000000020100000000000000030401000000000000000506070000000000000000\
                  0800000000000000090101000000000000000aac02";
    assert_eq!(hex(head.encode()), pinned);
    assert_eq!(Head::decode(&head.encode()), Some(head));
    let node = Part::Node(Node { children: vec![Child { low: key(-1, 300, "a"), id: 2, count: 3 }] });
    assert_eq!(hex(node.encode()), "a2ffffffffffffffffac020161000000000000000203");
    let leaf = Part::Leaf(Leaf { low: Key::first(), high: Some(key(1, 0, "")), keys: vec![key(0, 1, "b")] });
    let pinned = "a3800000000000000000000100000000000000010000000000000000000001".to_owned() + "0162";
    assert_eq!(hex(leaf.encode()), pinned);
    let member = Member { turned: !5, reached: 6, events: vec![vec![7], vec![]] };
    assert_eq!(hex(member.encode()), "a4fffffffffffffffa06010700");
    for part in [node, leaf] {
        assert_eq!(Part::decode(&part.encode()), Some(part));
    }
    assert_eq!(Member::decode(&member.encode()), Some(member));
}

#[test]
fn all_scores_have_a_place() {
    for order in [Order::HigherFirst, Order::LowerFirst] {
        for score in [i64::MIN, -1, 0, 1, i64::MAX] {
            assert_eq!(order.turn(order.turn(score)), score);
            assert!(Key::first() <= key(order.turn(score), 0, ""));
        }
    }
    assert!(Order::HigherFirst.turn(i64::MAX) < Order::HigherFirst.turn(i64::MIN));
}

proptest! {
    #[test]
    fn a_separator_separates(a in (0..3_i64, 0..3_u64, "[ab]{0,2}"), b in (0..3_i64, 0..3_u64, "[ab]{0,2}")) {
        let (a, b) = (key(a.0, a.1, &a.2), key(b.0, b.1, &b.2));
        if a < b {
            let between = Key::between(&a, &b);
            prop_assert!(a < between && between <= b, "{between:?}");
        }
    }

    #[test]
    fn bytes_of_something_else_are_none_of_ours(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let (order, fan) = (Order::HigherFirst, Fan { leaf: 4, node: 4 });
        let ask = Ask::Change { member: "a".into(), act: Act::Set(1) };
        let step = Step { order, until: None, fan, epoch: 1, ids: vec![7], ask };
        if Head::decode(&bytes).is_none() {
            let decision = step.step(&[Some(&bytes), None, None], 5);
            prop_assert_eq!(step.read(&decision.answer), Some(Answer::Foreign));
            prop_assert_eq!(decision.writes, vec![]);
        }
        if let Some(part) = Part::decode(&bytes) {
            prop_assert!(Part::decode(&part.encode()) == Some(part));
        }
    }
}

/// Counted as a split, it would be one more than there were.
#[test]
fn what_somebody_else_has_split_is_not_split_again() {
    let (order, fan) = (Order::HigherFirst, Fan { leaf: 4, node: 4 });
    let root = Some(5);
    let head = Head { epoch: 1, order, until: None, root, height: 0, building: None, trash: Vec::new() };
    let leaf = Part::Leaf(Leaf { low: Key::first(), high: None, keys: Vec::new() });
    let ask = Ask::Split { id: 5, new: 6, root: 7 };
    let step = Step { order, until: None, fan, epoch: 1, ids: vec![5, 6, 7], ask };
    let decision = step.step(&[Some(&head.encode()), Some(&leaf.encode()), None, None], 5);
    assert_eq!(decision.writes, vec![]);
    assert!(matches!(step.read(&decision.answer), Some(Answer::Astray { .. })));
}
