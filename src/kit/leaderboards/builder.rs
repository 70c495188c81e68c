//! Writing the tree of a board that is built anew.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::board::Leaderboard;
use super::key::Key;
use super::ranked::{RebuildEntry, checked, checked_event, micros};
use super::rebuild::{AT_ONCE, make_place};
use super::rule::{Answer, Ask, HIGHEST, lives};
use super::tree::{Child, Leaf, Member, Node, Part};
use crate::claim::Micros;
use crate::engine::{CellValue, MOST_CELLS, Swap, Swapped, Write};
use crate::error::{Error, Result};
use crate::name::Name;

/// So many cells are reserved at a time.
const RESERVED: u64 = 1024;
/// How often a builder says that it goes on.
const SIGN: Duration = Duration::from_secs(10);

/// Writes a tree from its leaves upwards. Its cells have numbers from 1 on.
pub(super) struct Builder<'a> {
    board: &'a Leaderboard,
    epoch: u64,
    now: Micros,
    lives: Duration,
    tasks: JoinSet<Result<()>>,
    next: u64,
    reserved: u64,
    sign: Instant,
}

impl<'a> Builder<'a> {
    /// Begins a board of this epoch, which was announced at this time.
    pub(super) fn new(board: &'a Leaderboard, epoch: u64, now: Micros) -> Builder<'a> {
        let (lives, tasks, sign) = (lives(board.until, now), JoinSet::new(), Instant::now());
        Builder { board, epoch, now, lives, tasks, next: 1, reserved: 0, sign }
    }

    /// The root, its height, and how many members there are.
    pub(super) async fn build(
        &mut self,
        entries: impl Iterator<Item = RebuildEntry>,
    ) -> Result<(u64, u8, u64)> {
        let room = self.board.fan.leaf * 3 / 4;
        let (mut low, mut keys, mut count) = (Key::first(), Vec::with_capacity(room), 0);
        let mut events = Vec::with_capacity(room);
        let mut children = Vec::new();
        let mut last: Option<Key> = None;
        for mut entry in entries {
            // A slow source takes long for one leaf.
            if self.sign.elapsed() >= SIGN {
                self.sign(self.reserved).await?;
            }
            let counted = std::mem::take(&mut entry.events);
            counted.iter().try_for_each(|event| checked_event(event).map(drop))?;
            let key = self.key(entry, last.as_ref())?;
            if keys.len() >= room
                && let Some(last) = &last
            {
                let next = Key::between(last, &key);
                let leaf =
                    Leaf { low: low.clone(), high: Some(next.clone()), keys: std::mem::take(&mut keys) };
                children.push(self.leaf(leaf, std::mem::take(&mut events)).await?);
                low = next;
            }
            count += 1;
            last = Some(key.clone());
            keys.push(key);
            events.push(counted);
        }
        children.push(self.leaf(Leaf { low, high: None, keys }, events).await?);
        let (mut height, room) = (0, self.board.fan.node * 3 / 4);
        while children.len() > 1 {
            // As even as can be: no node has a single child. The root may be fuller than others; it
            // saves a level.
            let whole = children.len() < self.board.fan.node;
            let nodes = if whole { 1 } else { children.len().div_ceil(room) };
            let (each, more) = (children.len() / nodes, children.len() % nodes);
            let mut level = Vec::with_capacity(nodes);
            let mut rest = children.into_iter();
            for node in 0..nodes {
                let children: Vec<Child> = rest.by_ref().take(each + usize::from(node < more)).collect();
                level.push(self.node(Node { children }).await?);
            }
            children = level;
            height += 1;
        }
        if height > HIGHEST {
            return Err(self.board.too_many());
        }
        make_place(&mut self.tasks, 1).await?;
        let root = children.first().map_or(0, |child| child.id);
        Ok((root, height, count))
    }

    fn key(&self, entry: RebuildEntry, last: Option<&Key>) -> Result<Key> {
        checked(&entry.member)?;
        let reached = entry.reached.map_or(self.now, micros);
        let key = Key { turned: self.board.order.turn(entry.score), reached, member: entry.member };
        if reached > self.now {
            return Err(Error::invalid(format!("the score of `{}` is reached in the future", key.member)));
        }
        match last {
            Some(last) if *last >= key => Err(Error::invalid(format!(
                "`{}` does not come after `{}` in the order of the board; sort by score, the time when it was \
                 reached, and the bytes of the member",
                key.member, last.member
            ))),
            _ => Ok(key),
        }
    }

    /// The number of the next cell.
    async fn take_id(&mut self) -> Result<u64> {
        if self.next > self.reserved || self.sign.elapsed() >= SIGN {
            self.sign(self.reserved.max(self.next + RESERVED)).await?;
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Says that this goes on, with cells up to this number.
    async fn sign(&mut self, reserved: u64) -> Result<()> {
        match self.board.ask(self.epoch, None, Vec::new(), Ask::Reserve { reserved }).await? {
            Answer::Done(_) => (self.reserved, self.sign) = (reserved, Instant::now()),
            _ => return Err(self.board.not_built("it took too long, and others went on")),
        }
        Ok(())
    }

    /// Writes a leaf, and its members with the events that each has counted.
    async fn leaf(&mut self, leaf: Leaf, events: Vec<Vec<Vec<u8>>>) -> Result<Child> {
        let id = self.take_id().await?;
        let (low, count) = (leaf.low.clone(), leaf.keys.len() as u64);
        let (board, epoch) = (self.board, self.epoch);
        // The leaf is written first: it says which members there may be.
        let mut swaps = Vec::with_capacity(1 + leaf.keys.len());
        let members: Vec<(Name, Vec<u8>)> = leaf
            .keys
            .iter()
            .zip(events)
            .map(|(key, events)| {
                let member = Member { turned: key.turned, reached: key.reached, events };
                Ok((board.member_name(epoch, &key.member)?, member.encode()))
            })
            .collect::<Result<_>>()?;
        swaps.push(self.put(board.part_name(epoch, id)?, Part::Leaf(leaf).encode()));
        swaps.extend(members.into_iter().map(|(name, bytes)| self.put(name, bytes)));
        self.write(swaps).await?;
        Ok(Child { low, id, count })
    }

    async fn node(&mut self, node: Node) -> Result<Child> {
        let id = self.take_id().await?;
        let (low, count) =
            (node.children.first().map_or_else(Key::first, |child| child.low.clone()), node.count());
        let swap = self.put(self.board.part_name(self.epoch, id)?, Part::Node(node).encode());
        self.write(vec![swap]).await?;
        Ok(Child { low, id, count })
    }

    fn put(&self, name: Name, bytes: Vec<u8>) -> Swap {
        Swap { name, version: 0, write: Write::Put(CellValue { bytes, lives: self.lives }) }
    }

    /// Writes cells that must not be there, some in each call.
    async fn write(&mut self, mut swaps: Vec<Swap>) -> Result<()> {
        make_place(&mut self.tasks, AT_ONCE).await?;
        let board = self.board.clone();
        self.tasks.spawn(async move {
            while !swaps.is_empty() {
                let rest = swaps.split_off(swaps.len().min(MOST_CELLS));
                let names: Vec<Name> = swaps.iter().map(|swap| swap.name.clone()).collect();
                let inner = &board.client.inner;
                inner.check_open()?;
                if let Swapped::No(found) = inner.call(inner.engine.swap(swaps)).await? {
                    let there = names.iter().zip(&found.cells).find(|(_, cell)| cell.value.is_some());
                    let name = there.map_or("", |(name, _)| name.as_str());
                    let member = name.split_once('=').map_or(name, |(_, member)| member);
                    return Err(Error::invalid(format!("`{member}` is there twice")));
                }
                swaps = rest;
            }
            Ok(())
        });
        Ok(())
    }
}
