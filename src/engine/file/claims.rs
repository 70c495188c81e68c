//! Claims in the store: one request on one name is one transaction.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// So many rows are swept in one go.
const ROWS: usize = 32;

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
    pub(super) async fn list(
        self: &Arc<Session>,
        family: Family,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Name, View)>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        let read = self.read(move |session, txn, table| {
            let now = session.dir.now();
            let mut shown = Vec::new();
            for row in table.prefix_iter(txn, &rows::names_prefix(family, &prefix)).map_err(failed)? {
                let (key, row) = row.map_err(failed)?;
                let record = session.load(row, now).map_err(failed)?;
                let Some(text) = rows::text_of(key, &record) else { continue };
                if !text.starts_with(&prefix) || after.as_deref().is_some_and(|after| text <= after) {
                    continue;
                }
                let mut view = view(&record.state, Vec::new(), u64::MAX, now);
                view.claims.retain(|held| session.alive(held.claim.seat));
                if !view.claims.is_empty() || view.waiting > 0 {
                    shown.push((Name::new(family, text)?, view));
                }
            }
            // Folded names are not stored in the order of what they stand for.
            shown.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            shown.truncate(limit);
            Ok(shown)
        });
        read.await
    }

    /// Sweeps a few rows if enough cells were written since the last time: not everybody who writes
    /// cells holds anything, and who holds for long sweeps as well.
    pub(super) fn sweep_now_and_then(&self, transaction: &mut Transaction<'_>, cells: usize) -> Vec<Notice> {
        // Twice as many rows are looked at as are written.
        const EVERY: usize = ROWS / 2;
        let before = self.cells_written.fetch_add(cells, Ordering::Relaxed);
        if before / EVERY == before.wrapping_add(cells) / EVERY {
            return Vec::new();
        }
        // If it can not be done now, it is done later.
        self.sweep(transaction).unwrap_or_else(|error| {
            tracing::debug!(target: "leasehold", %error, "not swept");
            Vec::new()
        })
    }

    /// Clears away a few rows that nobody may ever ask for again: what dead clients held, cells
    /// that have expired. Called now and then, it goes round the whole store.
    pub(super) fn sweep(&self, transaction: &mut Transaction<'_>) -> Result<Vec<Notice>> {
        self.store.forget_dead_readers();
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

    use super::*;
    use crate::engine::file::File;
    use crate::engine::{CellValue, Engine as _, Swap, Swapped, Write};

    async fn rows_in(session: &Session) -> usize {
        let count =
            session.write(|transaction| transaction.keys_from(&[], usize::MAX).map(|keys| keys.len()));
        count.await.expect("the store is fine")
    }

    async fn write_cell(file: &File, number: u128, lives: Duration) {
        let name = Name::new(Family::Cell, format!("c{number}")).expect("a name");
        let write = Write::Put(CellValue { bytes: vec![1], lives });
        let swapped = file.swap(vec![Swap { name, version: 0, write }]).await.expect("an answer");
        assert!(matches!(swapped, Swapped::Yes), "{swapped:?}");
    }

    #[tokio::test]
    async fn whoever_writes_cells_keeps_the_store_small() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = File::open(dir.path().join("store").to_str().expect("a path")).await.expect("a store");
        for number in 0..1000 {
            write_cell(&file, number, Duration::ZERO).await;
        }
        let rows = rows_in(&file.session).await;
        assert!(rows < 300, "{rows} rows of 1000 that have expired");
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
            let lives = Duration::from_millis(if number % 10 == 0 { 3_600_000 } else { 1000 });
            write_cell(seat, number, lives).await;
        }
        assert_eq!(rows_in(&keeps.session).await, 200);
        tokio::time::sleep(Duration::from_millis(1100)).await;
        dead.close().await.expect("closed");
        for _ in 0..10 {
            let session = Arc::clone(&keeps.session);
            keeps.session.write(move |transaction| session.sweep(transaction)).await.expect("swept");
        }
        assert_eq!(rows_in(&keeps.session).await, 20);
    }
}
