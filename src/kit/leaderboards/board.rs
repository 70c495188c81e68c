//! A leaderboard as its users see it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::time::Instant;

use super::change::Act;
use super::hints::Hints;
use super::key::Order;
use super::ranked::{Incremented, LONGEST_MEMBER, Rank, Ranked, checked, checked_event, micros};
use super::rule::{Fan, Outcome};
use crate::claim::Micros;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::kit::cells;
use crate::name::{Family, Name};

/// How many members a leaf has at the most, and children a node.
const FAN: usize = 128;

/// What the clones of a handle share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Whoever changes the board.
    pub(super) turn: tokio::sync::Mutex<Turn>,
    hints: Mutex<Hints>,
}

/// What whoever changes the board is told by the one before.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// When somebody was last seen who builds the board.
    pub(super) builder_seen: Option<Instant>,
}

/// A leaderboard. Made by [`Client::leaderboard`].
///
/// Clones share what they remember of the board and take turns when they change it: clone a handle
/// instead of making another one.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let board = client.leaderboard("season-7")?;
/// board.set("ada", 300).await?;
/// board.set("bob", 200).await?;
/// board.increment("bob", 150).await?;
///
/// let rank = board.rank("ada").await?.expect("ada is on the board");
/// assert_eq!((rank.place, rank.of, rank.score), (2, 2, 300));
/// let top = board.top(10).await?;
/// assert_eq!((top[0].place, top[0].member.as_str(), top[0].score), (1, "bob", 350));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Leaderboard {
    pub(super) client: Client,
    /// How the names of its cells start.
    pub(super) head: String,
    pub(super) order: Order,
    pub(super) until: Option<Micros>,
    pub(super) fan: Fan,
    pub(super) shared: Arc<Shared>,
}

impl Client {
    /// A leaderboard. It exists from the first score on.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is too long; [`Error::Unsupported`] if the engine has no
    /// cells.
    pub fn leaderboard(&self, name: impl AsRef<str>) -> Result<Leaderboard> {
        self.inner.needs_cells("leaderboards are kept in")?;
        let board = Leaderboard {
            client: self.clone(),
            head: cells::cell("leaderboards/", name.as_ref()),
            order: Order::HigherFirst,
            until: None,
            fan: Fan { leaf: FAN, node: FAN },
            shared: Arc::default(),
        };
        board.names(u64::MAX, Some(&"m".repeat(LONGEST_MEMBER)), &[u64::MAX])?;
        Ok(board)
    }
}

impl Leaderboard {
    /// The lower score is the better one: strokes, race times. All who use the board must say so; a
    /// handle that says otherwise is refused.
    #[must_use]
    pub fn lower_first(mut self) -> Leaderboard {
        self.order = Order::LowerFirst;
        self
    }

    /// The end of the board, by the engine's clock: for boards of a week or a season. From then on
    /// it is empty, this handle changes no scores, and from an hour later on the engine forgets all
    /// of it.
    ///
    /// It counts for a board that begins or is rebuilt with this handle, and for what this handle
    /// changes. Whoever gives no end, or a later one, begins a new board of the same name. So all
    /// who write must give the end, and each week or season has a name of its own.
    #[must_use]
    pub fn until(mut self, end: SystemTime) -> Leaderboard {
        self.until = Some(micros(end));
        self
    }

    /// How many members a leaf of the tree has at the most, and children a node: 128 by default,
    /// 16 to 512. Fewer make smaller cells and more levels.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is out of range.
    pub fn fan_out(mut self, most: usize) -> Result<Leaderboard> {
        if !(16..=512).contains(&most) {
            return Err(Error::invalid(format!("a fan-out of {most} is out of range: 16 to 512")));
        }
        self.fan = Fan { leaf: most, node: most };
        Ok(self)
    }

