//! Claims shared by the processes of one machine, with no server: the default.
//!
//! A store in a directory, written by whoever needs to, one process at a time, a few microseconds
//! each. Waiters of other processes are woken by a message. A process that dies, however it dies,
//! frees its claims at once: the kernel tells.
//!
//! It locks one machine only. A process that is stopped (SIGSTOP) is not dead; it loses its claims
//! when their leases end. After a crash of the machine no claim is left, and tokens go on rising.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::claim::{Alteration, Answer, Ask, Claim, OwnerId, Released, Seat};
use crate::engine::cell::check_cells;
use crate::engine::table::{Acquire, Alter, Break, Look, Notice, Release, Request, Resize};
use crate::engine::{
    AfterDeath, Cells, Engine, Guarantees, Hint, Hints, Reach, Renewal, Renewed, Reply, Rule, Swap, Swapped,
    View, Watching, refusal,
};
use crate::error::{Error, Result};
use crate::name::{Family, Name};
use crate::random;

use self::claims::Done;
use self::dir::{Dir, Place};
use self::liveness::{LifeFile, Peers};
use self::mailbox::Sender;
use self::session::Session;
use self::store::Store;
use self::transaction::End;

mod cells;
mod claims;
mod dir;
mod failure;
mod fork;
mod gate;
mod liveness;
mod mailbox;
mod rows;
mod session;
mod store;
mod transaction;
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
    shares: true,
    fences: true,
};

/// One client of a store.
#[derive(Debug)]
pub(crate) struct File {
    session: Arc<Session>,
    /// Given up when the client is closed.
    life: Mutex<Option<LifeFile>>,
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
        let life = LifeFile::create(&dir, seat)?;
        let sender = Sender::new(&dir)?;
        let session = Arc::new(Session {
            dir,
            store,
            peers: Peers::default(),
            sender,
            seat,
            cells_written: AtomicUsize::new(0),
        });
        if seat.is_multiple_of(TIDY_EVERY) {
            liveness::tidy(&session.dir, &session.peers);
        }
        let file = File {
            session,
            life: Mutex::new(Some(life)),
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
        let session = Arc::clone(&self.session);
        let notices = self.session.write(move |transaction| session.sweep(transaction)).await?;
        self.deliver(notices);
        Ok(())
    }

    fn check_open(&self) -> Result<()> {
        let open = self.life.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if open { Ok(()) } else { Err(Error::closed()) }
    }

    /// Runs one request on a name.
    async fn on_name<R>(&self, name: &Name, request: R) -> Result<R::Answer>
    where
        R: Request + Send + 'static,
        R::Answer: Send,
    {
        self.check_open()?;
        let (session, name) = (Arc::clone(&self.session), name.clone());
        let written = self.session.write(move |transaction| session.on_name(transaction, &name, &request));
        let Done { answer, notices, blocking } = written.await?;
        self.deliver(notices);
        self.watch_deaths(blocking);
        Ok(answer)
    }

    /// Passes on what follows from a transaction.
    fn deliver(&self, mut notices: Vec<Notice>) {
        if let Some(hints) = self.hints.get() {
            let own = notices.extract_if(.., |notice| notice.seat == self.session.seat);
            own.for_each(|notice| hints.give(notice.hint));
        }
        self.session.sender.send(notices);
    }

