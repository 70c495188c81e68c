//! A number of permits.

use std::sync::Arc;
use std::time::Duration;

use super::guard::Guard;
use super::runtime::Runtime;
use super::{Client, settings};
use crate::error::Result;
use crate::lock;

/// A number of permits: see [`crate::Semaphore`]. Made by [`Client::semaphore`].
#[derive(Clone, Debug)]
pub struct Semaphore {
    inner: lock::Semaphore,
    runtime: Arc<Runtime>,
}

impl Client {
    /// A semaphore with that many permits: see [`crate::Client::semaphore`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<Semaphore> {
        let inner = self.client.semaphore(name, permits)?;
        Ok(Semaphore { inner, runtime: Arc::clone(&self.runtime) })
    }
}

impl Semaphore {
    settings!();

    /// The name, with its namespaces.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// The number of permits this semaphore was made with.
    pub fn permits(&self) -> u32 {
        self.inner.permits()
    }

    /// Waits for one permit.
    ///
    /// # Errors
    ///
    /// As [`crate::Semaphore::acquire`], and [`crate::Error::Invalid`] inside an async task.
    pub fn acquire(&self) -> Result<Guard> {
        self.acquire_many(1)
    }

    /// Waits for `permits` at once, held and released together.
    ///
    /// # Errors
    ///
    /// As [`crate::Semaphore::acquire_many`], and [`crate::Error::Invalid`] inside an async task.
    pub fn acquire_many(&self, permits: u32) -> Result<Guard> {
        let guard = self.runtime.wait(self.inner.acquire_many(permits))??;
        Ok(Guard::new(guard, &self.runtime))
    }

    /// Takes one permit if it is free.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        self.try_acquire_many(1)
    }

    /// Takes `permits` at once if they are free.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire_many`].
    pub fn try_acquire_many(&self, permits: u32) -> Result<Option<Guard>> {
        Guard::some(self.runtime.wait(self.inner.try_acquire_many(permits))?, &self.runtime)
    }

    /// Waits for one permit for at most `limit`; `None` if there was none in that time.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    pub fn acquire_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.acquire_many_for(1, limit)
    }

    /// Waits for `permits` at once for at most `limit`; `None` if they were not free in that time.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire_many`].
    pub fn acquire_many_for(&self, permits: u32, limit: Duration) -> Result<Option<Guard>> {
        Guard::some(self.runtime.wait(self.inner.acquire_many_for(permits, limit))?, &self.runtime)
    }

    /// How many permits are free now: a number that may be old when it arrives.
    ///
    /// # Errors
    ///
    /// As [`crate::Semaphore::available`].
    pub fn available(&self) -> Result<u32> {
        self.runtime.wait(self.inner.available())?
    }

    /// Changes the number of permits for everybody: see [`crate::Semaphore::resize`].
    ///
    /// # Errors
    ///
    /// As [`crate::Semaphore::resize`].
    pub fn resize(&self, permits: u32) -> Result<()> {
        self.runtime.wait(self.inner.resize(permits))?
    }
}
