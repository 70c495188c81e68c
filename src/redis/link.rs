//! One Redis server, always connected if that is possible.
//!
//! A [`Supervisor`] keeps the connection. What is Redis's own is here: the checks when it is made,
//! the channels that are heard over it, and how errors of the driver are read. Commands and
//! messages alike go over this one connection, so that a release can not overtake the request that
//! it undoes.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use redis::{PushKind, RedisResult, Value};

use self::channels::Channels;
pub(crate) use self::channels::Heard;
use self::server::Server;
use super::errors::code;
use super::requirements::{Facts, Target};
use crate::engine::Connection;
use crate::engine::supervise::{self, Supervisor};
use crate::error::{Error, Result};

mod channels;
mod server;
mod sharded_channels;

/// How long a server may take to subscribe us to a sharded channel. Whoever gets no answer is told
/// by the ordinary channel.
const LISTEN_LIMIT: Duration = Duration::from_millis(300);

/// A server that is kept connected. Dropped, the connection goes.
pub(crate) struct Link {
    supervisor: Supervisor<Server>,
}

/// A connection to a server.
pub(crate) type Connected = supervise::Connected<server::Session>;

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("server", &self.server()).finish_non_exhaustive()
    }
}

impl Link {
    /// Connects; an error if that is not possible now.
    pub(crate) async fn open(
        target: Target,
        subscribed: BTreeSet<String>,
        hear: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Result<Link> {
        let server = Server::new(target, Channels::new(subscribed, hear));
        Ok(Link { supervisor: Supervisor::open(server).await? })
    }

    /// Connects if that is possible within a time, and goes on trying if not; an error if trying
    /// again can not help.
    pub(crate) async fn open_or_retry(
        target: Target,
        subscribed: BTreeSet<String>,
        limit: Duration,
        hear: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Result<Link> {
        let server = Server::new(target, Channels::new(subscribed, hear));
        Ok(Link { supervisor: Supervisor::open_or_retry(server, limit).await? })
    }

    /// The connection, or a wait until there is one. The caller's own time limit ends the wait.
    pub(crate) async fn connected(&self) -> Result<Arc<Connected>> {
        self.supervisor.connected().await
    }

    /// Ends the connection, and all that waits for something there. It is not made again.
    pub(crate) fn close(&self) {
        self.supervisor.close();
    }

    /// The server, for messages.
    pub(crate) fn server(&self) -> &str {
        &self.target().server
    }

    fn target(&self) -> &Target {
        &self.supervisor.connector().target
    }

    fn channels(&self) -> &Channels {
        &self.supervisor.connector().channels
    }

    /// The connection, if there is one now.
    pub(crate) fn connected_now(&self) -> Option<Arc<Connected>> {
        self.supervisor.connected_now()
    }

    /// The number of the connection, if there is one now.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.connected_now().map(|connected| connected.epoch)
    }

    /// Whether there is a connection now, and if not, which one was the last.
    pub(crate) fn connection(&self) -> Connection {
        self.supervisor.connection()
    }

    /// The server's time now, as far as we know, if it is connected.
    pub(crate) fn server_now(&self) -> Option<u64> {
        self.connected_now().map(|connected| connected.server_now())
    }

    /// Why a call may have had no answer.
    pub(crate) fn trouble(&self) -> String {
        self.supervisor.trouble()
    }

    /// What the server is, or was when it was last connected.
    pub(crate) fn facts(&self) -> Option<Arc<Facts>> {
        self.supervisor.connector().facts()
    }

    /// Sends a command over a connection and reads its answer.
    pub(crate) async fn call<T>(
        &self,
        connected: &Connected,
        command: Pin<&mut impl Future<Output = RedisResult<T>>>,
    ) -> Result<T> {
        let answer = self.supervisor.answer(connected, command).await?;
        self.answer(connected, answer)
    }

    /// The error for a call whose connection was given up.
    pub(crate) fn given_up(&self) -> Error {
        self.supervisor.given_up()
    }

    /// Reads the answer to a command. A connection that broke is made anew.
    pub(crate) fn answer<T>(&self, connected: &Connected, answer: RedisResult<T>) -> Result<T> {
        answer.map_err(|error| {
            let lost = error.is_io_error() || error.is_connection_dropped() || error.is_unrecoverable_error();
            if lost || code(&error) == "READONLY" {
                self.supervisor.lost(connected.epoch, &error.to_string());
            }
            self.target().label.failed(self.server(), error)
        })
    }

    /// Hears a channel from now on, on this connection and all that follow.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<()> {
        self.channels().subscribed().insert(channel.to_owned());
        let connected = self.connected().await?;
        let mut connection = connected.connection.clone();
        self.call(&connected, pin!(connection.subscribe(channel))).await
    }

    pub(crate) async fn unsubscribe(&self, channel: &str) -> Result<()> {
        self.channels().subscribed().remove(channel);
        let connected = self.connected().await?;
        let mut connection = connected.connection.clone();
        self.call(&connected, pin!(connection.unsubscribe(channel))).await
    }

    /// Hears a sharded channel for a while; false if that is not possible now. An error if the
    /// member says so.
    pub(crate) async fn listen(&self, channel: &str) -> RedisResult<bool> {
        let Some(connected) = self.connected_now() else { return Ok(false) };
        // Noted before it is sent: if the slot moves meanwhile, that is noticed.
        let Some(mut wanted) = self.channels().want(channel, connected.epoch) else { return Ok(true) };
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
            self.supervisor.lost(connected.epoch, "an answer to something else");
        }
        Ok(wanted.confirmed)
    }
}

/// True if this is the word that a channel is heard from now on.
fn confirms(answer: &Value, channel: &str) -> bool {
    let Value::Push { kind: PushKind::SSubscribe, data } = answer else { return false };
    matches!(data.first(), Some(Value::BulkString(heard)) if heard == channel.as_bytes())
}
