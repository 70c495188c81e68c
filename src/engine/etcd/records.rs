//! How names are kept as keys.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Cluster;
use super::errors::Attempt;
use super::keys::Keys;
use super::messages::{Compare, KeyValue, Op, RangeRequest};
use super::promises::{ENGINE, GUARANTEES};
use super::session::Sessions;
use super::store::{
    Outcome, Store as Requests, Txn, delete, delete_all, exists, get, get_all, look_for, put, unchanged,
};
use super::url::Place;
use super::watches::{Heard as Told, Watched, Watches};
use crate::claim::Seat;
use crate::clock::Moment;
use crate::engine::sessions::store::{
    Change, Page, Purpose, Read, RecordChange, Room, RowWrite, Session, Store, Value, ValueWrite, Version,
    Written,
};
use crate::engine::sessions::{Heard, read_letters, write_letters};
use crate::engine::supervise::Supervisor;
use crate::engine::{Connection, Guarantees, Hint, Hints, Watching};
use crate::error::Result;
use crate::name::{Family, Name};

/// As many operations as a transaction can have, and some to spare.
const BATCH: usize = 100;

/// The keys of a cluster.
#[derive(Debug)]
pub(super) struct Records {
    store: Arc<Requests>,
    keys: Keys,
    watches: Arc<Watches>,
    sessions: Arc<Sessions>,
}

fn version_of(revision: i64) -> Version {
    Version { written: revision.max(0).cast_unsigned(), count: 0 }
}

fn revision_of(version: Version) -> i64 {
    version.written.cast_signed()
}

fn value_of(kvs: Vec<KeyValue>) -> Value {
    let kv = kvs.into_iter().next();
    kv.map(|kv| Value { version: version_of(kv.mod_revision), bytes: Some(kv.value) }).unwrap_or_default()
}

fn row_of(kv: KeyValue) -> (u64, Vec<u8>) {
    (Keys::place_of(&kv.key).unwrap_or_default(), kv.value)
}

impl Records {
    pub(super) async fn open(place: Place) -> Result<Records> {
        let keys = Keys::new(place.prefix.clone());
        let supervisor = Supervisor::open(Cluster::new(place, &keys)?).await?;
        let store = Arc::new(Requests { supervisor });
        let watches = Watches::new(Arc::clone(&store), keys.clone());
        let sessions = Sessions::new(Arc::clone(&store), keys.clone(), Arc::clone(&watches));
        Ok(Records { store, keys, watches, sessions })
    }

    /// Passes on what is heard.
    pub(super) fn listen_to(&self, sink: impl Fn(Heard) + Send + Sync + 'static) {
        self.watches.start(Some(Watched::Sessions), move |told| match told {
            Told::Ended(seat) => sink(Heard::Ended(seat)),
            Told::Mail(value, revision) => sink(Heard::Mail(read_letters(&value), version_of(revision))),
            Told::Changed(name) => sink(Heard::Changed(name)),
            // Of raw names.
            Told::Left(_) | Told::Event { .. } => {}
            Told::Deaf => sink(Heard::Deaf),
            Told::Missed => sink(Heard::Missed),
        });
    }

    /// What is read of a name. The place of the asker in its queue is read if it is known.
    fn reads(&self, name: &Name, most: usize, own: Option<u64>) -> Vec<Op> {
        let mut reads = vec![get(self.keys.name(name)), Op::Range(get_all(self.keys.waiters(name), most))];
        reads.extend(own.map(|place| get(self.keys.waiter(name, place))));
        reads
    }

    /// What was found by [`Records::reads`].
    fn found(outcome: Outcome, own: Option<u64>) -> Read {
        let mut answers = outcome.found.into_iter();
        let record = value_of(answers.next().unwrap_or_default());
        let rows = answers.next().unwrap_or_default().into_iter().map(row_of).collect();
        let own = own.and_then(|_| answers.next()?.pop()).map(row_of);
        Read { number: outcome.revision, now: outcome.revision, record, rows, own }
    }

