//! How names are kept as nodes.
//!
//! The record of a name is the data of its node, replaced if its version is the one that was read.
//! A node that nobody uses is emptied and not deleted: versions start again with each node of a
//! name, and a late request could take a new node for the one that it has read. The sweep deletes
//! it when nobody can remember it any more. Waiters are nodes below it.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Ensemble;
use super::free::Free;
use super::messages::{ANY, Get, Got, Mode, Op};
use super::paths::Paths;
use super::places::{Places, Reading};
use super::promises::{ENGINE, GUARANTEES};
use super::requests::{Done, Fresh, Requests, into_value};
use super::watches::Watches;
use super::wire::Said;
use crate::claim::{OwnerId, Seat};
use crate::clock::Moment;
use crate::engine::sessions::store::{
    Change, Page, Purpose, Read, RecordChange, Room, RowWrite, Session, Store, Value, ValueWrite, Version,
    Written,
};
use crate::engine::sessions::{Attempt, Failure, Heard, Letter, now, write_letters};
use crate::engine::supervise::Supervisor;
use crate::engine::{Connection, Guarantees, Hint, Hints, Watching};
use crate::error::Result;
use crate::name::{Family, Name};

/// A node whose version comes near its end is deleted when it is free.
const MOST_WRITES: i32 = 1 << 30;

/// The nodes of an ensemble.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) requests: Arc<Requests>,
    pub(super) paths: Paths,
    pub(super) watches: Arc<Watches>,
    free: Free,
    pub(super) places: Places,
}

impl Nodes {
    pub(super) async fn open(ensemble: Ensemble, paths: Paths) -> Result<Nodes> {
        let supervisor = Supervisor::open(ensemble).await?;
        let requests = Arc::new(Requests { supervisor, paths: paths.clone() });
        let watches = Watches::new(Arc::clone(&requests));
        Ok(Nodes { requests, paths, watches, free: Free::default(), places: Places::default() })
    }

    /// What is done to write a change of a name.
    fn ops(&self, name: &Name, change: &Change) -> Vec<Op> {
        let path = self.paths.name(name);
        let access = self.requests.access();
        let is_new = change.version == Version::default();
        let count = change.version.count;
        let mut ops = Vec::new();
        ops.push(match &change.record {
            RecordChange::Put { bytes, .. } if is_new => {
                Op::Create(path, bytes.clone(), Mode::Persistent, access)
            }
            RecordChange::Put { bytes, .. } => Op::Set(path, bytes.clone(), count),
            RecordChange::Delete if count > MOST_WRITES && change.rows.is_empty() => Op::Delete(path, count),
            RecordChange::Delete => Op::Set(path, Vec::new(), count),
            RecordChange::Unchanged => Op::Check(path, count),
        });
        ops.extend(change.seats.iter().map(|seat| Op::Check(self.paths.session(*seat), ANY)));
        for (place, write) in &change.rows {
            let path = self.paths.waiter(name, *place);
            ops.push(match write {
                RowWrite::Insert(bytes) => Op::Create(path, bytes.clone(), Mode::Persistent, access),
                RowWrite::Replace(bytes) => Op::Set(path, bytes.clone(), ANY),
                RowWrite::Delete => Op::Delete(path, ANY),
            });
        }
        for (seat, letters) in &change.letters {
            // Whoever is handed the name watches its place in the queue, which is gone now.
            let told = letters.iter().filter(|letter| !matches!(letter, Letter::Granted { .. }));
            let told: Vec<Letter> = told.cloned().collect();
            if !told.is_empty() {
                let told = write_letters(&told).unwrap_or_default();
                ops.push(Op::Set(self.paths.session(*seat), told, ANY));
            }
        }
        ops
    }
}

impl Store for Nodes {
    // A zxid has 32 bits for the leader's term and 32 for its changes. With this room tokens fit in
    // 53 bits for the first 16,384 terms.
    const ROOM: Room = Room { tokens: 1 << 7, most: 65 };

    fn time_of(version: Version) -> u64 {
        // Not the zxid, which leaps when another leader is elected: waiters would seem to be dead.
        version.count.max(0).cast_unsigned().into()
    }

    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn guarantees(&self) -> Guarantees {
        GUARANTEES
    }

    fn listen(&self, hints: Hints) {
        // Called once; a second sink would never hear anything.
        self.requests.supervisor.connector().ears.hints.set(hints).ok();
    }

    fn hint(&self, hint: Hint) {
        self.requests.supervisor.connector().ears.hint(hint);
    }

    fn key(&self, name: &Name) -> Vec<u8> {
        self.paths.name(name).into_bytes()
    }

