//! A task: when it is due, and the node that waits for its turn to run it.

use std::fmt::Display;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Poll;
use std::time::Duration;

use super::occurrence::{Occurrence, Run};
use super::plan::Misfire;
use super::rule::IfLost;
use super::timing::Timing;
use crate::client::Client;
use crate::error::Result;
use crate::kit::cells;
use crate::name::{Family, Name};

/// The longest history that is kept.
pub const LONGEST_HISTORY: usize = 500;
const DEFAULT_GRACE: Duration = Duration::from_secs(10);
const DEFAULT_HISTORY: usize = 20;

/// A task by its name. Made by [`Client::schedule`].
#[derive(Clone, Debug)]
pub struct Schedule {
    pub(super) client: Client,
    pub(super) name: Arc<str>,
}

/// What happens if an occurrence is due while an earlier one runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// It waits until that one has ended, and is late then: see [`Misfire`].
    Forbid,
    /// It runs beside that one.
    Allow,
    /// That one is stopped (its work is dropped), and this one runs.
    Replace,
}

/// A task with its times: every node of a service makes the same and calls [`Task::run`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// let reports = client.schedule("reports").every(Duration::from_millis(20))?;
/// let (stop, stopped) = tokio::sync::oneshot::channel();
/// let mut stop = Some(stop);
/// reports
///     .run_until(async { drop(stopped.await) }, |occurrence| {
///         println!("{occurrence}, token {}", occurrence.token());
///         stop.take().map(|stop| stop.send(()));
///         async { Ok::<_, std::io::Error>(()) }
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Task {
    pub(super) schedule: Schedule,
    pub(super) cell: Name,
    pub(super) timing: Timing,
    pub(super) grace: Duration,
    pub(super) misfire: Misfire,
    pub(super) overlap: Overlap,
    pub(super) jitter: Duration,
    pub(super) if_lost: IfLost,
    pub(super) lease: Duration,
    pub(super) history: usize,
    /// When to put it on the list of tasks again, on the client's clock; 0 before the first time.
    pub(super) list_at: Arc<AtomicU64>,
}

impl Client {
    /// A task by its name; [`Schedule::cron`] or [`Schedule::every`] says when it is due.
    pub fn schedule(&self, name: impl AsRef<str>) -> Schedule {
        Schedule { client: self.clone(), name: name.as_ref().into() }
    }
}

impl Schedule {
    /// Due at the times of a cron expression with five fields, or six that begin with seconds, in
    /// the time of a zone like `Europe/Berlin` or `UTC`.
    ///
    /// Where clocks are set forward, a task at one time of day in the hour that is left out is due
    /// at the first moment after it; one that goes by lists, `*` or steps is not due in it. Where
    /// clocks are set back, a task at one time of day in the hour that comes twice is due the first
    /// time; one that goes by lists, `*` or steps is due both times.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) if the expression or the zone is wrong, or the name
    /// is too long; [`Error::Unsupported`](crate::Error::Unsupported) if the engine has no cells.
    pub fn cron(&self, expression: &str, zone: &str) -> Result<Task> {
        self.task(Timing::cron(expression, zone)?)
    }

    /// Due at the multiples of a period, counted from 1970 in UTC: every five minutes is at 0, 5,
    /// 10 and so on.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) if the period is shorter than 10 ms, or the name is
    /// too long; [`Error::Unsupported`](crate::Error::Unsupported) if the engine has no cells.
    pub fn every(&self, period: Duration) -> Result<Task> {
        self.task(Timing::every(period)?)
    }

    fn task(&self, timing: Timing) -> Result<Task> {
        Ok(Task {
            cell: self.cell()?,
            schedule: self.clone(),
            timing,
            grace: DEFAULT_GRACE,
            misfire: Misfire::Once,
            overlap: Overlap::Forbid,
            jitter: Duration::ZERO,
            if_lost: IfLost::Record,
            lease: self.client.inner.options.lease,
            history: DEFAULT_HISTORY,
            list_at: Arc::default(),
        })
    }

    /// The cell of the task.
    pub(super) fn cell(&self) -> Result<Name> {
        self.client.inner.needs_cells("tasks are recorded in")?;
        self.client.name(Family::Cell, &cells::cell("schedule/", &self.name))
    }
}

impl Task {
    /// How long after its instant an occurrence may start and not be late: 10 s by default. What
    /// becomes of late ones says [`Task::misfire`].
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Task {
        self.grace = grace;
        self
    }

