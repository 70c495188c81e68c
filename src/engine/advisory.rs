//! Locks that belong to a session of a database: `pg_advisory_lock` and `GET_LOCK`.
//!
//! For names that are shared with programs that use these. A claim is a session of its own that
//! holds the lock of the name, so the end of a connection costs one name and no other. A waiter is
//! a session that waits for the lock in the server, so it stands in the server's queue beside those
//! of other programs. A process that dies leaves nothing behind.
//!
//! What is not promised: the server frees the lock the moment it ends the session, and the holder
//! hears of it after that. A restart, a fail-over or an administrator can so make two holders for a
//! moment. There is no fencing token: the number that a guard carries is the server's time. A lease
//! is kept by this process alone; the server knows none. Semaphores, elections, cells and lock
//! delays are refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use self::claim::{Command, Deadline, Progress, Task, Wanted};
pub(crate) use self::session::{Locks, Mode, Seen, Session};
use self::sessions::Sessions;
pub(crate) use self::sessions::connect;
use crate::claim::{Alteration, Answer, Ask, Claim, Grant, OwnerId, Pause, Refused, Released, WHOLE, Waiter};
use crate::engine::supervise::copy;
use crate::engine::{
    Cells, Engine, Guarantees, HeldClaim, Hints, Renewal, Renewed, Reply, Swap, Swapped, View, Waiting,
    Watching,
};
use crate::error::{Error, Result};
use crate::name::{Family, Name};

mod claim;
mod session;
mod sessions;

/// A waiter is called when it is its turn. It asks again after this long all the same.
const WAIT: Duration = Duration::from_secs(1);
/// A session that has not said by then whether it still holds its lock is asked again later.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// How long a session has to end that was told to.
const END_LIMIT: Duration = Duration::from_secs(3);

/// One client of a server whose sessions hold locks.
#[derive(Debug)]
pub(crate) struct Advisory<L: Locks> {
    sessions: Arc<Sessions<L>>,
    claims: Mutex<HashMap<OwnerId, Entry>>,
    runtime: Handle,
}

/// A claim that is held or asked for.
#[derive(Debug)]
struct Entry {
    progress: watch::Receiver<Progress>,
    commands: mpsc::UnboundedSender<Command>,
    deadline: Deadline,
    task: AbortHandle,
}

