//! Many readers or one writer.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::claim::{Alteration, Answer, Refused, WHOLE};
use crate::client::Client;
use crate::client::acquire::{Patience, Want};
use crate::client::hold::Lease;
use crate::engine::refusal;
use crate::error::{Error, Loss, Result};
use crate::guard::Guard;
use crate::lock::settings;
use crate::name::Family;

/// Many readers or one writer, first come, first served: a writer that waits is not overtaken by
/// readers that came later. Made by [`Client::rwlock`].
///
/// A writer's token is greater than those of all readers and writers before it, and a reader's is
/// greater than those of all writers before it. Readers that hold at the same time have no order
/// among themselves.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let catalogue = client.rwlock("catalogue")?;
///
/// let one = catalogue.read().await?;
/// let two = catalogue.read().await?;
/// assert!(catalogue.try_write().await?.is_none());
/// two.release().await?;
/// let writer = one.upgrade().await.map_err(|refused| refused.error)?;
/// let reader = writer.downgrade().await?;
/// # reader.release().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    client: Client,
    want: Want,
}

impl Client {
    /// A lock with many readers or one writer.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is too long; [`Error::Unsupported`] if the engine has no
    /// readers.
    pub fn rwlock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        let guarantees = self.inner.engine.guarantees();
        if !guarantees.shares {
            return Err(Error::Unsupported {
                engine: guarantees.engine,
                what: "has no readers in this mode; use a mutex, or another engine".into(),
            });
        }
        Ok(RwLock::new(self, self.want(Family::Lock, name.as_ref(), WHOLE, WHOLE)?))
    }
}

impl RwLock {
    pub(crate) fn new(client: &Client, want: Want) -> RwLock {
        RwLock { client: client.clone(), want }
    }

    settings!();

    /// Waits until no writer holds the name or came before, then reads.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn read(&self) -> Result<ReadGuard> {
        loop {
            if let Some(guard) = self.take_read(Patience::Forever).await? {
                return Ok(guard);
            }
        }
    }

    /// Reads if that is possible at once.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn try_read(&self) -> Result<Option<ReadGuard>> {
        self.take_read(Patience::None).await
    }

    /// Waits to read for at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn read_for(&self, limit: Duration) -> Result<Option<ReadGuard>> {
        self.take_read(self.lasting(limit)).await
    }

    /// Waits until nobody else holds the name, then writes.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn write(&self) -> Result<WriteGuard> {
        loop {
            if let Some(guard) = self.take_write(Patience::Forever).await? {
                return Ok(guard);
            }
        }
    }

    /// Writes if that is possible at once.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        self.take_write(Patience::None).await
    }

    /// Waits to write for at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// As [`crate::Mutex::lock`].
    pub async fn write_for(&self, limit: Duration) -> Result<Option<WriteGuard>> {
        self.take_write(self.lasting(limit)).await
    }

    fn lasting(&self, limit: Duration) -> Patience {
        Patience::lasting(limit, self.client.inner.clock.now())
    }

    async fn take_read(&self, patience: Patience) -> Result<Option<ReadGuard>> {
        let mut want = self.want.clone();
        want.terms.weight = 1;
        let hold = self.client.inner.acquire(&want, patience).await?;
        Ok(hold.map(|hold| ReadGuard(Guard::new(hold))))
    }

    async fn take_write(&self, patience: Patience) -> Result<Option<WriteGuard>> {
        let hold = self.client.inner.acquire(&self.want, patience).await?;
        Ok(hold.map(|hold| WriteGuard(Guard::new(hold))))
    }
}

/// A reader's [`Guard`].
#[derive(Debug)]
#[must_use = "a guard that is dropped is released at once"]
pub struct ReadGuard(Guard);

/// The writer's [`Guard`].
#[derive(Debug)]
#[must_use = "a guard that is dropped is released at once"]
pub struct WriteGuard(Guard);

impl Deref for ReadGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

