//! Some cells of a board at one moment, and what follows from them.

use std::collections::HashMap;

use super::key::Key;
use super::tree::{Head, Leaf, Member, Node, Part};
use crate::claim::Micros;

/// Cells at one moment: the head, a member's if it was asked for, and some of the tree.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) now: Micros,
    pub(super) head: Option<Head>,
    pub(super) member: Option<Member>,
    pub(super) nodes: HashMap<u64, Node>,
    pub(super) leaves: HashMap<u64, Leaf>,
    /// What was asked for and is not there.
    pub(super) missing: Vec<u64>,
}

/// Where a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stand {
    /// How many are before it.
    pub(super) before: u64,
    /// How many there are.
    pub(super) count: u64,
    pub(super) leaf: u64,
    /// Its place in the leaf.
    pub(super) index: usize,
}

impl Seen {
    /// Understands the values of the head, the member (if `has_member`) and these cells of the
    /// tree. `None` if one of them is something else.
    pub(super) fn read(values: &[Option<&[u8]>], has_member: bool, ids: &[u64], now: Micros) -> Option<Seen> {
        let (head, mut rest) = values.split_first()?;
        let head = head.map(Head::decode).map_or(Some(None), |head| head.map(Some))?;
        let mut member = None;
        if has_member {
            let (first, others) = rest.split_first()?;
            member = first.map(Member::decode).map_or(Some(None), |member| member.map(Some))?;
            rest = others;
        }
        let (nodes, leaves) = (HashMap::new(), HashMap::new());
        let mut seen = Seen { now, head, member, nodes, leaves, missing: Vec::new() };
        for (id, value) in ids.iter().zip(rest) {
            match value.map(Part::decode) {
                None => seen.missing.push(*id),
                Some(Some(Part::Node(node))) => drop(seen.nodes.insert(*id, node)),
                Some(Some(Part::Leaf(leaf))) => drop(seen.leaves.insert(*id, leaf)),
                Some(None) => return None,
            }
        }
        Some(seen)
    }

    /// The head and the root of the board, if there is one that is not over.
    pub(super) fn board(&self) -> Option<(&Head, u64)> {
        let head = self.head.as_ref().filter(|head| !head.is_over(self.now))?;
        Some((head, head.root?))
    }

    /// True if a cell is missing that another one names at the same moment: the store has lost it.
    pub(super) fn is_broken(&self) -> bool {
        let named =
            |id: &u64| self.board().is_some_and(|(_, root)| root == *id) || self.parent_of(*id).is_some();
        self.missing.iter().any(named)
    }

    /// The leaf of a key, if it was seen. A leaf knows its range, so that takes no node.
    pub(super) fn leaf_of(&self, key: &Key) -> Option<u64> {
        self.leaves.iter().find(|(_, leaf)| leaf.covers(key)).map(|(id, _)| *id)
    }

    /// The node above, and which child of it this is.
    pub(super) fn parent_of(&self, id: u64) -> Option<(u64, usize)> {
        self.nodes.iter().find_map(|(parent, node)| Some((*parent, node.position(id)?)))
    }

    /// From a cell of the tree upwards, as far as was seen.
    pub(super) fn chain(&self, id: u64) -> Vec<u64> {
        let mut chain = vec![id];
        let mut last = id;
        // A node is never above itself; the bound is for cells that somebody else has written.
        while let Some((parent, _)) = self.parent_of(last).filter(|_| chain.len() <= self.nodes.len()) {
            chain.push(parent);
            last = parent;
        }
        chain
    }

    /// The same, if it was seen up to the root.
    pub(super) fn whole_chain(&self, id: u64) -> Option<Vec<u64>> {
        let (_, root) = self.board()?;
        Some(self.chain(id)).filter(|chain| chain.last() == Some(&root))
    }

    /// How many members there are, if the root was seen.
    pub(super) fn count(&self) -> Option<u64> {
        let (_, root) = self.board()?;
        let leaf = || self.leaves.get(&root).map(|leaf| leaf.keys.len() as u64);
        self.nodes.get(&root).map(Node::count).or_else(leaf)
    }

    /// Where a key stands. `None` if too little was seen, or the key is not there.
    pub(super) fn stand(&self, key: &Key) -> Option<Stand> {
        let leaf = self.leaf_of(key)?;
        let index = self.leaves.get(&leaf)?.keys.binary_search(key).ok()?;
        let chain = self.whole_chain(leaf)?;
        Some(Stand { before: self.before(&chain)? + index as u64, count: self.count()?, leaf, index })
    }

    /// How many members are before the first of these cells, which is below the next and so on.
    fn before(&self, chain: &[u64]) -> Option<u64> {
        let mut before = 0;
        for pair in chain.windows(2) {
            let node = self.nodes.get(&pair[1])?;
            let place = node.position(pair[0])?;
            before += node.children[..place].iter().map(|child| child.count).sum::<u64>();
        }
        Some(before)
    }

    /// Members from a place on, at most so many: as far as they were seen, and fewer only where the
    /// rest was not seen or the board ends. `None` if the first was not seen.
    pub(super) fn slice(&self, from: u64, most: usize) -> Option<Vec<Key>> {
        let (head, root) = self.board()?;
        let (mut id, mut left, mut above) = (root, from, None);
        for _ in 0..head.height {
            let node = self.nodes.get(&id)?;
            let Some(place) = child_at(node, &mut left) else { return Some(Vec::new()) };
            (above, id) = (Some((node, place)), node.children[place].id);
        }
        let mut found: Vec<Key> = Vec::new();
        let leaf = self.leaves.get(&id)?;
        found.extend(leaf.keys.iter().skip(usize::try_from(left).ok()?).take(most).cloned());
        if let Some((node, place)) = above {
            for child in &node.children[place + 1..] {
                let Some(leaf) = self.leaves.get(&child.id).filter(|_| found.len() < most) else { break };
                found.extend(leaf.keys.iter().take(most - found.len()).cloned());
            }
        }
        Some(found)
    }

    /// Up to so many members before and after one that stands here, as far as they were seen.
    pub(super) fn around(&self, stand: &Stand, most: usize) -> (Vec<Key>, Vec<Key>) {
        let Some(leaf) = self.leaves.get(&stand.leaf) else { return (Vec::new(), Vec::new()) };
        let mut before: Vec<Key> = leaf.keys[..stand.index].iter().rev().take(most).cloned().collect();
        let mut after: Vec<Key> = leaf.keys[stand.index + 1..].iter().take(most).cloned().collect();
        if let Some((parent, place)) = self.parent_of(stand.leaf)
            && let Some(node) = self.nodes.get(&parent)
        {
            for child in node.children[..place].iter().rev() {
                let Some(leaf) = self.leaves.get(&child.id) else { break };
                before.extend(leaf.keys.iter().rev().take(most - before.len()).cloned());
            }
            for child in &node.children[place + 1..] {
                let Some(leaf) = self.leaves.get(&child.id) else { break };
                after.extend(leaf.keys.iter().take(most - after.len()).cloned());
            }
        }
        before.reverse();
        (before, after)
    }
}

/// The child in which a place is, and the place in that child. `None` if there are fewer.
pub(super) fn child_at(node: &Node, left: &mut u64) -> Option<usize> {
    for (place, child) in node.children.iter().enumerate() {
        if *left < child.count {
            return Some(place);
        }
        *left -= child.count;
    }
    None
}
