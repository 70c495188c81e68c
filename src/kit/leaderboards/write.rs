//! Changing scores.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::board::Leaderboard;
use super::change::Act;
use super::key::Key;
use super::rule::{Answer, Ask, Outcome, Step, Values};
use super::seen::Seen;
use crate::claim::Micros;
use crate::error::{Error, Result};
use crate::random;

/// After so many guesses that were wrong, somebody else changes the board all the time.
pub(super) const TRIES: usize = 200;
/// How often a writer looks whether a board has been built.
const LOOK: Duration = Duration::from_millis(50);

/// What is known of a board.
enum Known {
    /// It is there, with this epoch.
    Board(u64),
    /// There is none, but somebody has begun to build one.
    Building,
    Nothing,
}

/// A score before and after, turned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) before: Option<i64>,
    pub(super) after: Option<i64>,
    pub(super) outcome: Outcome,
}

/// What a merge came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merged {
    Enough,
    /// A node got another child, whose leaf had no neighbour before.
    ParentOfOnlyChild,
}

impl Leaderboard {
    pub(super) async fn change(&self, member: &str, act: Act) -> Result<Change> {
        let patience = Instant::now() + self.client.inner.options.call_limit;
        let mut is_built = false;
        loop {
            // Tasks of one process would only undo each other's guesses.
            let Ok(mut turn) = timeout_at(patience, self.shared.turn.lock()).await else {
                return Err(if is_built { self.being_built() } else { self.no_turn() });
            };
            // One task looks for all that wait.
            let seen = match turn.builder_seen.filter(|seen| seen.elapsed() < LOOK) {
                Some(seen) => seen,
                None => {
                    if let Some(change) = self.change_unless_built(member, &act).await? {
                        turn.builder_seen = None;
                        return Ok(change);
                    }
                    Instant::now()
                }
            };
            turn.builder_seen = Some(seen);
            // Whoever waits for the builder must not make the others wait behind it.
            drop(turn);
            is_built = true;
            if Instant::now() >= patience {
                return Err(self.being_built());
            }
            sleep_until(patience.min(seen + LOOK)).await;
        }
    }

    /// `None` if somebody is building the board: nothing is changed then.
    async fn change_unless_built(&self, member: &str, act: &Act) -> Result<Option<Change>> {
        let mut whole = false;
        let mut reached = Micros::MAX;
        for _ in 0..TRIES {
            let epoch = match self.known().await? {
                Known::Board(epoch) => epoch,
                // The member may be on the board that comes, so the step decides. No board has this
                // epoch.
                Known::Building if *act == Act::Remove => 0,
                Known::Nothing if *act == Act::Remove => {
                    return Ok(Some(Change { before: None, after: None, outcome: Outcome::Same }));
                }
                Known::Building | Known::Nothing => {
                    if !self.begin().await? {
                        return Ok(None);
                    }
                    continue;
                }
            };
            let ids = self.hints().plan(member, act, self.order, whole, reached);
            let ask = Ask::Change { member: member.to_owned(), act: act.clone() };
            match self.ask(epoch, Some(member), ids.clone(), ask).await? {
                Answer::Changed { before, after, outcome, thin, now } => {
                    let left = self.hints().key(member);
                    if before != after {
                        self.hints().learn_member(member, after.map(|after| (after, now)));
                    }
                    if let Some(left) = left.filter(|_| thin) {
                        // The score is changed, whatever comes of this. Another change of the leaf
                        // does what was not done.
                        self.tidy(epoch, &left).await.ok();
                    }
                    return Ok(Some(Change { before, after, outcome }));
                }
                Answer::Astray { now, values } => {
                    self.count_outcome("astray");
                    self.learn(epoch, Some(member), &ids, now, &values)?;
                    whole = true;
                    // A member enters behind all who have its score. If the clock was set back, and
                    // time stands still, it enters among those who have reached it now.
                    reached = if reached == Micros::MAX { now } else { Micros::MAX };
                }
                Answer::Full { now, values } => {
                    self.learn(epoch, Some(member), &ids, now, &values)?;
                    whole = true;
                    let turned = self.enters(member, act);
                    let key = Key { turned, reached, member: member.to_owned() };
                    self.make_room(epoch, &key).await?;
                }
                Answer::NoBoard => self.hints().learn_head(None),
                Answer::Rebuilding => return Ok(None),
                Answer::Over => return Err(self.ended()),
                Answer::OtherOrder => return Err(self.other_order()),
                Answer::Overflow => {
                    return Err(Error::invalid(format!(
                        "the score of `{member}` would be outside of 64 bits; it is as it was"
                    )));
                }
                _ => return Err(self.foreign()),
            }
        }
        Err(self.too_busy())
    }

    /// The score, turned, that a member is believed to get.
    fn enters(&self, member: &str, act: &Act) -> i64 {
        match act {
            Act::Set(turned) | Act::Best(turned) => *turned,
            Act::Add { by, .. } => {
                let old = self.hints().key(member);
                let score = old.map_or(0, |old| self.order.turn(old.turned));
                self.order.turn(score.saturating_add(*by))
            }
            Act::Remove => 0,
        }
    }

    /// The board that there is, as far as is known.
    pub(super) async fn epoch(&self) -> Result<Option<u64>> {
        Ok(match self.known().await? {
            Known::Board(epoch) => Some(epoch),
            Known::Building | Known::Nothing => None,
        })
    }

