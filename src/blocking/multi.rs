//! Several names at once.

use std::sync::Arc;
use std::time::Duration;

use super::runtime::Runtime;
use super::{Client, settings};
use crate::error::Result;
use crate::guard::Standing;
use crate::lock;
use crate::token::Token;

/// Several mutexes, held all or none: see [`crate::Multi`]. Made by [`Client::multi`].
#[derive(Clone, Debug)]
pub struct Multi {
    inner: lock::Multi,
    runtime: Arc<Runtime>,
}

impl Client {
    /// Several mutexes at once, all of them or none: see [`crate::Client::multi`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::multi`].
    pub fn multi(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Multi> {
        Ok(Multi { inner: self.client.multi(names)?, runtime: Arc::clone(&self.runtime) })
    }
}

impl Multi {
    settings!();

    /// Waits until all are held.
    ///
    /// # Errors
    ///
    /// As [`crate::Multi::lock`], and [`crate::Error::Invalid`] inside an async task.
    pub fn lock(&self) -> Result<MultiGuard> {
        Ok(self.guard(self.runtime.wait(self.inner.lock())??))
    }

    /// Holds all of them if all are free.
    ///
    /// # Errors
    ///
    /// As [`Multi::lock`].
    pub fn try_lock(&self) -> Result<Option<MultiGuard>> {
        Ok(self.runtime.wait(self.inner.try_lock())??.map(|guard| self.guard(guard)))
    }

    /// Waits for at most `limit`, for all of them together.
    ///
    /// # Errors
    ///
    /// As [`Multi::lock`].
    pub fn lock_for(&self, limit: Duration) -> Result<Option<MultiGuard>> {
        Ok(self.runtime.wait(self.inner.lock_for(limit))??.map(|guard| self.guard(guard)))
    }

    fn guard(&self, guard: lock::MultiGuard) -> MultiGuard {
        MultiGuard { guard, runtime: Arc::clone(&self.runtime) }
    }
}

/// Several names that are held: see [`lock::MultiGuard`]. Dropped, they are released in the
/// background.
#[derive(Debug)]
#[must_use = "a guard that is dropped is released at once"]
pub struct MultiGuard {
    guard: lock::MultiGuard,
    // Last: what is dropped before needs the thread.
    runtime: Arc<Runtime>,
}

impl MultiGuard {
    /// The names, as they were given to [`Client::multi`], in order and each once.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.guard.names()
    }

    /// The token of one of the names.
    pub fn token(&self, name: &str) -> Option<Token> {
        self.guard.token(name)
    }

    /// The worst standing of them all.
    pub fn standing(&self) -> Standing {
        self.guard.standing()
    }

    /// How long all of them last if no lease is renewed.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// True unless one is lost.
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// An error if one is lost.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Lost`] with the first that is.
    pub fn check(&self) -> Result<()> {
        self.guard.check()
    }

    /// Waits for at most `limit` until one of them is lost, and says which; `None` if all still
    /// stand then.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Invalid`] inside an async task.
    pub fn lost_for(&self, limit: Duration) -> Result<Option<String>> {
        let lost = self.guard.lost();
        self.runtime.wait(async { tokio::time::timeout(limit, lost).await.ok() })
    }

    /// Gives all of them back, last taken first, and waits until the engine has heard.
    ///
    /// # Errors
    ///
    /// The first error; the others are released all the same. [`crate::Error::Invalid`] inside an
    /// async task, where they are released in the background.
    pub fn release(self) -> Result<()> {
        self.runtime.wait(self.guard.release())?
    }
}
