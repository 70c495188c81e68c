//! One holder at a time.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex as StdMutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;

use crate::claim::WHOLE;
use crate::client::Client;
use crate::client::acquire::{Patience, Want};
use crate::client::hold::Hold;
use crate::clock::sleep_until;
use crate::error::Result;
use crate::guard::Guard;
use crate::lock::settings;
use crate::name::{Family, Name};

/// One holder at a time, first come, first served. Made by [`Client::mutex`].
///
/// Not re-entrant: a task that locks twice waits for itself. Give an [`Owner`] with
/// [`Mutex::owned_by`] where code that holds a name calls code that takes it again.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let stock = client.mutex("stock/42")?;
///
/// let guard = stock.lock().await?;
/// assert!(stock.try_lock().await?.is_none());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    client: Client,
    want: Want,
    owner: Option<Owner>,
}

impl Client {
    /// A mutex.
    ///
    /// A mutex and the write side of a [`crate::RwLock`] of the same name exclude each other.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Invalid`] if the name is too long.
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        Ok(Mutex::new(self, self.want(Family::Lock, name.as_ref(), WHOLE, WHOLE)?))
    }
}

impl Mutex {
    pub(crate) fn new(client: &Client, want: Want) -> Mutex {
        Mutex { client: client.clone(), want, owner: None }
    }

    settings!();

    /// The same mutex, taken in the name of `owner`, who may take it again while it holds it.
    ///
    /// The second guard has the first one's token; the name is free when the last of them is
    /// released.
    #[must_use]
    pub fn owned_by(mut self, owner: &Owner) -> Mutex {
        self.owner = Some(owner.clone());
        self
    }

    /// Waits until the name is free, then holds it.
    ///
    /// If the engine goes away while a caller stands in the queue, the caller waits on, and asks
    /// again when the engine is back; [`Mutex::lock_for`] limits that. Only a first request that is
    /// not answered within [`crate::Options::call_limit`] is an error.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Unavailable`] if the engine does not answer the first request;
    /// [`crate::Error::Invalid`] if the name is in use as something else, the lease is out of
    /// range, or the client is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue. A grant already on its way is handed back in the
    /// background; until then, or until the lease ends, others wait.
    pub async fn lock(&self) -> Result<Guard> {
        loop {
            if let Some(guard) = self.take(Patience::Forever).await? {
                return Ok(guard);
            }
        }
    }

    /// Holds the name if it is free, and does not wait.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.take(Patience::None).await
    }

    /// Waits for at most `limit`; `None` if the name was not free in that time.
    ///
    /// The limit binds everything, the time that the engine needs for its answer too.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`]; [`crate::Error::Unavailable`] also if the engine was away when the time
    /// was over.
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn lock_for(&self, limit: Duration) -> Result<Option<Guard>> {
        let now = self.client.inner.clock.now();
        self.take(Patience::lasting(limit, now)).await
    }

    /// Waits for the name, does the work under it and gives it back. The work is stopped if the
    /// name is lost.
    ///
    /// It gives what the work gives; work that can fail gives a result inside the result, as with
    /// [`Guard::run`].
    ///
    /// A release that fails is no error, for the work is done: it is told as
    /// [`crate::Event::NotReleased`] and as a warning, and the name is free when its lease ends.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], and [`crate::Error::Lost`] if the work was stopped, or if the name was
    /// lost by the time the work was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and releases the name in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let token = client.mutex("report")?.run(async |token| token).await?;
    /// assert!(token.get() > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T, F>(&self, work: impl FnOnce(crate::Token) -> F) -> Result<T>
    where
        F: Future<Output = T>,
    {
        let guard = self.lock().await?;
        let done = guard.run(work(guard.token())).await?;
        let (name, token) = (self.want.name.clone(), guard.token().get());
        // The work is done, and was done while the name was held: to throw its value away would
        // invite doing it twice.
        if let Err(error) = guard.release().await {
            self.client.inner.events.not_released(&name, token, &error);
        }
        Ok(done)
    }

    pub(crate) async fn take(&self, patience: Patience) -> Result<Option<Guard>> {
        match &self.owner {
            None => Ok(self.client.inner.acquire(&self.want, patience).await?.map(Guard::new)),
            Some(owner) => self.take_again(owner, patience).await,
        }
    }

    async fn take_again(&self, owner: &Owner, patience: Patience) -> Result<Option<Guard>> {
        let entry = owner.entry(self.client.inner.engine_id(), &self.want.name);
        // Two tasks of one owner that ask at the same time: the second finds what the first was
        // given. It waits for the first one's answer no longer than it would for its own.
        let mut held = match patience {
            Patience::None => match entry.try_lock() {
                Ok(held) => held,
                Err(_) => return Ok(None),
            },
            Patience::Until(end) => tokio::select! {
                biased;
                held = entry.lock() => held,
                () = sleep_until(&*self.client.inner.clock, end) => return Ok(None),
            },
            Patience::Forever => entry.lock().await,
        };
        if let Some(hold) = held.upgrade() {
            hold.check()?;
            return Ok(Some(Guard::again(hold)));
        }
        let Some(hold) = self.client.inner.acquire(&self.want, patience).await? else { return Ok(None) };
        let hold = Arc::new(hold);
        *held = Arc::downgrade(&hold);
        Ok(Some(Guard::again(hold)))
    }
}

/// An explicit owner, for re-entry: whoever has it may take again what it holds.
///
/// Async code has no natural "same caller": a task may run on many threads and a thread runs many
/// tasks. So the caller says who it is. Clones are the same owner.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// let me = leasehold::Owner::new();
/// let stock = client.mutex("stock/42")?.owned_by(&me);
///
/// let outer = stock.lock().await?;
/// let inner = stock.lock().await?; // again, at once
/// assert_eq!(outer.token(), inner.token());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Owner {
    entries: Arc<StdMutex<HashMap<(usize, Name), Entry>>>,
}

type Entry = Arc<AsyncMutex<Weak<Hold>>>;

impl Owner {
    /// An owner like no other.
    pub fn new() -> Owner {
        Owner::default()
    }

    fn entry(&self, engine: usize, name: &Name) -> Entry {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = |entry: &Entry| {
            Arc::strong_count(entry) == 1 && entry.try_lock().is_ok_and(|held| held.strong_count() == 0)
        };
        entries.retain(|_, entry| !unused(entry));
        Arc::clone(entries.entry((engine, name.clone())).or_default())
    }
}
