//! One connection to one server, kept alive.
//!
//! An engine says how to connect and how to probe ([`Connector`]). A [`Supervisor`] has a task that
//! connects within [`CONNECT_LIMIT`], probes the connection every [`PROBE_EVERY`], and connects
//! again when the connection is lost, for ever and with growing pauses. An engine that needs
//! several connections has a supervisor for each.
//!
//! A call takes the connection and sends its request over it:
//!
//! ```text
//! let connected = supervisor.connected().await?;
//! let answer = supervisor.answer(&connected, pin!(connected.client.query(…))).await?;
//! ```
//!
//! [`Supervisor::connected`] waits for a connection without a limit, because the client limits each
//! of its calls. [`Supervisor::answer`] ends with an error when the connection is given up, so that
//! nobody waits for an answer that can not come. A driver that notices the loss by itself reports
//! it with [`Attempt::lost`]; a call that fails because the connection is broken reports it with
//! [`Supervisor::lost`]. Whoever is first counts.
//!
//! Connections are numbered: an epoch is never used twice, so a late report of an old connection
//! does not end a new one. Nothing is sent again by itself. The client asks again, under the same
//! owner.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

pub(crate) use self::connected::Connected;
pub(crate) use self::connector::{Attempt, Connector};
use super::Connection;
use super::url::without_secret;
use crate::error::{Error, Result};
use crate::random;

mod connected;
mod connector;

/// How long a connection may take to be made and checked.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The pause after the first failure, and the longest one. A call waits five seconds by default and
/// should survive an outage of four.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often a connection is probed, and how long the answer may take.
const PROBE_EVERY: Duration = Duration::from_secs(3);
pub(crate) const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// Keeps one connection to one server alive. Dropped, it ends the connection.
pub(crate) struct Supervisor<C: Connector> {
    shared: Arc<Shared<C>>,
    task: AbortHandle,
}

struct Shared<C: Connector> {
    connector: C,
    status: watch::Sender<Status<C::Session>>,
    /// The number of the last attempt.
    attempts: AtomicU64,
    /// The last attempt whose connection was reported lost while it was not up.
    ended: AtomicU64,
    pid: u32,
}

enum Status<S> {
    Up(Arc<Connected<S>>),
    Down {
        why: Error,
        /// The number of the last connection; 0 if there was none.
        last: u64,
    },
    /// For good: the client was closed.
    Closed {
        last: u64,
    },
}

impl<S> Status<S> {
    /// The number of the connection, or of the last one.
    fn last(&self) -> u64 {
        match self {
            Status::Up(connected) => connected.epoch,
            Status::Down { last, .. } | Status::Closed { last } => *last,
        }
    }

    fn is_open(&self) -> bool {
        !matches!(self, Status::Closed { .. })
    }

    fn is_up(&self, epoch: u64) -> bool {
        matches!(self, Status::Up(connected) if connected.epoch == epoch)
    }
}

impl<C: Connector> fmt::Debug for Supervisor<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("server", &self.connector().server()).finish_non_exhaustive()
    }
}

impl<C: Connector> Drop for Supervisor<C> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<C: Connector> Supervisor<C> {
    /// Connects.
    ///
    /// # Errors
    ///
    /// If that is not possible now.
    pub(crate) async fn open(connector: C) -> Result<Supervisor<C>> {
        let shared = Shared::new(connector);
        let connected = shared.connect().await?;
        shared.set_up(&connected);
        Ok(shared.supervise())
    }

