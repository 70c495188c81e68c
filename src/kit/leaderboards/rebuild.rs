//! Replacing a whole board, and deleting what was replaced.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::board::Leaderboard;
use super::epoch::PATIENCE;
use super::key::Key;
use super::ranked::{RebuildEntry, checked, checked_event, micros};
use super::rule::{Answer, Ask, HIGHEST, lives};
use super::tree::{Child, Leaf, Member, Node, Part, Trash};
use crate::claim::Micros;
use crate::engine::{CellValue, Decision, MOST_CELLS, Rule, Swap, Swapped, Write};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::random;

/// So many leaves are written or deleted at a time.
const AT_ONCE: usize = 16;
/// So many cells are reserved at a time.
const RESERVED: u64 = 1024;
/// How often a builder says that it goes on.
const SIGN: Duration = Duration::from_secs(10);

impl Leaderboard {
    /// Builds the board anew from the source of truth, and says how many members it has.
    ///
    /// The members come in the order of the board: the best score first, equal scores by the time
    /// when they were reached, then by the bytes of the member (in SQL: `order by score desc,
    /// reached_at, member collate "C"`, and `score asc` for a board with the lower score first). So
    /// a board of any size is built without keeping it in memory. A source that orders by the time
    /// must pass it on ([`RebuildEntry::reached_at`]); without it all scores count as reached now.
    /// Times are cut to microseconds before they are compared.
    ///
    /// Readers see the old board until the new one replaces it, in one step. Nobody changes scores
    /// meanwhile: whoever tries waits, up to the time limit of a call, and is then told
    /// ([`Error::Unavailable`]). So no change is lost, as long as the source of truth has all
    /// changes from before this was called.
    ///
    /// Whoever changes the source of truth first and tells the board afterwards may do so while
    /// this reads: the board is built with the change and is told of it again. That does no harm to
    /// [`Leaderboard::set`] and [`Leaderboard::best`]. [`Leaderboard::increment`] counts it twice.
    /// [`Leaderboard::increment_once`] recognises the events that the entries name
    /// ([`RebuildEntry::events`]); all others are forgotten, also those that were counted long ago.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer, if somebody else is rebuilding the
    /// board, or if this took a minute without any progress and others went on. The old board is
    /// then as it was, unless the answer to the last step was lost. [`Error::Invalid`] if a member
    /// is there twice, is too long or not in its order, the id of an event is too long, or a time is
    /// in the future.
    ///
    /// # Cancel safety
    ///
    /// The board was replaced or was not. What was built for nothing is deleted in the background,
    /// or by the next rebuild.
    ///
    /// # Examples
    ///
    /// ```
    /// use leasehold::kit::leaderboards::RebuildEntry;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// let client = leasehold::connect("memory:").await?;
    /// let board = client.leaderboard("season-7")?;
    /// let rows = [("ada", 300), ("bob", 200)];
    /// let count = board.rebuild(rows.map(|(member, score)| RebuildEntry::new(member, score))).await?;
    /// assert_eq!((count, board.get("bob").await?), (2, Some(200)));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn rebuild<I>(&self, entries: I) -> Result<u64>
    where
        I: IntoIterator<Item = RebuildEntry>,
    {
        let epoch = random::number()?.max(1);
        // Before it is announced: whoever drops this future has announced it or has not.
        let mut unfinished = Unfinished { board: self, epoch, armed: true };
        let announced = match self.ask(epoch, None, Vec::new(), Ask::Announce).await? {
            Answer::Done(Some(head)) => head.building,
            Answer::Rebuilding => {
                unfinished.armed = false;
                return Err(self.not_built("somebody else is rebuilding it"));
            }
            _ => return Err(self.foreign()),
        };
        let now = announced.map_or(0, |building| building.deadline - PATIENCE);
        let tasks = JoinSet::new();
        let sign = Instant::now();
        let lives = lives(self.until, now);
        let mut builder = Builder { board: self, epoch, now, lives, tasks, next: 1, reserved: 0, sign };
        let (root, height, count) = builder.build(entries.into_iter()).await?;
        match self.ask(epoch, None, Vec::new(), Ask::Commit { root, height }).await? {
            Answer::Done(_) => unfinished.armed = false,
            Answer::Over => {
                return Err(Error::invalid("the end of the leaderboard has passed; give a later one"));
            }
            _ => return Err(self.not_built("it took too long, and others went on")),
        }
        self.hints().learn_head(None);
        self.count_outcome("rebuilt");
        // Whatever is not deleted now is the next one's to delete.
        self.sweep().await.ok();
        Ok(count)
    }

    /// Deletes the board, with all scores.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer, or while the board is rebuilt. If some
    /// cells could not be deleted, the board is gone all the same, and calling this again deletes
    /// them.
    ///
    /// # Cancel safety
    ///
    /// The board is deleted or is not. It can be done again.
    pub async fn delete(&self) -> Result<()> {
        match self.ask(1, None, Vec::new(), Ask::Discard).await? {
            Answer::Rebuilding => return Err(self.not_built("somebody is rebuilding it")),
            Answer::Done(_) | Answer::No => {}
            _ => return Err(self.foreign()),
        }
        self.hints().learn_head(None);
        self.count_outcome("deleted");
        self.sweep().await
    }

