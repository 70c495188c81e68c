//! Replacing a whole board, and deleting what was replaced.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::board::Leaderboard;
use super::builder::Builder;
use super::ranked::RebuildEntry;
use super::rule::{Answer, Ask};
use super::tree::{Building, Head, Part, Trash};
use crate::claim::Micros;
use crate::engine::{Decision, MOST_CELLS, Rule, Write};
use crate::error::{Error, Result};
use crate::random;

/// So many leaves are written or deleted at a time.
pub(super) const AT_ONCE: usize = 16;

impl Leaderboard {
    /// Builds the board anew from the source of truth, and says how many members it has.
    ///
    /// `entries` reads the source. It is called when nobody changes scores any more, and not
    /// before: what was acknowledged until then is in the source already, what comes later waits
    /// for the board. So it must see all that was committed before it is called: no result that was
    /// fetched earlier, no transaction that was begun earlier, no replica that lags. Whatever can
    /// fail belongs into it; where the iterator stops, the board ends.
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
    /// ([`Error::Unavailable`]). So no change is lost, as long as whoever changes a score changes
    /// the source of truth first and tells the board afterwards.
    ///
    /// They may do so while this reads: the board is built with the change and is told of it again.
    /// That does no harm to [`Leaderboard::set`] and [`Leaderboard::best`].
    /// [`Leaderboard::increment`] counts it twice. [`Leaderboard::increment_once`] recognises the
    /// events that the entries name ([`RebuildEntry::events`]); all others are forgotten, also
    /// those that were counted long ago.
    ///
    /// # Errors
    ///
    /// Those of `entries`, as they are. [`Error::Unavailable`] if the engine does not answer, if
    /// somebody else is rebuilding the board, or if this took a minute without any progress and
    /// others went on. The old board is then as it was, unless the answer to the last step was
    /// lost. [`Error::Invalid`] if a member is there twice, is too long or not in its order, if the
    /// id of an event is too long, or if a time is in the future, by the engine's clock.
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
    /// let read = async || {
    ///     let rows = [("ada", 300), ("bob", 200)];
    ///     Ok::<_, leasehold::Error>(rows.map(|(member, score)| RebuildEntry::new(member, score)))
    /// };
    /// assert_eq!((board.rebuild(read).await?, board.get("bob").await?), (2, Some(200)));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn rebuild<F, I, E>(&self, entries: impl FnOnce() -> F) -> Result<u64, E>
    where
        F: Future<Output = Result<I, E>>,
        I: IntoIterator<Item = RebuildEntry>,
        E: From<Error>,
    {
        // Before there is more: a job that is killed each time would never get to what is behind
        // the last step.
        self.sweep_or_say_so().await;
        let epoch = random::number()?.max(1);
        // Before it is announced: whoever drops this future has announced it or has not.
        let mut unfinished = Unfinished { board: self, epoch, armed: true };
        let announced = match self.ask(epoch, None, Vec::new(), Ask::Announce).await? {
            Answer::Done(Some(head)) => head.building,
            Answer::Rebuilding => {
                unfinished.armed = false;
                return Err(self.not_built("somebody else is rebuilding it").into());
            }
            _ => return Err(self.foreign().into()),
        };
        let now = announced.map_or(0, Building::signed_at);
        let mut builder = Builder::new(self, epoch, now);
        // Not earlier: a change that is acknowledged before the announcement is on no board but the
        // old one, so the source must be read after it.
        let entries = builder.wait_for(entries()).await??;
        let (root, height, count) = builder.build(entries.into_iter()).await?;
        match self.ask(epoch, None, Vec::new(), Ask::Commit { root, height }).await? {
            Answer::Done(_) => unfinished.armed = false,
            Answer::Over => {
                return Err(Error::invalid("the end of the leaderboard has passed; give a later one").into());
            }
            _ => return Err(self.took_too_long().into()),
        }
        self.hints().learn_head(None);
        self.count_outcome("rebuilt");
        self.sweep_or_say_so().await;
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

    pub(super) fn took_too_long(&self) -> Error {
        self.not_built("it took too long, and others went on")
    }

    fn not_built(&self, why: &str) -> Error {
        Error::Unavailable {
            engine: self.client.guarantees().engine,
            what: format!("the leaderboard `{}` can not be replaced: {why}; try again", self.head),
            source: None,
        }
    }

    /// Deletes what the head says is not read any more. What is left is the next one's to delete.
    async fn sweep_or_say_so(&self) {
        if let Err(error) = self.sweep().await {
            tracing::warn!(
                target: "leasehold",
                leaderboard = self.head,
                %error,
                "cells that nobody reads are not deleted yet"
            );
        }
    }

    async fn sweep(&self) -> Result<()> {
        while let Some(trash) = self.first_trash().await? {
            match trash {
                Trash::Tree { epoch, root, height } => self.sweep_tree(epoch, root, height).await?,
                Trash::Unfinished { epoch, reserved } => {
                    self.sweep_parts(epoch, (1..=reserved).collect()).await?;
                }
            }
            self.ask(1, None, Vec::new(), Ask::Swept { trash }).await?;
        }
        Ok(())
    }

    /// Whatever order the board has: a handle with the other one may have begun to replace it.
    pub(super) async fn first_trash(&self) -> Result<Option<Trash>> {
        let found = self.client.inner.read_cells(&[self.head_name()?]).await?;
        let Some(head) = found.cells.into_iter().next().and_then(|cell| cell.value) else { return Ok(None) };
        let head = Head::decode(&head).ok_or_else(|| self.foreign())?;
        Ok(head.trash.first().copied())
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

    /// What is to be deleted. Of what is not understood nothing follows.
    async fn parts(&self, epoch: u64, ids: &[u64]) -> Result<Vec<Option<Part>>> {
        let names = ids.iter().map(|id| self.part_name(epoch, *id)).collect::<Result<Vec<_>>>()?;
        let found = self.client.inner.read_cells(&names).await?;
        Ok(found.cells.into_iter().map(|cell| Part::decode(&cell.value?)).collect())
    }
}

/// Waits until there are fewer tasks than this.
pub(super) async fn make_place(tasks: &mut JoinSet<Result<()>>, fewer: usize) -> Result<()> {
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
            // If it is not heard, the others wait for a minute, and the next rebuild deletes it. So
            // it does if the runtime is gone, without which there are no tasks to delete with.
            let abandoned = board.ask(epoch, None, Vec::new(), Ask::Abandon).await;
            if abandoned.is_ok() && Handle::try_current().is_ok() {
                board.sweep_or_say_so().await;
            }
        });
    }
}
