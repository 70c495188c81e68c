//! Many readers or one writer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::guard::{Watches, guard, release};
use super::runtime::Runtime;
use super::{Client, settings};
use crate::error::{Error, Result};
use crate::lock;

/// Many readers or one writer: see [`crate::RwLock`]. Made by [`Client::rwlock`].
#[derive(Clone, Debug)]
pub struct RwLock {
    inner: lock::RwLock,
    runtime: Arc<Runtime>,
}

impl Client {
    /// A lock with many readers or one writer: see [`crate::Client::rwlock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::rwlock`].
    pub fn rwlock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        Ok(RwLock { inner: self.client.rwlock(name)?, runtime: Arc::clone(&self.runtime) })
    }
}

impl RwLock {
    settings!();

    /// The name, with its namespaces.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Waits until no writer holds the name or came before, then reads.
    ///
    /// # Errors
    ///
    /// As [`crate::RwLock::read`], and [`Error::Invalid`] inside an async task.
    pub fn read(&self) -> Result<ReadGuard> {
        Ok(ReadGuard::new(self.runtime.wait(self.inner.read())??, &self.runtime))
    }

    /// Reads if that is possible at once.
    ///
    /// # Errors
    ///
    /// As [`RwLock::read`].
    pub fn try_read(&self) -> Result<Option<ReadGuard>> {
        let guard = self.runtime.wait(self.inner.try_read())??;
        Ok(guard.map(|guard| ReadGuard::new(guard, &self.runtime)))
    }

    /// Waits to read for at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`RwLock::read`].
    pub fn read_for(&self, limit: Duration) -> Result<Option<ReadGuard>> {
        let guard = self.runtime.wait(self.inner.read_for(limit))??;
        Ok(guard.map(|guard| ReadGuard::new(guard, &self.runtime)))
    }

    /// Waits until nobody else holds the name, then writes.
    ///
    /// # Errors
    ///
    /// As [`crate::RwLock::write`], and [`Error::Invalid`] inside an async task.
    pub fn write(&self) -> Result<WriteGuard> {
        Ok(WriteGuard::new(self.runtime.wait(self.inner.write())??, &self.runtime))
    }

    /// Writes if that is possible at once.
    ///
    /// # Errors
    ///
    /// As [`RwLock::write`].
    pub fn try_write(&self) -> Result<Option<WriteGuard>> {
        let guard = self.runtime.wait(self.inner.try_write())??;
        Ok(guard.map(|guard| WriteGuard::new(guard, &self.runtime)))
    }

    /// Waits to write for at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`RwLock::write`].
    pub fn write_for(&self, limit: Duration) -> Result<Option<WriteGuard>> {
        let guard = self.runtime.wait(self.inner.write_for(limit))??;
        Ok(guard.map(|guard| WriteGuard::new(guard, &self.runtime)))
    }
}

/// A reader's guard: see [`lock::ReadGuard`].
#[derive(Debug)]
#[must_use = "a guard that is dropped is released at once"]
pub struct ReadGuard {
    guard: lock::ReadGuard,
    watches: Watches,
    // Last: what is dropped before needs the thread.
    runtime: Arc<Runtime>,
}

/// The writer's guard: see [`lock::WriteGuard`].
#[derive(Debug)]
#[must_use = "a guard that is dropped is released at once"]
pub struct WriteGuard {
    guard: lock::WriteGuard,
    watches: Watches,
    // Last: what is dropped before needs the thread.
    runtime: Arc<Runtime>,
}

/// An upgrade that did not happen, with the guard that is still held.
#[derive(Debug)]
pub struct NotUpgraded {
    /// Still a reader.
    pub guard: ReadGuard,
    /// Why.
    pub error: Error,
}

impl NotUpgraded {
    fn new(refused: lock::NotUpgraded, runtime: &Arc<Runtime>) -> NotUpgraded {
        NotUpgraded { guard: ReadGuard::new(refused.guard, runtime), error: refused.error }
    }
}

impl fmt::Display for NotUpgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

// The message is that of the error, so there is no cause behind it left to say.
impl std::error::Error for NotUpgraded {}

impl From<NotUpgraded> for Error {
    /// Gives the guard up.
    fn from(refused: NotUpgraded) -> Error {
        refused.error
    }
}

impl ReadGuard {
    fn new(guard: lock::ReadGuard, runtime: &Arc<Runtime>) -> ReadGuard {
        ReadGuard { guard, watches: Watches::default(), runtime: Arc::clone(runtime) }
    }

    guard!();
    release!();

    /// Waits until this is the only reader, then becomes the writer: see
    /// [`lock::ReadGuard::upgrade`]. What was to be called at a loss ([`ReadGuard::on_lost`]) is
    /// forgotten here.
    ///
    /// # Errors
    ///
    /// As [`lock::ReadGuard::upgrade`], and [`Error::Invalid`] inside an async task. The guard
    /// comes back with the error.
    pub fn upgrade(self) -> Result<WriteGuard, NotUpgraded> {
        if let Err(error) = self.runtime.check() {
            return Err(NotUpgraded { guard: self, error });
        }
        match self.runtime.wait_checked(self.guard.upgrade()) {
            Ok(guard) => Ok(WriteGuard::new(guard, &self.runtime)),
            Err(refused) => Err(NotUpgraded::new(refused, &self.runtime)),
        }
    }

    /// Becomes the writer if this is the only reader; gives the guard back if not.
    ///
    /// # Errors
    ///
    /// As [`ReadGuard::upgrade`].
    pub fn try_upgrade(self) -> Result<Result<WriteGuard, ReadGuard>, NotUpgraded> {
        if let Err(error) = self.runtime.check() {
            return Err(NotUpgraded { guard: self, error });
        }
        match self.runtime.wait_checked(self.guard.try_upgrade()) {
            Ok(Ok(guard)) => Ok(Ok(WriteGuard::new(guard, &self.runtime))),
            Ok(Err(guard)) => Ok(Err(ReadGuard::new(guard, &self.runtime))),
            Err(refused) => Err(NotUpgraded::new(refused, &self.runtime)),
        }
    }
}

impl WriteGuard {
    fn new(guard: lock::WriteGuard, runtime: &Arc<Runtime>) -> WriteGuard {
        WriteGuard { guard, watches: Watches::default(), runtime: Arc::clone(runtime) }
    }

    guard!();
    release!();

    /// Becomes a reader at once and lets other readers in: see [`lock::WriteGuard::downgrade`].
    /// What was to be called at a loss ([`WriteGuard::on_lost`]) is forgotten here.
    ///
    /// # Errors
    ///
    /// As [`lock::WriteGuard::downgrade`].
    pub fn downgrade(self) -> Result<ReadGuard> {
        let guard = self.runtime.wait(self.guard.downgrade())??;
        Ok(ReadGuard::new(guard, &self.runtime))
    }
}