    fn not_built(&self, why: &str) -> Error {
        Error::Unavailable {
            engine: self.client.guarantees().engine,
            what: format!("the leaderboard `{}` can not be replaced: {why}; try again", self.head),
            source: None,
        }
    }

    /// Deletes what the head says is not read any more.
    async fn sweep(&self) -> Result<()> {
        loop {
            let seen = self.see(0, None, &[]).await?;
            let Some(trash) = seen.head.and_then(|head| head.trash.first().copied()) else { return Ok(()) };
            match trash {
                Trash::Tree { epoch, root, height } => self.sweep_tree(epoch, root, height).await?,
                Trash::Unfinished { epoch, reserved } => {
                    self.sweep_parts(epoch, (1..=reserved).collect()).await?;
                }
            }
            self.ask(1, None, Vec::new(), Ask::Swept { trash }).await?;
        }
    }

    /// Nodes go last, from the leaves upwards: whoever goes on with this finds what is left.
    async fn sweep_tree(&self, epoch: u64, root: u64, height: u8) -> Result<()> {
        let mut levels = vec![vec![root]];
        for _ in 0..height {
            let mut below = Vec::new();
            for ids in levels.last().map(Vec::as_slice).unwrap_or_default().chunks(MOST_CELLS) {
                for part in self.parts(epoch, ids).await?.into_iter().flatten() {
                    if let Part::Node(node) = part {
                        below.extend(node.children.iter().map(|child| child.id));
                    }
                }
            }
            levels.push(below);
        }
        for ids in levels.into_iter().rev() {
            self.sweep_parts(epoch, ids).await?;
        }
        Ok(())
    }

    /// Deletes cells of a tree, and the members of those that are leaves.
    async fn sweep_parts(&self, epoch: u64, ids: Vec<u64>) -> Result<()> {
        let mut tasks = JoinSet::new();
        for ids in ids.chunks(MOST_CELLS).map(<[u64]>::to_vec) {
            make_place(&mut tasks, AT_ONCE).await?;
            let board = self.clone();
            tasks.spawn(async move {
                let mut names = Vec::new();
                for part in board.parts(epoch, &ids).await?.into_iter().flatten() {
                    if let Part::Leaf(leaf) = part {
                        for key in &leaf.keys {
                            names.push(board.member_name(epoch, &key.member)?);
                        }
                    }
                }
                for names in names.chunks(MOST_CELLS) {
                    board.client.inner.update(names, &Arc::new(Wipe)).await?;
                }
                let names = ids.iter().map(|id| board.part_name(epoch, *id)).collect::<Result<Vec<_>>>()?;
                board.client.inner.update(&names, &Arc::new(Wipe)).await
            });
        }
        make_place(&mut tasks, 1).await
    }

    async fn parts(&self, epoch: u64, ids: &[u64]) -> Result<Vec<Option<Part>>> {
        let names = ids.iter().map(|id| self.part_name(epoch, *id)).collect::<Result<Vec<_>>>()?;
        let found = self.client.inner.read_cells(&names).await?;
        let part = |value: Option<Vec<u8>>| match value {
            None => Ok(None),
            Some(value) => Part::decode(&value).map(Some).ok_or_else(|| self.foreign()),
        };
        found.cells.into_iter().map(|cell| part(cell.value)).collect()
    }
}

/// Waits until there are fewer tasks than this.
async fn make_place(tasks: &mut JoinSet<Result<()>>, fewer: usize) -> Result<()> {
    while tasks.len() >= fewer {
        match tasks.join_next().await {
            Some(Ok(done)) => done?,
            Some(Err(_)) | None => return Err(Error::closed()),
        }
    }
    Ok(())
}

/// Deletes cells, whatever they hold.
#[derive(Debug)]
struct Wipe;

impl Rule for Wipe {
    fn step(&self, values: &[Option<&[u8]>], _now: Micros) -> Decision {
        let write = |value: &Option<&[u8]>| if value.is_some() { Write::Delete } else { Write::Keep };
        Decision { writes: values.iter().map(write).collect(), answer: Vec::new() }
    }
}

impl crate::client::cell::TypedRule for Wipe {
    type Answer = ();

    fn read(&self, answer: &[u8]) -> Option<()> {
        answer.is_empty().then_some(())
    }
}

/// A board that was begun. If it is given up, whoever waits goes on.
struct Unfinished<'a> {
    board: &'a Leaderboard,
    epoch: u64,
    armed: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (board, epoch) = (self.board.clone(), self.epoch);
        self.board.client.inner.background(async move {
            // If it is not heard, the others wait for a minute, and the next rebuild deletes it.
            if board.ask(epoch, None, Vec::new(), Ask::Abandon).await.is_ok() {
                board.sweep().await.ok();
            }
        });
    }
}

/// Writes a tree from its leaves upwards. Its cells have numbers from 1 on.
struct Builder<'a> {
    board: &'a Leaderboard,
    epoch: u64,
    now: Micros,
    lives: Duration,
    tasks: JoinSet<Result<()>>,
    next: u64,
    reserved: u64,
    sign: Instant,
}

impl Builder<'_> {
    /// The root, its height, and how many members there are.
    async fn build(&mut self, entries: impl Iterator<Item = RebuildEntry>) -> Result<(u64, u8, u64)> {
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