    /// Sets a score, and says what it was. A score that does not change was reached when it was
    /// reached first.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer (it was set or was not, and can be set
    /// again), or while the board is rebuilt. [`Error::Invalid`] if the member is longer than
    /// [`LONGEST_MEMBER`], if the board has the other order, or if it has ended.
    ///
    /// # Cancel safety
    ///
    /// The score was set or was not. It can be set again.
    pub async fn set(&self, member: impl AsRef<str>, score: i64) -> Result<Option<i64>> {
        let change = self.changed(member.as_ref(), Act::Set(self.order.turn(score))).await?;
        Ok(change.0)
    }

    /// Sets a score if it is better than the one before, or is the first. True if it was set.
    ///
    /// # Errors
    ///
    /// As [`Leaderboard::set`].
    ///
    /// # Cancel safety
    ///
    /// The score was set or was not. It can be set again, which is then false if it was.
    pub async fn best(&self, member: impl AsRef<str>, score: i64) -> Result<bool> {
        let change = self.changed(member.as_ref(), Act::Best(self.order.turn(score))).await?;
        Ok(change.2 == Outcome::Changed)
    }

    /// Adds to a score, which is 0 before the first time, and says what it is now.
    ///
    /// # Errors
    ///
    /// As [`Leaderboard::set`], but [`Error::Unavailable`] means that nobody knows whether it was
    /// added: [`Leaderboard::increment_once`] can be asked again. [`Error::Invalid`] if the score
    /// would not fit in 64 bits.
    ///
    /// # Cancel safety
    ///
    /// It was added or was not.
    pub async fn increment(&self, member: impl AsRef<str>, by: i64) -> Result<i64> {
        let change = self.changed(member.as_ref(), Act::Add { by, event: None }).await?;
        Ok(change.1.unwrap_or_default())
    }

    /// Adds to a score once for each event, however often it is told. The last [`MOST_EVENTS`](super::MOST_EVENTS)
    /// events of each member are known; one that is older than that would be counted again. A
    /// [rebuild](Leaderboard::rebuild) forgets those that its entries do not name
    /// ([`RebuildEntry::events`](super::RebuildEntry::events)).
    ///
    /// # Errors
    ///
    /// As [`Leaderboard::set`]: it can be asked again. [`Error::Invalid`] if the score would not
    /// fit in 64 bits, or the event is longer than [`LONGEST_EVENT`](super::LONGEST_EVENT).
    ///
    /// # Cancel safety
    ///
    /// It was added or was not. It can be asked again with the same event.
    pub async fn increment_once(
        &self,
        member: impl AsRef<str>,
        by: i64,
        event: impl AsRef<[u8]>,
    ) -> Result<Incremented> {
        let event = checked_event(event.as_ref())?;
        let act = Act::Add { by, event: Some(event.to_vec()) };
        let (_, score, outcome) = self.changed(member.as_ref(), act).await?;
        let score = score.unwrap_or_default();
        Ok(if outcome == Outcome::Repeated { Incremented::Repeated(score) } else { Incremented::Yes(score) })
    }

    /// Takes a member off the board, and says which score it had. Its events are forgotten.
    ///
    /// # Errors
    ///
    /// As [`Leaderboard::set`].
    ///
    /// # Cancel safety
    ///
    /// It was taken off or was not. It can be done again.
    pub async fn remove(&self, member: impl AsRef<str>) -> Result<Option<i64>> {
        Ok(self.changed(member.as_ref(), Act::Remove).await?.0)
    }

