//! Where nobody is called: claims that may be gone and names that may have changed are looked at
//! now and then.
//!
//! Waiters ask again by themselves. What is here is for those who hold and those who watch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::database::{Attempt, Database, Failure};
use super::row::{NameRow, key_of};
use super::state::Sql;
use super::tries::jitter;
use crate::claim::OwnerId;
use crate::engine::Hint;
use crate::error::Result;
use crate::name::{Family, Name};

/// How often watched names are looked at, and claims.
const LOOK_AT_WATCHED: Duration = Duration::from_millis(100);
const LOOK_AT_HELD: Duration = Duration::from_secs(2);
/// So many claims are looked at at once.
const MOST_HELD: usize = 1000;

impl<D: Database> Sql<D> {
    /// Looks at a name from now on.
    pub(super) async fn watch_by_polling(self: &Arc<Self>, name: &Name) -> Result<()> {
        let seen = self.versions(std::slice::from_ref(name)).await.map_err(Failure::into_error)?;
        let seen = seen.first().copied().unwrap_or(0);
        self.polled.watched().entry(name.clone()).or_insert((seen, 0)).1 += 1;
        self.poll();
        Ok(())
    }

    /// Does not look at it any more.
    pub(super) fn unwatch_by_polling(&self, name: &Name) {
        let mut watched = self.polled.watched();
        if let Some((_, count)) = watched.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                watched.remove(name);
            }
        }
    }

    /// Goes on looking, if somebody has ever wanted it: there is something new to look at.
    pub(super) fn poll_if_wanted(self: &Arc<Self>) {
        if self.polled.wanted.load(Ordering::Acquire) {
            self.poll();
        }
    }

    /// Starts to look, unless others tell.
    pub(super) fn poll(self: &Arc<Self>) {
        self.polled.wanted.store(true, Ordering::Release);
        if self.database.hears() || self.polled.running.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::downgrade(self);
        self.runtime.spawn(async move {
            let mut looked_at_held = Instant::now();
            loop {
                sleep(jitter(LOOK_AT_WATCHED)).await;
                let Some(this) = this.upgrade() else { return };
                // Looked at before the last look: what changes after it is told.
                let told = this.database.hears();
                if this.database.is_closed() || this.polled.is_idle() {
                    this.polled.running.store(false, Ordering::Release);
                    return;
                }
                let mut looked = this.look_at_watched().await;
                if looked_at_held.elapsed() >= LOOK_AT_HELD {
                    looked_at_held = Instant::now();
                    looked = looked.and(this.look_at_held().await);
                }
                if let Err(failure) = looked {
                    let error = failure.into_error();
                    tracing::debug!(target: "leasehold", %error, "could not look");
                } else if told {
                    this.polled.running.store(false, Ordering::Release);
                    return;
                }
            }
        });
    }

    /// The versions of names and cells; 0 where there is no row.
    async fn versions(&self, names: &[Name]) -> Attempt<Vec<i64>> {
        let (mut cells, mut claims) = (Vec::new(), Vec::new());
        for name in names {
            let keys = if name.family() == Family::Cell { &mut cells } else { &mut claims };
            keys.push(key_of(name));
        }
        let mut found: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        if !cells.is_empty() {
            let (_, rows) = self.database.read_cells(&cells).await?;
            let rows = cells.into_iter().zip(rows);
            found.extend(rows.filter_map(|(key, row)| Some((key, row?.version.cast_signed()))));
        }
        if !claims.is_empty() {
            let (_, rows) = self.database.read_names(&claims).await?;
            found.extend(rows.into_iter().map(|(key, row)| (key, row.version)));
        }
        Ok(names.iter().map(|name| found.get(&key_of(name)).copied().unwrap_or(0)).collect())
    }

    async fn look_at_watched(&self) -> Attempt<()> {
        let names: Vec<Name> = self.polled.watched().keys().cloned().collect();
        if names.is_empty() {
            return Ok(());
        }
        let versions = self.versions(&names).await?;
        for (name, version) in names.into_iter().zip(versions) {
            let changed = match self.polled.watched().get_mut(&name) {
                Some((seen, _)) => std::mem::replace(seen, version) != version,
                None => false,
            };
            if changed {
                self.hint(Hint::Changed(name));
            }
        }
        Ok(())
    }

    async fn look_at_held(&self) -> Attempt<()> {
        let held: Vec<(OwnerId, Arc<[u8]>)> = {
            let held = self.polled.held();
            held.iter().take(MOST_HELD).map(|(owner, key)| (*owner, Arc::clone(key))).collect()
        };
        if held.is_empty() {
            return Ok(());
        }
        let keys: Vec<Vec<u8>> = held.iter().map(|(_, key)| key.to_vec()).collect();
        let (now, rows) = self.database.read_names(&keys).await?;
        let rows: BTreeMap<Vec<u8>, NameRow> = rows.into_iter().collect();
        for (owner, key) in held {
            let record = rows.get(&*key).and_then(|row| row.record().ok().flatten());
            let holds = |record: crate::engine::table::row::Record| {
                record.state.claims(now).any(|claim| claim.owner == owner)
            };
            if !record.is_some_and(holds) {
                // Its client makes sure.
                self.polled.let_go(owner);
                self.hint(Hint::Broken(owner));
            }
        }
        Ok(())
    }
}
