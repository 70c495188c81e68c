//! An occurrence, and the run of one.

use std::fmt;
use std::future::{Future, pending};
use std::slice;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::record::{End, Record, note};
use super::rule::{Answer, Ask, Held, Setup, Step};
use super::timing;
use crate::claim::Micros;
use crate::client::Client;
use crate::client::watch::Awaited;
use crate::clock::sleep_until;
use crate::error::{Error, Loss, Result};
use crate::guard::Guard;
use crate::name::Name;
use crate::token::Token;

/// What could not be recorded is recorded again after this.
const AGAIN: Duration = Duration::from_millis(50);

/// One of the times at which a task is due, and this run of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    pub(super) task: Arc<str>,
    pub(super) instant: Micros,
    pub(super) token: Token,
    pub(super) attempt: u32,
    pub(super) behind: Duration,
}

impl Occurrence {
    /// Which task.
    pub fn task(&self) -> &str {
        &self.task
    }

    /// The instant at which it is due, which names the occurrence: the same on every node and in
    /// every attempt.
    pub fn scheduled(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.instant)
    }

    /// The fencing token of this run: greater than that of any earlier run that it could meet.
    pub fn token(&self) -> Token {
        self.token
    }

    /// 1, or more if its node fell silent and it runs again.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How long after its instant it was started, by the engine's clock.
    pub fn delay(&self) -> Duration {
        self.behind
    }
}

impl fmt::Display for Occurrence {
    /// The task and the instant, like `reports at 2026-11-18T02:00:00Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.task, timing::show(self.instant))
    }
}

/// What a task asks its record with.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    pub(super) client: Client,
    /// The cell of the task.
    pub(super) cell: Name,
    pub(super) setup: Arc<Setup>,
}

impl Asking {
    pub(super) async fn ask(&self, ask: Ask) -> Result<Answer> {
        let rule = Arc::new(Step { setup: Arc::clone(&self.setup), ask });
        match self.client.inner.update(slice::from_ref(&self.cell), &rule).await? {
            Answer::Foreign => Err(foreign(&self.client, &self.cell)),
            answer => Ok(answer),
        }
    }

    /// Asks until there is an answer, for as long as the lock of the run is held.
    pub(super) async fn repeat(&self, ask: &Ask, guard: &Guard) -> Result<Answer> {
        let clock = &*self.client.inner.clock;
        loop {
            match self.ask(ask.clone()).await {
                Err(error @ Error::Unavailable { .. }) if !guard.is_held() => return Err(error),
                Err(Error::Unavailable { .. }) => sleep_until(clock, clock.now() + AGAIN).await,
                answer => return answer,
            }
        }
    }
}

pub(super) fn foreign(client: &Client, cell: &Name) -> Error {
    Error::Engine {
        engine: client.guarantees().engine,
        what: format!("the cell `{cell}` holds something that is not a task"),
        source: None,
    }
}

/// A lock that was taken to begin an occurrence. If it is dropped, the occurrence is given back.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) asking: Asking,
    pub(super) held: Held,
    pub(super) guard: Option<Guard>,
    /// The record may say that we run it.
    pub(super) armed: bool,
}

impl Drop for Starting {
    fn drop(&mut self) {
        let (Some(guard), true) = (self.guard.take(), self.armed) else { return };
        let (asking, held) = (self.asking.clone(), self.held);
        let client = Arc::clone(&asking.client.inner);
        client.background(async move {
            // If it is not heard, the occurrence is found as lost, although it was not started:
            // rather that than the other way round. The lock is given back after it, or somebody
            // else would find the occurrence before.
            asking.repeat(&Ask::Undo(held), &guard).await.ok();
            guard.release().await.ok();
        });
    }
}