    /// Connects if that is possible within a time, and goes on trying in the background if not.
    ///
    /// # Errors
    ///
    /// If the server refuses in a way that trying again can not change.
    #[cfg_attr(
        not(any(feature = "_sql", feature = "redis")),
        allow(dead_code, reason = "some engines connect at once or not at all")
    )]
    pub(crate) async fn open_or_retry(connector: C, limit: Duration) -> Result<Supervisor<C>> {
        let shared = Shared::new(connector);
        let connected = timeout(limit, shared.connect()).await;
        match connected.unwrap_or_else(|_| Err(shared.unreached(limit))) {
            Ok(connected) => shared.set_up(&connected),
            Err(error) if error.is_retryable() => shared.set_down(error),
            Err(error) => return Err(error),
        }
        Ok(shared.supervise())
    }

    pub(crate) fn connector(&self) -> &C {
        &self.shared.connector
    }

    /// The connection. Waits until there is one; the caller limits the wait.
    ///
    /// # Errors
    ///
    /// If waiting can not help: the server refuses us, the supervisor is closed, or this process is
    /// a fork of the one that connected.
    pub(crate) async fn connected(&self) -> Result<Arc<Connected<C::Session>>> {
        if self.shared.pid != std::process::id() {
            return Err(Error::invalid(
                "this client was made before a fork; a child process must connect for itself",
            ));
        }
        if let Some(connected) = self.connected_now() {
            return Ok(connected);
        }
        let mut status = self.shared.status.subscribe();
        loop {
            match &*status.borrow_and_update() {
                Status::Up(connected) => return Ok(Arc::clone(connected)),
                Status::Down { why, .. } if !why.is_retryable() => return Err(copy(why)),
                Status::Down { .. } => {}
                Status::Closed { .. } => return Err(Error::closed()),
            }
            if status.changed().await.is_err() {
                return Err(Error::closed());
            }
        }
    }

    /// The connection, if there is one now.
    pub(crate) fn connected_now(&self) -> Option<Arc<Connected<C::Session>>> {
        self.shared.connected_now()
    }

    /// Whether there is a connection now, as the client asks for it.
    #[cfg_attr(
        not(any(feature = "_sql", feature = "etcd", feature = "redis")),
        allow(dead_code, reason = "some connections are made anew below this")
    )]
    pub(crate) fn connection(&self) -> Connection {
        match &*self.shared.status.borrow() {
            Status::Up(_) => Connection::Up,
            status => Connection::Down(status.last()),
        }
    }

    /// The answer to a request, which the caller has pinned.
    ///
    /// # Errors
    ///
    /// If the connection is given up before the answer comes.
    pub(crate) async fn answer<T>(
        &self,
        connected: &Connected<C::Session>,
        request: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T> {
        connected.while_up(request).await.ok_or_else(|| self.given_up())
    }

    /// The error for a request whose connection was given up.
    pub(crate) fn given_up(&self) -> Error {
        if matches!(&*self.shared.status.borrow(), Status::Closed { .. }) {
            return Error::closed();
        }
        self.shared.unavailable(format!("lost the connection to `{}`", self.connector().server()))
    }

    /// Reports that a connection is of no use any more. It is given up and made anew.
    #[cfg_attr(
        not(any(feature = "etcd", feature = "postgres", feature = "redis")),
        allow(dead_code, reason = "some drivers report by the attempt alone")
    )]
    pub(crate) fn lost(&self, epoch: u64, why: &str) {
        self.shared.lost(epoch, why);
    }

    /// Why a call may have had no answer: for the end of a sentence, without the engine's label.
    pub(crate) fn trouble(&self) -> String {
        match &*self.shared.status.borrow() {
            Status::Up(connected) => {
                format!("`{}` is connected and silent", self.connector().server_of(connected))
            }
            Status::Down { why, .. } => why.what(),
            Status::Closed { .. } => Error::closed().what(),
        }
    }

    /// Ends the connection, and every wait for a connection or an answer. It is not made again.
    pub(crate) fn close(&self) {
        self.task.abort();
        self.connector().close();
        self.shared.change(|status| {
            if let Status::Up(connected) = status {
                connected.give_up();
            }
            Some(Status::Closed { last: status.last() })
        });
    }
}

impl<C: Connector> Shared<C> {
    fn new(connector: C) -> Arc<Shared<C>> {
        let why = Error::Unavailable {
            engine: connector.engine(),
            what: format!("`{}` is not connected yet", connector.server()),
            source: None,
        };
        Arc::new(Shared {
            connector,
            status: watch::Sender::new(Status::Down { why, last: 0 }),
            attempts: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            pid: std::process::id(),
        })
    }

    fn supervise(self: Arc<Shared<C>>) -> Supervisor<C> {
        let task = tokio::spawn(Arc::clone(&self).keep()).abort_handle();
        Supervisor { shared: self, task }
    }

    fn connected_now(&self) -> Option<Arc<Connected<C::Session>>> {
        match &*self.status.borrow() {
            Status::Up(connected) => Some(Arc::clone(connected)),
            Status::Down { .. } | Status::Closed { .. } => None,
        }
    }

    fn unavailable(&self, what: String) -> Error {
        Error::Unavailable { engine: self.connector.engine(), what, source: None }
    }

    fn unreached(&self, limit: Duration) -> Error {
        self.unavailable(format!("can not reach `{}`: no answer in {limit:?}", self.connector.server()))
    }