    async fn read(&self, name: &Name, most: usize, own: Option<u64>) -> Attempt<Read> {
        let reading = Reading { name, most, own, seats: &[] };
        Ok(self.read_with(&reading, Fresh::Vouched).await?.0)
    }

    async fn write(&self, name: &Name, change: &Change, most: usize, own: Option<u64>) -> Attempt<Written> {
        let ops = self.ops(name, change);
        // Where others write too, how it is then is asked for right behind the write.
        let contended = matches!(&change.record, RecordChange::Put { sole: None, .. });
        let mut tries = 0;
        loop {
            let reading = Reading { name, most, own, seats: &change.seats };
            let first = self.first_reads(&reading);
            let sent = now();
            let gets = if contended { &first.gets[..] } else { &[] };
            let (done, got) = self.requests.write_and_read(&ops, gets).await?;
            match done {
                Done::Yes(versions) => {
                    let version = versions.first().copied().flatten().unwrap_or(change.version);
                    match &change.record {
                        RecordChange::Delete if version.count <= MOST_WRITES => {
                            self.free.note(name, version, sent);
                        }
                        _ => self.free.forget(name),
                    }
                    return Ok(Written::Yes(version));
                }
                // The directory is not there yet.
                Done::No(0, Said::NoNode) if matches!(ops.first(), Some(Op::Create(..))) && tries == 0 => {
                    tries += 1;
                    let path = self.paths.name(name);
                    let directory = path.rsplit_once('/').map_or("/", |(directory, _)| directory);
                    self.requests.make_directory(directory, Mode::Persistent).await?;
                }
                Done::No(..) => {
                    self.free.forget(name);
                    // The answer to the write has brought this server up to date.
                    let (read, alive) = match got {
                        Some(got) => self.read_on(&reading, first, got).await?,
                        None => self.read_with(&reading, Fresh::Already).await?,
                    };
                    return Ok(Written::No { read: Box::new(read), alive });
                }
            }
        }
    }

    async fn read_heard(&self, name: &Name, most: usize) -> Attempt<Read> {
        // The event has come over the same connection.
        let reading = Reading { name, most, own: None, seats: &[] };
        Ok(self.read_with(&reading, Fresh::Already).await?.0)
    }

    fn free_version(&self, name: &Name) -> Version {
        self.free.version(name, now()).unwrap_or_default()
    }

    async fn clear_waiters(&self, name: &Name, version: Version) -> Attempt<()> {
        let path = self.paths.name(name);
        let got = self.requests.read(&[Get::Children(path.clone())], Fresh::Already).await?;
        let Some(Got::Children(children)) = got.into_iter().next() else { return Ok(()) };
        for batch in children.chunks(100) {
            let mut ops = vec![Op::Check(path.clone(), version.count)];
            ops.extend(batch.iter().map(|child| Op::Delete(format!("{path}/{child}"), ANY)));
            self.requests.write(&ops).await?;
        }
        Ok(())
    }

    async fn look_for(&self, seats: &[Seat]) -> Attempt<Vec<bool>> {
        let gets: Vec<Get> = seats.iter().map(|seat| Get::Data(self.paths.session(*seat))).collect();
        // As new as what has mentioned them.
        let got = self.requests.read(&gets, Fresh::Already).await?;
        Ok(got.iter().map(|got| *got != Got::Nothing).collect())
    }

    async fn verify(&self, names: &[&Name], seats: &[Seat]) -> Attempt<(Vec<Value>, Vec<bool>)> {
        let names_gets = names.iter().map(|name| Get::Data(self.paths.name(name)));
        let seats_gets = seats.iter().map(|seat| Get::Data(self.paths.session(*seat)));
        let gets: Vec<Get> = names_gets.chain(seats_gets).collect();
        let mut got = self.requests.read(&gets, Fresh::Vouched).await?;
        let alive = got.split_off(names.len());
        Ok((
            got.into_iter().map(into_value).collect(),
            alive.iter().map(|got| *got != Got::Nothing).collect(),
        ))
    }

    async fn read_values(&self, names: &[Name]) -> Attempt<Vec<Value>> {
        let gets: Vec<Get> = names.iter().map(|name| Get::Data(self.paths.name(name))).collect();
        let got = self.requests.read(&gets, Fresh::Vouched).await?;
        Ok(got.into_iter().map(into_value).collect())
    }

