//! A gate that opens when it has been counted down.

use std::sync::Arc;
use std::time::Duration;

use super::Client;
use super::runtime::Runtime;
use crate::error::Result;
use crate::lock;

/// A gate that opens when it has been counted down to zero: see [`crate::Latch`]. Made by
/// [`Client::latch`].
#[derive(Clone, Debug)]
pub struct Latch {
    inner: lock::Latch,
    runtime: Arc<Runtime>,
}

impl Client {
    /// A latch that opens when it has been counted down from `count`: see [`crate::Client::latch`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::latch`].
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Result<Latch> {
        Ok(Latch { inner: self.client.latch(name, count)?, runtime: Arc::clone(&self.runtime) })
    }
}

impl Latch {
    /// How long the latch is remembered after it was last counted: a day by default.
    #[must_use]
    pub fn kept_for(mut self, time: Duration) -> Latch {
        self.inner = self.inner.kept_for(time);
        self
    }

    /// The name, with its namespaces.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Counts one down, and says how many are left. At zero it stays at zero.
    ///
    /// # Errors
    ///
    /// As [`crate::Latch::count_down`], and [`crate::Error::Invalid`] inside an async task.
    pub fn count_down(&self) -> Result<u32> {
        self.runtime.wait(self.inner.count_down())?
    }

    /// How many are left.
    ///
    /// # Errors
    ///
    /// As [`crate::Latch::left`].
    pub fn left(&self) -> Result<u32> {
        self.runtime.wait(self.inner.left())?
    }

    /// Waits until the count is zero.
    ///
    /// # Errors
    ///
    /// As [`crate::Latch::wait`].
    pub fn wait(&self) -> Result<()> {
        self.runtime.wait(self.inner.wait())?
    }

    /// Waits for at most `limit`; true if the count is zero.
    ///
    /// # Errors
    ///
    /// As [`Latch::wait`].
    pub fn wait_for(&self, limit: Duration) -> Result<bool> {
        self.runtime.wait(self.inner.wait_for(limit))?
    }
}
