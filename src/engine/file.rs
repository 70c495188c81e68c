//! Claims shared by the processes of one machine, with no server: the default.
//!
//! A store in a directory, written by whoever needs to, one process at a time, a few microseconds each. Waiters of other
//! processes are woken by a message. A process that dies, however it dies, frees its claims at once: the kernel tells.
//!
//! It locks one machine only. A process that is stopped (SIGSTOP) is not dead; it loses its claims when their leases end.
//! After a crash of the machine no claim is left, and tokens go on rising.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::claim::{
    Alteration, Answer, Ask, Claim, Micros, OwnerId, Released, Seat, State, Step, Wake, World,
};
use crate::engine::{
    AfterDeath, Cell, CellValue, Engine, Guarantees, Hint, Hints, Reach, Renewal, Renewed, Reply, Swapped,
    View, Watching, refusal, view,
};
use crate::error::{Error, Result};
use crate::name::{Family, Name};

use dir::Place;
use rows::{CellRow, Record, RowError, Rows};
use seats::{Peers, Post, SeatFile};
use store::{Outcome, Store, Writing};

mod dir;
mod rows;
mod seats;
mod store;

/// What the engine promises.
pub(crate) const GUARANTEES: Guarantees = Guarantees {
    engine: "file",
    reach: Reach::Machine,
    exclusion: "always",
    tokens: "over restarts and crashes of processes and of the machine",
    wakes: "by a message to the next waiter",
    after_death: AfterDeath::AtOnce,
    fair: true,
    counts: true,
    upgrades: true,
};

/// One client's place at a store.
#[derive(Debug)]
pub(crate) struct File {
    seat: Seat,
    desk: Arc<Desk>,
    /// Given up when the client is closed.
    seat_file: Mutex<Option<SeatFile>>,
    hints: Arc<OnceLock<Hints>>,
    runtime: Handle,
    tasks: Mutex<Tasks>,
}

/// What a write needs to know beside the store: it may run on another thread.
#[derive(Debug)]
struct Desk {
    store: Arc<Store>,
    peers: Peers,
    post: Post,
    seat: Seat,
}

/// What runs beside the client.
#[derive(Debug, Default)]
struct Tasks {
    /// Hears hints, from when the client first waits.
    mailbox: Option<AbortHandle>,
    /// Each waits for the death of one other client.
    deaths: BTreeMap<Seat, AbortHandle>,
}

/// A message and whom it is for.
type Message = (Seat, Vec<u8>);

/// What follows from a write, for other clients: sent when the write is done.
#[derive(Debug, Default)]
struct Outgoing {
    wakes: Vec<Wake>,
    messages: Vec<Message>,
}

impl File {
    /// Opens the store at what follows `file:` in a URL.
    pub(crate) async fn open(rest: &str) -> Result<File> {
        /// Every so many clients, one clears away what dead ones left.
        const TIDY_EVERY: Seat = 64;
        let runtime = Handle::try_current().map_err(|_| {
            Error::invalid("`file:` must be opened inside a tokio runtime with io and time enabled")
        })?;
        let store = Store::open(&Place::parse(rest)?)?;
        let seat = store.write(next_seat).await?;
        let seat_file = SeatFile::take(&store.dir, seat)?;
        let post = Post::new(&store.dir)?;
        let desk = Arc::new(Desk { store, peers: Peers::default(), post, seat });
        if seat % TIDY_EVERY == 0 {
            seats::tidy(&desk.store.dir, &desk.peers);
        }
        Ok(File {
            seat,
            desk,
            seat_file: Mutex::new(Some(seat_file)),
            hints: Arc::default(),
            runtime,
            tasks: Mutex::default(),
        })
    }

    fn check_seated(&self) -> Result<()> {
        let seated = self.seat_file.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if seated { Ok(()) } else { Err(Error::closed()) }
    }

