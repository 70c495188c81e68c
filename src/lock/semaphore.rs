//! A number of permits.

use std::time::Duration;

use crate::client::Client;
use crate::client::acquire::{Patience, Want};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::lock::settings;
use crate::name::Family;

/// A number of permits, given out first come, first served. Made by [`Client::semaphore`].
///
/// A caller that wants many permits is not overtaken by later ones that want few. A permit whose
/// holder died comes back as a lease does.
///
/// Every holder has a token of its own. Inside one process tokens rise. A permit that is handed on
/// inside a process ([`crate::Options::hand_over`]) can have a lower token than one that another
/// process got in the meantime, by as much as the budget of the hand-over. Several hold at the same
/// time, so a resource can not tell by these tokens who came last: where it must, guard it with a
/// mutex.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let printers = client.semaphore("printers", 3)?;
///
/// let two = printers.acquire_many(2).await?;
/// let one = printers.acquire().await?;
/// assert!(printers.try_acquire().await?.is_none());
/// printers.resize(4).await?;
/// let fourth = printers.acquire().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    client: Client,
    want: Want,
}

impl Client {
    /// A semaphore with that many permits. All users of the name must give the same number.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for no permits, or if the name is too long; [`Error::Unsupported`] if the
    /// engine can not count.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<Semaphore> {
        let name = name.as_ref();
        let guarantees = self.inner.engine.guarantees();
        if !guarantees.counts {
            return Err(Error::Unsupported {
                engine: guarantees.engine,
                what: "can not count permits; use another engine for semaphores".into(),
            });
        }
        if permits == 0 {
            return Err(Error::invalid(format!("a semaphore of 0 permits (`{name}`) could never be taken")));
        }
        Ok(Semaphore::new(self, self.want(Family::Semaphore, name, 1, permits)?))
    }
}

impl Semaphore {
    pub(crate) fn new(client: &Client, want: Want) -> Semaphore {
        Semaphore { client: client.clone(), want }
    }

    settings!();

    /// The number of permits this semaphore was made with.
    pub fn permits(&self) -> u32 {
        self.want.terms.capacity
    }

    /// Waits for one permit.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine stops answering; [`Error::Invalid`] if the name is in
    /// use with another number of permits.
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn acquire(&self) -> Result<Guard> {
        self.acquire_many(1).await
    }

    /// Waits for `permits` at once, held and released together.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`], and [`Error::Invalid`] for none or for more than there are.
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn acquire_many(&self, permits: u32) -> Result<Guard> {
        loop {
            if let Some(guard) = self.take(permits, Patience::Forever).await? {
                return Ok(guard);
            }
        }
    }

    /// Takes one permit if it is free.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.take(1, Patience::None).await
    }

    /// Takes `permits` at once if they are free.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire_many`].
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<Guard>> {
        self.take(permits, Patience::None).await
    }

    /// Waits for one permit for at most `limit`; `None` if there was none in that time.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn acquire_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.acquire_many_for(1, limit).await
    }

    /// Waits for `permits` at once for at most `limit`; `None` if they were not free in that time.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire_many`].
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn acquire_many_for(&self, permits: u32, limit: Duration) -> Result<Option<Guard>> {
        let now = self.client.inner.clock.now();
        self.take(permits, Patience::lasting(limit, now)).await
    }

    /// How many permits are free now: a number that may be old when it arrives.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn available(&self) -> Result<u32> {
        let client = &self.client.inner;
        let view = client.call(client.engine.look(&self.want.name, u64::MAX)).await?;
        let capacity = if view.capacity == 0 { self.permits() } else { view.capacity };
        let used: u64 = view.claims.iter().map(|held| u64::from(held.claim.weight)).sum();
        Ok(u32::try_from(u64::from(capacity).saturating_sub(used)).unwrap_or(u32::MAX))
    }

    /// Changes the number of permits for everybody, at once and until it is changed again.
    ///
    /// Users that were made with the old number go on as before. Permits that are held stay held:
    /// after a cut, nothing is given out until enough of them have come back.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for no permits, or if the name is in use with another number than this
    /// semaphore was made with; [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// The change may have happened or not; it can be made again.
    pub async fn resize(&self, permits: u32) -> Result<()> {
        if permits == 0 {
            return Err(Error::invalid(format!("`{}` can not be cut to 0 permits", self.want.name)));
        }
        let client = &self.client.inner;
        client.check_open()?;
        client.call(client.engine.resize(&self.want.name, self.permits(), permits)).await
    }

    async fn take(&self, permits: u32, patience: Patience) -> Result<Option<Guard>> {
        if permits == 0 {
            return Err(Error::invalid(format!("0 permits of `{}` are nothing to hold", self.want.name)));
        }
        let mut want = self.want.clone();
        want.terms.weight = permits;
        Ok(self.client.inner.acquire(&want, patience).await?.map(Guard::new))
    }
}
