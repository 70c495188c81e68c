//! Several names at once.

use std::future::Future;
use std::time::Duration;

use crate::client::Client;
use crate::client::acquire::Patience;
use crate::clock::sleep_until;
use crate::error::{Error, Result};
use crate::guard::{Guard, Standing};
use crate::lock::Mutex;
use crate::token::Token;

/// Several mutexes, held all or none. Made by [`Client::multi`].
///
/// They are taken in one order for everybody, whatever order they were given in, so two callers
/// that want the same names never wait for each other. A name given twice counts once.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let both = client.multi(["account/7", "account/3"])?.lock().await?;
/// assert!(both.token("account/3").is_some());
/// both.release().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Multi {
    client: Client,
    members: Vec<(String, Mutex)>,
}

impl Client {
    /// Several mutexes at once: all of them or none.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for no names, or one that is too long.
    pub fn multi(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Multi> {
        Multi::new(self, names)
    }
}

impl Multi {
    fn new(client: &Client, names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Multi> {
        let mut names: Vec<String> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return Err(Error::invalid("no names to lock were given"));
        }
        let members = names.into_iter().map(|name| {
            let mutex = client.mutex(&name)?;
            Ok((name, mutex))
        });
        Ok(Multi { client: client.clone(), members: members.collect::<Result<_>>()? })
    }

    /// Another lease than the client's: see [`crate::Options::lease`].
    #[must_use]
    pub fn lease(self, lease: Duration) -> Multi {
        self.each(|mutex| mutex.lease(lease))
    }

    /// What the holder is called for humans.
    #[must_use]
    pub fn label(self, label: impl Into<String>) -> Multi {
        let label = label.into();
        self.each(|mutex| mutex.label(label.clone()))
    }

    /// See [`Mutex::lock_delay`].
    #[must_use]
    pub fn lock_delay(self, delay: Duration) -> Multi {
        self.each(|mutex| mutex.lock_delay(delay))
    }

    fn each(mut self, set: impl Fn(Mutex) -> Mutex) -> Multi {
        self.members = self.members.into_iter().map(|(name, mutex)| (name, set(mutex))).collect();
        self
    }

    /// Waits until all are held.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], and [`Error::Lost`] if one was lost while another was waited for.
    /// Nothing is held then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives back what was taken, in the background, and leaves the queue.
    pub async fn lock(&self) -> Result<MultiGuard> {
        loop {
            if let Some(guard) = self.take(Patience::Forever).await? {
                return Ok(guard);
            }
        }
    }

    /// Holds all of them if all are free.
    ///
    /// # Errors
    ///
    /// As [`Multi::lock`].
    ///
    /// # Cancel safety
    ///
    /// As [`Multi::lock`].
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>> {
        self.take(Patience::None).await
    }

    /// Waits for at most `limit`, for all of them together, and a moment more to give back what was
    /// taken in vain.
    ///
    /// # Errors
    ///
    /// As [`Multi::lock`].
    ///
    /// # Cancel safety
    ///
    /// As [`Multi::lock`].
    pub async fn lock_for(&self, limit: Duration) -> Result<Option<MultiGuard>> {
        let now = self.client.inner.clock.now();
        self.take(Patience::lasting(limit, now)).await
    }

    async fn take(&self, patience: Patience) -> Result<Option<MultiGuard>> {
        let mut all = MultiGuard { guards: Vec::with_capacity(self.members.len()) };
        for (name, mutex) in &self.members {
            let Some(guard) = mutex.take(patience).await? else {
                // Others may wait for what was taken: it is free before this returns, if the engine
                // hears of it in the caller's time, or in the moment that an engine in good health
                // needs. That one of them was lost meanwhile harms nobody, for nothing was done
                // under it.
                const MOMENT: Duration = Duration::from_millis(200);
                let clock = &*self.client.inner.clock;
                let end = patience.end().max(clock.now() + MOMENT);
                tokio::select! {
                    biased;
                    _ = all.release() => {}
                    () = sleep_until(clock, end) => {}
                }
                return Ok(None);
            };
            all.guards.push((name.clone(), guard));
        }
        // The first may have been lost while the last was waited for.
        all.check()?;
        Ok(Some(all))
    }
}

/// Several names that are held. Dropped, they are released in the background, last taken first.
#[derive(Debug)]
#[must_use = "a guard that is dropped is released at once"]
pub struct MultiGuard {
    guards: Vec<(String, Guard)>,
}

impl MultiGuard {
    /// The names, as they were given to [`Client::multi`], in order and each once.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.guards.iter().map(|(name, _)| name.as_str())
    }

    /// The token of one of the names.
    pub fn token(&self, name: &str) -> Option<Token> {
        self.guards.iter().find(|(held, _)| held == name).map(|(_, guard)| guard.token())
    }

    /// The worst standing of them all.
    pub fn standing(&self) -> Standing {
        let standings = self.guards.iter().map(|(_, guard)| guard.standing());
        standings
            .reduce(|worst, next| match (worst, next) {
                (Standing::Lost, _) | (_, Standing::Lost) => Standing::Lost,
                (Standing::InDoubt, _) | (_, Standing::InDoubt) => Standing::InDoubt,
                (Standing::Held, Standing::Held) => Standing::Held,
            })
            .unwrap_or(Standing::Held)
    }

    /// How long all of them last if no lease is renewed.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(|(_, guard)| guard.remaining()).min().unwrap_or_default()
    }

    /// True unless one is lost.
    pub fn is_held(&self) -> bool {
        self.standing() != Standing::Lost
    }

    /// An error if one is lost.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the first that is.
    pub fn check(&self) -> Result<()> {
        self.guards.iter().try_for_each(|(_, guard)| guard.check())
    }

    /// Waits until one of them is lost, and says which.
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and made again at any time.
    pub fn lost(&self) -> impl Future<Output = String> + Send + 'static {
        let mut waits: Vec<_> = self
            .guards
            .iter()
            .map(|(name, guard)| {
                let (name, lost) = (name.clone(), guard.lost());
                Box::pin(async move {
                    lost.await;
                    name
                })
            })
            .collect();
        std::future::poll_fn(move |context| {
            for wait in &mut waits {
                if let std::task::Poll::Ready(name) = wait.as_mut().poll(context) {
                    return std::task::Poll::Ready(name);
                }
            }
            std::task::Poll::Pending
        })
    }

    /// Does the work, and stops it (drops its future) if one of the names is lost before it is
    /// done. Work that can fail gives a result inside the result, as with [`Guard::run`].
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the work was stopped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let done = tokio::select! {
            biased;
            _ = self.lost() => None,
            done = work => Some(done),
        };
        self.check()?;
        done.ok_or_else(Error::closed)
    }

    /// Gives all of them back, last taken first, and waits until the engine has heard.
    ///
    /// # Errors
    ///
    /// The first error; the others are released all the same.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases what is left in the background.
    pub async fn release(mut self) -> Result<()> {
        let mut first = Ok(());
        while let Some((_, guard)) = self.guards.pop() {
            let released = guard.release().await;
            first = first.and(released);
        }
        first
    }
}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        while let Some((_, guard)) = self.guards.pop() {
            drop(guard);
        }
    }
}
