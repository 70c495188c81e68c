//! The servers: one, or the members of a cluster.

use std::pin::pin;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Pipeline, RedisResult, Value};

use super::cluster::Cluster;
use super::errors;
use super::link::{Connected, Link, Writer};
use super::requirements::Facts;
use super::script::Invocation;
use crate::engine::Connection;
use crate::error::Result;

/// The servers that keep the names.
#[derive(Debug)]
pub(crate) enum Topology {
    /// All names on one server.
    One(Arc<Link>),
    /// Each name on the member that has its slot.
    Cluster(Box<Cluster>),
}

/// Something to be sent as it is.
#[derive(Clone, Copy)]
pub(crate) enum Request<'a> {
    Script(&'a Invocation),
    /// A script that is likely to tell another client something.
    Waking(&'a Invocation),
    /// Several commands, of which the answers come together.
    Commands(&'a Pipeline),
}

impl Request<'_> {
    pub(crate) async fn send(self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
        match self {
            Request::Script(script) => script.call(connection).await,
            Request::Waking(script) => script.call_after_others(connection).await,
            Request::Commands(commands) => {
                let answers = connection.send_packed_commands(commands, 0, commands.len()).await?;
                let failed = answers.iter().find(|answer| matches!(answer, Value::ServerError(_)));
                match failed {
                    // In a transaction an error is that of all.
                    Some(error) => error.clone().extract_error(),
                    None => Ok(Value::Array(answers)),
                }
            }
        }
    }
}

/// An answer, and the connection that it came over: what was written there can be asked after only there.
pub(crate) struct Answered<T> {
    pub(crate) answer: T,
    pub(crate) connection: MultiplexedConnection,
    /// The server.
    pub(crate) connected: Arc<Connected>,
}

impl Topology {
    /// A connection to the server that has a key.
    pub(crate) async fn connected(&self, key: &str) -> Result<Arc<Connected>> {
        match self {
            Topology::One(link) => link.connected().await,
            Topology::Cluster(cluster) => Box::pin(cluster.connected(key)).await,
        }
    }

    /// The time at the server that has a key, as far as we know.
    pub(crate) async fn server_now(&self, key: &str) -> Result<u64> {
        if let Topology::One(link) = self
            && let Some(now) = link.server_now()
        {
            return Ok(now);
        }
        Ok(self.connected(key).await?.server_now())
    }

    /// Which connection to the server that has a key we have now, if there is one.
    pub(crate) async fn epoch(&self, key: &str) -> Option<u64> {
        match self {
            Topology::One(link) => link.epoch(),
            Topology::Cluster(cluster) => Some(Box::pin(cluster.connected(key)).await.ok()?.epoch),
        }
    }

    /// Whether the server that has a key is connected now.
    pub(crate) fn connection(&self, key: &str) -> Connection {
        match self {
            Topology::One(link) => link.connection(),
            Topology::Cluster(cluster) => cluster.connection(key),
        }
    }

    /// Sends a request to the server that has a key.
    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        key: &str,
        request: Request<'_>,
    ) -> Result<Answered<T>> {
        let Answered { answer, connection, connected } = match self {
            Topology::One(link) => {
                let connected = link.connected().await?;
                let mut connection = connected.connection.clone();
                let answer = link.call(&connected, pin!(request.send(&mut connection))).await?;
                Answered { answer, connection, connected }
            }
            // In a box, because it is large.
            Topology::Cluster(cluster) => Box::pin(cluster.call(key, request)).await?,
        };
        Ok(Answered { answer: errors::read(answer)?, connection, connected })
    }

    /// Sends a command to every server that has names, one after the other.
    pub(crate) async fn each<T: FromRedisValue>(
        &self,
        mut command: impl FnMut(&mut Cmd, &[T]) -> bool,
    ) -> Result<Vec<T>> {
        let links = match self {
            Topology::One(link) => vec![&**link],
            Topology::Cluster(_) => Vec::new(),
        };
        let members = match self {
            Topology::One(_) => Vec::new(),
            Topology::Cluster(cluster) => cluster.primaries().await?,
        };
        let links: Vec<&Link> = links.into_iter().chain(members.iter().map(|member| &**member)).collect();
        let mut answers = Vec::new();
        for link in links {
            let mut here = Vec::new();
            loop {
                let mut next = Cmd::new();
                if !command(&mut next, &here) {
                    break;
                }
                let connected = link.connected().await?;
                let mut connection = connected.connection.clone();
                here.push(link.call(&connected, pin!(next.query_async(&mut connection))).await?);
            }
            answers.append(&mut here);
        }
        Ok(answers)
    }

    /// For what nobody waits for.
    pub(crate) async fn writer(&self, key: &str) -> Option<Writer> {
        match self {
            Topology::One(link) => Some(link.writer()),
            Topology::Cluster(cluster) => Box::pin(cluster.member(key)).await.ok().map(|link| link.writer()),
        }
    }

    /// Hears a sharded channel where a key is. False if there is no such thing; then the channel for everybody will do.
    pub(crate) async fn listen(&self, key: &str, channel: impl FnOnce() -> String) -> bool {
        match self {
            Topology::One(_) => false,
            Topology::Cluster(cluster) => Box::pin(cluster.listen(key, &channel())).await,
        }
    }

    pub(crate) async fn subscribe(&self, channel: &str) -> Result<()> {
        match self {
            Topology::One(link) => link.subscribe(channel).await,
            Topology::Cluster(cluster) => cluster.subscribe(channel).await,
        }
    }

    pub(crate) async fn unsubscribe(&self, channel: &str) -> Result<()> {
        match self {
            Topology::One(link) => link.unsubscribe(channel).await,
            Topology::Cluster(cluster) => cluster.unsubscribe(channel).await,
        }
    }

    /// Ends all connections; there will be no others.
    pub(crate) fn close(&self) {
        match self {
            Topology::One(link) => link.close(),
            Topology::Cluster(cluster) => cluster.close(),
        }
    }

    /// Why a call may have had no answer.
    pub(crate) fn trouble(&self) -> String {
        match self {
            Topology::One(link) => link.trouble(),
            Topology::Cluster(cluster) => cluster.trouble(),
        }
    }

    /// True if it is so of a server that we know.
    pub(crate) fn any(&self, so: impl Fn(&Facts) -> bool) -> bool {
        match self {
            Topology::One(link) => link.facts().is_some_and(|facts| so(&facts)),
            Topology::Cluster(cluster) => cluster.any(so),
        }
    }
}
