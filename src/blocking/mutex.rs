//! One holder at a time.

use std::sync::Arc;
use std::time::Duration;

use super::guard::Guard;
use super::runtime::Runtime;
use super::{Client, settings};
use crate::error::Result;
use crate::lock;

/// One holder at a time, first come, first served: see [`crate::Mutex`]. Made by [`Client::mutex`].
///
/// # Examples
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// let client = leasehold::blocking::connect("memory:")?;
/// let stock = client.mutex("stock/42")?;
///
/// let guard = stock.lock()?;
/// assert!(stock.try_lock()?.is_none());
/// guard.release()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    inner: lock::Mutex,
    runtime: Arc<Runtime>,
}

impl Client {
    /// A mutex: see [`crate::Client::mutex`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::mutex`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        Ok(Mutex { inner: self.client.mutex(name)?, runtime: Arc::clone(&self.runtime) })
    }
}

impl Mutex {
    settings!();

    /// The name, with its namespaces.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// The same mutex, taken in the name of `owner`: see [`crate::Mutex::owned_by`].
    #[must_use]
    pub fn owned_by(mut self, owner: &lock::Owner) -> Mutex {
        self.inner = self.inner.owned_by(owner);
        self
    }

    /// Waits until the name is free, then holds it.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock`], and [`crate::Error::Invalid`] inside an async task.
    pub fn lock(&self) -> Result<Guard> {
        let guard = self.runtime.wait(self.inner.lock())??;
        Ok(Guard::new(guard, &self.runtime))
    }

    /// Holds the name if it is free, and does not wait.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`].
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        Guard::some(self.runtime.wait(self.inner.try_lock())?, &self.runtime)
    }

    /// Waits for at most `limit`; `None` if the name was not free in that time.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock_for`], and [`crate::Error::Invalid`] inside an async task.
    pub fn lock_for(&self, limit: Duration) -> Result<Option<Guard>> {
        Guard::some(self.runtime.wait(self.inner.lock_for(limit))?, &self.runtime)
    }

    /// Waits for the name, does the work under it on this thread, and gives it back.
    ///
    /// The work is not stopped if the name is lost; what it gave is then thrown away. Work of
    /// several steps takes a guard ([`Mutex::lock`]) and checks it in between. Work that can fail
    /// gives a result inside the result.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], and [`crate::Error::Lost`] if the name was lost by the time the work was
    /// done.
    pub fn run<T>(&self, work: impl FnOnce(crate::Token) -> T) -> Result<T> {
        self.runtime.wait(self.inner.run(async |token| work(token)))?
    }
}
