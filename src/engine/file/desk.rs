//! What a client does at the store: claims and cells, one write each.

use std::collections::HashSet;
use std::sync::Arc;

use super::dir::Dir;
use super::failure::{failed, unreadable};
use super::rows::{self, CellRow, Record, RowError, Rows};
use super::seats::{self, Peers, Post};
use super::store::{Store, Writing};
use crate::claim::{Micros, Seat, State, Step, Wake, World};
use crate::engine::{Cell, CellValue, Renewal, Renewed, Swapped, View, view};
use crate::error::Result;
use crate::name::{Family, Name};

/// What a write needs to know beside the store: it may run on another thread.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) dir: Arc<Dir>,
    pub(super) store: Arc<Store>,
    pub(super) peers: Peers,
    pub(super) post: Post,
    pub(super) seat: Seat,
}

/// A message and whom it is for.
pub(super) type Message = (Seat, Vec<u8>);

/// What follows from a write, for other clients: sent when the write is done.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) wakes: Vec<Wake>,
    pub(super) messages: Vec<Message>,
}

/// Whom an asker waits for: those who hold.
pub(super) fn holders(state: &State, now: Micros, own: Seat) -> HashSet<Seat> {
    state.claims(now).map(|claim| claim.seat).filter(|seat| *seat != own).collect()
}

impl Desk {
    /// Writes to the store: see [`Store::write`].
    pub(super) async fn write<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Writing<'_>) -> Result<T> + Send + 'static,
    {
        self.store.write(&self.dir, work).await
    }

    fn alive(&self, seat: Seat) -> bool {
        seat == self.seat || self.peers.alive(&self.dir, seat) || self.moved()
    }

    /// True if the store was moved since the write began: then nobody's files are found, and nothing follows from that.
    fn moved(&self) -> bool {
        !self.store.in_place(&self.dir).unwrap_or(false)
    }

    /// The row of a name, with the claims in it that are kept: every rule starts from here.
    fn load(&self, row: &[u8], now: Micros) -> Result<Record, RowError> {
        let mut record: Record = rows::decode(row)?;
        let kept = |seat| seat != self.seat && (self.peers.kept(&self.dir, seat) || self.moved());
        record.state.keep_claims(now, kept);
        Ok(record)
    }

