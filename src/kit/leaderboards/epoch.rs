//! Steps over the head alone: a board is replaced by another one, or deleted.

use std::time::Duration;

use super::rule::{Answer, Ask, Draft, FOR_EVER, Step, lives};
use super::seen::Seen;
use super::tree::{Building, Head, Trash};
use crate::claim::Micros;

/// Whoever builds a board must say that it goes on within this time, in microseconds.
const PATIENCE: Micros = 60_000_000;

impl Head {
    /// What is to be deleted, with what somebody has begun to build.
    pub(super) fn all_trash(&self) -> Vec<Trash> {
        let unfinished =
            self.building.map(|Building { epoch, reserved, .. }| Trash::Unfinished { epoch, reserved });
        self.trash.iter().copied().chain(unfinished).collect()
    }

    /// The same after whoever was building has given up, or is taken for gone.
    pub(super) fn without_builder(&self) -> Head {
        Head { building: None, trash: self.all_trash(), ..self.clone() }
    }
}

impl Building {
    /// When whoever builds has last said that it goes on.
    pub(super) fn signed_at(self) -> Micros {
        self.deadline.saturating_sub(PATIENCE)
    }
}

impl Step {
    pub(super) fn turn_epoch(&self, seen: Seen, draft: &mut Draft<'_>, ask: &Ask) -> Answer {
        let now = seen.now;
        let is_board = seen.board().is_some();
        let mine = |head: &Head| head.building.is_some_and(|building| building.epoch == self.epoch);
        let Some(mut head) = seen.head else {
            if !matches!(ask, Ask::Announce) {
                return Answer::No;
            }
            let building = Some(self.building(now, 0));
            let (epoch, order, until) = (self.epoch, self.order, None);
            let head = Head { epoch, order, until, root: None, height: 0, building, trash: Vec::new() };
            draft.head(&head);
            return Answer::Done(Some(head));
        };
        if head.is_over(now) {
            // Its tree ends by itself; what is written now must not end with it.
            (head.root, head.height, head.until) = (None, 0, None);
        }
        match ask {
            Ask::Announce | Ask::Discard => {
                if head.building.is_some_and(|building| building.is_alive(now)) {
                    return Answer::Rebuilding;
                }
                head = head.without_builder();
                if matches!(ask, Ask::Announce) {
                    head.building = Some(self.building(now, 0));
                } else {
                    head.retire(is_board);
                    head.until = None;
                }
            }
            Ask::Reserve { reserved } if mine(&head) => head.building = Some(self.building(now, *reserved)),
            Ask::Abandon if mine(&head) => head = head.without_builder(),
            Ask::Commit { root, height } if mine(&head) => {
                if self.until.is_some_and(|until| until <= now) {
                    return Answer::Over;
                }
                head.retire(is_board);
                (head.epoch, head.order, head.until) = (self.epoch, self.order, self.until);
                (head.root, head.height, head.building) = (Some(*root), *height, None);
            }
            Ask::Swept { trash } if head.trash.contains(trash) => {
                head.trash.retain(|other| other != trash);
            }
            _ => return Answer::No,
        }
        if head.root.is_none() && !head.is_needed() {
            draft.delete_head();
            return Answer::Done(None);
        }
        draft.head(&head);
        Answer::Done(Some(head))
    }

    fn building(&self, now: Micros, reserved: u64) -> Building {
        Building { epoch: self.epoch, deadline: now + PATIENCE, reserved }
    }
}

impl Head {
    /// Whether it says what somebody builds or is to delete, whatever becomes of its board.
    fn is_needed(&self) -> bool {
        self.building.is_some() || !self.trash.is_empty()
    }

    /// How long it is kept.
    pub(super) fn lives(&self, now: Micros) -> Duration {
        // A board that is over is hidden by its `until`, and what follows its end stays known.
        if self.is_needed() { FOR_EVER } else { lives(self.until, now) }
    }

