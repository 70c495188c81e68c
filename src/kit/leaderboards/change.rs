//! The step that changes a score.

use super::key::Key;
use super::rule::{Answer, Draft, Outcome, Step};
use super::seen::Seen;
use super::tree::{Member, Part};
use crate::engine::Write;

/// So many of the last events are known for each member.
pub(super) const EVENTS: usize = 16;

/// What becomes of a member's score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Scores here are turned, as [`Key`] has them.
    Set(i64),
    /// Only if it is better.
    Best(i64),
    /// Not turned.
    Add {
        by: i64,
        event: Option<Vec<u8>>,
    },
    Remove,
}

impl Step {
    pub(super) fn change(&self, mut seen: Seen, draft: &mut Draft<'_>, member: &str, act: &Act) -> Answer {
        let now = seen.now;
        // Somebody else may have begun another board of this name, which is not the one meant.
        if self.until.is_some_and(|until| until <= now) {
            return Answer::Over;
        }
        let Some((head, _)) = seen.board() else { return change_nothing(&seen, draft, act) };
        if head.order != self.order {
            return Answer::OtherOrder;
        }
        if head.epoch != self.epoch {
            return draft.astray(now);
        }
        if let Some(building) = head.building {
            if building.is_alive(now) {
                return Answer::Rebuilding;
            }
            // Whoever was building is gone, or is told that it took too long. So it is also if the
            // score stays as it is: the other board may have another one.
            draft.head(&head.without_builder());
        }
        let old = seen.member.clone();
        let before = old.as_ref().map(|old| old.turned);
        let same = |outcome| Answer::Changed { before, after: before, outcome, thin: false, now };
        let mut events = old.as_ref().map(|old| old.events.clone()).unwrap_or_default();
        let after = match act {
            Act::Set(turned) => Some(*turned),
            Act::Best(turned) if before.is_some_and(|before| before <= *turned) => before,
            Act::Best(turned) => Some(*turned),
            Act::Add { by, event } => {
                if let Some(event) = event {
                    if events.contains(event) {
                        return same(Outcome::Repeated);
                    }
                    events.push(event.clone());
                    let many = events.len().saturating_sub(EVENTS);
                    events.drain(..many);
                }
                let score = before.map_or(0, |before| self.order.turn(before));
                let Some(score) = score.checked_add(*by) else {
                    draft.writes.fill(Write::Keep);
                    return Answer::Overflow;
                };
                Some(self.order.turn(score))
            }
            Act::Remove => None,
        };
        if before == after {
            // It stands where it stood: the score was reached then, and not now.
            if let Some(old) = old.filter(|old| old.events != events) {
                draft.member(Some(Member { events, ..old }.encode()));
                return same(Outcome::Changed);
            }
            return same(Outcome::Same);
        }
        let leaves = old.as_ref().map(|old| old.key(member));
        let enters = after.map(|turned| Key { turned, reached: now, member: member.to_owned() });
        let moved = self.move_key(&mut seen, draft, leaves.as_ref(), enters.as_ref());
        let thin = match moved {
            Ok(thin) => thin,
            Err(answer) => {
                draft.writes.fill(Write::Keep);
                return answer;
            }
        };
        draft.member(after.map(|turned| Member { turned, reached: now, events }.encode()));
        Answer::Changed { before, after, outcome: Outcome::Changed, thin, now }
    }

    /// Takes a key out of its leaf and puts another one into its own, with the counts above.
    fn move_key(
        &self,
        seen: &mut Seen,
        draft: &mut Draft<'_>,
        leaves: Option<&Key>,
        enters: Option<&Key>,
    ) -> Result<bool, Answer> {
        let astray = draft.astray(seen.now);
        let find = |key: Option<&Key>| match key.map(|key| seen.leaf_of(key)) {
            None => Ok(None),
            Some(Some(leaf)) => Ok(Some(leaf)),
            Some(None) => Err(astray.clone()),
        };
        let (from, to) = (find(leaves)?, find(enters)?);
        if from != to {
            if let Some(to) = to
                && let Some(leaf) = seen.leaves.get(&to)
                && self.fan.is_full(&Part::Leaf(leaf.clone()))
            {
                return Err(draft.full(seen.now));
            }
            move_count(seen, draft, from, to).ok_or(astray)?;
        }
        if let (Some(from), Some(key)) = (from, leaves) {
            let leaf = seen.leaves.get_mut(&from).ok_or(Answer::Foreign)?;
            let place = leaf.keys.binary_search(key).map_err(|_| Answer::Foreign)?;
            leaf.keys.remove(place);
        }
        if let (Some(to), Some(key)) = (to, enters) {
            let leaf = seen.leaves.get_mut(&to).ok_or(Answer::Foreign)?;
            let place = leaf.keys.binary_search(key).err().ok_or(Answer::Foreign)?;
            leaf.keys.insert(place, key.clone());
        }
        let mut thin = false;
        for id in [from, to.filter(|to| Some(*to) != from)].into_iter().flatten() {
            let leaf = seen.leaves.get(&id).cloned().ok_or(Answer::Foreign)?;
            let part = Part::Leaf(leaf);
            thin |= Some(id) == from && from != to && self.fan.is_thin(&part);
            draft.part(id, &part);
        }
        let is_root = seen.board().is_some_and(|(head, _)| head.height == 0);
        Ok(thin && !is_root)
    }
}

/// There is no board. But one may be built, with the member on it.
fn change_nothing(seen: &Seen, draft: &mut Draft<'_>, act: &Act) -> Answer {
    let now = seen.now;
    let Some((head, building)) = seen.head.as_ref().and_then(|head| Some((head, head.building?))) else {
        return Answer::NoBoard;
    };
    if building.is_alive(now) {
        return Answer::Rebuilding;
    }
    if *act != Act::Remove {
        return Answer::NoBoard;
    }
    // Whoever was building must not bring the member after it is said to be off the board.
    draft.head(&head.without_builder());
    Answer::Changed { before: None, after: None, outcome: Outcome::Same, thin: false, now }
}

/// Moves one from the counts above a leaf to those above another, up to where they meet. `None`
/// if too little was seen.
fn move_count(seen: &mut Seen, draft: &mut Draft<'_>, from: Option<u64>, to: Option<u64>) -> Option<()> {
    let (down, up) = match (from, to) {
        (Some(from), Some(to)) => {
            let (from, to) = (seen.chain(from), seen.chain(to));
            let meet = from.iter().find(|id| to.contains(id)).copied()?;
            let until = |chain: Vec<u64>| -> Vec<u64> {
                let end = chain.iter().position(|id| *id == meet).unwrap_or_default();
                chain[..=end].to_vec()
            };
            (until(from), until(to))
        }
        (from, to) => {
            let whole = |leaf: Option<u64>| match leaf {
                None => Some(Vec::new()),
                Some(leaf) => seen.whole_chain(leaf),
            };
            (whole(from)?, whole(to)?)
        }
    };
    for (chain, adds) in [(down, false), (up, true)] {
        for pair in chain.windows(2) {
            let node = seen.nodes.get_mut(&pair[1])?;
            let place = node.position(pair[0])?;
            let count = &mut node.children[place].count;
            *count = if adds { *count + 1 } else { count.checked_sub(1)? };
            let node = node.clone();
            draft.part(pair[1], &Part::Node(node));
        }
    }
    Some(())
}