    /// Sets the status if `change` gives another one; true if it did.
    fn change(&self, change: impl FnOnce(&Status<C::Session>) -> Option<Status<C::Session>>) -> bool {
        // Dropped outside of the lock: a driver may report the loss of a connection that is
        // dropped.
        let mut old = None;
        self.status.send_if_modified(|status| {
            old = change(status).map(|new| std::mem::replace(status, new));
            old.is_some()
        })
    }

    fn set_up(&self, connected: &Arc<Connected<C::Session>>) {
        self.change(|status| status.is_open().then(|| Status::Up(Arc::clone(connected))));
        if self.ended.load(Ordering::Acquire) == connected.epoch {
            self.lost(connected.epoch, "it ended as soon as it was made");
        }
    }

    fn set_down(&self, why: Error) {
        self.change(|status| status.is_open().then(|| Status::Down { why, last: status.last() }));
    }

    fn lost(&self, epoch: u64, why: &str) {
        let server = self.connector.server();
        let changed = self.change(|status| match status {
            Status::Up(connected) if connected.epoch == epoch => {
                connected.give_up();
                let why = self.unavailable(format!("lost the connection to `{server}`: {why}"));
                Some(Status::Down { why, last: epoch })
            }
            _ => {
                // It may be about to be set up. Noted under the lock, so that it is seen then.
                self.ended.fetch_max(epoch, Ordering::AcqRel);
                None
            }
        });
        if changed {
            self.connector.disconnected(why);
        }
    }

    async fn connect(self: &Arc<Shared<C>>) -> Result<Arc<Connected<C::Session>>> {
        let epoch = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        // Weak: a connection must not keep alive what keeps the connection.
        let shared = Arc::downgrade(self);
        let attempt = Attempt::new(epoch, move |why| {
            if let Some(shared) = Weak::upgrade(&shared) {
                shared.lost(epoch, why);
            }
        });
        match timeout(CONNECT_LIMIT, self.connector.connect(attempt)).await {
            Ok(Ok(session)) => Ok(Connected::new(session, epoch)),
            Ok(Err(error)) => Err(without_secret(self.connector.secret().unwrap_or_default(), error)),
            Err(_) => Err(self.unreached(CONNECT_LIMIT)),
        }
    }

    /// Keeps the connection, for ever.
    async fn keep(self: Arc<Shared<C>>) {
        loop {
            let since = Instant::now();
            self.until_lost().await;
            let mut pause = FIRST_PAUSE;
            // A server that ends connections as soon as they are made must not be asked as fast as
            // it can answer.
            if since.elapsed() < LONGEST_PAUSE {
                rest(pause).await;
            }
            let connected = loop {
                match self.connect().await {
                    Ok(connected) => break connected,
                    Err(error) => {
                        tracing::debug!(target: "leasehold", %error, "can not connect");
                        self.set_down(error);
                    }
                }
                rest(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            };
            let server = self.connector.server_of(&connected);
            self.set_up(&connected);
            drop(connected);
            self.connector.connected_again(server);
        }
    }

    /// Watches the connection until it is lost.
    async fn until_lost(&self) {
        let Some(connected) = self.connected_now() else { return };
        let mut status = self.status.subscribe();
        let why = tokio::select! {
            _ = status.wait_for(|status| !status.is_up(connected.epoch)) => return,
            why = self.until_silent(&connected) => why,
            why = self.connector.superseded(&connected) => why,
        };
        self.lost(connected.epoch, &why);
    }

    /// Probes the connection until it does not answer, and says why not.
    async fn until_silent(&self, connected: &Connected<C::Session>) -> String {
        loop {
            sleep(PROBE_EVERY).await;
            match timeout(PROBE_LIMIT, self.connector.probe(connected)).await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => return why,
                Err(_) => return "no answer in time".to_owned(),
            }
        }
    }
}

/// Pauses for half of the time up to all of it: not all clients come back at once.
async fn rest(pause: Duration) {
    const STEPS: u64 = 1000;
    let share = random::number().unwrap_or(0) % STEPS;
    sleep(pause.mul_f64(0.5 + share as f64 / (2 * STEPS) as f64)).await;
}

/// The same error for another caller.
pub(crate) fn copy(error: &Error) -> Error {
    match error {
        Error::Engine { engine, what, .. } => Error::Engine { engine, what: what.clone(), source: None },
        Error::Unsupported { engine, what } => Error::Unsupported { engine, what: what.clone() },
        Error::Unavailable { engine, what, .. } => {
            Error::Unavailable { engine, what: what.clone(), source: None }
        }
        other => Error::invalid(other.what()),
    }
}

#[cfg(test)]
mod tests;
