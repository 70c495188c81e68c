//! What a process remembers of a board: where to look, never what is so.
//!
//! Every step and every read sees for itself that it has the right cells. A hint that is wrong
//! costs another round trip.

use std::collections::HashMap;
use std::hash::Hash;

use super::change::Act;
use super::key::{Key, Order};
use super::seen::{Seen, child_at};
use super::tree::{Head, Node};
use crate::claim::Micros;
use crate::engine::MOST_CELLS;

/// So many nodes are remembered: those of about 40 million members. Tests have smaller trees.
const MOST_NODES: usize = if cfg!(test) { 32 } else { 4096 };
/// So many members are remembered, those that were used by this process.
const MOST_MEMBERS: usize = 8192;
/// Cells of the tree in one call, beside the head and a member.
pub(super) const MOST_PARTS: usize = MOST_CELLS - 2;

#[derive(Debug, Default)]
pub(super) struct Hints {
    head: Option<Head>,
    nodes: HashMap<u64, Node>,
    members: HashMap<String, (i64, Micros)>,
}

impl Hints {
    /// The board, as far as is known.
    pub(super) fn epoch(&self) -> Option<u64> {
        self.head.as_ref().filter(|head| head.root.is_some()).map(|head| head.epoch)
    }

    pub(super) fn learn_head(&mut self, head: Option<&Head>) {
        if self.head.as_ref().map(|head| head.epoch) != head.map(|head| head.epoch) {
            self.nodes.clear();
            self.members.clear();
        }
        self.head = head.cloned();
    }

    /// What was seen of the cells of this epoch.
    pub(super) fn learn(&mut self, epoch: u64, member: Option<&str>, seen: &Seen) {
        self.learn_head(seen.board().map(|(head, _)| head));
        if self.epoch() != Some(epoch) {
            return;
        }
        for id in &seen.missing {
            self.nodes.remove(id);
        }
        for (id, node) in &seen.nodes {
            keep(&mut self.nodes, MOST_NODES, *id, node.clone());
        }
        if let Some(member) = member {
            self.learn_member(member, seen.member.as_ref().map(|found| (found.turned, found.reached)));
        }
    }

    pub(super) fn learn_member(&mut self, member: &str, found: Option<(i64, Micros)>) {
        match found {
            Some(found) => keep(&mut self.members, MOST_MEMBERS, member.to_owned(), found),
            None => drop(self.members.remove(member)),
        }
    }

    /// Where a member is believed to stand.
    pub(super) fn key(&self, member: &str) -> Option<Key> {
        let (turned, reached) = *self.members.get(member)?;
        Some(Key { turned, reached, member: member.to_owned() })
    }

    pub(super) fn root(&self) -> Option<u64> {
        self.head.as_ref().and_then(|head| head.root)
    }

    pub(super) fn node(&self, id: u64) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// From the root down to the leaf of a key, or to the first part that is not known.
    pub(super) fn path(&self, key: &Key) -> Vec<u64> {
        let Some((height, root)) = self.head.as_ref().and_then(|head| Some((head.height, head.root?))) else {
            return Vec::new();
        };
        let mut path = vec![root];
        let mut last = root;
        for _ in 0..height {
            let Some(node) = self.nodes.get(&last) else { break };
            last = node.children[node.index_of(key)].id;
            path.push(last);
        }
        path
    }

    /// The cells of the tree that a change needs. With `whole`, all up to the root: after a step
    /// was astray, so that whatever is believed wrongly is seen. `reached` is when the member is
    /// believed to reach its score.
    pub(super) fn plan(
        &self,
        member: &str,
        act: &Act,
        order: Order,
        whole: bool,
        reached: Micros,
    ) -> Vec<u64> {
        let old = self.key(member);
        let turned = match act {
            Act::Set(turned) => Some(*turned),
            Act::Best(turned) if old.as_ref().is_some_and(|old| old.turned <= *turned) => return Vec::new(),
            Act::Best(turned) => Some(*turned),
            Act::Add { by, .. } => {
                let score = old.as_ref().map_or(0, |old| order.turn(old.turned));
                Some(order.turn(score.saturating_add(*by)))
            }
            Act::Remove => None,
        };
        let from = old.map(|old| self.path(&old)).unwrap_or_default();
        let enters = turned.map(|turned| Key { turned, reached, member: member.to_owned() });
        let to = enters.map(|key| self.path(&key)).unwrap_or_default();
        let mut shared = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
        let complete = |path: &Vec<u64>| {
            self.head.as_ref().is_some_and(|head| path.len() == usize::from(head.height) + 1)
        };
        if whole || !complete(&from) || !complete(&to) {
            shared = 1;
        }
        // From the last part that both have in common downwards.
        let begin = shared.saturating_sub(1);
        let mut ids: Vec<u64> = from.iter().skip(begin).copied().collect();
        for id in to.iter().skip(begin) {
            if !ids.contains(id) {
                ids.push(*id);
            }
        }
        ids.truncate(MOST_PARTS);
        ids
    }

    /// The cells in which members from a place on are believed to be, at most so many members.
    pub(super) fn window(&self, from: u64, most: usize) -> Vec<u64> {
        let Some((height, root)) = self.head.as_ref().and_then(|head| Some((head.height, head.root?))) else {
            return Vec::new();
        };
        let mut ids = vec![root];
        let (mut last, mut left) = (root, from);
        for level in 0..height {
            let Some(node) = self.nodes.get(&last) else { return ids };
            // Counts are as old as the hint; whatever is behind the last is looked for there.
            let place = child_at(node, &mut left).unwrap_or(node.children.len() - 1);
            last = node.children[place].id;
            if level + 1 < height {
                ids.push(last);
                continue;
            }
            let mut covered = 0;
            for child in &node.children[place..] {
                if covered >= left.saturating_add(most as u64) || ids.len() >= MOST_PARTS {
                    break;
                }
                ids.push(child.id);
                covered += child.count;
            }
        }
        ids
    }

    /// The path to a key, and the leaves beside it that so many members before and after it need.
    pub(super) fn surroundings(&self, key: &Key, most: usize) -> Vec<u64> {
        let mut ids = self.path(key);
        let complete = self.head.as_ref().is_some_and(|head| ids.len() == usize::from(head.height) + 1);
        let [.., parent, leaf] = ids[..] else { return ids };
        let Some(node) = self.nodes.get(&parent).filter(|_| complete) else { return ids };
        let Some(place) = node.position(leaf) else { return ids };
        let (mut before, mut after) =
            (node.children[..place].iter().rev(), node.children[place + 1..].iter());
        let (mut above, mut below) = (0, 0);
        while ids.len() < MOST_PARTS {
            let up = if above < most as u64 { before.next() } else { None };
            let down = if below < most as u64 { after.next() } else { None };
            if up.is_none() && down.is_none() {
                break;
            }
            above += up.map_or(0, |child| child.count);
            below += down.map_or(0, |child| child.count);
            ids.extend(up.into_iter().chain(down).map(|child| child.id));
        }
        ids.truncate(MOST_PARTS);
        ids
    }
}

/// Keeps a bounded number of things. When it is reached, all go: if one at a time went, it could be
/// the root each time, and no way down would ever be known as a whole.
fn keep<K: Eq + Hash, V>(map: &mut HashMap<K, V>, most: usize, key: K, value: V) {
    if map.len() >= most && !map.contains_key(&key) {
        map.clear();
    }
    map.insert(key, value);
}
