//! One of the servers.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use redis::FromRedisValue;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::errors::REDLOCK;
use crate::error::{Error, Result};
use crate::redis::link::{Connected, Link};
use crate::redis::script::Invocation;

/// A server of the quorum.
pub(super) struct Node {
    /// Its place in the URL.
    pub(super) number: usize,
    pub(super) link: Link,
    /// Why it may not vote, if it may not.
    barred: Mutex<Option<String>>,
    /// Asks for somebody to look whether it may vote.
    look: Arc<Notify>,
    /// The renewals that it has not answered in time, and may still answer.
    overdue: AtomicUsize,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("server", &self.link.server()).finish_non_exhaustive()
    }
}

impl Node {
    pub(super) fn new(number: usize, link: Link, look: Arc<Notify>) -> Node {
        Node { number, link, barred: Mutex::default(), look, overdue: AtomicUsize::new(0) }
    }

    /// An error if it is not connected now.
    pub(super) fn must_be_connected(&self) -> Result<()> {
        // It says at once what can not get better by itself.
        match self.link.connected().now_or_never() {
            Some(connected) => connected.map(drop),
            None => Err(self.silent()),
        }
    }

    /// Runs a script. Waits for a connection; the caller limits the wait.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        script: impl FnOnce(&Connected) -> Invocation,
    ) -> Result<T> {
        Ok(self.link.run(script).await?.answer)
    }

    /// Runs a script within a time.
    pub(super) async fn run_within<T: FromRedisValue>(
        &self,
        limit: Duration,
        script: impl FnOnce(&Connected) -> Invocation,
    ) -> Result<T> {
        match tokio::time::timeout(limit, self.run(script)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.silent()),
        }
    }

    /// Runs a renewal within a time. A server that owes the answer to an earlier one is sent
    /// nothing: when it comes back it has other things to do than renewals of long ago.
    pub(super) async fn renew<T: FromRedisValue + Send + 'static>(
        self: Arc<Node>,
        limit: Duration,
        script: impl FnOnce(&Connected) -> Invocation,
    ) -> Result<T> {
        if self.overdue.load(Ordering::Acquire) > 0 {
            return Err(self.silent());
        }
        let give_up = Instant::now() + limit;
        let connected = tokio::time::timeout_at(give_up, self.link.connected()).await;
        let connected = connected.unwrap_or_else(|_| Err(self.silent()))?;
        let (node, script) = (Arc::clone(&self), script(&connected));
        let mut call = tokio::spawn(async move {
            let mut connection = connected.connection.clone();
            node.link.call(&connected, pin!(script.call(&mut connection))).await
        });
        if let Ok(Ok(answer)) = tokio::time::timeout_at(give_up, &mut call).await {
            return answer;
        }
        let silent = self.silent();
        self.overdue.fetch_add(1, Ordering::AcqRel);
        tokio::spawn(async move {
            // It ends with the connection, if not before.
            call.await.ok();
            self.overdue.fetch_sub(1, Ordering::AcqRel);
        });
        Err(silent)
    }

    /// The error for a server that does not answer in time.
    pub(super) fn silent(&self) -> Error {
        REDLOCK.unavailable(self.link.trouble())
    }

    pub(super) fn set_barred(&self, why: Option<String>) {
        *self.barred.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    pub(super) fn barred(&self) -> Option<String> {
        self.barred.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The error for a server that says that it may not vote.
    pub(super) fn not_a_member(&self) -> Error {
        self.look.notify_one();
        let what = self.barred().unwrap_or_else(|| {
            format!("`{}` has forgotten that it may vote; it will be looked at", self.link.server())
        });
        REDLOCK.unavailable(what)
    }

    /// What is the matter with it, if something is known to be.
    pub(super) fn trouble(&self) -> Option<String> {
        match self.link.connected_now() {
            Some(_) => self.barred(),
            None => Some(self.link.trouble()),
        }
    }
}

/// Goes on until a server has heard something, or until it does not matter any more.
pub(super) async fn insist(
    node: Weak<Node>,
    until: Instant,
    limit: Duration,
    script: impl Fn(&Connected) -> Invocation + Send,
) {
    while Instant::now() < until {
        let Some(node) = node.upgrade() else { return };
        match node.run_within::<redis::Value>(limit, &script).await {
            Err(error) if error.is_retryable() => {}
            _ => return,
        }
        drop(node);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The servers of a client.
pub(super) type Nodes = Arc<[Arc<Node>]>;