impl<L: Locks> Advisory<L> {
    /// A client with sessions that hold nothing yet, and at most so many.
    pub(crate) fn new(locks: L, idle: Vec<L::Session>, most: usize) -> Result<Advisory<L>> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::invalid("an engine must be opened inside a tokio runtime"))?;
        let sessions = Arc::new(Sessions::new(locks, idle, most));
        Ok(Advisory { sessions, claims: Mutex::default(), runtime })
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<OwnerId, Entry>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unsupported(&self, what: &str) -> Error {
        Error::Unsupported { engine: self.sessions.locks.guarantees().engine, what: what.to_owned() }
    }

    fn refused<'a, T: Send + 'a>(&self, what: &str) -> Reply<'a, T> {
        Box::pin(std::future::ready(Err(self.unsupported(what))))
    }

    /// Refuses what can not be promised.
    fn check(&self, name: &Name, ask: &Ask) -> Result<()> {
        self.sessions.check()?;
        if name.family() != Family::Lock || ask.logged || ask.capacity != WHOLE {
            return Err(self.unsupported("has locks in this mode, and nothing else"));
        }
        if ask.weight != WHOLE && !self.sessions.locks.guarantees().shares {
            return Err(self.unsupported("has no readers in this mode; use a mutex"));
        }
        if !ask.lock_delay.is_zero() {
            return Err(self.unsupported(
                "can not keep a name closed after an expiry in this mode (lock delay); leave it out",
            ));
        }
        Ok(())
    }

    /// The claim of an owner: the one that there is, or a new one.
    fn claim_of(&self, name: &Name, ask: &Ask) -> watch::Receiver<Progress> {
        let mut claims = self.claims();
        if let Some(entry) = claims.get(&ask.owner) {
            match &*entry.progress.borrow() {
                Progress::Held { .. } => entry.deadline.extend(Instant::now(), ask.lease),
                Progress::Asked | Progress::Waits => {}
                Progress::Busy | Progress::Failed(_) => entry.task.abort(),
            }
            if !matches!(*entry.progress.borrow(), Progress::Busy | Progress::Failed(_)) {
                return entry.progress.clone();
            }
        }
        let (progress, answer) = watch::channel(Progress::Asked);
        let (commands, receiver) = mpsc::unbounded_channel();
        let deadline = Deadline::new(ask.lease);
        let wanted = Wanted {
            owner: ask.owner,
            key: self.sessions.locks.key(name),
            mode: if ask.weight == WHOLE { Mode::Whole } else { Mode::Shared },
            wait: ask.wait,
            lease: ask.lease,
        };
        let sessions = Arc::clone(&self.sessions);
        let task = Task { sessions, wanted, progress, commands: receiver, deadline: deadline.clone() };
        let task = self.runtime.spawn(task.run()).abort_handle();
        claims.insert(ask.owner, Entry { progress: answer.clone(), commands, deadline, task });
        answer
    }

    async fn acquire(&self, name: &Name, ask: &Ask) -> Result<Answer> {
        self.check(name, ask)?;
        let mut progress = self.claim_of(name, ask);
        let answered = progress.wait_for(|progress| !matches!(progress, Progress::Asked)).await;
        let Ok(answered) = answered.map(|progress| progress.clone()) else {
            // Given back meanwhile.
            return Err(self.sessions.unavailable("the request was given up"));
        };
        match answered {
            Progress::Held { token } => Ok(Answer::Granted(Grant { token, tokens: 1 })),
            Progress::Asked | Progress::Waits => Ok(Answer::Queued(Pause { at_most: WAIT })),
            Progress::Busy => {
                self.claims().remove(&ask.owner);
                Ok(Answer::Busy(Pause { at_most: WAIT }))
            }
            Progress::Failed(error) => {
                self.claims().remove(&ask.owner);
                Err(copy(&error))
            }
        }
    }

    async fn renew_one(&self, renewal: &Renewal) -> Renewed {
        let (reply, answer) = oneshot::channel();
        let asked = Instant::now();
        let deadline = {
            let claims = self.claims();
            let Some(entry) = claims.get(&renewal.owner) else { return Renewed::Gone };
            if entry.commands.send(Command::Look(reply)).is_err() {
                return Renewed::Gone;
            }
            entry.deadline.clone()
        };
        match timeout(LOOK_LIMIT, answer).await {
            Ok(Ok(true)) => {
                deadline.extend(asked, renewal.lease);
                Renewed::Yes
            }
            Ok(Ok(false) | Err(_)) => Renewed::Gone,
            Err(_) => Renewed::Unknown,
        }
    }

    async fn release(&self, owner: OwnerId) -> Released {
        let Some(entry) = self.claims().remove(&owner) else { return Released::Nothing };
        let progress = entry.progress.borrow().clone();
        match progress {
            Progress::Asked | Progress::Waits => {
                // The session ends with its task, and with that whatever it has been given since.
                entry.task.abort();
                Released::Place
            }
            Progress::Busy | Progress::Failed(_) => Released::Nothing,
            Progress::Held { .. } => {
                let (reply, answer) = oneshot::channel();
                entry.commands.send(Command::Release(reply)).ok();
                // The task goes on if this is dropped: it has the command.
                answer.await.unwrap_or(Released::Nothing)
            }
        }
    }

    async fn downgrade(&self, name: &Name, owner: OwnerId, token: u64) -> Result<Answer> {
        let (reply, answer) = oneshot::channel();
        let not_held = Ok(Answer::Refused(Refused::NotHeld));
        {
            let claims = self.claims();
            let Some(entry) = claims.get(&owner) else { return not_held };
            match &*entry.progress.borrow() {
                Progress::Held { token: held } if *held == token => {}
                _ => return not_held,
            }
            if entry.commands.send(Command::Share(reply)).is_err() {
                return not_held;
            }
        }
        match answer.await {
            Ok(true) => Ok(Answer::Granted(Grant { token, tokens: 1 })),
            _ => Err(self.sessions.unavailable(&format!("lost the session that held `{name}`"))),
        }
    }

    /// What the server says of a name. A session that was idle may have ended meanwhile.
    async fn seen(&self, name: &Name) -> Result<Vec<Seen>> {
        if name.family() != Family::Lock {
            return Ok(Vec::new());
        }
        let key = self.sessions.locks.key(name);
        loop {
            let mut session = self.sessions.get().await?;
            match session.look(&key).await {
                Ok(seen) => {
                    self.sessions.keep(session);
                    return Ok(seen);
                }
                Err(_) if session.was_idle() => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn end_holders(&self, name: &Name) -> Result<Vec<Claim>> {
        let seen = self.seen(name).await?;
        let holders: Vec<Seen> = seen.into_iter().filter(|seen| !seen.waits).collect();
        if holders.is_empty() {
            return Ok(Vec::new());
        }
        let (key, mut session) = (self.sessions.locks.key(name), self.sessions.get().await?);
        for holder in &holders {
            session.end_session(&key, holder.number).await?;
        }
        self.sessions.keep(session);
        // A session is told to end, and ends a moment later.
        let limit = Instant::now() + END_LIMIT;
        let holds = |seen: &Seen| !seen.waits && holders.iter().any(|holder| holder.number == seen.number);
        while self.seen(name).await?.iter().any(holds) {
            if Instant::now() >= limit {
                return Err(self.sessions.unavailable("the session that holds the name does not end"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(holders.iter().map(claim_of).collect())
    }
}

/// A session that holds, as a claim. The server knows neither its token nor its lease.
fn claim_of(seen: &Seen) -> Claim {
    Claim {
        owner: OwnerId(u128::from(seen.number)),
        seat: seen.number,
        weight: weight(seen.mode),
        token: 0,
        tokens: 0,
        lease: 0,
        expires: 0,
        lock_delay: 0,
        since: 0,
        confirmed: true,
        holder: Arc::new(seen.holder.clone()),
        value: Arc::default(),
    }
}

fn waiter_of(seen: &Seen) -> Waiting {
    let waiter = Waiter {
        owner: OwnerId(u128::from(seen.number)),
        seat: seen.number,
        weight: weight(seen.mode),
        tokens: 0,
        lease: 0,
        lock_delay: 0,
        since: 0,
        alive_until: 0,
        holder: Arc::new(seen.holder.clone()),
        value: Arc::default(),
    };
    Waiting { waiter, waited: Duration::ZERO }
}

fn weight(mode: Mode) -> u32 {
    match mode {
        Mode::Whole => WHOLE,
        Mode::Shared => 1,
    }
}

fn view(seen: &[Seen]) -> View {
    let held =
        |seen: &Seen| HeldClaim { claim: claim_of(seen), held_for: Duration::ZERO, ends_in: Duration::ZERO };
    let waiters: Vec<Waiting> = seen.iter().filter(|seen| seen.waits).map(waiter_of).collect();
    View {
        capacity: if seen.is_empty() { 0 } else { WHOLE },
        claims: seen.iter().filter(|seen| !seen.waits).map(held).collect(),
        waiting: u32::try_from(waiters.len()).unwrap_or(u32::MAX),
        waiters,
        ..View::default()
    }
}

const NO_CELLS: &str = "has no cells in this mode; leave out `+advisory`";
const NO_NAMES: &str = "can not list names in this mode: the server keeps what they stand for";

impl<L: Locks> Engine for Advisory<L> {
    fn guarantees(&self) -> Guarantees {
        self.sessions.locks.guarantees()
    }

    fn listen(&self, hints: Hints) {
        // Called once.
        self.sessions.hints.set(hints).ok();
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        Box::pin(self.acquire(name, ask))
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move {
            self.sessions.check()?;
            Ok(futures_util::future::join_all(renewals.iter().map(|one| self.renew_one(one))).await)
        })
    }

    fn release<'a>(&'a self, _: &'a Name, owner: OwnerId, _: u64) -> Reply<'a, Released> {
        Box::pin(async move {
            self.sessions.check()?;
            Ok(self.release(owner).await)
        })
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        match alteration {
            Alteration::Downgrade { token, .. } => Box::pin(self.downgrade(name, owner, token)),
            Alteration::TryUpgrade | Alteration::Upgrade => {
                self.refused("can not turn a reader into the writer in this mode; release, then ask to write")
            }
            Alteration::Value(_) => self.refused("has no elections in this mode"),
        }
    }

    fn resize<'a>(&'a self, _: &'a Name, _: u32, _: u32) -> Reply<'a, ()> {
        self.refused("has no semaphores in this mode")
    }

    fn look<'a>(&'a self, name: &'a Name, _: u64) -> Reply<'a, View> {
        Box::pin(async move { Ok(view(&self.seen(name).await?)) })
    }

    fn list<'a>(
        &'a self,
        _: Family,
        _: &'a str,
        _: Option<&'a str>,
        _: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        self.refused(NO_NAMES)
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(self.end_holders(name))
    }

    fn read<'a>(&'a self, _: &'a [Name]) -> Reply<'a, Cells> {
        self.refused(NO_CELLS)
    }

    fn swap(&self, _: Vec<Swap>) -> Reply<'_, Swapped> {
        self.refused(NO_CELLS)
    }

    fn list_cells<'a>(&'a self, _: &'a str, _: Option<&'a str>, _: usize) -> Reply<'a, Vec<Name>> {
        self.refused(NO_CELLS)
    }

    fn watch<'a>(&'a self, _: &'a Name, watching: Watching) -> Reply<'a, ()> {
        match watching {
            Watching::On => self.refused("can not watch names in this mode"),
            Watching::Off => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn close(&self) -> Reply<'_, ()> {
        self.end();
        Box::pin(std::future::ready(Ok(())))
    }

    fn trouble(&self) -> Option<String> {
        Some(format!("`{}` is silent", self.sessions.locks.server()))
    }
}

impl<L: Locks> Advisory<L> {
    fn end(&self) {
        self.sessions.close();
        self.claims().drain().for_each(|(_, entry)| entry.task.abort());
    }
}

impl<L: Locks> Drop for Advisory<L> {
    fn drop(&mut self) {
        self.end();
    }
}
