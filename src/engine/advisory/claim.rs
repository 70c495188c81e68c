//! One claim: a task that has the session of its lock.
//!
//! The task exists from before the first statement until the lock is given back. Aborted or ended,
//! it drops the session, and the server frees what that held. So no call that is dropped half way
//! leaves a lock behind.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::session::{Locks, Mode, Session};
use super::sessions::{InUse, Sessions};
use crate::claim::{OwnerId, Released};
use crate::engine::Hint;
use crate::error::Error;

/// How far a claim is.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// The server has not answered yet.
    Asked,
    Waits,
    Held {
        token: u64,
    },
    /// Somebody else has it.
    Busy,
    /// Over. It may be asked for again.
    Failed(Arc<Error>),
}

/// What is asked of a claim that is held.
pub(super) enum Command {
    /// Whether it is still held.
    Look(oneshot::Sender<bool>),
    /// Turns the whole into a share.
    Share(oneshot::Sender<bool>),
    Release(oneshot::Sender<Released>),
}

/// What is to be claimed.
pub(super) struct Wanted<K> {
    pub(super) owner: OwnerId,
    pub(super) key: K,
    pub(super) mode: Mode,
    pub(super) wait: bool,
    pub(super) lease: Duration,
}

/// When a claim ends unless it is renewed.
#[derive(Clone, Debug)]
pub(super) struct Deadline(Arc<Mutex<Instant>>);

impl Deadline {
    pub(super) fn new(lease: Duration) -> Deadline {
        Deadline(Arc::new(Mutex::new(Instant::now() + lease)))
    }

    pub(super) fn get(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It ends that long after `from`, if it does not already end later.
    pub(super) fn extend(&self, from: Instant, lease: Duration) {
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *end = (*end).max(from + lease);
    }
}

/// The part of a claim that its task has.
pub(super) struct Task<L: Locks> {
    pub(super) sessions: Arc<Sessions<L>>,
    pub(super) wanted: Wanted<L::Key>,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) deadline: Deadline,
}

impl<L: Locks> Task<L> {
    /// Takes the lock, and keeps it until it is given back, its lease is over, or the session ends.
    pub(super) async fn run(mut self) {
        let mut session = match self.take_or_wait().await {
            Ok(Some(session)) => session,
            Ok(None) => {
                self.progress.send_replace(Progress::Busy);
                return;
            }
            Err(error) => {
                self.progress.send_replace(Progress::Failed(Arc::new(error)));
                // Who waits asks again, and is told why.
                self.sessions.hint(Hint::Wake(self.wanted.owner));
                return;
            }
        };
        if self.keep(&mut session).await {
            self.sessions.keep(session);
            return;
        }
        drop(session);
        let error = self.sessions.unavailable("the session that held the name has ended");
        self.progress.send_replace(Progress::Failed(Arc::new(error)));
        self.sessions.hint(Hint::Broken(self.wanted.owner));
    }

    /// A session that holds the lock; `None` if somebody else has it.
    async fn take_or_wait(&mut self) -> Result<Option<InUse<L>>, Error> {
        let Wanted { owner, key, mode, wait, lease } = &self.wanted;
        loop {
            let mut session = self.sessions.get().await?;
            let taken = match session.take(key, *mode, false).await {
                // One that was idle may have ended meanwhile.
                Err(_) if session.was_idle() => continue,
                taken => taken?,
            };
            let taken = match taken {
                None if !wait => {
                    self.sessions.keep(session);
                    return Ok(None);
                }
                None => {
                    self.progress.send_replace(Progress::Waits);
                    session.take(key, *mode, true).await?
                }
                taken => taken,
            };
            // A server that has waited has taken it.
            let Some(now) = taken else { return Ok(None) };
            self.deadline.extend(Instant::now(), *lease);
            let token = self.sessions.token(now);
            let waited = matches!(*self.progress.borrow(), Progress::Waits);
            self.progress.send_replace(Progress::Held { token });
            if waited {
                self.sessions.hint(Hint::Wake(*owner));
            }
            return Ok(Some(session));
        }
    }

    /// Keeps the lock; true if it was given back and the session can be used again.
    async fn keep(&mut self, session: &mut InUse<L>) -> bool {
        let look_every = <L::Session as Session>::LOOK_EVERY;
        loop {
            let end = self.deadline.get();
            let look = async {
                match look_every {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::Release(reply)) => return self.give_back(session, reply).await,
                    Some(Command::Look(reply)) => {
                        let holds = self.holds(session).await;
                        reply.send(holds).ok();
                        if !holds {
                            return false;
                        }
                    }
                    Some(Command::Share(reply)) => {
                        let shared = timeout_at(end, session.share(&self.wanted.key)).await;
                        let shared = matches!(shared, Ok(Ok(true)));
                        self.wanted.mode = Mode::Shared;
                        reply.send(shared).ok();
                        if !shared {
                            return false;
                        }
                    }
                    // The engine is gone.
                    None => return false,
                },
                () = session.ended() => return false,
                () = sleep_until(end) => if Instant::now() >= self.deadline.get() {
                    return false;
                },
                () = look => if !self.holds(session).await {
                    return false;
                },
            }
        }
    }

    async fn holds(&self, session: &mut InUse<L>) -> bool {
        let answer = timeout_at(self.deadline.get(), session.holds(&self.wanted.key)).await;
        matches!(answer, Ok(Ok(true)))
    }

    async fn give_back(&self, session: &mut InUse<L>, reply: oneshot::Sender<Released>) -> bool {
        let given = session.give_back(&self.wanted.key, self.wanted.mode);
        let given = matches!(timeout_at(self.deadline.get(), given).await, Ok(Ok(true)));
        // If not, it was lost with its session.
        reply.send(if given { Released::Claim } else { Released::Nothing }).ok();
        given
    }
}
