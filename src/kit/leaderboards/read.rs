//! Looking at a board.

use super::board::Leaderboard;
use super::key::Key;
use super::ranked::{Rank, Ranked};
use super::seen::{Seen, Stand};
use super::write::TRIES;
use crate::engine::MOST_CELLS;
use crate::error::Result;

impl Leaderboard {
    /// Reads the head, a member and these cells of the tree at one moment.
    pub(super) async fn see(&self, epoch: u64, member: Option<&str>, ids: &[u64]) -> Result<Seen> {
        let names = self.names(epoch, member, ids)?;
        let found = self.client.inner.read_cells(&names[..names.len().min(MOST_CELLS)]).await?;
        let values: Vec<Option<&[u8]>> = found.cells.iter().map(|cell| cell.value.as_deref()).collect();
        let seen = Seen::read(&values, member.is_some(), ids, found.now).ok_or_else(|| self.foreign())?;
        self.remember(epoch, member, &seen)?;
        Ok(seen)
    }

    pub(super) fn remember(&self, epoch: u64, member: Option<&str>, seen: &Seen) -> Result<()> {
        let board = seen.board();
        if board.is_some_and(|(head, _)| head.order != self.order) {
            return Err(self.other_order());
        }
        if board.is_some_and(|(head, _)| head.epoch == epoch) && seen.is_broken() {
            return Err(self.foreign());
        }
        self.hints().learn(epoch, member, seen);
        Ok(())
    }

    /// Looks until `found` has seen enough. It is asked with what is at one moment; `None` if there
    /// is no board.
    async fn look<T>(
        &self,
        member: Option<&str>,
        wanted: impl Fn() -> Vec<u64>,
        mut found: impl FnMut(&Seen) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        for _ in 0..TRIES {
            let Some(epoch) = self.epoch().await? else { return Ok(None) };
            let seen = self.see(epoch, member, &wanted()).await?;
            let Some((head, _)) = seen.board() else { return Ok(None) };
            if head.epoch == epoch
                && let Some(found) = found(&seen)?
            {
                return Ok(Some(found));
            }
        }
        Err(self.too_busy())
    }

    /// Looks for a member with these cells of the tree; where it stands, and what was seen with it.
    async fn find(
        &self,
        member: &str,
        wanted: impl Fn(&Key) -> Vec<u64>,
    ) -> Result<Option<(Key, Stand, Seen)>> {
        let ids = || {
            let key = self.hints().key(member);
            key.map(|key| wanted(&key)).unwrap_or_default()
        };
        let found = self.look(Some(member), ids, |seen| {
            let Some(key) = seen.member.as_ref().map(|found| found.key(member)) else {
                return Ok(Some(None));
            };
            let Some(stand) = seen.stand(&key) else {
                // A leaf that should have it and has not is not a wrong guess.
                return if seen.leaf_of(&key).is_some_and(|leaf| !seen.has(leaf, &key)) {
                    Err(self.foreign())
                } else {
                    Ok(None)
                };
            };
            Ok(Some(Some((key, stand, seen.clone()))))
        });
        Ok(found.await?.flatten())
    }

    pub(super) async fn find_score(&self, member: &str) -> Result<Option<i64>> {
        let found = self.look(Some(member), Vec::new, |seen| Ok(Some(seen.member.clone()))).await?;
        Ok(found.flatten().map(|found| self.order.turn(found.turned)))
    }

    pub(super) async fn find_rank(&self, member: &str) -> Result<Option<Rank>> {
        let found = self.find(member, |key| self.hints().path(key)).await?;
        Ok(found.map(|(key, stand, _)| Rank {
            place: stand.before + 1,
            of: stand.count,
            score: self.order.turn(key.turned),
        }))
    }

    pub(super) async fn find_count(&self) -> Result<u64> {
        let count =
            self.look(None, || self.hints().root().into_iter().collect(), |seen| Ok(seen.count())).await?;
        Ok(count.unwrap_or(0))
    }

    /// Members from a place on, counted from 0. What is in one call is of one moment.
    pub(super) async fn find_page(&self, from: u64, most: usize) -> Result<Vec<Ranked>> {
        let mut page: Vec<Ranked> = Vec::new();
        while page.len() < most {
            let (next, left) = (from.saturating_add(page.len() as u64), most - page.len());
            let part = self.look(None, || self.hints().window(next, left), |seen| Ok(seen.slice(next, left)));
            let part = part.await?.unwrap_or_default();
            if part.is_empty() {
                break;
            }
            page.extend(self.ranked(next, part));
        }
        Ok(page)
    }

    /// A member, and so many before and after it.
    pub(super) async fn find_around(&self, member: &str, most: usize) -> Result<Vec<Ranked>> {
        let found = self.find(member, |key| self.hints().surroundings(key, most)).await?;
        let Some((key, stand, seen)) = found else { return Ok(Vec::new()) };
        let (before, after) = seen.around(&stand, most);
        let first = stand.before - before.len() as u64;
        // Beyond the cells of one call: what is there by now.
        let lacking = (most - before.len()).min(usize::try_from(first).unwrap_or(usize::MAX));
        let mut around = match lacking {
            0 => Vec::new(),
            lacking => self.find_page(first - lacking as u64, lacking).await?,
        };
        let lacking = most - after.len();
        let next = stand.before + 1 + after.len() as u64;
        around.extend(self.ranked(first, before.into_iter().chain([key]).chain(after).collect()));
        if lacking > 0 && next < stand.count {
            around.extend(self.find_page(next, lacking).await?);
        }
        Ok(around)
    }

    fn ranked(&self, from: u64, keys: Vec<Key>) -> impl Iterator<Item = Ranked> {
        let order = self.order;
        keys.into_iter().zip(from + 1..).map(move |(key, place)| Ranked {
            place,
            score: order.turn(key.turned),
            member: key.member,
        })
    }
}

impl Seen {
    fn has(&self, leaf: u64, key: &Key) -> bool {
        self.leaves.get(&leaf).is_some_and(|leaf| leaf.keys.binary_search(key).is_ok())
    }
}
