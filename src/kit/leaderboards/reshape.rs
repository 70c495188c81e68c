//! Steps that change the shape of a tree, and none of its members.

use super::key::Key;
use super::rule::{Answer, Draft, HIGHEST, Step, lives};
use super::seen::Seen;
use super::tree::{Building, Child, Head, Leaf, Node, Part};
use crate::claim::Micros;

impl Building {
    pub(super) fn is_alive(self, now: Micros) -> bool {
        self.deadline > now
    }
}

impl Step {
    /// The first leaf of a board.
    pub(super) fn begin(&self, seen: &Seen, draft: &mut Draft<'_>, leaf: u64) -> Answer {
        if seen.board().is_some() {
            return Answer::Done(None);
        }
        if self.until.is_some_and(|until| until <= seen.now) {
            return Answer::Over;
        }
        // What is left of a board that is over ends by itself. What was to be deleted still is.
        let old = seen.head.as_ref();
        if old.and_then(|head| head.building).is_some_and(|building| building.is_alive(seen.now)) {
            return Answer::Rebuilding;
        }
        if !seen.missing.contains(&leaf) {
            return draft.astray(seen.now);
        }
        let head = Head {
            epoch: self.epoch,
            order: self.order,
            until: self.until,
            root: Some(leaf),
            height: 0,
            building: None,
            trash: old.map(Head::all_trash).unwrap_or_default(),
        };
        draft.lives = lives(self.until, seen.now);
        draft.head(&head);
        draft.part(leaf, &Part::Leaf(Leaf { low: Key::first(), high: None, keys: Vec::new() }));
        Answer::Done(Some(head))
    }

    /// Moves half of a full part to a new one.
    pub(super) fn split(
        &self,
        mut seen: Seen,
        draft: &mut Draft<'_>,
        id: u64,
        new: u64,
        new_root: u64,
    ) -> Answer {
        let now = seen.now;
        let astray = draft.astray(now);
        let Some((head, root)) = seen.board().filter(|(head, _)| head.epoch == self.epoch) else {
            return astray;
        };
        let mut head = head.clone();
        let parent = seen.parent_of(id);
        if !seen.missing.contains(&new) || (parent.is_none() && root != id) {
            return astray;
        }
        let Some(part) = seen.part(id) else { return astray };
        if !self.fan.is_full(&part) {
            // Somebody else has split it.
            return astray;
        }
        let (left, right, low) = halves(part);
        let (left_count, right_count) = (left.count(), right.count());
        let first = Child { low: Key::first(), id, count: left_count };
        let second = Child { low, id: new, count: right_count };
        if let Some((parent, place)) = parent {
            let Some(node) = seen.nodes.get_mut(&parent) else { return astray };
            if node.children.len() >= self.fan.node {
                return draft.full(now);
            }
            node.children[place].count = left_count;
            node.children.insert(place + 1, second);
            let node = node.clone();
            draft.part(parent, &Part::Node(node));
        } else {
            if !seen.missing.contains(&new_root) {
                return astray;
            }
            if head.height >= HIGHEST {
                return Answer::No;
            }
            head.root = Some(new_root);
            head.height += 1;
            draft.head(&head);
            draft.part(new_root, &Part::Node(Node { children: vec![first, second] }));
        }
        draft.part(id, &left);
        draft.part(new, &right);
        Answer::Reshaped { now, thin: false, values: draft.after() }
    }