    /// The transaction that writes a change, and reads if that can not be written.
    fn txn(&self, name: &Name, change: &Change, most: usize, own: Option<u64>) -> Txn {
        let key = self.keys.name(name);
        let mut then: Vec<Op> = Vec::new();
        for (place, write) in &change.rows {
            let key = self.keys.waiter(name, *place);
            then.push(match write {
                RowWrite::Insert(bytes) | RowWrite::Replace(bytes) => put(key, bytes.clone(), 0),
                RowWrite::Delete => delete(key),
            });
        }
        match &change.record {
            RecordChange::Unchanged => {}
            // A name that says no more than who holds it goes with its holder.
            RecordChange::Put { bytes, sole } => {
                then.push(put(key.clone(), bytes.clone(), sole.map_or(0, Seat::cast_signed)));
            }
            RecordChange::Delete => then.push(delete(key.clone())),
        }
        for (seat, letters) in &change.letters {
            // What can not be written says nothing: who waits for it asks again in time.
            let letters = write_letters(letters).unwrap_or_default();
            then.push(put(self.keys.session(*seat), letters, seat.cast_signed()));
        }
        let mut conditions: Vec<Compare> = vec![unchanged(key, revision_of(change.version))];
        conditions.extend(change.seats.iter().map(|seat| exists(self.keys.session(*seat))));
        let mut otherwise = self.reads(name, most, own);
        otherwise.extend(change.seats.iter().map(|seat| look_for(self.keys.session(*seat))));
        Txn { conditions, then, otherwise }
    }
}

impl Store for Records {
    const ROOM: Room = Room { tokens: 1 << 10, most: 512 };

    fn time_of(version: Version) -> u64 {
        version.written
    }

    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn guarantees(&self) -> Guarantees {
        GUARANTEES
    }

    fn listen(&self, hints: Hints) {
        // Called once; a second sink would never hear anything.
        self.store.supervisor.connector().hints.set(hints).ok();
    }

    fn hint(&self, hint: Hint) {
        self.store.supervisor.connector().hint(hint);
    }

    fn key(&self, name: &Name) -> Vec<u8> {
        self.keys.name(name)
    }

    async fn read(&self, name: &Name, most: usize, own: Option<u64>) -> Attempt<Read> {
        let txn = Txn { then: self.reads(name, most, own), ..Txn::default() };
        Ok(Self::found(self.store.txn(txn).await?, own))
    }

    async fn write(&self, name: &Name, change: &Change, most: usize, own: Option<u64>) -> Attempt<Written> {
        let mut outcome = self.store.txn(self.txn(name, change, most, own)).await?;
        if outcome.succeeded {
            return Ok(Written::Yes(version_of(outcome.revision.cast_signed())));
        }
        let seats = outcome.found.split_off(outcome.found.len().saturating_sub(change.seats.len()));
        let alive = seats.iter().map(|found| !found.is_empty()).collect();
        Ok(Written::No { read: Box::new(Self::found(outcome, own)), alive })
    }

    async fn clear_waiters(&self, name: &Name, version: Version) -> Attempt<()> {
        let conditions = vec![unchanged(self.keys.name(name), revision_of(version))];
        let then = vec![delete_all(self.keys.waiters(name))];
        self.store.txn(Txn { conditions, then, ..Txn::default() }).await?;
        Ok(())
    }

    async fn look_for(&self, seats: &[Seat]) -> Attempt<Vec<bool>> {
        let mut alive = Vec::with_capacity(seats.len());
        for seats in seats.chunks(BATCH) {
            let then = seats.iter().map(|seat| look_for(self.keys.session(*seat))).collect();
            let outcome = self.store.txn(Txn { then, ..Txn::default() }).await?;
            alive.extend(outcome.found.iter().map(|found| !found.is_empty()));
        }
        Ok(alive)
    }

    async fn verify(&self, names: &[&Name], seats: &[Seat]) -> Attempt<(Vec<Value>, Vec<bool>)> {
        let names_read = names.iter().map(|name| get(self.keys.name(name)));
        let seats_read = seats.iter().map(|seat| look_for(self.keys.session(*seat)));
        let txn = Txn { then: names_read.chain(seats_read).collect(), ..Txn::default() };
        let mut found = self.store.txn(txn).await?.found;
        let alive = found.split_off(names.len().min(found.len()));
        let alive = alive.iter().map(|found| !found.is_empty()).collect();
        Ok((found.into_iter().map(value_of).collect(), alive))
    }