    async fn write_values(
        &self,
        values: &[(&Name, Version, Option<ValueWrite>)],
    ) -> Attempt<Option<Vec<Value>>> {
        let access = self.requests.access();
        let mut ops = Vec::new();
        for (name, version, write) in values {
            let path = self.paths.name(name);
            let is_new = *version == Version::default();
            match write {
                Some(ValueWrite::Put(bytes)) if is_new => {
                    ops.push(Op::Create(path, bytes.clone(), Mode::Persistent, access));
                }
                Some(ValueWrite::Put(bytes)) => ops.push(Op::Set(path, bytes.clone(), version.count)),
                // Emptied, as a name that is free.
                Some(ValueWrite::Delete) if !is_new => {
                    ops.push(Op::Set(path, Vec::new(), version.count));
                }
                None if !is_new => ops.push(Op::Check(path, version.count)),
                // It can be made, so it is not there.
                Some(ValueWrite::Delete) | None => {
                    ops.push(Op::Create(path.clone(), Vec::new(), Mode::Persistent, access));
                    ops.push(Op::Delete(path, ANY));
                }
            }
        }
        let mut tries = 0;
        loop {
            match self.requests.write(&ops).await? {
                Done::Yes(_) => return Ok(None),
                // The directory of one of them is not there yet.
                Done::No(number, Said::NoNode) if tries < ops.len() => {
                    tries += 1;
                    if let Op::Create(path, ..) = &ops[number]
                        && let Some((directory, _)) = path.rsplit_once('/')
                    {
                        self.requests.make_directory(directory, Mode::Persistent).await?;
                        continue;
                    }
                }
                Done::No(..) => {}
            }
            let gets: Vec<Get> = values.iter().map(|(name, ..)| Get::Data(self.paths.name(name))).collect();
            let got = self.requests.read(&gets, Fresh::Already).await?;
            return Ok(Some(got.into_iter().map(into_value).collect()));
        }
    }

    async fn page(&self, family: Family, prefix: &str, after: Option<&str>, limit: usize) -> Attempt<Page> {
        self.names_in_order(family, prefix, after, limit).await
    }

    async fn sweep_page(&self, family: Family, after: Option<&str>, limit: usize) -> Attempt<Page> {
        self.names_to_sweep(family, after, limit).await
    }

    async fn lives_for(&self, _: Seat) -> Attempt<Option<Duration>> {
        Ok(None)
    }

    async fn session(&self, _: Purpose, until: Moment) -> Attempt<Arc<dyn Session>> {
        let connected = self.requests.supervisor.connected().await?;
        if connected.session.has_ended() {
            return Err(Failure::SessionEnded);
        }
        connected.session.use_until(until);
        let session: Arc<dyn Session> = connected.session.clone();
        Ok(session)
    }

    fn own(&self, seat: Seat) -> Option<Arc<dyn Session>> {
        let connected = self.requests.supervisor.connected_now()?;
        let is_it = connected.session.seat() == seat && !connected.session.has_ended();
        is_it.then(|| connected.session.clone() as Arc<dyn Session>)
    }

    fn session_ended(&self, seat: Seat) -> bool {
        let Some(connected) = self.requests.supervisor.connected_now() else { return true };
        let is_own = connected.session.seat() == seat;
        if is_own {
            connected.give_up("the session has ended");
        }
        is_own
    }

    fn ends_with(&self, session: &dyn Session) -> bool {
        session.has_ended()
    }

    fn hears_of_ends(&self) -> bool {
        self.requests.supervisor.connected_now().is_some_and(|connected| connected.is_up())
    }

    fn joined(&self, name: &Name, owner: OwnerId, place: u64) {
        self.watches.watch_place(name, owner, place);
    }

    async fn watch(&self, name: &Name, watching: Watching) -> Result<()> {
        match watching {
            Watching::On => self.watches.watch_name(name).await,
            Watching::Off => {
                self.watches.unwatch_name(name);
                Ok(())
            }
        }
    }

    fn watched(&self) -> Vec<Name> {
        self.watches.names()
    }

    fn connection(&self) -> Connection {
        self.requests.connection()
    }

    fn trouble(&self) -> String {
        self.requests.trouble()
    }

    async fn close(&self) -> Result<()> {
        self.requests.supervisor.connector().ears.close();
        // At once, and not when the servers hear that the connection is closed.
        if let Some(connected) = self.requests.supervisor.connected_now()
            && !connected.session.has_ended()
        {
            let path = self.paths.session(connected.session.seat());
            connected.session.end();
            if connected.is_up() {
                self.requests.write(&[Op::Delete(path, ANY)]).await.ok();
            }
        }
        self.watches.close();
        self.requests.supervisor.close();
        Ok(())
    }

    fn end(&self) {
        self.requests.supervisor.connector().ears.close();
        self.watches.close();
    }
}

impl Nodes {
    /// Passes on what is heard.
    pub(super) fn listen_to(&self, sink: impl Fn(Heard) + Send + Sync + 'static) {
        self.requests.supervisor.connector().ears.listen(sink);
    }
}