/// An upgrade that did not happen, with the guard that is still held.
#[derive(Debug)]
pub struct NotUpgraded {
    /// Still a reader.
    pub guard: ReadGuard,
    /// Why.
    pub error: Error,
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
    /// Waits until this is the only reader, then becomes the writer, under a new token. It goes
    /// before all who wait.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if another reader already waits to become the writer, for the two would
    /// wait for each other: release this guard and ask to write. [`Error::Unsupported`] if the
    /// engine can not do it. The guard comes back with the error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the guard: it is released in the background.
    pub async fn upgrade(self) -> Result<WriteGuard, NotUpgraded> {
        match upgrade(&self.0, Alteration::Upgrade).await {
            Ok(Some(grant)) => Ok(self.into_writer(grant)),
            Ok(None) => Err(NotUpgraded { guard: self, error: Error::closed() }),
            Err(error) => Err(NotUpgraded { guard: self, error }),
        }
    }

    /// Becomes the writer if this is the only reader; gives the guard back if not.
    ///
    /// # Errors
    ///
    /// As [`ReadGuard::upgrade`].
    ///
    /// # Cancel safety
    ///
    /// As [`ReadGuard::upgrade`].
    pub async fn try_upgrade(self) -> Result<Result<WriteGuard, ReadGuard>, NotUpgraded> {
        match upgrade(&self.0, Alteration::TryUpgrade).await {
            Ok(Some(grant)) => Ok(Ok(self.into_writer(grant))),
            Ok(None) => Ok(Err(self)),
            Err(error) => Err(NotUpgraded { guard: self, error }),
        }
    }

    /// See [`Guard::release`].
    ///
    /// # Errors
    ///
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }

    fn into_writer(mut self, grant: crate::claim::Grant) -> WriteGuard {
        if let Some(hold) = self.0.hold_mut() {
            hold.retoken(grant);
        }
        WriteGuard(self.0)
    }
}

async fn upgrade(guard: &Guard, alteration: Alteration) -> Result<Option<crate::claim::Grant>> {
    let lease = guard.hold().lease();
    let client = &lease.client;
    let guarantees = client.engine.guarantees();
    if !guarantees.upgrades {
        return Err(Error::Unsupported {
            engine: guarantees.engine,
            what: "can not turn a reader into the writer; release, then ask to write".into(),
        });
    }
    let waiting = client.wakes.register(lease.owner);
    lease.begin_altering();
    loop {
        client.check_open()?;
        guard.check()?;
        let asked_at = client.clock.now();
        let answer = alter(lease, guard.hold().token(), alteration.clone()).await?;
        match answer {
            Answer::Granted(grant) => {
                lease.renewed(asked_at);
                // An answer that comes after the deadline is a no, whatever it says.
                guard.check()?;
                return Ok(Some(grant));
            }
            Answer::Busy(_) | Answer::Refused(_) => return Ok(None),
            Answer::Queued(pause) => {
                client.rest(&waiting, pause, Patience::Until(lease.deadline()), asked_at).await;
            }
        }
    }
}

/// Changes a claim that is held; a refusal is an error.
pub(super) async fn alter(lease: &Lease, token: u64, alteration: Alteration) -> Result<Answer> {
    let client = &lease.client;
    match client.call(client.engine.alter(&lease.name, lease.owner, alteration)).await? {
        Answer::Refused(Refused::NotHeld) => {
            lease.lose(Loss::Gone);
            Err(lease.lost_error(token, Loss::Gone))
        }
        Answer::Refused(refused) => Err(refusal(&lease.name, refused)),
        answer => Ok(answer),
    }
}

impl WriteGuard {
    /// Becomes a reader at once and lets other readers in. The token stays.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the name is lost; [`Error::Unavailable`] if the engine does not answer.
    /// The guard is released in the background then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the guard: it is released in the background.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        self.0.check()?;
        let token = self.0.hold().token();
        self.0.hold().lease().begin_altering();
        alter(self.0.hold().lease(), token, Alteration::Downgrade { weight: 1, token }).await?;
        self.0.hold().lease().share();
        Ok(ReadGuard(self.0))
    }

    /// See [`Guard::release`].
    ///
    /// # Errors
    ///
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }
}