    async fn read_values(&self, names: &[Name]) -> Attempt<Vec<Value>> {
        let then = names.iter().map(|name| get(self.keys.name(name))).collect();
        let outcome = self.store.txn(Txn { then, ..Txn::default() }).await?;
        Ok(outcome.found.into_iter().map(value_of).collect())
    }

    async fn write_values(
        &self,
        values: &[(&Name, Version, Option<ValueWrite>)],
    ) -> Attempt<Option<Vec<Value>>> {
        let key = |name: &Name| self.keys.name(name);
        let changed = |(name, _, write): &(&Name, Version, Option<ValueWrite>)| match write {
            Some(ValueWrite::Put(bytes)) => Some(put(key(name), bytes.clone(), 0)),
            Some(ValueWrite::Delete) => Some(delete(key(name))),
            None => None,
        };
        let unchanged =
            |(name, version, _): &(&Name, Version, _)| unchanged(key(name), revision_of(*version));
        let txn = Txn {
            conditions: values.iter().map(unchanged).collect(),
            then: values.iter().filter_map(changed).collect(),
            otherwise: values.iter().map(|(name, ..)| get(key(name))).collect(),
        };
        let outcome = self.store.txn(txn).await?;
        if outcome.succeeded {
            return Ok(None);
        }
        Ok(Some(outcome.found.into_iter().map(value_of).collect()))
    }

    async fn page(&self, family: Family, prefix: &str, after: Option<&str>, limit: usize) -> Attempt<Page> {
        let mut range = get_all(self.keys.names(family, prefix), limit);
        if let Some(after) = after {
            range.key = range.key.max([self.keys.names(family, after), vec![0]].concat());
        }
        if range.key >= range.range_end {
            return Ok(Page::default());
        }
        let (now, kvs) = self.store.range(RangeRequest { ..range }).await?;
        let is_full = kvs.len() >= limit;
        let named = |kv: KeyValue| {
            let name = self.keys.name_of(family, &kv.key)?;
            Some((name, value_of(vec![kv])))
        };
        let names: Vec<_> = kvs.into_iter().filter_map(named).collect();
        let more_after = names.last().filter(|_| is_full).map(|(name, _)| name.as_str().to_owned());
        Ok(Page { now, names, more_after })
    }

    async fn lives_for(&self, seat: Seat) -> Attempt<Option<Duration>> {
        self.store.time_to_live(seat.cast_signed()).await.map(Some)
    }

    async fn session(&self, purpose: Purpose, until: Moment) -> Attempt<Arc<dyn Session>> {
        let session: Arc<dyn Session> = self.sessions.get(purpose, until).await?;
        Ok(session)
    }

    fn own(&self, seat: Seat) -> Option<Arc<dyn Session>> {
        self.sessions.own(seat).map(|session| session as Arc<dyn Session>)
    }

    fn session_ended(&self, seat: Seat) -> bool {
        self.sessions.ended(seat)
    }

    fn hears_of_ends(&self) -> bool {
        self.watches.hears_of_ends()
    }

    async fn watch(&self, name: &Name, watching: Watching) -> Result<()> {
        let watched = Watched::Name(name.clone());
        match watching {
            Watching::On => self.watches.watch(watched).await,
            Watching::Off => {
                self.watches.unwatch(&watched);
                Ok(())
            }
        }
    }

    fn watched(&self) -> Vec<Name> {
        self.watches.names()
    }

    fn connection(&self) -> Connection {
        self.store.supervisor.connection()
    }

    fn trouble(&self) -> String {
        self.store.supervisor.trouble()
    }

    async fn close(&self) -> Result<()> {
        self.sessions.close().await?;
        self.watches.close();
        self.store.supervisor.close();
        Ok(())
    }

    fn end(&self) {
        self.watches.close();
    }
}