    /// Runs one request on a name.
    async fn on_name<T: Send + 'static>(
        &self,
        name: &Name,
        request: impl FnOnce(&mut State, &mut Rows<'_, '_>, World<'_>) -> Result<Step<T>, RowError>
        + Send
        + 'static,
    ) -> Result<T> {
        self.check_seated()?;
        let (desk, name) = (Arc::clone(&self.desk), name.clone());
        let (answer, outgoing) =
            self.desk.store.write(move |writing| desk.on_name(writing, &name, request)).await?;
        self.deliver(outgoing);
        Ok(answer)
    }

    fn deliver(&self, outgoing: Outgoing) {
        let mut by_seat: BTreeMap<Seat, Vec<OwnerId>> = BTreeMap::new();
        for Wake { owner, seat } in outgoing.wakes {
            match self.hints.get().filter(|_| seat == self.seat) {
                Some(hints) => hints.give(Hint::Wake(owner)),
                None => by_seat.entry(seat).or_default().push(owner),
            }
        }
        for (seat, owners) in by_seat {
            self.desk.post.send(seat, &seats::wake_message(owners.into_iter()));
        }
        for (seat, message) in outgoing.messages {
            self.desk.post.send(seat, &message);
        }
    }

    /// Listens for hints from now on.
    fn open_mailbox(&self) -> Result<()> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.mailbox.is_some() {
            return Ok(());
        }
        let mailbox = self.desk.post.listen(&self.desk.store.dir, self.seat)?;
        let hints = Arc::clone(&self.hints);
        let listening = self.runtime.spawn(async move {
            while let Ok(heard) = mailbox.receive().await {
                if let Some(hints) = hints.get() {
                    heard.into_iter().for_each(|hint| hints.give(hint));
                }
            }
        });
        tasks.mailbox = Some(listening.abort_handle());
        Ok(())
    }

    fn listening(&self) -> bool {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).mailbox.is_some()
    }

    /// Asks again as soon as one of `seats` dies.
    fn watch_deaths(&self, seats: HashSet<Seat>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.deaths.retain(|_, task| !task.is_finished());
        for seat in seats {
            if tasks.deaths.contains_key(&seat) {
                continue;
            }
            let (desk, hints) = (Arc::clone(&self.desk), Arc::clone(&self.hints));
            let watching = self.runtime.spawn(async move {
                seats::death(&desk.store.dir, &desk.peers, seat).await;
                if let Some(hints) = hints.get() {
                    hints.give(Hint::WakeAll);
                }
            });
            tasks.deaths.insert(seat, watching.abort_handle());
        }
    }

    fn stop_tasks(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let Tasks { mailbox, deaths } = std::mem::take(&mut *tasks);
        mailbox.into_iter().chain(deaths.into_values()).for_each(|task| task.abort());
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.stop_tasks();
    }
}

fn next_seat(writing: &mut Writing<'_>) -> Result<Seat> {
    let last = writing.table.get(&writing.txn, rows::LAST_SEAT).map_err(|error| failed(error.into()))?;
    let seat = last.map_or(0, rows::number) + 1;
    let put = writing.table.put(&mut writing.txn, rows::LAST_SEAT, &seat.to_be_bytes());
    put.map_err(|error| failed(error.into()))?;
    Ok(seat)
}

impl Desk {
    fn alive(&self, seat: Seat) -> bool {
        seat == self.seat || self.peers.alive(&self.store.dir, seat)
    }

