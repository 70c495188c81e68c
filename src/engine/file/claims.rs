//! Claims in the store: one request on one name is one transaction.

use std::collections::HashSet;

use super::failure::{failed, unreadable};
use super::rows::{self, LONGEST_KEY, RowError, Rows};
use super::session::{Session, forgotten_floor, raise_forgotten_floor};
use super::transaction::Transaction;
use crate::claim::{Micros, Seat, State, World};
use crate::engine::table::cell::StoredCell;
use crate::engine::table::row::{Record, decode, encode};
use crate::engine::table::{self, Keep, Notice, Request, Sweep, view};
use crate::engine::{Renewal, Renewed, View};
use crate::error::Result;
use crate::name::{Family, Name};

/// What a request came to.
#[derive(Debug)]
pub(super) struct Done<T> {
    pub(super) answer: T,
    /// Delivered when the transaction is committed.
    pub(super) notices: Vec<Notice>,
    /// Those who hold the name, if the answer is to wait for them.
    pub(super) blocking: HashSet<Seat>,
}

impl Session {
    /// The row of a name, with the claims in it that are kept: every rule starts from here.
    fn load(&self, row: &[u8], now: Micros) -> Result<Record, RowError> {
        let mut record: Record = decode(row)?;
        record.state.keep_claims(now, |seat| self.kept(seat));
        Ok(record)
    }

    /// Whom an asker waits for: those who hold.
    fn holders(&self, state: &State, now: Micros) -> HashSet<Seat> {
        state.claims(now).map(|claim| claim.seat).filter(|seat| *seat != self.seat).collect()
    }

    /// Runs one request on a name.
    pub(super) fn on_name<R: Request>(
        &self,
        transaction: &mut Transaction<'_>,
        name: &Name,
        request: &R,
    ) -> Result<Done<R::Answer>> {
        let now = transaction.now;
        let key = rows::name_key(name);
        let stored = transaction.get(&key)?;
        let existed = stored.is_some();
        let mut record = match stored {
            Some(row) => self.load(row, now).map_err(|error| unreadable(name, error))?,
            None => Record::new(name, LONGEST_KEY, forgotten_floor(transaction)?),
        };
        let mut queue = Rows {
            table: transaction.table,
            txn: &mut transaction.txn,
            name_key: &key,
            next_place: &mut record.next_place,
        };
        let alive = |seat| self.alive(seat);
        let world = World::at(now, &alive);
        let outcome = table::run(&mut record.state, &mut queue, world, request).map_err(failed)?;
        let mut notices = outcome.notices;
        if outcome.changed {
            self.notify_watchers(transaction, name, &mut notices)?;
        }
        match outcome.keep {
            Keep::Forget { floor } => {
                if let Some(floor) = floor {
                    raise_forgotten_floor(transaction, floor)?;
                }
                if existed {
                    transaction.delete(&key)?;
                }
            }
            Keep::Store => {
                // On disk before anybody sees it.
                self.store.reserve(&self.dir, record.state.last_token())?;
                transaction.put(&key, &encode(&record).map_err(failed)?)?;
            }
        }
        let queued = R::is_queued(&outcome.answer);
        let blocking = if queued { self.holders(&record.state, now) } else { HashSet::new() };
        Ok(Done { answer: outcome.answer, notices, blocking })
    }

    /// Renews one claim.
    pub(super) fn renew(&self, transaction: &mut Transaction<'_>, renewal: &Renewal) -> Result<Renewed> {
        let key = rows::name_key(&renewal.name);
        let Some(row) = transaction.get(&key)? else { return Ok(Renewed::Gone) };
        let mut record = self.load(row, transaction.now).map_err(|error| unreadable(&renewal.name, error))?;
        if !record.state.renew(renewal.owner, renewal.lease, transaction.now) {
            return Ok(Renewed::Gone);
        }
        transaction.put(&key, &encode(&record).map_err(failed)?)?;
        Ok(Renewed::Yes)
    }