    /// The tree is to be deleted. That of a board that is over ends by itself.
    fn retire(&mut self, is_board: bool) {
        if let Some(root) = self.root.take().filter(|_| is_board) {
            self.trash.push(Trash::Tree { epoch: self.epoch, root, height: self.height });
        }
        self.height = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::change::Act;
    use super::super::key::{Key, Order};
    use super::super::rule::{AFTER_END, Fan};
    use super::super::tree::{Leaf, Part};
    use super::*;
    use crate::client::cell::TypedRule as _;
    use crate::engine::{Rule as _, Write};

    const NOW: Micros = 1_000_000;

    /// What becomes of a score that a handle sets which believes in epoch 1, and of the head.
    fn set(head: &Head) -> (Answer, Option<Head>) {
        let ask = Ask::Change { member: "ada".to_owned(), act: Act::Set(7) };
        let fan = Fan { leaf: 4, node: 4 };
        let step = Step { order: Order::LowerFirst, until: None, fan, epoch: 1, ids: vec![5], ask };
        let leaf = Part::Leaf(Leaf { low: Key::first(), high: None, keys: Vec::new() }).encode();
        let decision = step.step(&[Some(&head.encode()), None, Some(&leaf)], NOW);
        let head = match decision.writes.first() {
            Some(Write::Put(put)) => Some(Head::decode(&put.bytes).expect("a head")),
            _ => None,
        };
        let answer = step.read(&decision.answer).expect("an answer");
        assert_eq!(decision.writes.is_empty(), !matches!(answer, Answer::Changed { .. }));
        (answer, head)
    }

    fn head(epoch: u64, building: Option<Building>) -> Head {
        let order = Order::LowerFirst;
        Head { epoch, order, until: None, root: Some(5), height: 0, building, trash: Vec::new() }
    }

    /// Its cells may still be there: whatever was written to them would be lost.
    #[test]
    fn a_board_that_was_replaced_takes_no_scores() {
        assert!(matches!(set(&head(1, None)), (Answer::Changed { .. }, None)));
        assert!(matches!(set(&head(2, None)), (Answer::Astray { .. }, None)));
    }

    #[test]
    fn a_builder_that_is_gone_holds_nobody_up() {
        let building = |deadline| Some(Building { epoch: 3, deadline, reserved: 9 });
        assert!(matches!(set(&head(1, building(NOW + 1))), (Answer::Rebuilding, None)));
        let (answer, after) = set(&head(1, building(NOW)));
        assert!(matches!(answer, Answer::Changed { .. }));
        // It is told so, and what it has built is deleted.
        let trash = vec![Trash::Unfinished { epoch: 3, reserved: 9 }];
        assert_eq!(after, Some(Head { trash, ..head(1, None) }));
    }

    /// What becomes of the head, and how long it is kept then, when a builder of epoch 3 asks.
    fn turn(head: Option<&Head>, ask: Ask, now: Micros) -> Option<(Head, Duration)> {
        let fan = Fan { leaf: 4, node: 4 };
        let (order, until) = (Order::LowerFirst, Some(NOW + 500));
        let step = Step { order, until, fan, epoch: 3, ids: Vec::new(), ask };
        let value = head.map(Head::encode);
        let decision = step.step(&[value.as_deref()], now);
        let answer = step.read(&decision.answer).expect("an answer");
        match &decision.writes[..] {
            [Write::Put(put)] => {
                let head = Head::decode(&put.bytes).expect("a head");
                assert_eq!(answer, Answer::Done(Some(head.clone())));
                Some((head, put.lives))
            }
            [Write::Delete] => {
                assert_eq!(answer, Answer::Done(None));
                None
            }
            other => panic!("{other:?} and {answer:?}"),
        }
    }

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn a_head_outlives_its_board_while_something_is_built_or_to_be_deleted() {
        let short = Head { until: Some(NOW + 100), ..head(1, None) };
        let (announced, lives) = turn(Some(&short), Ask::Announce, NOW).expect("a head");
        assert_eq!((announced.until, lives), (short.until, FOR_EVER));
        let (reserved, lives) = turn(Some(&announced), Ask::Reserve { reserved: 9 }, NOW).expect("a head");
        assert_eq!(lives, FOR_EVER);
        // It is given up, and what was built is deleted before the board ends, or after.
        let (abandoned, lives) = turn(Some(&reserved), Ask::Abandon, NOW).expect("a head");
        let trash = Trash::Unfinished { epoch: 3, reserved: 9 };
        assert_eq!((&abandoned.trash, lives), (&vec![trash], FOR_EVER));
        let swept = turn(Some(&abandoned), Ask::Swept { trash }, NOW + 40).expect("a head");
        assert_eq!(swept, (short.clone(), AFTER_END + micros(60)));
        assert_eq!(turn(Some(&abandoned), Ask::Swept { trash }, NOW + 100), None);
        // It is built, before the old board ends or after.
        let commit = Ask::Commit { root: 7, height: 0 };
        let (built, lives) = turn(Some(&reserved), commit.clone(), NOW).expect("a head");
        let trash = Trash::Tree { epoch: 1, root: 5, height: 0 };
        assert_eq!((&built.trash, lives), (&vec![trash], FOR_EVER));
        let (swept, lives) = turn(Some(&built), Ask::Swept { trash }, NOW + 200).expect("a head");
        assert_eq!((swept.root, swept.until, lives), (Some(7), Some(NOW + 500), AFTER_END + micros(300)));
        let (built, lives) = turn(Some(&reserved), commit, NOW + 100).expect("a head");
        assert_eq!((built.trash, lives), (vec![], AFTER_END + micros(400)));
        // Nothing is left of a board that is over and deleted.
        assert_eq!(turn(Some(&short), Ask::Discard, NOW + 100), None);
    }

    #[test]
    fn cells_outlive_the_end_of_their_board() {
        let old = Head {
            until: Some(NOW),
            trash: vec![Trash::Unfinished { epoch: 9, reserved: 1 }],
            ..head(1, None)
        };
        let fan = Fan { leaf: 4, node: 4 };
        let begin = |old: Option<&Head>| {
            let (order, until, ask) = (Order::LowerFirst, Some(NOW + 500), Ask::Begin { leaf: 6 });
            let step = Step { order, until, fan, epoch: 3, ids: vec![6], ask };
            let value = old.map(Head::encode);
            step.step(&[value.as_deref(), None], NOW).writes
        };
        let lives = |writes: Vec<Write>| -> Vec<Duration> {
            let lives = |write| match write {
                Write::Put(put) => put.lives,
                other => panic!("{other:?}"),
            };
            writes.into_iter().map(lives).collect()
        };
        let after = AFTER_END + micros(500);
        assert_eq!(lives(begin(None)), [after, after]);
        assert_eq!(lives(begin(Some(&old))), [FOR_EVER, after]);
        // The member and its leaf.
        let board = Head { until: Some(NOW + 500), ..head(1, None) };
        let ask = Ask::Change { member: "ada".to_owned(), act: Act::Set(7) };
        let step = Step { order: Order::LowerFirst, until: None, fan, epoch: 1, ids: vec![5], ask };
        let leaf = Part::Leaf(Leaf { low: Key::first(), high: None, keys: Vec::new() }).encode();
        let writes = step.step(&[Some(&board.encode()), None, Some(&leaf)], NOW).writes;
        assert_eq!(writes[0], Write::Keep);
        assert_eq!(lives(writes[1..].to_vec()), [after, after]);
    }
}
