//! Writing the tree of a board that is built anew.

use std::iter::once;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::board::Leaderboard;
use super::key::Key;
use super::ranked::{RebuildEntry, checked, checked_event, micros};
use super::rebuild::{AT_ONCE, make_place};
use super::rule::{Answer, Ask, HIGHEST, lives};
use super::tree::{Child, Head, Leaf, Member, Node, Part};
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
    /// When it was announced: scores without a time were reached then.
    now: Micros,
    /// When the engine last heard of it. No time in the tree is later, so that whoever changes the
    /// board afterwards enters behind all who have the same score.
    latest: Micros,
    lives: Duration,
    tasks: JoinSet<Result<()>>,
    /// The version of the head, as far as is known.
    head: Arc<AtomicU64>,
    next: u64,
    reserved: u64,
    sign: Instant,
}

impl<'a> Builder<'a> {
    /// Begins a board of this epoch, which was announced at this time.
    pub(super) fn new(board: &'a Leaderboard, epoch: u64, now: Micros) -> Builder<'a> {
        let (lives, tasks, sign) = (lives(board.until, now), JoinSet::new(), Instant::now());
        Builder {
            board,
            epoch,
            now,
            latest: now,
            lives,
            tasks,
            head: Arc::default(),
            next: 1,
            reserved: 0,
            sign,
        }
    }

    /// Waits for the source, and says meanwhile that this goes on.
    pub(super) async fn wait_for<T>(&mut self, source: impl Future<Output = T>) -> Result<T> {
        let mut source = pin!(source);
        loop {
            match timeout_at(self.sign + SIGN, &mut source).await {
                Ok(found) => return Ok(found),
                Err(_) => self.sign(self.reserved).await?,
            }
        }
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
            checked(&entry.member)?;
            let reached = entry.reached.map_or(self.now, micros);
            let key = Key { turned: self.board.order.turn(entry.score), reached, member: entry.member };
            // The source is read while time goes on.
            if key.reached > self.latest {
                self.sign(self.reserved).await?;
            }
            self.check(&key, last.as_ref())?;
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

    fn check(&self, key: &Key, last: Option<&Key>) -> Result<()> {
        if key.reached > self.latest {
            return Err(Error::invalid(format!(
                "the score of `{}` is reached in the future, {} us ahead of the engine's clock",
                key.member,
                key.reached - self.latest
            )));
        }
        match last {
            Some(last) if last >= key => Err(Error::invalid(format!(
                "`{}` does not come after `{}` in the order of the board; sort by score, the time when it was \
                 reached, and the bytes of the member",
                key.member, last.member
            ))),
            _ => Ok(()),
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
            Answer::Done(Some(Head { building: Some(building), .. })) => {
                (self.reserved, self.sign) = (reserved, Instant::now());
                self.latest = building.signed_at();
                Ok(())
            }
            _ => Err(self.board.took_too_long()),
        }
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
        let (board, epoch, head) = (self.board.clone(), self.epoch, Arc::clone(&self.head));
        self.tasks.spawn(async move {
            while !swaps.is_empty() {
                // The head is one more.
                let rest = swaps.split_off(swaps.len().min(MOST_CELLS - 1));
                board.write_built(epoch, &head, &swaps).await?;
                swaps = rest;
            }
            Ok(())
        });
        Ok(())
    }
}

impl Leaderboard {
    /// Writes cells as long as the head says that they are being built. What is on its way when the
    /// building ends comes too late, and not behind those who delete it.
    pub(super) async fn write_built(&self, epoch: u64, version: &AtomicU64, swaps: &[Swap]) -> Result<()> {
        let (head, inner) = (self.head_name()?, &self.client.inner);
        loop {
            inner.check_open()?;
            let keep =
                Swap { name: head.clone(), version: version.load(Ordering::Relaxed), write: Write::Keep };
            let all = once(keep).chain(swaps.iter().cloned()).collect();
            let Swapped::No(found) = inner.call(inner.engine.swap(all)).await? else { return Ok(()) };
            let Some((head, cells)) = found.cells.split_first() else { return Err(self.foreign()) };
            let building = head.value.as_deref().and_then(Head::decode).and_then(|head| head.building);
            if building.is_none_or(|building| building.epoch != epoch) {
                return Err(self.took_too_long());
            }
            if let Some((swap, _)) = swaps.iter().zip(cells).find(|(_, cell)| cell.value.is_some()) {
                let name = swap.name.as_str();
                let member = name.split_once('=').map_or(name, |(_, member)| member);
                return Err(Error::invalid(format!("`{member}` is there twice")));
            }
            // Each time that the builder says that it goes on.
            version.store(head.version, Ordering::Relaxed);
        }
    }
}
