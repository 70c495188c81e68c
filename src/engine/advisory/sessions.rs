//! The sessions of a client: one for each lock that is held or waited for.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::session::Locks;
use crate::claim::Micros;
use crate::engine::{Hint, Hints};
use crate::error::{Error, Result};

/// How many sessions that hold nothing are kept for later.
const IDLE: usize = 4;
/// How long a connection may take to be made.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A session that holds nothing, unless the server is silent for too long.
pub(crate) async fn connect<L: Locks>(locks: &L) -> Result<L::Session> {
    match timeout(CONNECT_LIMIT, locks.connect()).await {
        Ok(session) => session,
        Err(_) => Err(Error::Unavailable {
            engine: locks.guarantees().engine,
            what: format!("can not reach `{}`: no answer in {CONNECT_LIMIT:?}", locks.server()),
            source: None,
        }),
    }
}

/// The sessions of a client.
pub(super) struct Sessions<L: Locks> {
    pub(super) locks: L,
    pub(super) hints: OnceLock<Hints>,
    idle: Mutex<Vec<L::Session>>,
    most: usize,
    free: Arc<Semaphore>,
    last_token: AtomicU64,
    closed: AtomicBool,
    pid: u32,
}

impl<L: Locks> fmt::Debug for Sessions<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("locks", &self.locks).finish_non_exhaustive()
    }
}

impl<L: Locks> Sessions<L> {
    pub(super) fn new(locks: L, idle: Vec<L::Session>, most: usize) -> Sessions<L> {
        Sessions {
            locks,
            hints: OnceLock::new(),
            idle: Mutex::new(idle),
            most,
            free: Arc::new(Semaphore::new(most)),
            last_token: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            pid: std::process::id(),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<L::Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hint(&self, hint: Hint) {
        if let Some(hints) = self.hints.get() {
            hints.give(hint);
        }
    }

    pub(super) fn unavailable(&self, what: &str) -> Error {
        Error::Unavailable { engine: self.locks.guarantees().engine, what: what.to_owned(), source: None }
    }

    /// An error if sessions can not be used: the client is closed, or is that of a parent process.
    pub(super) fn check(&self) -> Result<()> {
        if self.pid != std::process::id() {
            return Err(Error::invalid(
                "this client was made before a fork; a child process must connect for itself",
            ));
        }
        if self.closed.load(Ordering::Acquire) { Err(Error::closed()) } else { Ok(()) }
    }

    /// A session that holds nothing.
    pub(super) async fn get(self: &Arc<Self>) -> Result<InUse<L>> {
        self.check()?;
        let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() else {
            return Err(self.unavailable(&format!(
                "all {} sessions of this client hold a name or wait for one; allow more of them with \
                 `connections=N`",
                self.most
            )));
        };
        let idle = self.idle().pop();
        let (session, was_idle) = match idle {
            Some(session) => (session, true),
            None => (connect(&self.locks).await?, false),
        };
        Ok(InUse { session, was_idle, _permit: permit })
    }

    /// Keeps a session that holds nothing for later.
    pub(super) fn keep(&self, in_use: InUse<L>) {
        let mut idle = self.idle();
        // Looked at under the lock: closing empties the list after it has set the flag.
        if idle.len() < IDLE && !self.closed.load(Ordering::Acquire) {
            idle.push(in_use.session);
        }
    }

    /// A number above all that this client has given, and the server's time if that is later.
    pub(super) fn token(&self, now: Micros) -> u64 {
        let above = |last: u64| (last + 1).max(now);
        let last =
            self.last_token.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(above(last)));
        above(last.unwrap_or_else(|last| last))
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let idle = std::mem::take(&mut *self.idle());
        drop(idle);
    }
}

/// A session in use. Dropped, it ends.
pub(super) struct InUse<L: Locks> {
    session: L::Session,
    was_idle: bool,
    _permit: OwnedSemaphorePermit,
}

impl<L: Locks> InUse<L> {
    /// True if it was made for an earlier use.
    pub(super) fn was_idle(&self) -> bool {
        self.was_idle
    }
}

impl<L: Locks> Deref for InUse<L> {
    type Target = L::Session;

    fn deref(&self) -> &L::Session {
        &self.session
    }
}

impl<L: Locks> DerefMut for InUse<L> {
    fn deref_mut(&mut self) -> &mut L::Session {
        &mut self.session
    }
}
