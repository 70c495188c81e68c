//! Steps over the head alone: a board is replaced by another one, or deleted.

use super::rule::{Answer, Ask, Draft, Step, lives};
use super::seen::Seen;
use super::tree::{Building, Head, Trash};
use crate::claim::Micros;

/// Whoever builds a board must say that it goes on within this time, in microseconds.
pub(super) const PATIENCE: Micros = 60_000_000;

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
            draft.lives = lives(None, now);
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
                    draft.lives = lives(None, now);
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
                draft.lives = lives(self.until, now);
            }
            Ask::Swept { trash } if head.trash.contains(trash) => {
                head.trash.retain(|other| other != trash);
                if !is_board && head.building.is_none() && head.trash.is_empty() {
                    draft.delete_head();
                    return Answer::Done(None);
                }
            }
            _ => return Answer::No,
        }
        draft.head(&head);
        Answer::Done(Some(head))
    }

    fn building(&self, now: Micros, reserved: u64) -> Building {
        Building { epoch: self.epoch, deadline: now + PATIENCE, reserved }
    }
}

impl Head {
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
    use super::super::rule::Fan;
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
}
