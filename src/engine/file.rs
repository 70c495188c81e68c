//! Claims shared by the processes of one machine, with no server: the default.
//!
//! A store in a directory, written by whoever needs to, one process at a time, a few microseconds each. Waiters of other
//! processes are woken by a message. A process that dies, however it dies, frees its claims at once: the kernel tells.
//!
//! It locks one machine only. A process that is stopped (SIGSTOP) is not dead; it loses its claims when their leases end.
//! After a crash of the machine no claim is left, and tokens go on rising.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::claim::{Alteration, Answer, Ask, Claim, OwnerId, Released, Seat, State, Step, Wake, World};
use crate::engine::{
    AfterDeath, Cell, CellValue, Engine, Guarantees, Hint, Hints, Reach, Renewal, Renewed, Reply, Swapped,
    View, Watching, refusal, view,
};
use crate::error::{Error, Result};
use crate::name::{Family, Name};
use crate::random;

use desk::{Desk, Outgoing, holders};
use dir::{Dir, Place};
use failure::failed;
use rows::{RowError, Rows};
use seats::{Peers, Post, SeatFile};
use store::{Outcome, Store};

mod desk;
mod dir;
mod failure;
mod fork;
mod rows;
mod seats;
mod store;
mod trust;

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
    elects: true,
    cells: true,
    delays: true,
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

/// What runs beside the client.
#[derive(Debug, Default)]
struct Tasks {
    /// Hears hints, from when the client first waits.
    mailbox: Option<AbortHandle>,
    /// Each waits for the death of one other client.
    deaths: BTreeMap<Seat, AbortHandle>,
}

impl File {
    /// Opens the store at what follows `file:` in a URL.
    pub(crate) async fn open(rest: &str) -> Result<File> {
        /// One in so many clients clears away what dead ones left.
        const TIDY_EVERY: Seat = 64;
        /// And one sweeps a part of the store.
        const SWEEP_EVERY: Seat = 8;
        let runtime = Handle::try_current().map_err(|_| {
            Error::invalid("`file:` must be opened inside a tokio runtime with io and time enabled")
        })?;
        let dir = Arc::new(Dir::prepare(&Place::parse(rest)?)?);
        let store = Store::open(&dir)?;
        // A number that nobody else has, without a word to the store.
        let seat = random::number()?;
        let seat_file = SeatFile::take(&dir, seat)?;
        let post = Post::new(&dir)?;
        let desk = Arc::new(Desk { dir, store, peers: Peers::default(), post, seat });
        if seat.is_multiple_of(TIDY_EVERY) {
            seats::tidy(&desk.dir, &desk.peers);
        }
        let file = File {
            seat,
            desk,
            seat_file: Mutex::new(Some(seat_file)),
            hints: Arc::default(),
            runtime,
            tasks: Mutex::default(),
        };
        if seat.is_multiple_of(SWEEP_EVERY) {
            file.sweep().await?;
        }
        Ok(file)
    }

    /// Clears away a part of what nobody may ask for again.
    async fn sweep(&self) -> Result<()> {
        let desk = Arc::clone(&self.desk);
        let outgoing = self.desk.write(move |writing| desk.sweep(writing)).await?;
        self.deliver(outgoing);
        Ok(())
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
            self.desk.write(move |writing| desk.on_name(writing, &name, request)).await?;
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
        self.desk.store.check(&self.desk.dir)?;
        let mailbox = self.desk.post.listen(&self.desk.dir, self.seat)?;
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
        if seats.is_empty() {
            return;
        }
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.deaths.retain(|_, task| !task.is_finished());
        for seat in seats {
            if tasks.deaths.contains_key(&seat) {
                continue;
            }
            let (desk, hints) = (Arc::clone(&self.desk), Arc::clone(&self.hints));
            let watching = self.runtime.spawn(async move {
                seats::death(&desk.dir, &desk.peers, seat).await;
                if let Some(hints) = hints.get() {
                    hints.give(Hint::WakeAll);
                }
            });
            tasks.deaths.insert(seat, watching.abort_handle());
        }
    }

    fn stop_tasks(&self) {
        if self.desk.store.check_process().is_err() {
            // The child of a fork: they run in the parent.
            return;
        }
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
                let written = self.desk.write(move |writing| {
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
                        // After the write: a look before it would miss a move in between.
                        self.desk.store.check_written(&self.desk.dir)?;
                        return Ok(answer);
                    }
                }
            }
        })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move {
            self.check_seated()?;
            // Who holds for long is told when its claim is broken.
            self.open_mailbox()?;
            let (desk, renewals) = (Arc::clone(&self.desk), renewals.to_vec());
            let written = self.desk.write(move |writing| {
                renewals.iter().map(|renewal| desk.renew(writing, renewal)).collect::<Result<Vec<_>>>()
            });
            let verdicts = written.await?;
            self.desk.store.check_written(&self.desk.dir)?;
            // Those who hold for long see to it that the store stays small. If it can not be done now, it is done later.
            if let Err(error) = self.sweep().await {
                tracing::debug!(target: "leasehold", %error, "not swept");
            }
            Ok(verdicts)
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
            self.desk.store.read(&self.desk.dir, |txn, table| {
                desk::cell(name, table.get(txn, &key).map_err(failed)?, self.desk.dir.now())
            })
        })
    }

    fn swap<'a>(&'a self, name: &'a Name, version: u64, value: Option<CellValue>) -> Reply<'a, Swapped> {
        Box::pin(async move {
            self.check_seated()?;
            let (desk, name) = (Arc::clone(&self.desk), name.clone());
            let written = self.desk.write(move |writing| desk.swap(writing, &name, version, value));
            let (swapped, outgoing) = written.await?;
            self.deliver(outgoing);
            Ok(swapped)
        })
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        Box::pin(async move {
            self.check_seated()?;
            self.open_mailbox()?;
            let key = rows::watcher_key(name, self.seat);
            let written = self.desk.write(move |writing| match watching {
                Watching::On => writing.put(&key, &[]),
                Watching::Off => writing.delete(&key),
            });
            written.await
        })
    }

    fn lifeline(&self) -> Result<Option<OwnedFd>> {
        self.desk.store.check_process()?;
        let mut seat_file = self.seat_file.lock().unwrap_or_else(PoisonError::into_inner);
        let seat_file = seat_file.as_mut().ok_or_else(Error::closed)?;
        seat_file.lifeline(&self.desk.dir).map(Some)
    }

    fn close(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            self.stop_tasks();
            drop(self.seat_file.lock().unwrap_or_else(PoisonError::into_inner).take());
            Ok(())
        })
    }
}