    fn on_name<T>(
        &self,
        writing: &mut Writing<'_>,
        name: &Name,
        request: impl FnOnce(&mut State, &mut Rows<'_, '_>, World<'_>) -> Result<Step<T>, RowError>,
    ) -> Result<(T, Outgoing)> {
        let now = writing.now;
        let key = rows::name_key(name);
        let stored = writing.table.get(&writing.txn, &key).map_err(|error| failed(error.into()))?;
        let existed = stored.is_some();
        let mut record = match stored {
            Some(row) => rows::decode(row).map_err(|error| unreadable(name, error))?,
            None => Record {
                text: rows::text_beside_key(name),
                next_place: 0,
                state: State::new(floor(writing)?),
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
            outgoing.messages = watchers(writing, name)?;
        }

        let table = writing.table;
        match record.state.retire(now) {
            Some(last) => {
                if last >= now {
                    raise_forgotten_floor(writing, last)?;
                }
                if existed {
                    table.delete(&mut writing.txn, &key).map_err(|error| failed(error.into()))?;
                }
            }
            None => {
                // On disk before anybody sees it.
                self.store.reserve(record.state.last_token())?;
                let row = rows::encode(&record).map_err(failed)?;
                table.put(&mut writing.txn, &key, &row).map_err(|error| failed(error.into()))?;
            }
        }
        Ok((step.answer, outgoing))
    }
}

fn floor(writing: &Writing<'_>) -> Result<u64> {
    let floor = writing.table.get(&writing.txn, rows::FLOOR).map_err(|error| failed(error.into()))?;
    Ok(floor.map_or(0, rows::number))
}

fn raise_forgotten_floor(writing: &mut Writing<'_>, token: u64) -> Result<()> {
    if token > floor(writing)? {
        let put = writing.table.put(&mut writing.txn, rows::FLOOR, &token.to_be_bytes());
        put.map_err(|error| failed(error.into()))?;
    }
    Ok(())
}

/// Messages to those who want to hear of changes to `name`.
fn watchers(writing: &Writing<'_>, name: &Name) -> Result<Vec<Message>> {
    let prefix = rows::watchers_prefix(name);
    let found = writing.table.prefix_iter(&writing.txn, &prefix).map_err(|error| failed(error.into()))?;
    let seats = found.map(|row| {
        let (key, _) = row.map_err(|error| failed(error.into()))?;
        Ok(rows::number_after(&prefix, key))
    });
    let seats: Vec<Option<Seat>> = seats.collect::<Result<_>>()?;
    Ok(seats.into_iter().flatten().map(|seat| (seat, seats::changed_message(name))).collect())
}

/// Whom the asker waits for: those who hold.
fn holders(state: &State, now: Micros, own: Seat) -> HashSet<Seat> {
    state.claims(now).map(|claim| claim.seat).filter(|seat| *seat != own).collect()
}

impl Engine for File {
    fn guarantees(&self) -> Guarantees {
        GUARANTEES
    }

    fn listen(&self, hints: Hints) {
        // Called once; a second sink would never hear anything.
        self.hints.set(hints).ok();
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        Box::pin(async move {
            self.check_seated()?;
            loop {
                let listening = self.listening();
                let (desk, name, ask) = (Arc::clone(&self.desk), name.clone(), ask.clone());
                let written = self.desk.store.write(move |writing| {
                    let mut blocking = HashSet::new();
                    let (answer, outgoing) = desk.on_name(writing, &name, |state, queue, world| {
                        let step = state.ask(queue, &ask, desk.seat, world)?;
                        if matches!(step.answer, Answer::Queued(_)) {
                            blocking = holders(state, world.now, desk.seat);
                        }
                        Ok(step)
                    })?;
                    // Nobody joins the queue who can not be called.
                    let deaf = matches!(answer, Answer::Queued(_)) && !listening;
                    if deaf {
                        writing.outcome = Outcome::Abort;
                        return Ok(None);
                    }
                    Ok(Some((answer, outgoing, blocking)))
                });
                match written.await? {
                    None => self.open_mailbox()?,
                    Some((answer, outgoing, blocking)) => {
                        self.deliver(outgoing);
                        self.watch_deaths(blocking);
                        return Ok(answer);
                    }
                }
            }
        })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move {
            self.check_seated()?;
            if self.desk.store.moved() {
                return Err(store::gone(&self.desk.store.dir.root));
            }
            let renewals = renewals.to_vec();
            let written = self.desk.store.write(move |writing| {
                renewals.iter().map(|renewal| renew_one(writing, renewal)).collect::<Result<Vec<_>>>()
            });
            written.await
        })
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, used: u64) -> Reply<'a, Released> {
        Box::pin(self.on_name(name, move |state, queue, world| state.release(queue, owner, used, world)))
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        Box::pin(async move {
            if matches!(alteration, Alteration::Upgrade) {
                self.open_mailbox()?;
            }
            let own = self.seat;
            let altered = self.on_name(name, move |state, queue, world| {
                let step = state.alter(queue, owner, alteration, world)?;
                let blocking = match step.answer {
                    Answer::Queued(_) => holders(state, world.now, own),
                    _ => HashSet::new(),
                };
                Ok(Step { answer: (step.answer, blocking), wakes: step.wakes })
            });
            let (answer, blocking) = altered.await?;
            self.watch_deaths(blocking);
            Ok(answer)
        })
    }

