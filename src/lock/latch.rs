//! A gate that opens when it has been counted down.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::Micros;
use crate::client::Client;
use crate::client::cell::TypedRule;
use crate::client::watch::Awaited;
use crate::engine::{CellValue, Decision, Rule, Twin, Write};
use crate::error::{Error, Result};
use crate::name::{Family, Name};

/// A gate that opens when it has been counted down to zero. Made by [`Client::latch`].
///
/// The first call sets the count; everybody must give the same. Once open it stays open. It is
/// forgotten when nobody has counted for as long as [`Latch::kept_for`] says, a day by default;
/// give each round of work a name of its own.
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
    /// [`Error::Invalid`] for a count of 0, or if the name is too long; [`Error::Unsupported`] if
    /// the engine has no cells.
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Result<Latch> {
        let name = name.as_ref();
        self.inner.needs_cells("latches are made of")?;
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
    /// [`Error::Invalid`] if the latch was made with another count; [`Error::Unavailable`] if the
    /// engine does not answer: then it may have been counted or not.
    ///
    /// # Cancel safety
    ///
    /// It may have been counted or not.
    pub async fn count_down(&self) -> Result<u32> {
        let rule = Arc::new(CountDown { from: self.count, kept: self.kept });
        let judged = self.client.inner.update(slice::from_ref(&self.name), &rule).await?;
        Ok(self.agreed(judged)?.left)
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
        let found = self.client.inner.read_cells(slice::from_ref(&self.name)).await?;
        let value = found.cells.first().and_then(|cell| cell.value.as_deref());
        Ok(self.agreed(judge(value, self.count))?.left)
    }

    /// Waits until the count is zero.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the latch was made with another count; [`Error::Unavailable`] if the
    /// engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn wait(&self) -> Result<()> {
        self.wait_within(None).await.map(|_| ())
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
        self.wait_within(Some(limit)).await
    }

    async fn wait_within(&self, limit: Option<Duration>) -> Result<bool> {
        let opened = self.client.inner.wait_until(&self.name, limit, Open(self)).await?;
        Ok(opened.is_some())
    }

    /// The count, or what is wrong with it.
    fn agreed(&self, judged: Judged) -> Result<Count> {
        match judged {
            Judged::Count(count) => Ok(count),
            Judged::Foreign => Err(Error::Engine {
                engine: self.client.guarantees().engine,
                what: format!("`{}` holds something that is not a latch; choose another name", self.name),
                source: None,
            }),
            Judged::From(from) => Err(Error::invalid(format!(
                "the latch `{}` counts from {from}, not from {}; all users must give the same",
                self.name, self.count
            ))),
        }
    }
}

/// That a latch is open.
struct Open<'a>(&'a Latch);

impl Awaited for Open<'_> {
    type Found = ();

    async fn look(&mut self) -> Result<Option<()>> {
        Ok((self.0.left().await? == 0).then_some(()))
    }
}

/// What is to be thought of the cell of a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    /// It is ours.
    Count(Count),
    /// It counts from another number.
    From(u32),
    /// It is not a latch.
    Foreign,
}

fn judge(value: Option<&[u8]>, from: u32) -> Judged {
    match value.map(Count::decode) {
        None => Judged::Count(Count { from, left: from }),
        Some(None) => Judged::Foreign,
        Some(Some(count)) if count.from != from => Judged::From(count.from),
        Some(Some(count)) => Judged::Count(count),
    }
}

/// In microseconds: what a number in Lua can hold.
const LONGEST_KEPT: u128 = 1 << 52;

/// Counts a latch down by one. At zero it stays at zero.
#[derive(Debug)]
struct CountDown {
    from: u32,
    kept: Duration,
}

impl Rule for CountDown {
    /// The answer is the value of the cell after the step: what to think of it is seen from that.
    fn step(&self, values: &[Option<&[u8]>], _: Micros) -> Decision {
        let value = values.first().copied().flatten();
        match judge(value, self.from) {
            Judged::Count(Count { from, left }) if left > 0 => {
                let bytes = Count { from, left: left - 1 }.encode();
                let write = Write::Put(CellValue { bytes: bytes.clone(), lives: self.kept });
                Decision { writes: vec![write], answer: bytes }
            }
            _ => Decision { writes: Vec::new(), answer: value.map(<[u8]>::to_vec).unwrap_or_default() },
        }
    }

    fn twin(&self) -> Option<Twin> {
        let kept = self.kept.as_micros().min(LONGEST_KEPT);
        let arguments = [u128::from(self.from), kept].map(|number| number.to_string().into_bytes());
        Some(Twin {
            script: include_str!("latch/count_down.lua"),
            shortcut: None,
            arguments: arguments.into(),
        })
    }
}

impl TypedRule for CountDown {
    type Answer = Judged;

    fn read(&self, answer: &[u8]) -> Option<Judged> {
        Some(judge(Some(answer), self.from))
    }
}
