//! The end of a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, watch};

use crate::client::backlog::Release;
use crate::client::{Client, Inner};
use crate::error::{Error, Loss, Result};
use crate::name::Name;

/// Whether a client is closed, and what came of it.
#[derive(Debug)]
pub(crate) struct Closing {
    begun: AtomicBool,
    begins: Notify,
    outcome: watch::Sender<Option<Outcome>>,
}

/// What came of closing.
#[derive(Clone, Debug)]
enum Outcome {
    Done,
    /// What the engine did not hear, and why that is so, if it is known.
    Unheard(Arc<str>),
}

impl Default for Closing {
    fn default() -> Closing {
        Closing { begun: AtomicBool::new(false), begins: Notify::new(), outcome: watch::Sender::new(None) }
    }
}

impl Closing {
    pub(crate) fn has_begun(&self) -> bool {
        // Sequentially consistent, as the count of requests is: either a caller sees that the
        // client is being closed, or closing sees the caller.
        self.begun.load(Ordering::SeqCst)
    }

    /// Waits until the client is being closed.
    pub(crate) async fn begins(&self) {
        let begins = self.begins.notified();
        tokio::pin!(begins);
        // Listening must start before the look, or the begin in between is missed.
        begins.as_mut().enable();
        if !self.has_begun() {
            begins.await;
        }
    }

    /// True for the first who calls.
    fn begin(&self) -> bool {
        let first = !self.begun.swap(true, Ordering::SeqCst);
        if first {
            self.begins.notify_waiters();
        }
        first
    }
}

impl Client {
    /// Ends the client: gives back what is still held, finishes the releases that are on their way,
    /// and closes the engine's connections.
    ///
    /// Guards that are still in use are told that they have lost ([`Loss::Closed`]), callers that
    /// wait get an error, and every later call of this client or its clones is refused. It takes no
    /// longer than one call may ([`crate::Options::call_limit`]), however many claims there are and
    /// whether the engine answers or not. A second call waits for the first and returns the same.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the engine did not hear of every release; it names what was not
    /// heard. Those claims end with their leases.
    ///
    /// # Cancel safety
    ///
    /// The client is closed as soon as this is polled. Dropping the future leaves the rest to the
    /// background.
    pub async fn close(&self) -> Result<()> {
        let inner = &self.inner;
        let mut outcome = inner.closing.outcome.subscribe();
        if inner.closing.begin() {
            let report = Report(Arc::clone(inner));
            inner.runtime.spawn(async move {
                let unheard = report.0.give_back_everything().await;
                report.0.closing.outcome.send_replace(Some(unheard));
            });
        }
        let outcome = outcome.wait_for(Option::is_some).await;
        match outcome.as_deref() {
            Ok(Some(Outcome::Unheard(what))) => Err(Error::Unavailable {
                engine: inner.engine.guarantees().engine,
                what: what.to_string(),
                source: None,
            }),
            _ => Ok(()),
        }
    }
}

/// Sees to it that whoever waits for the end of the client hears of it, even if the runtime ends
/// first.
struct Report(Arc<Inner>);

impl Drop for Report {
    fn drop(&mut self) {
        self.0.closing.outcome.send_if_modified(|outcome| {
            let cut_off = outcome.is_none();
            if cut_off {
                *outcome =
                    Some(Outcome::Unheard("the runtime was shut down before the client was closed".into()));
            }
            cut_off
        });
    }
}

impl Inner {
    /// Does something that may have to wait; an error as soon as the client is closed.
    pub(crate) async fn unless_closed<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        // Closing waits until callers have left, also those that are answered at once: one that is
        // just about to hold what it was granted gives it back, and the engine must still be there
        // to hear of it.
        let _counted = self.requests.enter();
        tokio::select! {
            biased;
            done = work => done,
            () = self.closing.begins() => Err(Error::closed()),
        }
    }

    async fn give_back_everything(self: &Arc<Inner>) -> Outcome {
        let limit = self.options.call_limit;
        for lease in self.keeper.take_all() {
            lease.lose(Loss::Closed);
            // Read first: a holder that gives it back at this moment says so before its token goes.
            let token = lease.token();
            if lease.begin_giving_back() {
                let used = lease.used(token);
                self.release_later(Release::of_claim(lease, used));
            }
        }
        // Whoever waits to become the writer looks again and finds its guard lost.
        self.wakes.wake_all();
        let quiet = async {
            // Callers hear that the client is closed and leave, and what they asked for is undone.
            self.requests.none().await;
            self.backlog.empty().await;
            self.in_background.none().await;
        };
        let trouble =
            tokio::time::timeout(limit, quiet).await.is_err().then(|| self.engine.trouble()).flatten();
        let unheard = self.backlog.abandon();
        let requests = self.requests.now();
        let closed = tokio::time::timeout(limit, self.engine.close()).await;
        let mut problems = Vec::new();
        if !unheard.is_empty() {
            problems.push(format!("{} not given back and will end with the lease", describe(&unheard)));
        }
        if requests > 0 {
            problems.push(format!("{requests} requests were still under way"));
        }
        match closed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => problems.push(error.to_string()),
            Err(_) => problems.push("the engine could not be closed in time".into()),
        }
        if problems.is_empty() {
            return Outcome::Done;
        }
        problems.extend(trouble);
        Outcome::Unheard(problems.join("; ").into())
    }
}

/// Some names, in a few words.
fn describe(names: &[Name]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let (shown, more) = (shown.join(", "), names.len().saturating_sub(SHOWN));
    match (names.len(), more) {
        (1, _) => format!("{shown} was"),
        (_, 0) => format!("{shown} were"),
        (_, more) => format!("{shown} and {more} more were"),
    }
}