    fn resize<'a>(&'a self, name: &'a Name, declared: u32, capacity: u32) -> Reply<'a, ()> {
        Box::pin(async move {
            let resized =
                self.on_name(name, move |state, queue, world| state.resize(queue, declared, capacity, world));
            resized.await?.map_err(|refused| refusal(name, refused))
        })
    }

    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View> {
        Box::pin(self.on_name(name, move |state, queue, world| {
            let step = state.sweep(queue, world)?;
            let waiters = queue.waiters(usize::MAX)?;
            Ok(Step { answer: view(state, waiters.iter(), seen, world.now), wakes: step.wakes })
        }))
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        Box::pin(async move { self.desk.list(family, prefix, after, limit) })
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(async move {
            let broken: Vec<Claim> =
                self.on_name(name, |state, queue, world| state.break_claims(queue, world)).await?;
            let messages =
                broken.iter().map(|claim| (claim.seat, seats::broken_message(claim.owner))).collect();
            self.deliver(Outgoing { wakes: Vec::new(), messages });
            Ok(broken)
        })
    }

    fn read<'a>(&'a self, name: &'a Name) -> Reply<'a, Cell> {
        Box::pin(async move {
            let key = rows::cell_key(name);
            self.desk.store.read(|txn, table| {
                let row = table.get(txn, &key).map_err(|error| failed(error.into()))?;
                cell(name, row, self.desk.store.dir.now())
            })
        })
    }

    fn swap<'a>(&'a self, name: &'a Name, version: u64, value: Option<CellValue>) -> Reply<'a, Swapped> {
        Box::pin(async move {
            self.check_seated()?;
            let name = name.clone();
            let written = self.desk.store.write(move |writing| swap(writing, &name, version, value));
            let (swapped, messages) = written.await?;
            self.deliver(Outgoing { wakes: Vec::new(), messages });
            Ok(swapped)
        })
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        Box::pin(async move {
            self.check_seated()?;
            self.open_mailbox()?;
            let key = rows::watcher_key(name, self.seat);
            let written = self.desk.store.write(move |writing| {
                let changed = match watching {
                    Watching::On => writing.table.put(&mut writing.txn, &key, &[]),
                    Watching::Off => writing.table.delete(&mut writing.txn, &key).map(|_| ()),
                };
                changed.map_err(|error| failed(error.into()))
            });
            written.await
        })
    }

    fn close(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            self.stop_tasks();
            drop(self.seat_file.lock().unwrap_or_else(PoisonError::into_inner).take());
            Ok(())
        })
    }
}

impl Desk {
    fn list(
        &self,
        family: Family,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Name, View)>> {
        self.store.read(|txn, table| {
            let now = self.store.dir.now();
            let start = [b'n', rows::family_byte(family)];
            let mut shown = Vec::new();
            for row in table.prefix_iter(txn, &start).map_err(|error| failed(error.into()))? {
                let (key, row) = row.map_err(|error| failed(error.into()))?;
                let record: Record = rows::decode(row).map_err(failed)?;
                let Some(text) = rows::text_of(key, &record) else { continue };
                let name = Name::new(family, text)?;
                let mut view = view(&record.state, [].iter(), u64::MAX, now);
                view.claims.retain(|held| self.alive(held.claim.seat));
                if !view.claims.is_empty() || view.waiting > 0 {
                    shown.push((name, view));
                }
            }
            // Folded names are not stored in the order of what they stand for.
            shown.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            shown.retain(|(name, _)| {
                name.as_str().starts_with(prefix) && after.is_none_or(|after| name.as_str() > after)
            });
            shown.truncate(limit);
            Ok(shown)
        })
    }
}

