//! One server, always connected if that is possible.
//!
//! A task keeps the connection: it connects, checks that the server is fit, subscribes, and starts anew when the
//! connection breaks, for ever and with a growing pause in between. Commands and messages alike go over this one connection, so
//! that a release can not overtake the request that it undoes.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use self::sharded_channels::Shards;
use super::address::client;
use super::errors::{ENGINE, code, failed, unreachable};
use super::replicas::Replicas;
use super::requirements::{Facts, Target};
use super::script::Invocation;
use crate::clock::{Clock as _, SystemClock};
use crate::engine::Connection;
use crate::error::{Error, Result};

mod sharded_channels;

/// How long a connection may take to be made and checked.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The pause after the first failure, and the longest one: a call waits five seconds by default, and should live through an
/// outage of four.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often an idle connection is tried, and how long the answer may take.
const PING_EVERY: Duration = Duration::from_secs(3);
const PING_LIMIT: Duration = Duration::from_secs(5);

/// What is heard from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A message: channel and text.
    Message(String, Vec<u8>),
    /// The connection was made anew: messages may have been lost, and so may claims.
    Reconnected,
    /// Messages may have been lost, and no more.
    Missed,
}

/// A server that is kept connected. Dropped, the connection goes.
pub(crate) struct Link {
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    target: Target,
    status: watch::Sender<Status>,
    /// The last connection that was of use.
    last: Mutex<Option<Last>>,
    subscribed: Mutex<BTreeSet<String>>,
    shards: Mutex<Shards>,
    hear: Box<dyn Fn(Heard) + Send + Sync>,
    broken: Arc<Notify>,
    replicas: Arc<Replicas>,
    pid: u32,
}

struct Last {
    epoch: u64,
    facts: Arc<Facts>,
    /// Its number at the server, if we may know it.
    id: Option<i64>,
}

#[derive(Clone)]
enum Status {
    Up(Arc<Connected>),
    /// Why, and whether trying again can help.
    Down(Arc<Error>),
    /// For good: the client does not want it any more.
    Closed,
}

pub(crate) struct Connected {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) facts: Arc<Facts>,
    /// Those of the server, as far as somebody knows.
    pub(crate) replicas: Arc<Replicas>,
    /// The server's clock less ours, in microseconds; a little too late rather than too early.
    ahead: i128,
    /// The server's time when it was connected to. A counter of tokens below this may be one of another life, from before a
    /// fail-over or a restart that lost the last of what was written: it does not say which tokens were given.
    pub(crate) since: u64,
    /// Counts connections.
    pub(crate) epoch: u64,
    /// Where the server is.
    pub(crate) addr: ConnectionAddr,
    /// The connection's number at the server, if we may know it.
    id: Option<i64>,
    /// Nothing more is expected of this connection.
    given_up: AtomicBool,
    /// Wakes those who still wait for an answer, then.
    giving_up: Notify,
}

impl Connected {
    /// The server's time now, as far as we know.
    pub(crate) fn server_now(&self) -> u64 {
        u64::try_from(self.ahead + i128::from(SystemClock.now().as_micros())).unwrap_or(0)
    }

    /// The answer to a command, unless the connection is given up before it comes.
    ///
    /// The command is pinned by the caller: the driver's futures are large, and passed by value there would be a copy of it in
    /// each future on the way.
    pub(crate) async fn while_up<T>(&self, command: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        // It hears what is said from now on, so the look must come after.
        let giving_up = self.giving_up.notified();
        if self.given_up.load(Ordering::Acquire) {
            return None;
        }
        tokio::select! {
            // What the connection itself says is better.
            biased;
            answer = command => Some(answer),
            () = giving_up => None,
        }
    }

    fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.giving_up.notify_waiters();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("server", &self.shared.target.server).finish_non_exhaustive()
    }
}