    /// The score of a member. One round trip.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn get(&self, member: impl AsRef<str>) -> Result<Option<i64>> {
        self.find_score(checked(member.as_ref())?).await
    }

    /// The place of a member: exact, at one moment. Two round trips, or one for a member that this
    /// handle has lately changed or looked for; more where it does not know the tree yet.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn rank(&self, member: impl AsRef<str>) -> Result<Option<Rank>> {
        let rank = self.find_rank(checked(member.as_ref())?).await?;
        self.count_outcome("ranked");
        Ok(rank)
    }

    /// The best members, the first of them first: [`Leaderboard::page`] from place 1.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn top(&self, most: usize) -> Result<Vec<Ranked>> {
        self.page(1, most).await
    }

    /// Members from a place on, which is counted from 1.
    ///
    /// What is read in one round trip is of one moment: about ten leaves, so some hundreds of
    /// members. A longer page is put together from several moments. Whoever moves between them may
    /// be in it twice or not at all; places are never left out.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn page(&self, from: u64, most: usize) -> Result<Vec<Ranked>> {
        let page = self.find_page(from.max(1) - 1, most).await?;
        self.count_outcome("listed");
        Ok(page)
    }

    /// A member and up to so many before and after it, in order; nobody if it is not on the board.
    ///
    /// The member, its place and its leaf are of one moment, as are the leaves beside it that have
    /// the same parent. What is beyond those is read afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn around(&self, member: impl AsRef<str>, most: usize) -> Result<Vec<Ranked>> {
        let around = self.find_around(checked(member.as_ref())?, most).await?;
        self.count_outcome("listed");
        Ok(around)
    }

    /// How many members the board has. One round trip.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn count(&self) -> Result<u64> {
        self.find_count().await
    }

    /// Changes a score: before, after, and why it is so.
    async fn changed(&self, member: &str, act: Act) -> Result<(Option<i64>, Option<i64>, Outcome)> {
        let change = self.change(checked(member)?, act).await?;
        self.count_outcome(match change.outcome {
            Outcome::Changed => "changed",
            Outcome::Same => "unchanged",
            Outcome::Repeated => "repeated",
        });
        let turn = |turned: i64| self.order.turn(turned);
        Ok((change.before.map(turn), change.after.map(turn), change.outcome))
    }

    pub(super) fn hints(&self) -> MutexGuard<'_, Hints> {
        self.shared.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of the head, of a member's cell, and of cells of the tree.
    pub(super) fn names(&self, epoch: u64, member: Option<&str>, ids: &[u64]) -> Result<Vec<Name>> {
        let mut names = Vec::with_capacity(2 + ids.len());
        names.push(self.head_name()?);
        if let Some(member) = member {
            names.push(self.member_name(epoch, member)?);
        }
        for id in ids {
            names.push(self.part_name(epoch, *id)?);
        }
        Ok(names)
    }

    pub(super) fn head_name(&self) -> Result<Name> {
        self.client.name(Family::Cell, &self.head)
    }

    pub(super) fn member_name(&self, epoch: u64, member: &str) -> Result<Name> {
        self.client.name(Family::Cell, &format!("{}/{epoch:x}={member}", self.head))
    }

    pub(super) fn part_name(&self, epoch: u64, id: u64) -> Result<Name> {
        self.client.name(Family::Cell, &format!("{}/{epoch:x}/{id:x}", self.head))
    }

    pub(super) fn count_outcome(&self, outcome: &'static str) {
        self.client.inner.events.meter().kit("leasehold_leaderboards_total", outcome);
    }

    pub(super) fn foreign(&self) -> Error {
        Error::Engine {
            engine: self.client.guarantees().engine,
            what: format!(
                "cells of the leaderboard `{}` are lost or hold something else; rebuild it",
                self.head
            ),
            source: None,
        }
    }

    pub(super) fn other_order(&self) -> Error {
        Error::invalid(format!(
            "the leaderboard `{}` has the other order; all who use it must agree on `lower_first`",
            self.head
        ))
    }

    pub(super) fn too_many(&self) -> Error {
        Error::invalid(format!(
            "the leaderboard `{}` has too many members for its fan-out; rebuild it with a greater one",
            self.head
        ))
    }

    pub(super) fn too_busy(&self) -> Error {
        Error::Unavailable {
            engine: self.client.guarantees().engine,
            what: format!("others change the leaderboard `{}` too fast; try again", self.head),
            source: None,
        }
    }
}