    /// The names in use.
    pub(super) fn list(
        &self,
        family: Family,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Name, View)>> {
        self.store.read(&self.dir, |txn, table| {
            let now = self.dir.now();
            let mut shown = Vec::new();
            for row in table.prefix_iter(txn, &rows::names_prefix(family, prefix)).map_err(failed)? {
                let (key, row) = row.map_err(failed)?;
                let record = self.load(row, now).map_err(failed)?;
                let Some(text) = rows::text_of(key, &record) else { continue };
                if !text.starts_with(prefix) || after.is_some_and(|after| text <= after) {
                    continue;
                }
                let mut view = view(&record.state, Vec::new(), u64::MAX, now);
                view.claims.retain(|held| self.alive(held.claim.seat));
                if !view.claims.is_empty() || view.waiting > 0 {
                    shown.push((Name::new(family, text)?, view));
                }
            }
            // Folded names are not stored in the order of what they stand for.
            shown.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            shown.truncate(limit);
            Ok(shown)
        })
    }

    /// Clears away a few rows that nobody may ever ask for again: what dead clients held, cells
    /// that have expired. Called now and then, it goes round the whole store.
    pub(super) fn sweep(&self, transaction: &mut Transaction<'_>) -> Result<Vec<Notice>> {
        const ROWS: usize = 32;
        let cursor = transaction.get(rows::CURSOR)?.map_or_else(Vec::new, <[u8]>::to_vec);
        let keys = transaction.keys_from(&cursor, ROWS)?;
        let mut notices = Vec::new();
        for key in &keys {
            let Some(row) = transaction.get(key)? else { continue };
            if rows::is_cell(key) {
                let row: StoredCell = decode(row).map_err(failed)?;
                if row.expires <= transaction.now {
                    transaction.delete(key)?;
                }
            } else if let Some(family) = rows::family_of(key) {
                let record: Record = decode(row).map_err(failed)?;
                let Some(text) = rows::text_of(key, &record) else { continue };
                let name = Name::new(family, text)?;
                notices.extend(self.on_name(transaction, &name, &Sweep)?.notices);
            }
        }
        match keys.last().filter(|_| keys.len() == ROWS) {
            Some(last) => transaction.put(rows::CURSOR, &[last.as_slice(), &[0]].concat())?,
            None => transaction.delete(rows::CURSOR)?,
        }
        Ok(notices)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::sync::Arc;

    use super::*;
    use crate::engine::file::File;
    use crate::engine::{CellValue, Engine as _, Swap, Write};

    async fn rows_in(session: &Session) -> usize {
        let count =
            session.write(|transaction| transaction.keys_from(&[], usize::MAX).map(|keys| keys.len()));
        count.await.expect("the store is fine")
    }

    #[tokio::test]
    async fn what_nobody_asks_for_again_is_swept() {
        let dir = tempfile::tempdir().expect("a directory");
        let url = dir.path().join("store");
        let url = url.to_str().expect("a plain path");
        let (dead, keeps) =
            (File::open(url).await.expect("a store"), File::open(url).await.expect("a store"));
        for number in 0..100 {
            let name = Name::new(Family::Lock, format!("n{number}")).expect("a name");
            let ask = crate::claim::Ask {
                owner: crate::claim::OwnerId(number),
                weight: 1,
                capacity: 1,
                lease: Duration::from_secs(3600),
                lock_delay: Duration::ZERO,
                tokens: 1,
                wait: false,
                answer_within: Duration::from_secs(5),
                holder: Arc::default(),
                value: Arc::default(),
                round: 1,
                logged: false,
            };
            let seat = if number % 10 == 0 { &keeps } else { &dead };
            seat.acquire(&name, &ask).await.expect("granted");
            let cell = Name::new(Family::Cell, format!("c{number}")).expect("a name");
            let lives = Duration::from_secs(if number % 10 == 0 { 3600 } else { 0 });
            let write = Write::Put(CellValue { bytes: vec![1], lives });
            seat.swap(vec![Swap { name: cell, version: 0, write }]).await.expect("swapped");
        }
        assert_eq!(rows_in(&keeps.session).await, 200);
        dead.close().await.expect("closed");
        for _ in 0..10 {
            let session = Arc::clone(&keeps.session);
            keeps.session.write(move |transaction| session.sweep(transaction)).await.expect("swept");
        }
        assert_eq!(rows_in(&keeps.session).await, 20);
    }
}