impl Link {
    /// Connects; an error if that is not possible now.
    pub(crate) async fn open(
        target: Target,
        subscribed: BTreeSet<String>,
        hear: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Result<Link> {
        let shared = Shared::new(target, subscribed, hear);
        let connected = shared.connect(1).await?;
        shared.set(Status::Up(Arc::new(connected)));
        let task = tokio::spawn(Arc::clone(&shared).keep()).abort_handle();
        Ok(Link { shared, task })
    }

    /// Connects if that is possible within a time, and goes on trying if not; an error if trying again can not help.
    pub(crate) async fn open_anyway(
        target: Target,
        subscribed: BTreeSet<String>,
        limit: Duration,
        hear: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Result<Link> {
        let shared = Shared::new(target, subscribed, hear);
        let connected = tokio::time::timeout(limit, shared.connect(1)).await.unwrap_or_else(|_| {
            let what = format!("can not reach `{}`: no answer in {limit:?}", shared.target.server);
            Err(Error::Unavailable { engine: ENGINE, what, source: None })
        });
        match connected {
            Ok(connected) => shared.set(Status::Up(Arc::new(connected))),
            Err(error) if error.is_retryable() => shared.set(Status::Down(Arc::new(error))),
            Err(error) => return Err(error),
        }
        let task = tokio::spawn(Arc::clone(&shared).keep()).abort_handle();
        Ok(Link { shared, task })
    }

    /// The connection, or a wait until there is one. The caller's own time limit ends the wait.
    pub(crate) async fn connected(&self) -> Result<Arc<Connected>> {
        if self.shared.pid != std::process::id() {
            return Err(Error::invalid(
                "this client was made before a fork; a child process must connect for itself",
            ));
        }
        if let Status::Up(connected) = &*self.shared.status.borrow() {
            return Ok(Arc::clone(connected));
        }
        let mut status = self.shared.status.subscribe();
        loop {
            match &*status.borrow_and_update() {
                Status::Up(connected) => return Ok(Arc::clone(connected)),
                // It will not get better by itself.
                Status::Down(why) if !why.is_retryable() => return Err(again(why)),
                Status::Down(_) => {}
                Status::Closed => return Err(Error::closed()),
            }
            if status.changed().await.is_err() {
                return Err(Error::closed());
            }
        }
    }

    /// Ends the connection, and all that waits for something there. It is not made again.
    pub(crate) fn close(&self) {
        self.task.abort();
        self.shared.target.source.close();
        if let Status::Up(connected) = self.shared.status.send_replace(Status::Closed) {
            connected.give_up();
        }
    }

    /// The server, for messages.
    pub(crate) fn server(&self) -> &str {
        &self.shared.target.server
    }

    /// The connection, if there is one now.
    pub(crate) fn connected_now(&self) -> Option<Arc<Connected>> {
        match &*self.shared.status.borrow() {
            Status::Up(connected) => Some(Arc::clone(connected)),
            Status::Down(_) | Status::Closed => None,
        }
    }

    /// The number of the connection, if there is one now.
    pub(crate) fn epoch(&self) -> Option<u64> {
        match &*self.shared.status.borrow() {
            Status::Up(connected) => Some(connected.epoch),
            Status::Down(_) | Status::Closed => None,
        }
    }

    /// Whether there is a connection now, and if not, how many there were.
    pub(crate) fn connection(&self) -> Connection {
        // Held while both are read, and while both are written.
        let last = self.shared.last();
        match &*self.shared.status.borrow() {
            Status::Up(_) => Connection::Up,
            Status::Down(_) | Status::Closed => Connection::Down(last.as_ref().map_or(0, |last| last.epoch)),
        }
    }

    /// The server's time now, as far as we know, if it is connected.
    pub(crate) fn server_now(&self) -> Option<u64> {
        match &*self.shared.status.borrow() {
            Status::Up(connected) => Some(connected.server_now()),
            Status::Down(_) | Status::Closed => None,
        }
    }

    /// Why a call may have had no answer.
    pub(crate) fn trouble(&self) -> String {
        match &*self.shared.status.borrow() {
            Status::Up(connected) => {
                format!("`{}` is connected and silent", self.shared.target.name(&connected.addr))
            }
            Status::Down(why) => why.to_string(),
            Status::Closed => Error::closed().to_string(),
        }
    }

    /// What the server is, or was when it was last heard of.
    pub(crate) fn facts(&self) -> Option<Arc<Facts>> {
        self.shared.last().as_ref().map(|last| Arc::clone(&last.facts))
    }

    /// For work that goes on when the caller does not wait for it.
    pub(crate) fn writer(&self) -> Writer {
        Writer(Arc::downgrade(&self.shared))
    }

    /// What a command on a connection comes to.
    pub(crate) async fn call<T>(
        &self,
        connected: &Connected,
        command: Pin<&mut impl Future<Output = RedisResult<T>>>,
    ) -> Result<T> {
        match connected.while_up(command).await {
            Some(answer) => self.answer(connected, answer),
            None => Err(self.given_up()),
        }
    }

    /// The error for a call whose connection was given up.
    pub(crate) fn given_up(&self) -> Error {
        if matches!(&*self.shared.status.borrow(), Status::Closed) {
            return Error::closed();
        }
        let what = format!("lost the connection to `{}`", self.shared.target.server);
        Error::Unavailable { engine: ENGINE, what, source: None }
    }

    /// Reads what a command came to. A connection that broke is made anew.
    pub(crate) fn answer<T>(&self, connected: &Connected, answer: RedisResult<T>) -> Result<T> {
        answer.map_err(|error| {
            let lost = error.is_io_error() || error.is_connection_dropped() || error.is_unrecoverable_error();
            if lost || code(&error) == "READONLY" {
                self.shared.lost(connected.epoch, &error.to_string());
            }
            failed(&self.shared.target.server, error)
        })
    }

    /// Hears a channel from now on, on this connection and all that follow.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<()> {
        self.shared.subscribed().insert(channel.to_owned());
        let connected = self.connected().await?;
        let mut connection = connected.connection.clone();
        self.call(&connected, pin!(connection.subscribe(channel))).await
    }

    pub(crate) async fn unsubscribe(&self, channel: &str) -> Result<()> {
        self.shared.subscribed().remove(channel);
        let connected = self.connected().await?;
        let mut connection = connected.connection.clone();
        self.call(&connected, pin!(connection.unsubscribe(channel))).await
    }
}

/// Writes what nobody waits for.
pub(crate) struct Writer(Weak<Shared>);

impl Writer {
    pub(crate) async fn run(&self, script: &Invocation) {
        let Some(shared) = self.0.upgrade() else { return };
        let Status::Up(connected) = shared.status.borrow().clone() else { return };
        drop(shared);
        let mut connection = connected.connection.clone();
        let done = tokio::time::timeout(PING_LIMIT, script.call::<Value>(&mut connection)).await;
        if let Ok(Err(error)) = done {
            tracing::debug!(target: "leasehold", %error, "a note was not written");
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

/// Pauses, but not all clients for equally long when a server comes back.
async fn rest(pause: Duration) {
    let jitter = SystemClock.now().as_micros() % 1000;
    tokio::time::sleep(pause.mul_f64(0.5 + jitter as f64 / 2000.0)).await;
}

/// The same error for another caller.
fn again(error: &Error) -> Error {
    match error {
        Error::Engine { engine, what, .. } => Error::Engine { engine, what: what.clone(), source: None },
        other => Error::Unavailable { engine: ENGINE, what: other.to_string(), source: None },
    }
}

impl Shared {
    fn new(
        target: Target,
        subscribed: BTreeSet<String>,
        hear: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Arc<Shared> {
        let unknown = Error::Unavailable { engine: ENGINE, what: "not connected yet".into(), source: None };
        Arc::new(Shared {
            target,
            status: watch::Sender::new(Status::Down(Arc::new(unknown))),
            last: Mutex::default(),
            subscribed: Mutex::new(subscribed),
            shards: Mutex::default(),
            hear: Box::new(hear),
            broken: Arc::default(),
            replicas: Arc::default(),
            pid: std::process::id(),
        })
    }

    fn subscribed(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> MutexGuard<'_, Option<Last>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how the connection is now, unless it is closed.
    fn set(&self, new: Status) {
        let mut last = self.last();
        if let Status::Up(connected) = &new {
            let Connected { epoch, id, .. } = **connected;
            *last = Some(Last { epoch, facts: Arc::clone(&connected.facts), id });
        }
        self.status.send_if_modified(|status| {
            let open = !matches!(status, Status::Closed);
            if open {
                *status = new;
            }
            open
        });
        drop(last);
    }

    /// Ends the connection before this one, if the server still has it: what we said there and have given up on may still
    /// be on its way, and must not be done after what we say from now on. A release would not undo the request that it
    /// follows.
    async fn end_last(&self, connection: &mut MultiplexedConnection, facts: &Facts) {
        let same_server = |last: &&Last| last.facts.run_id == facts.run_id;
        let Some(id) = self.last().as_ref().filter(same_server).and_then(|last| last.id) else { return };
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(id);
        if let Err(error) = kill.query_async::<Value>(connection).await {
            // The user may not. Then what comes late lasts for a lease.
            tracing::debug!(target: "leasehold", %error, "can not end the last connection");
        }
    }

    /// Notes that the connection of an epoch is of no use any more.
    fn lost(&self, epoch: u64, why: &str) {
        let server = &self.target.server;
        let changed = self.status.send_if_modified(|status| match status {
            Status::Up(connected) if connected.epoch == epoch => {
                connected.give_up();
                let what = format!("lost the connection to `{server}`: {why}");
                *status = Status::Down(Arc::new(Error::Unavailable { engine: ENGINE, what, source: None }));
                true
            }
            _ => false,
        });
        if changed {
            tracing::debug!(target: "leasehold", server, why, "lost the connection");
            self.broken.notify_one();
        }
    }

    /// Keeps the connection, for ever.
    async fn keep(self: Arc<Shared>) {
        let mut epoch = 1;
        loop {
            let connected_at = SystemClock.now();
            self.until_lost().await;
            let mut pause = FIRST_PAUSE;
            // One that ends connections as soon as they are made must not be asked as fast as it can answer.
            if SystemClock.now().since(connected_at) < LONGEST_PAUSE {
                rest(pause).await;
            }
            epoch += 1;
            loop {
                match self.connect(epoch).await {
                    Ok(connected) => {
                        self.set(Status::Up(Arc::new(connected)));
                        tracing::debug!(target: "leasehold", server = self.target.server, epoch, "connected again");
                        (self.hear)(Heard::Reconnected);
                        break;
                    }
                    Err(error) => {
                        tracing::debug!(target: "leasehold", %error, "can not connect");
                        self.set(Status::Down(Arc::new(error)));
                    }
                }
                rest(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Watches the connection until it breaks.
    async fn until_lost(&self) {
        loop {
            let Status::Up(connected) = self.status.borrow().clone() else { return };
            let why = tokio::select! {
                () = self.broken.notified() => continue,
                why = self.until_silent(&connected) => why,
                // A primary that was cut off from the others may not know yet that it is none any
                // more.
                () = self.target.source.moved_from(&connected.addr, &self.replicas) => {
                    "another server is the primary now".to_owned()
                }
            };
            self.lost(connected.epoch, &why);
        }
    }

    /// Tries the connection now and then until it does not answer, and says why not.
    async fn until_silent(&self, connected: &Connected) -> String {
        loop {
            tokio::time::sleep(PING_EVERY).await;
            let mut connection = connected.connection.clone();
            let trying = async {
                connection.send_packed_command(&redis::cmd("PING")).await?;
                self.count_replicas(&mut connection).await
            };
            match tokio::time::timeout(PING_LIMIT, trying).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return "no answer in time".to_owned(),
            }
        }
    }

    async fn count_replicas(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        if self.target.counts_replicas {
            self.target.source.count_replicas(connection, &self.replicas).await?;
        }
        Ok(())
    }

    async fn connect(self: &Arc<Shared>, epoch: u64) -> Result<Connected> {
        let server = &self.target.server;
        match tokio::time::timeout(CONNECT_LIMIT, self.connect_and_check(epoch)).await {
            Ok(connected) => connected.map_err(|error| self.target.without_password(error)),
            Err(_) => {
                let what = format!("can not reach `{server}`: no answer in {CONNECT_LIMIT:?}");
                Err(Error::Unavailable { engine: ENGINE, what, source: None })
            }
        }
    }

    async fn connect_and_check(self: &Arc<Shared>, epoch: u64) -> Result<Connected> {
        // Weak: the connection must not keep alive what keeps the connection.
        let weak = Arc::downgrade(self);
        let config = AsyncConnectionConfig::new()
            // The client has its own limits for every call.
            .set_response_timeout(None)
            .set_connection_timeout(Some(CONNECT_LIMIT))
            .set_pipeline_buffer_size(1024)
            .set_push_sender(move |push: PushInfo| {
                if let Some(shared) = weak.upgrade() {
                    shared.heard(epoch, &push);
                }
                Ok::<(), redis::aio::SendError>(())
            });
        let info = self.target.source.find().await?;
        let addr = info.addr().clone();
        let server = &self.target.name(&addr);
        let client = client(info).map_err(|error| unreachable(server, error))?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(|error| unreachable(server, error))?;
        let said: String =
            redis::cmd("INFO").query_async(&mut connection).await.map_err(|error| failed(server, error))?;
        let facts = self.target.check(&said, server, epoch)?;
        self.count_replicas(&mut connection).await.map_err(|error| failed(server, error))?;
        let asked_at = SystemClock.now().as_micros();
        let (seconds, micros): (i128, i128) =
            redis::cmd("TIME").query_async(&mut connection).await.map_err(|error| failed(server, error))?;
        let now = seconds * 1_000_000 + micros;
        let (ahead, since) = (now - i128::from(asked_at), u64::try_from(now).unwrap_or(0));
        let id = redis::cmd("CLIENT").arg("ID").query_async(&mut connection).await.ok();
        self.end_last(&mut connection, &facts).await;
        let channels: Vec<String> = self.subscribed().iter().cloned().collect();
        if !channels.is_empty() {
            connection.subscribe(channels).await.map_err(|error| failed(server, error))?;
        }
        Ok(Connected {
            connection,
            facts: Arc::new(facts),
            replicas: Arc::clone(&self.replicas),
            ahead,
            since,
            epoch,
            addr,
            id,
            given_up: AtomicBool::new(false),
            giving_up: Notify::new(),
        })
    }

    fn heard(&self, epoch: u64, push: &PushInfo) {
        match &push.kind {
            PushKind::Disconnection => self.lost(epoch, "the server closed it"),
            PushKind::Message | PushKind::SMessage => {
                if let [Value::BulkString(channel), Value::BulkString(text)] = push.data.as_slice() {
                    (self.hear)(Heard::Message(String::from_utf8_lossy(channel).into_owned(), text.clone()));
                }
            }
            PushKind::SUnsubscribe => self.unheard(epoch, &push.data),
            _ => {}
        }
    }
}
