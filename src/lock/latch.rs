//! A gate that opens when it has been counted down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::client::Client;
use crate::client::acquire::Patience;
use crate::clock::sleep_until;
use crate::engine::{CellValue, Swapped};
use crate::error::{Error, Result};
use crate::name::{Family, Name};

/// A waiter that hears nothing looks again after this long.
const LOOK: Duration = Duration::from_secs(1);

/// A gate that opens when it has been counted down to zero. Made by [`Client::latch`].
///
/// The first call sets the count; everybody must give the same. Once open it stays open. It is forgotten when
/// nobody has counted for as long as [`Latch::kept_for`] says, a day by default; give each round of work a name
/// of its own.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let ready = client.latch("import/2026-11-15", 2)?;
///
/// assert_eq!(ready.count_down().await?, 1);
/// assert!(!ready.wait_for(std::time::Duration::from_millis(1)).await?);
/// assert_eq!(ready.count_down().await?, 0);
/// ready.wait().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Latch {
    client: Client,
    name: Name,
    count: u32,
    kept: Duration,
}

impl Client {
    /// A latch that opens when it has been counted down from `count`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a count of 0, or if the name is too long; [`Error::Unsupported`] if the engine has no cells.
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Result<Latch> {
        let name = name.as_ref();
        let guarantees = self.inner.engine.guarantees();
        if !guarantees.cells {
            return Err(Error::Unsupported {
                engine: guarantees.engine,
                what: "has no cells, which latches are made of; use another engine for latches".into(),
            });
        }
        if count == 0 {
            return Err(Error::invalid(format!("a latch with a count of 0 (`{name}`) would always be open")));
        }
        Ok(Latch::new(self, self.name(Family::Cell, name)?, count))
    }
}

/// What the cell of a latch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    from: u32,
    left: u32,
}

impl Count {
    fn encode(self) -> Vec<u8> {
        [self.from.to_be_bytes(), self.left.to_be_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Count> {
        let (from, left) = bytes.split_first_chunk::<4>()?;
        let left: [u8; 4] = left.try_into().ok()?;
        Some(Count { from: u32::from_be_bytes(*from), left: u32::from_be_bytes(left) })
    }
}

impl Latch {
    pub(crate) fn new(client: &Client, name: Name, count: u32) -> Latch {
        Latch { client: client.clone(), name, count, kept: Duration::from_secs(24 * 60 * 60) }
    }

    /// How long the latch is remembered after it was last counted: a day by default.
    #[must_use]
    pub fn kept_for(mut self, time: Duration) -> Latch {
        self.kept = time;
        self
    }

    /// The name, with its namespaces.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Counts one down, and says how many are left. At zero it stays at zero.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the latch was made with another count; [`Error::Unavailable`] if the engine does not
    /// answer: then it may have been counted or not.
    ///
    /// # Cancel safety
    ///
    /// It may have been counted or not.
    pub async fn count_down(&self) -> Result<u32> {
        let client = &self.client.inner;
        client.check_open()?;
        let mut cell = client.call(client.engine.read(&self.name)).await?;
        loop {
            let mut count = self.judge(cell.value.as_deref())?;
            if count.left == 0 {
                return Ok(0);
            }
            count.left -= 1;
            let value = CellValue { bytes: count.encode(), lives: self.kept };
            match client.call(client.engine.swap(&self.name, cell.version, Some(value))).await? {
                Swapped::Yes(_) => return Ok(count.left),
                Swapped::No(newer) => cell = newer,
            }
        }
    }

    /// How many are left.
    ///
    /// # Errors
    ///
    /// As [`Latch::wait`].
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn left(&self) -> Result<u32> {
        let client = &self.client.inner;
        client.check_open()?;
        let cell = client.call(client.engine.read(&self.name)).await?;
        Ok(self.judge(cell.value.as_deref())?.left)
    }

    /// Waits until the count is zero.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the latch was made with another count; [`Error::Unavailable`] if the engine does not
    /// answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn wait(&self) -> Result<()> {
        self.wait_until(Patience::Forever, &AtomicBool::new(false)).await.map(|_| ())
    }

    /// Waits for at most `limit`; true if the count is zero.
    ///
    /// # Errors
    ///
    /// As [`Latch::wait`].
    ///
    /// # Cancel safety
    ///
    /// As [`Latch::wait`].
    pub async fn wait_for(&self, limit: Duration) -> Result<bool> {
        let client = &self.client.inner;
        let end = client.clock.now() + limit;
        let answered = AtomicBool::new(false);
        tokio::select! {
            biased;
            open = self.wait_until(Patience::Until(end), &answered) => open,
            () = sleep_until(&*client.clock, end), if !limit.is_zero() => {
                if answered.load(Ordering::Acquire) { Ok(false) } else { Err(client.no_answer(limit)) }
            }
        }
    }

    async fn wait_until(&self, patience: Patience, answered: &AtomicBool) -> Result<bool> {
        let client = &self.client.inner;
        client.check_open()?;
        client.unless_closed(self.wait_open(patience, answered)).await
    }

    async fn wait_open(&self, patience: Patience, answered: &AtomicBool) -> Result<bool> {
        let client = &self.client.inner;
        let watched = client.watch(&self.name).await?;
        loop {
            let changed = Arc::clone(&watched.changed);
            let changed = changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.left().await? == 0 {
                return Ok(true);
            }
            answered.store(true, Ordering::Release);
            let now = client.clock.now();
            if patience.over(now) {
                return Ok(false);
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(&*client.clock, patience.end().min(now + LOOK)) => {}
            }
        }
    }

    fn judge(&self, value: Option<&[u8]>) -> Result<Count> {
        let Some(bytes) = value else { return Ok(Count { from: self.count, left: self.count }) };
        let count = Count::decode(bytes).ok_or_else(|| Error::Engine {
            engine: self.client.guarantees().engine,
            what: format!("`{}` holds something that is not a latch; choose another name", self.name),
            source: None,
        })?;
        if count.from != self.count {
            return Err(Error::invalid(format!(
                "the latch `{}` counts from {}, not from {}; all users must give the same",
                self.name, count.from, self.count
            )));
        }
        Ok(count)
    }
}