    /// What becomes of occurrences that are late: by default the newest of them runs.
    #[must_use]
    pub fn misfire(mut self, misfire: Misfire) -> Task {
        self.misfire = misfire;
        self
    }

    /// What happens if an occurrence is due while another one runs: by default it waits.
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Task {
        self.overlap = overlap;
        self
    }

    /// Starts all occurrences of this task later, by a time that is less than `most` and follows
    /// from the name of the task. So tasks that are due at the same instant do not start at the
    /// same moment.
    #[must_use]
    pub fn jitter(mut self, most: Duration) -> Task {
        self.jitter = most;
        self
    }

    /// What becomes of an occurrence whose node fell silent half way: by default it is recorded as
    /// lost, and does not run again.
    #[must_use]
    pub fn if_lost(mut self, what: IfLost) -> Task {
        self.if_lost = what;
        self
    }

    /// How long after its last word a node that runs an occurrence counts as silent: the client's
    /// lease by default. It is renewed while the work goes on.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Task {
        self.lease = lease;
        self
    }

    /// How many of the last runs and gaps the record keeps: 20 by default, 1 to
    /// [`LONGEST_HISTORY`].
    #[must_use]
    pub fn history(mut self, entries: usize) -> Task {
        self.history = entries;
        self
    }

    /// Waits for the occurrences that this node is to run, and runs them, for ever.
    ///
    /// The work is given the occurrence. It is dropped if its lease is lost; what it returns is
    /// recorded as done or failed. While the engine is away nothing is started, and what was due is
    /// late when it is back.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) if an option is out of range or the client is
    /// closed; [`Error::Engine`](crate::Error::Engine) if the record of the task is something else.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, so is the work that runs, and its occurrence counts as lost
    /// ([`IfLost`]). An occurrence that was taken and not started is given to another node.
    /// [`Task::run_until`] ends without losing anything.
    pub async fn run<F, E>(&self, work: impl FnMut(Occurrence) -> F) -> Result<()>
    where
        F: Future<Output = std::result::Result<(), E>>,
        E: Display,
    {
        self.run_until(pending(), work).await
    }

    /// The same until `stop` is ready: no more is started then, and this returns when what runs has
    /// ended.
    ///
    /// # Errors
    ///
    /// As [`Task::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Task::run`].
    pub async fn run_until<F, E>(
        &self,
        stop: impl Future<Output = ()>,
        mut work: impl FnMut(Occurrence) -> F,
    ) -> Result<()>
    where
        F: Future<Output = std::result::Result<(), E>>,
        E: Display,
    {
        let mut stop = pin!(stop);
        let mut running = Vec::new();
        'turns: loop {
            let mut next = pin!(self.next());
            loop {
                let may_start = running.is_empty() || self.overlap != Overlap::Forbid;
                tokio::select! {
                    biased;
                    () = &mut stop => break 'turns,
                    () = one_ended(&mut running), if !running.is_empty() => {}
                    run = &mut next, if may_start => {
                        let run = run?;
                        let work = work(run.occurrence().clone());
                        running.push(Box::pin(finish(run, work)));
                        continue 'turns;
                    }
                }
            }
        }
        while !running.is_empty() {
            one_ended(&mut running).await;
        }
        Ok(())
    }
}

/// Does the work of a run, and records how it ended.
async fn finish<E: Display>(run: Run, work: impl Future<Output = std::result::Result<(), E>>) {
    let occurrence = run.occurrence().clone();
    let done = tokio::select! {
        biased;
        done = run.during(work) => Some(done),
        replaced = run.replaced() => replaced.err().map(Err),
    };
    let ended = match done {
        Some(Ok(Ok(()))) => run.done().await,
        Some(Ok(Err(error))) => {
            tracing::warn!(target: "leasehold", %occurrence, %error, "a task has failed");
            run.failed(error).await
        }
        Some(Err(lost)) => Err(lost),
        None => run.stopped().await,
    };
    if let Err(error) = ended {
        tracing::warn!(target: "leasehold", %occurrence, %error, "the end of a task is not recorded");
    }
}

/// Waits until one of them has ended, and removes it.
async fn one_ended<F: Future<Output = ()>>(running: &mut Vec<Pin<Box<F>>>) {
    poll_fn(|context| {
        let ended = running.iter_mut().position(|run| run.as_mut().poll(context).is_ready());
        match ended {
            Some(ended) => {
                drop(running.swap_remove(ended));
                Poll::Ready(())
            }
            None => Poll::Pending,
        }
    })
    .await;
}
