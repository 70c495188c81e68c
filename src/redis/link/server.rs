//! How to connect to a Redis server, and what is learnt of it then.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, PushInfo, RedisResult, Value};

use super::channels::{Channels, Heard};
use crate::clock::{Clock as _, SystemClock};
use crate::engine::Hint;
use crate::engine::supervise::{Attempt, CONNECT_LIMIT, Connector};
use crate::error::Result;
use crate::redis::address::client;
use crate::redis::replicas::Replicas;
use crate::redis::requirements::{Facts, Target};

/// A server, and what the link to it keeps over all its connections.
pub(crate) struct Server {
    pub(super) target: Target,
    // The driver's task has it too: it outlives the link for a moment.
    pub(super) channels: Arc<Channels>,
    replicas: Arc<Replicas>,
    /// The last connection that was of use.
    last: Mutex<Option<Last>>,
}

struct Last {
    facts: Arc<Facts>,
    id: Option<i64>,
}

/// A connection, and what the server said when it was made.
pub(crate) struct Session {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) facts: Arc<Facts>,
    /// Those of the server, as far as somebody knows.
    pub(crate) replicas: Arc<Replicas>,
    /// The server's clock less ours, in microseconds; a little too late rather than too early.
    ahead: i128,
    /// The server's time when it was connected to. A counter of tokens below this may be one of
    /// another life, from before a fail-over or a restart that lost the last of what was written:
    /// it does not say which tokens were given.
    pub(crate) since: u64,
    /// Where the server is.
    pub(crate) addr: ConnectionAddr,
}

impl Session {
    /// The server's time now, as far as we know.
    pub(crate) fn server_now(&self) -> u64 {
        u64::try_from(self.ahead + i128::from(SystemClock.now().as_micros())).unwrap_or(0)
    }
}

impl Server {
    /// A server. What is heard from it, at the channels that every connection subscribes to and
    /// elsewhere, is given to `hear`.
    pub(crate) fn new(
        target: Target,
        subscribed: BTreeSet<String>,
        hear: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Server {
        let channels = Arc::new(Channels::new(subscribed, hear));
        Server { target, channels, replicas: Arc::default(), last: Mutex::default() }
    }

    /// What the server is, or was when it was last connected.
    pub(super) fn facts(&self) -> Option<Arc<Facts>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|last| Arc::clone(&last.facts))
    }

    /// Ends the connection before this one, if the server still has it: requests that we have given
    /// up on may still be on their way, and must not be done after what we send from now on. A
    /// release would not undo the request that it follows.
    async fn end_last(&self, connection: &mut MultiplexedConnection, facts: &Facts) {
        let id = {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            last.as_ref().filter(|last| last.facts.run_id == facts.run_id).and_then(|last| last.id)
        };
        let Some(id) = id else { return };
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(id);
        if let Err(error) = kill.query_async::<Value>(connection).await {
            // The user may not. Then what comes late lasts for a lease.
            tracing::debug!(target: "leasehold", %error, "can not end the last connection");
        }
    }

    async fn count_replicas(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        if self.target.counts_replicas {
            self.target.source.count_replicas(connection, &self.replicas).await?;
        }
        Ok(())
    }
}

impl Connector for Server {
    type Session = Session;

    fn engine(&self) -> &'static str {
        self.target.label.engine()
    }

    fn server(&self) -> &str {
        &self.target.server
    }

    fn server_of(&self, session: &Session) -> String {
        self.target.name(&session.addr)
    }

    fn secret(&self) -> Option<&str> {
        self.target.source.password()
    }

    async fn connect(&self, attempt: Attempt) -> Result<Session> {
        let (epoch, label) = (attempt.epoch, self.target.label);
        let channels = Arc::clone(&self.channels);
        let config = AsyncConnectionConfig::new()
            // The client has its own limits for every call.
            .set_response_timeout(None)
            .set_connection_timeout(Some(CONNECT_LIMIT))
            .set_pipeline_buffer_size(1024)
            .set_push_sender(move |push: PushInfo| {
                if let Some(why) = channels.pushed(epoch, &push) {
                    attempt.lost(why);
                }
                Ok::<(), redis::aio::SendError>(())
            });
        let info = self.target.source.find().await?;
        let addr = info.addr().clone();
        let server = &self.target.name(&addr);
        let failed = |error| label.failed(server, error);
        let client = client(info).map_err(|error| label.unreachable(server, error))?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(|error| label.unreachable(server, error))?;
        let said: String = redis::cmd("INFO").query_async(&mut connection).await.map_err(failed)?;
        let facts = Arc::new(self.target.check(&said, server, epoch)?);
        self.count_replicas(&mut connection).await.map_err(failed)?;
        let asked_at = SystemClock.now().as_micros();
        let (seconds, micros): (i128, i128) =
            redis::cmd("TIME").query_async(&mut connection).await.map_err(failed)?;
        let now = seconds * 1_000_000 + micros;
        let (ahead, since) = (now - i128::from(asked_at), u64::try_from(now).unwrap_or(0));
        // Not every user may know it.
        let id = redis::cmd("CLIENT").arg("ID").query_async(&mut connection).await.ok();
        self.end_last(&mut connection, &facts).await;
        let channels: Vec<String> = self.channels.subscribed().iter().cloned().collect();
        if !channels.is_empty() {
            connection.subscribe(channels).await.map_err(failed)?;
        }
        let last = Last { facts: Arc::clone(&facts), id };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        Ok(Session { connection, facts, replicas: Arc::clone(&self.replicas), ahead, since, addr })
    }

    async fn probe(&self, session: &Session) -> Result<(), String> {
        let mut connection = session.connection.clone();
        let ping = connection.send_packed_command(&redis::cmd("PING")).await;
        ping.map_err(|error| error.to_string())?;
        self.count_replicas(&mut connection).await.map_err(|error| error.to_string())
    }

    async fn superseded(&self, session: &Session) -> String {
        // A primary that was cut off from the others may not know yet that it is none any more.
        self.target.source.moved_from(&session.addr, &self.replicas).await;
        "another server is the primary now".to_owned()
    }

    fn disconnected(&self, why: &str) {
        let server = self.target.server.clone();
        self.channels.hear(Heard::Connection(Hint::Disconnected { server, why: why.to_owned() }));
    }

    fn connected_again(&self, server: String) {
        self.channels.hear(Heard::Connection(Hint::Reconnected { server }));
        self.channels.hear(Heard::Reconnected);
    }

    fn close(&self) {
        self.target.source.close();
    }
}