    /// Runs one request on a name.
    pub(super) fn on_name<T>(
        &self,
        writing: &mut Writing<'_>,
        name: &Name,
        request: impl FnOnce(&mut State, &mut Rows<'_, '_>, World<'_>) -> Result<Step<T>, RowError>,
    ) -> Result<(T, Outgoing)> {
        let now = writing.now;
        let key = rows::name_key(name);
        let stored = writing.get(&key)?;
        let existed = stored.is_some();
        let mut record = match stored {
            Some(row) => self.load(row, now).map_err(|error| unreadable(name, error))?,
            None => Record {
                text: rows::text_beside_key(name),
                next_place: 0,
                state: State::new(forgotten_floor(writing)?),
            },
        };
        let changes = record.state.change_count();
        let mut queue = Rows {
            table: writing.table,
            txn: &mut writing.txn,
            name_key: &key,
            next_place: &mut record.next_place,
        };
        let alive = |seat| self.alive(seat);
        let step = request(&mut record.state, &mut queue, World { now, alive: &alive }).map_err(failed)?;
        let mut outgoing = Outgoing { wakes: step.wakes, messages: Vec::new() };
        if record.state.change_count() != changes {
            outgoing.messages = self.watchers(writing, name)?;
        }
        match record.state.retire(now) {
            Some(last) => {
                if last >= now {
                    raise_forgotten_floor(writing, last)?;
                }
                if existed {
                    writing.delete(&key)?;
                }
            }
            None => {
                // On disk before anybody sees it.
                self.store.reserve(&self.dir, record.state.last_token())?;
                writing.put(&key, &rows::encode(&record).map_err(failed)?)?;
            }
        }
        Ok((step.answer, outgoing))
    }

    /// Renews one claim.
    pub(super) fn renew(&self, writing: &mut Writing<'_>, renewal: &Renewal) -> Result<Renewed> {
        let key = rows::name_key(&renewal.name);
        let Some(row) = writing.get(&key)? else { return Ok(Renewed::Gone) };
        let mut record = self.load(row, writing.now).map_err(|error| unreadable(&renewal.name, error))?;
        if !record.state.renew(renewal.owner, renewal.lease, writing.now) {
            return Ok(Renewed::Gone);
        }
        writing.put(&key, &rows::encode(&record).map_err(failed)?)?;
        Ok(Renewed::Yes)
    }

    /// Messages to those who want to hear of changes to `name`.
    fn watchers(&self, writing: &mut Writing<'_>, name: &Name) -> Result<Vec<Message>> {
        let prefix = rows::watchers_prefix(name);
        let mut messages = Vec::new();
        for key in writing.keys(&prefix)? {
            match rows::number_after(&prefix, &key).filter(|seat| self.alive(*seat)) {
                Some(seat) => messages.push((seat, seats::changed_message(name))),
                None => writing.delete(&key)?,
            }
        }
        Ok(messages)
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
                let mut view = view(&record.state, [].iter(), u64::MAX, now);
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

    /// Replaces a cell if it is still what the caller saw.
    pub(super) fn swap(
        &self,
        writing: &mut Writing<'_>,
        name: &Name,
        version: u64,
        value: Option<CellValue>,
    ) -> Result<(Swapped, Outgoing)> {
        let now = writing.now;
        let key = rows::cell_key(name);
        let found = cell(name, writing.get(&key)?, now)?;
        if found.version != version {
            return Ok((Swapped::No(found), Outgoing::default()));
        }
        let next = (forgotten_floor(writing)?.max(version) + 1).max(now);
        match value {
            Some(CellValue { bytes, lives }) => {
                let expires = now.saturating_add(u64::try_from(lives.as_micros()).unwrap_or(u64::MAX));
                let row = rows::encode(&CellRow { version: next, expires, bytes }).map_err(failed)?;
                writing.put(&key, &row)?;
            }
            None => {
                raise_forgotten_floor(writing, version)?;
                writing.delete(&key)?;
            }
        }
        let messages = self.watchers(writing, name)?;
        Ok((Swapped::Yes(next), Outgoing { wakes: Vec::new(), messages }))
    }

    /// Clears away a few rows that nobody may ever ask for again: what dead clients held, cells that have expired.
    /// Called now and then, it goes round the whole store.
    pub(super) fn sweep(&self, writing: &mut Writing<'_>) -> Result<Outgoing> {
        const ROWS: usize = 32;
        let cursor = writing.get(rows::CURSOR)?.map_or_else(Vec::new, <[u8]>::to_vec);
        let keys = writing.keys_from(&cursor, ROWS)?;
        let mut outgoing = Outgoing::default();
        for key in &keys {
            let Some(row) = writing.get(key)? else { continue };
            if rows::is_cell(key) {
                let row: CellRow = rows::decode(row).map_err(failed)?;
                if row.expires <= writing.now {
                    writing.delete(key)?;
                }
            } else if let Some(family) = rows::family_of(key) {
                let record: Record = rows::decode(row).map_err(failed)?;
                let Some(text) = rows::text_of(key, &record) else { continue };
                let name = Name::new(family, text)?;
                let (_, follows) =
                    self.on_name(writing, &name, |state, queue, world| state.sweep(queue, world))?;
                outgoing.wakes.extend(follows.wakes);
                outgoing.messages.extend(follows.messages);
            }
        }
        match keys.last().filter(|_| keys.len() == ROWS) {
            Some(last) => writing.put(rows::CURSOR, &[last.as_slice(), &[0]].concat())?,
            None => writing.delete(rows::CURSOR)?,
        }
        Ok(outgoing)
    }
}

/// No forgotten name has given a token above this.
fn forgotten_floor(writing: &Writing<'_>) -> Result<u64> {
    Ok(writing.get(rows::FLOOR)?.map_or(0, rows::number))
}

fn raise_forgotten_floor(writing: &mut Writing<'_>, token: u64) -> Result<()> {
    if token > forgotten_floor(writing)? {
        writing.put(rows::FLOOR, &token.to_be_bytes())?;
    }
    Ok(())
}

/// A cell from its row.
pub(super) fn cell(name: &Name, row: Option<&[u8]>, now: Micros) -> Result<Cell> {
    let row: Option<CellRow> = row.map(rows::decode).transpose().map_err(|error| unreadable(name, error))?;
    Ok(match row.filter(|row| row.expires > now) {
        Some(row) => Cell { version: row.version, value: Some(row.bytes), now },
        None => Cell { version: 0, value: None, now },
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::Engine as _;
    use crate::engine::file::File;

    async fn rows_in(desk: &Desk) -> usize {
        let count = desk.write(|writing| writing.keys_from(&[], usize::MAX).map(|keys| keys.len()));
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
            seat.swap(&cell, 0, Some(CellValue { bytes: vec![1], lives })).await.expect("swapped");
        }
        assert_eq!(rows_in(&keeps.desk).await, 200);
        dead.close().await.expect("closed");
        for _ in 0..10 {
            let desk = Arc::clone(&keeps.desk);
            keeps.desk.write(move |writing| desk.sweep(writing)).await.expect("swept");
        }
        assert_eq!(rows_in(&keeps.desk).await, 20);
    }
}