fn renew_one(writing: &mut Writing<'_>, renewal: &Renewal) -> Result<Renewed> {
    let key = rows::name_key(&renewal.name);
    let row = writing.table.get(&writing.txn, &key).map_err(|error| failed(error.into()))?;
    let Some(row) = row else { return Ok(Renewed::Gone) };
    let mut record: Record = rows::decode(row).map_err(|error| unreadable(&renewal.name, error))?;
    if !record.state.renew(renewal.owner, renewal.lease, writing.now) {
        return Ok(Renewed::Gone);
    }
    let row = rows::encode(&record).map_err(failed)?;
    writing.table.put(&mut writing.txn, &key, &row).map_err(|error| failed(error.into()))?;
    Ok(Renewed::Yes)
}

fn cell(name: &Name, row: Option<&[u8]>, now: Micros) -> Result<Cell> {
    let row: Option<CellRow> = row.map(rows::decode).transpose().map_err(|error| unreadable(name, error))?;
    Ok(match row.filter(|row| row.expires > now) {
        Some(row) => Cell { version: row.version, value: Some(row.bytes), now },
        None => Cell { version: 0, value: None, now },
    })
}

fn swap(
    writing: &mut Writing<'_>,
    name: &Name,
    version: u64,
    value: Option<CellValue>,
) -> Result<(Swapped, Vec<Message>)> {
    let now = writing.now;
    let key = rows::cell_key(name);
    let row = writing.table.get(&writing.txn, &key).map_err(|error| failed(error.into()))?;
    let found = cell(name, row, now)?;
    if found.version != version {
        return Ok((Swapped::No(found), Vec::new()));
    }
    let next = (floor(writing)?.max(version) + 1).max(now);
    match value {
        Some(CellValue { bytes, lives }) => {
            let expires = now.saturating_add(u64::try_from(lives.as_micros()).unwrap_or(u64::MAX));
            let row = rows::encode(&CellRow { version: next, expires, bytes }).map_err(failed)?;
            writing.table.put(&mut writing.txn, &key, &row).map_err(|error| failed(error.into()))?;
        }
        None => {
            raise_forgotten_floor(writing, version)?;
            writing.table.delete(&mut writing.txn, &key).map_err(|error| failed(error.into()))?;
        }
    }
    Ok((Swapped::Yes(next), watchers(writing, name)?))
}

/// The one place where the errors of the store are read.
fn failed(error: RowError) -> Error {
    let RowError::Store(error) = error else {
        return damaged("a row can not be read", Some(error.into()));
    };
    match error {
        heed::Error::Io(error) => io_failed("write to", Path::new("the store"), error),
        heed::Error::Mdb(heed::MdbError::MapFull) => Error::Unavailable {
            engine: "file",
            what: "the store is full; release names, or use another directory".into(),
            source: None,
        },
        heed::Error::Mdb(heed::MdbError::ReadersFull) => Error::Unavailable {
            engine: "file",
            what: "too many processes read the store at the same time; try again".into(),
            source: None,
        },
        error => damaged(&error.to_string(), Some(error.into())),
    }
}

fn unreadable(name: &Name, error: RowError) -> Error {
    damaged(&format!("the row of `{name}` can not be read"), Some(error.into()))
}

fn damaged(what: &str, source: Option<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Engine {
        engine: "file",
        what: format!("the store is damaged: {what}; stop all users and remove its directory"),
        source,
    }
}

fn io_failed(verb: &str, path: &Path, error: io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room on the disk",
        io::ErrorKind::ReadOnlyFilesystem => "; choose a directory that can be written",
        io::ErrorKind::PermissionDenied => {
            "; it belongs to another user: choose another directory, or share it with `?share=group`"
        }
        _ => "",
    };
    Error::Unavailable {
        engine: "file",
        what: format!("can not {verb} `{}`: {error}{advice}", path.display()),
        source: Some(error.into()),
    }
}