    /// Moves everything of a part to its left neighbour, if it fits.
    pub(super) fn merge(&self, mut seen: Seen, draft: &mut Draft<'_>, left: u64, right: u64) -> Answer {
        let now = seen.now;
        let astray = draft.astray(now);
        if seen.board().is_none_or(|(head, _)| head.epoch != self.epoch) {
            return astray;
        }
        let (Some((parent, place)), Some(first), Some(second)) =
            (seen.parent_of(left), seen.part(left), seen.part(right))
        else {
            return astray;
        };
        let Some(node) = seen.nodes.get_mut(&parent) else { return astray };
        if node.children.get(place + 1).is_none_or(|child| child.id != right) {
            return astray;
        }
        // A leaf without members, or a node with one child, must not stay.
        let must = [&first, &second].into_iter().any(|part| match part {
            Part::Node(node) => node.children.len() == 1,
            Part::Leaf(leaf) => leaf.keys.is_empty(),
        });
        let Some(merged) = join(first, second) else { return Answer::Foreign };
        let (many, room) = match &merged {
            Part::Node(node) => (node.children.len(), self.fan.node),
            Part::Leaf(leaf) => (leaf.keys.len(), self.fan.leaf),
        };
        // Not so full that the next member splits it again.
        if !must && (many > room * 3 / 4 || self.fan.is_full(&merged)) {
            return Answer::No;
        }
        if many > room && matches!(merged, Part::Node(_)) {
            let (first, second, low) = halves(merged);
            node.children[place].count = first.count();
            node.children[place + 1] = Child { low, id: right, count: second.count() };
            let node = Part::Node(node.clone());
            draft.part(parent, &node);
            draft.part(left, &first);
            draft.part(right, &second);
            return Answer::Reshaped { now, thin: false, values: draft.after() };
        }
        node.children[place].count = merged.count();
        node.children.remove(place + 1);
        let node = Part::Node(node.clone());
        draft.part(parent, &node);
        draft.part(left, &merged);
        draft.delete(right);
        Answer::Reshaped { now, thin: self.fan.is_thin(&node), values: draft.after() }
    }

    /// Takes out a root that has one child.
    pub(super) fn shrink(&self, seen: &Seen, draft: &mut Draft<'_>) -> Answer {
        let now = seen.now;
        let Some((head, root)) = seen.board().filter(|(head, _)| head.epoch == self.epoch) else {
            return draft.astray(now);
        };
        let mut head = head.clone();
        match seen.nodes.get(&root).map(|node| node.children.as_slice()) {
            Some([only]) => {
                (head.root, head.height) = (Some(only.id), head.height.saturating_sub(1));
                draft.head(&head);
                draft.delete(root);
                Answer::Reshaped { now, thin: false, values: draft.after() }
            }
            Some(_) => Answer::No,
            None => draft.astray(now),
        }
    }
}

impl Seen {
    pub(super) fn part(&self, id: u64) -> Option<Part> {
        let leaf = || self.leaves.get(&id).cloned().map(Part::Leaf);
        self.nodes.get(&id).cloned().map(Part::Node).or_else(leaf)
    }
}

impl Part {
    /// How many members are below it.
    pub(super) fn count(&self) -> u64 {
        match self {
            Part::Node(node) => node.count(),
            Part::Leaf(leaf) => leaf.keys.len() as u64,
        }
    }
}

/// Both halves of a part that has at least two entries, and where the second begins.
fn halves(part: Part) -> (Part, Part, Key) {
    match part {
        Part::Node(mut node) => {
            let children = node.children.split_off(node.children.len() / 2);
            let low = children.first().map_or_else(Key::first, |child| child.low.clone());
            (Part::Node(node), Part::Node(Node { children }), low)
        }
        Part::Leaf(mut leaf) => {
            let keys = leaf.keys.split_off(leaf.keys.len() / 2);
            let low = match (leaf.keys.last(), keys.first()) {
                (Some(last), Some(first)) => Key::between(last, first),
                _ => leaf.low.clone(),
            };
            let right = Leaf { low: low.clone(), high: leaf.high.take(), keys };
            leaf.high = Some(low.clone());
            (Part::Leaf(leaf), Part::Leaf(right), low)
        }
    }
}

/// Two neighbours as one. `None` if they are not of one kind.
fn join(left: Part, right: Part) -> Option<Part> {
    match (left, right) {
        (Part::Node(mut left), Part::Node(right)) => {
            left.children.extend(right.children);
            Some(Part::Node(left))
        }
        (Part::Leaf(mut left), Part::Leaf(right)) => {
            left.keys.extend(right.keys);
            left.high = right.high;
            Some(Part::Leaf(left))
        }
        _ => None,
    }
}
