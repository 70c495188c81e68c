//! One Redis server, always connected if that is possible.
//!
//! A [`Supervisor`] keeps the connection. What is Redis's own is here: the checks when it is made,
//! the channels that are heard over it, and how errors of the driver are read. Commands and
//! messages alike go over this one connection, so that a release can not overtake the request that
//! it undoes.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, PushKind, RedisResult, Value};

pub(crate) use self::channels::Heard;
pub(crate) use self::server::{Server, Session};
use super::errors::code;
use super::requirements::Facts;
use super::script::Invocation;
use crate::engine::supervise::{self, Connector as _, Supervisor};
use crate::error::Result;

mod channels;
mod server;
mod sharded_channels;

/// How long a server may take to subscribe us to a sharded channel. Whoever gets no answer is told
/// by the ordinary channel.
const LISTEN_LIMIT: Duration = Duration::from_millis(300);

/// A server that is kept connected. Dropped, the connection goes.
pub(crate) type Link = Supervisor<Server>;

/// A connection to a server.
pub(crate) type Connected = supervise::Connected<Session>;

/// An answer, and the connection that it came over: replicas can be waited for only there.
pub(crate) struct Answered<T> {
    pub(crate) answer: T,
    pub(crate) connection: MultiplexedConnection,
    /// The server.
    pub(crate) connected: Arc<Connected>,
}

impl Link {
    /// The server, for messages.
    pub(crate) fn server(&self) -> &str {
        self.connector().server()
    }

    /// The server's time now, as far as we know, if it is connected.
    pub(crate) fn server_now(&self) -> Option<u64> {
        self.connected_now().map(|connected| connected.server_now())
    }

    /// What the server is, or was when it was last connected.
    pub(crate) fn facts(&self) -> Option<Arc<Facts>> {
        self.connector().facts()
    }

    /// Runs a script, which may depend on the connection that it is sent over. Waits for a
    /// connection; the caller limits the wait.
    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        script: impl FnOnce(&Connected) -> Invocation,
    ) -> Result<Answered<T>> {
        let connected = self.connected().await?;
        let script = script(&connected);
        let mut connection = connected.connection.clone();
        let answer = self.call(&connected, pin!(script.call(&mut connection))).await?;
        Ok(Answered { answer, connection, connected })
    }

    /// Sends a command over a connection and reads its answer.
    pub(crate) async fn call<T>(
        &self,
        connected: &Connected,
        command: Pin<&mut impl Future<Output = RedisResult<T>>>,
    ) -> Result<T> {
        let answer = self.answer(connected, command).await?;
        self.read(connected, answer)
    }

    /// Reads the answer to a command. A connection that broke is made anew.
    pub(crate) fn read<T>(&self, connected: &Connected, answer: RedisResult<T>) -> Result<T> {
        answer.map_err(|error| {
            let lost = error.is_io_error() || error.is_connection_dropped() || error.is_unrecoverable_error();
            if lost || code(&error) == "READONLY" {
                self.lost(connected.epoch, &error.to_string());
            }
            self.connector().target.label.failed(self.server(), error)
        })
    }

    /// Hears a channel from now on, on this connection and all that follow.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<()> {
        self.connector().channels.subscribed().insert(channel.to_owned());
        let connected = self.connected().await?;
        let mut connection = connected.connection.clone();
        self.call(&connected, pin!(connection.subscribe(channel))).await
    }

    pub(crate) async fn unsubscribe(&self, channel: &str) -> Result<()> {
        self.connector().channels.subscribed().remove(channel);
        let connected = self.connected().await?;
        let mut connection = connected.connection.clone();
        self.call(&connected, pin!(connection.unsubscribe(channel))).await
    }

    /// Hears a sharded channel for a while; false if that is not possible now. An error if the
    /// member says so.
    pub(crate) async fn listen(&self, channel: &str) -> RedisResult<bool> {
        let Some(connected) = self.connected_now() else { return Ok(false) };
        // Noted before it is sent: if the slot moves meanwhile, that is noticed.
        let Some(mut wanted) = self.connector().channels.want(channel, connected.epoch) else {
            return Ok(true);
        };
        let ask = async |verb: &str, channel: &str| {
            redis::cmd(verb).arg(channel).query_async::<Value>(&mut connected.connection.clone()).await
        };
        let subscribing = async {
            let heard = ask("SSUBSCRIBE", channel).await;
            for channel in &wanted.idle {
                ask("SUNSUBSCRIBE", channel).await?;
            }
            heard
        };
        let Ok(heard) = tokio::time::timeout(LISTEN_LIMIT, subscribing).await else { return Ok(false) };
        wanted.confirmed = confirms(&heard?, channel);
        if !wanted.confirmed {
            // Another's: the server has just ended a subscription that nobody wanted any more.
            self.lost(connected.epoch, "an answer to something else");
        }
        Ok(wanted.confirmed)
    }
}

/// True if this is the word that a channel is heard from now on.
fn confirms(answer: &Value, channel: &str) -> bool {
    let Value::Push { kind: PushKind::SSubscribe, data } = answer else { return false };
    matches!(data.first(), Some(Value::BulkString(heard)) if heard == channel.as_bytes())
}