    async fn known(&self) -> Result<Known> {
        let known = self.hints().epoch();
        if let Some(epoch) = known {
            return Ok(Known::Board(epoch));
        }
        let seen = self.see(0, None, &[]).await?;
        Ok(match (seen.board(), &seen.head) {
            (Some((head, _)), _) => Known::Board(head.epoch),
            (None, Some(head)) if head.building.is_some() => Known::Building,
            _ => Known::Nothing,
        })
    }

    /// False if somebody is building a board.
    async fn begin(&self) -> Result<bool> {
        let (epoch, leaf) = (random::number()?.max(1), random::number()?);
        match self.ask(epoch, None, vec![leaf], Ask::Begin { leaf }).await? {
            Answer::Done(_) | Answer::Astray { .. } => Ok(true),
            Answer::Rebuilding => Ok(false),
            Answer::Over => Err(self.ended()),
            _ => Err(self.foreign()),
        }
    }

    fn ended(&self) -> Error {
        Error::invalid(format!("the leaderboard `{}` has ended, and takes no scores any more", self.head))
    }

    fn being_built(&self) -> Error {
        Error::Unavailable {
            engine: self.client.guarantees().engine,
            what: format!("the leaderboard `{}` is being built anew; try again when it is done", self.head),
            source: None,
        }
    }

    fn no_turn(&self) -> Error {
        Error::Unavailable {
            engine: self.client.guarantees().engine,
            what: format!(
                "other tasks change the leaderboard `{}` with this handle and have not finished in time; \
                 nothing was changed, try again",
                self.head
            ),
            source: None,
        }
    }

    /// Splits the leaf of a key, or what is above it and full too. One step; whoever still has no
    /// room comes again.
    async fn make_room(&self, epoch: u64, key: &Key) -> Result<()> {
        let path = self.hints().path(key);
        for depth in (0..path.len()).rev() {
            let (id, new, root) = (path[depth], random::number()?, random::number()?);
            let ids = match depth.checked_sub(1) {
                Some(above) => vec![path[above], id, new],
                None => vec![id, new, root],
            };
            match self.ask(epoch, None, ids.clone(), Ask::Split { id, new, root }).await? {
                // What is above has no room for another child.
                Answer::Full { .. } => {}
                Answer::Reshaped { now, values, .. } => {
                    self.count_outcome("split");
                    return self.learn(epoch, None, &ids, now, &values);
                }
                Answer::Astray { now, values } => return self.learn(epoch, None, &ids, now, &values),
                Answer::No => return Err(self.too_many()),
                _ => return Err(self.foreign()),
            }
        }
        Ok(())
    }

    /// Merges the leaf of a key with a neighbour, and so on upwards as far as that leaves thin
    /// nodes.
    async fn tidy(&self, epoch: u64, key: &Key) -> Result<()> {
        // An only child has no neighbour before its parent has been merged.
        while self.merge_upwards(epoch, key).await? == Merged::ParentOfOnlyChild {}
        Ok(())
    }

    async fn merge_upwards(&self, epoch: u64, key: &Key) -> Result<Merged> {
        let path = self.hints().path(key);
        let mut merged = Merged::Enough;
        for depth in (1..path.len()).rev() {
            let Some(node) = self.hints().node(path[depth - 1]).cloned() else { return Ok(Merged::Enough) };
            let Some(place) = node.position(path[depth]) else { return Ok(Merged::Enough) };
            let pair = match place {
                0 => node.children.get(1).map(|next| (path[depth], next.id)),
                place => Some((node.children[place - 1].id, path[depth])),
            };
            let Some((left, right)) = pair else {
                merged = Merged::ParentOfOnlyChild;
                continue;
            };
            let ids = vec![path[depth - 1], left, right];
            match self.ask(epoch, None, ids.clone(), Ask::Merge { left, right }).await? {
                Answer::Reshaped { now, thin, values } => {
                    self.count_outcome("merged");
                    self.learn(epoch, None, &ids, now, &values)?;
                    if !thin || merged == Merged::ParentOfOnlyChild {
                        return Ok(merged);
                    }
                }
                Answer::Astray { now, values } => {
                    self.learn(epoch, None, &ids, now, &values)?;
                    return Ok(Merged::Enough);
                }
                _ => return Ok(Merged::Enough),
            }
        }
        if let [root, _, ..] = path[..]
            && let Answer::Reshaped { now, values, .. } =
                self.ask(epoch, None, vec![root], Ask::Shrink).await?
        {
            self.learn(epoch, None, &[root], now, &values)?;
        }
        Ok(Merged::Enough)
    }

    pub(super) async fn ask(
        &self,
        epoch: u64,
        member: Option<&str>,
        ids: Vec<u64>,
        ask: Ask,
    ) -> Result<Answer> {
        let names = self.names(epoch, member, &ids)?;
        let step = Step { order: self.order, until: self.until, fan: self.fan, epoch, ids, ask };
        match self.client.inner.update(&names, &Arc::new(step)).await? {
            Answer::Foreign => Err(self.foreign()),
            answer => Ok(answer),
        }
    }

    /// Remembers what a step saw.
    fn learn(
        &self,
        epoch: u64,
        member: Option<&str>,
        ids: &[u64],
        now: Micros,
        values: &Values,
    ) -> Result<()> {
        let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
        let seen = Seen::read(&values, member.is_some(), ids, now).ok_or_else(|| self.foreign())?;
        self.remember(epoch, member, &seen)
    }
}