/// A run of an occurrence: a lease that is renewed until the run is ended.
///
/// [`Run::done`] or [`Run::failed`] ends it. Dropped, or lost, it is recorded as lost by the next
/// node that looks, or runs again there: see [`super::IfLost`].
#[derive(Debug)]
#[must_use = "an occurrence that is dropped counts as lost"]
pub struct Run {
    pub(super) asking: Asking,
    pub(super) held: Held,
    pub(super) guard: Guard,
    pub(super) occurrence: Occurrence,
}

impl Run {
    /// Which occurrence.
    pub fn occurrence(&self) -> &Occurrence {
        &self.occurrence
    }

    /// Waits until the lease of the run is lost; for ever if it never is. The work must stop then:
    /// see [`Guard::lost`].
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and made again at any time.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        self.guard.lost()
    }

    /// How long the lease lasts if it is not renewed.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Does the work, and stops it (drops its future) if the lease is lost before it is done.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the work was stopped, or if the lease was lost by the time it was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        self.guard.run(work).await
    }

    /// Records that the work is done.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lease was lost before that could be recorded: others find it as lost.
    ///
    /// # Cancel safety
    ///
    /// It was recorded or not; if not, it is found as lost.
    pub async fn done(self) -> Result<()> {
        self.end(End::Done).await
    }

    /// Records that the work has failed, and why. It does not run again.
    ///
    /// # Errors
    ///
    /// As [`Run::done`].
    ///
    /// # Cancel safety
    ///
    /// As [`Run::done`].
    pub async fn failed(self, why: impl fmt::Display) -> Result<()> {
        self.end(End::Failed(note(&why.to_string()))).await
    }

    /// Waits until the run must stop because a later occurrence is due, if the task says so
    /// ([`super::Overlap::Replace`]); for ever if it never does. The work must stop then, and
    /// [`Run::stopped`] be called.
    ///
    /// # Errors
    ///
    /// [`Error::Engine`] if the record of the task is something else.
    ///
    /// # Cancel safety
    ///
    /// It can be dropped and made again at any time.
    pub async fn replaced(&self) -> Result<()> {
        if !self.asking.setup.replaces {
            return pending().await;
        }
        let clock = &*self.asking.client.inner.clock;
        loop {
            let stopped = Stopped { asking: &self.asking, held: self.held };
            match self.asking.client.inner.wait_until(&self.asking.cell, None, stopped).await {
                Err(Error::Unavailable { .. }) => sleep_until(clock, clock.now() + AGAIN).await,
                ended => return ended.map(|_| ()),
            }
        }
    }

    /// Records that the work was stopped because a later occurrence is due.
    ///
    /// # Errors
    ///
    /// As [`Run::done`].
    ///
    /// # Cancel safety
    ///
    /// As [`Run::done`].
    pub async fn stopped(self) -> Result<()> {
        self.end(End::Replaced).await
    }

    async fn end(self, end: End) -> Result<()> {
        let Run { asking, held, guard, .. } = self;
        let answer = asking.repeat(&Ask::End { held, end }, &guard).await;
        let lost = || Error::Lost { name: guard.name().to_owned(), token: held.token, why: Loss::Deadline };
        match answer {
            Ok(Answer::Yes) => {
                // It is recorded; that the lock is free a moment later harms nobody.
                guard.release().await.ok();
                Ok(())
            }
            Ok(_) | Err(Error::Unavailable { .. }) => Err(lost()),
            Err(error) => Err(error),
        }
    }
}

/// That a run must stop.
struct Stopped<'a> {
    asking: &'a Asking,
    held: Held,
}

impl Awaited for Stopped<'_> {
    type Found = ();

    async fn look(&mut self) -> Result<Option<()>> {
        let Asking { client, cell, .. } = self.asking;
        let found = client.inner.read_cells(slice::from_ref(cell)).await?;
        let value = found.cells.into_iter().next().and_then(|cell| cell.value);
        let record = match value.as_deref().map(Record::decode) {
            Some(None) => return Err(foreign(client, cell)),
            Some(Some(record)) => record,
            None => Record::default(),
        };
        Ok((!self.held.goes_on(&record)).then_some(()))
    }
}