    /// Listens for hints from now on.
    fn open_mailbox(&self) -> Result<()> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.mailbox.is_some() {
            return Ok(());
        }
        self.session.store.check(&self.session.dir)?;
        let mailbox = self.session.sender.listen(&self.session.dir, self.session.seat)?;
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
            let (session, hints) = (Arc::clone(&self.session), Arc::clone(&self.hints));
            let watching = self.runtime.spawn(async move {
                liveness::death(&session.dir, &session.peers, seat).await;
                if let Some(hints) = hints.get() {
                    hints.give(Hint::WakeAll);
                }
            });
            tasks.deaths.insert(seat, watching.abort_handle());
        }
    }

    fn stop_tasks(&self) {
        if self.session.store.check_process().is_err() {
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
            self.check_open()?;
            loop {
                let listening = self.listening();
                let (session, name, ask) = (Arc::clone(&self.session), name.clone(), ask.clone());
                let written = self.session.write(move |transaction| {
                    let request = Acquire { ask: Cow::Owned(ask), seat: session.seat };
                    let done = session.on_name(transaction, &name, &request)?;
                    // Nobody joins the queue who can not be called.
                    let deaf = Acquire::is_queued(&done.answer) && !listening;
                    if deaf {
                        transaction.end = End::Abort;
                        return Ok(None);
                    }
                    Ok(Some(done))
                });
                match written.await? {
                    None => self.open_mailbox()?,
                    Some(Done { answer, notices, blocking }) => {
                        self.deliver(notices);
                        self.watch_deaths(blocking);
                        // After the write: a look before it would miss a move in between.
                        self.session.store.check_written(&self.session.dir)?;
                        return Ok(answer);
                    }
                }
            }
        })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move {
            self.check_open()?;
            // Who holds for long is told when its claim is broken.
            self.open_mailbox()?;
            let (session, renewals) = (Arc::clone(&self.session), renewals.to_vec());
            let written = self.session.write(move |transaction| {
                renewals.iter().map(|renewal| session.renew(transaction, renewal)).collect::<Result<Vec<_>>>()
            });
            let verdicts = written.await?;
            self.session.store.check_written(&self.session.dir)?;
            // Those who hold for long see to it that the store stays small. If it can not be done
            // now, it is done later.
            if let Err(error) = self.sweep().await {
                tracing::debug!(target: "leasehold", %error, "not swept");
            }
            Ok(verdicts)
        })
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, used: u64) -> Reply<'a, Released> {
        Box::pin(self.on_name(name, Release { owner, used }))
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        Box::pin(async move {
            if matches!(alteration, Alteration::Upgrade) {
                self.open_mailbox()?;
            }
            self.on_name(name, Alter { owner, alteration }).await
        })
    }

    fn resize<'a>(&'a self, name: &'a Name, declared: u32, capacity: u32) -> Reply<'a, ()> {
        Box::pin(async move {
            let resized = self.on_name(name, Resize { declared, capacity }).await?;
            resized.map_err(|refused| refusal(name, refused))
        })
    }

    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View> {
        Box::pin(self.on_name(name, Look { seen }))
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        Box::pin(self.session.list(family, prefix, after, limit))
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(self.on_name(name, Break))
    }

    fn read<'a>(&'a self, names: &'a [Name]) -> Reply<'a, Cells> {
        Box::pin(async move {
            check_cells(names.iter())?;
            self.session.read_cells(names).await
        })
    }

    fn swap(&self, swaps: Vec<Swap>) -> Reply<'_, Swapped> {
        Box::pin(async move {
            self.check_open()?;
            check_cells(swaps.iter().map(|swap| &swap.name))?;
            let session = Arc::clone(&self.session);
            let written = self.session.write(move |transaction| session.swap_cells(transaction, swaps));
            let (swapped, notices) = written.await?;
            self.deliver(notices);
            Ok(swapped)
        })
    }

    fn apply<'a>(&'a self, names: &'a [Name], rule: &'a Arc<dyn Rule>) -> Reply<'a, Vec<u8>> {
        Box::pin(async move {
            self.check_open()?;
            check_cells(names.iter())?;
            if rule.mostly_looks() {
                match self.session.look_by_rule(names, rule).await {
                    Ok(Some(answer)) => return Ok(answer),
                    // Whoever writes needs no place among those who read.
                    Ok(None) | Err(Error::Unavailable { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            let (session, names, rule) = (Arc::clone(&self.session), names.to_vec(), Arc::clone(rule));
            let written =
                self.session.write(move |transaction| session.apply_rule(transaction, &names, &*rule));
            let (answer, notices) = written.await?;
            self.deliver(notices);
            Ok(answer)
        })
    }

    fn list_cells<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<Name>> {
        Box::pin(self.session.list_cells(prefix, after, limit))
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        Box::pin(async move {
            self.check_open()?;
            self.open_mailbox()?;
            let key = rows::watcher_key(name, self.session.seat);
            let written = self.session.write(move |transaction| match watching {
                Watching::On => transaction.put(&key, &[]),
                Watching::Off => transaction.delete(&key),
            });
            written.await
        })
    }

    fn lifeline(&self) -> Result<Option<OwnedFd>> {
        self.session.store.check_process()?;
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        let life = life.as_mut().ok_or_else(Error::closed)?;
        life.lifeline(&self.session.dir).map(Some)
    }

    fn close(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            self.stop_tasks();
            drop(self.life.lock().unwrap_or_else(PoisonError::into_inner).take());
            Ok(())
        })
    }
}
