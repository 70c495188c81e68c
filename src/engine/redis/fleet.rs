//! The servers: one, or the members of a cluster.

use std::pin::pin;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Pipeline, RedisResult, Value};

use super::attempt::{self, HolderText};
use super::cluster::Cluster;
use super::keys::NameKeys;
use super::link::{Connected, Link, Writer};
use super::reply;
use super::scripts::Invocation;
use super::target::Facts;
use crate::engine::Connection;
use crate::error::Result;

/// The servers that keep the names.
#[derive(Debug)]
pub(super) enum Fleet {
    /// All names on one server.
    One(Arc<Link>),
    /// Each name on the member that has its slot.
    Cluster(Box<Cluster>),
}

/// Something to be sent as it is.
#[derive(Clone, Copy)]
pub(super) enum Request<'a> {
    Script(&'a Invocation),
    /// A script that is likely to tell another client something.
    Waking(&'a Invocation),
    /// What takes a free lock.
    Take(&'a NameKeys, &'a HolderText),
}

impl Request<'_> {
    pub(super) async fn send(self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
        match self {
            Request::Script(script) => script.call(connection).await,
            Request::Waking(script) => script.call_after_others(connection).await,
            Request::Take(keys, holder) => {
                let mut commands = Pipeline::with_capacity(attempt::ANSWERS);
                attempt::add(&mut commands, keys, holder);
                let answers = connection.send_packed_commands(&commands, 0, attempt::ANSWERS).await?;
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
pub(super) struct Answered<T> {
    pub(super) answer: T,
    pub(super) connection: MultiplexedConnection,
    /// The server.
    pub(super) connected: Arc<Connected>,
}

impl Fleet {
    /// A connection to the server that has a key.
    pub(super) async fn connected(&self, key: &str) -> Result<Arc<Connected>> {
        match self {
            Fleet::One(link) => link.connected().await,
            Fleet::Cluster(cluster) => Box::pin(cluster.connected(key)).await,
        }
    }

    /// The time at the server that has a key, as far as we know.
    pub(super) async fn server_now(&self, key: &str) -> Result<u64> {
        if let Fleet::One(link) = self
            && let Some(now) = link.server_now()
        {
            return Ok(now);
        }
        Ok(self.connected(key).await?.server_now())
    }

    /// Which connection to the server that has a key we have now, if there is one.
    pub(super) async fn epoch(&self, key: &str) -> Option<u64> {
        match self {
            Fleet::One(link) => link.epoch(),
            Fleet::Cluster(cluster) => Some(Box::pin(cluster.connected(key)).await.ok()?.epoch),
        }
    }

    /// Whether the server that has a key is connected now.
    pub(super) fn connection(&self, key: &str) -> Connection {
        match self {
            Fleet::One(link) => link.connection(),
            Fleet::Cluster(cluster) => cluster.connection(key),
        }
    }

    /// Sends a request to the server that has a key.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        key: &str,
        request: Request<'_>,
    ) -> Result<Answered<T>> {
        let Answered { answer, connection, connected } = match self {
            Fleet::One(link) => {
                let connected = link.connected().await?;
                let mut connection = connected.connection.clone();
                let answer = link.call(&connected, pin!(request.send(&mut connection))).await?;
                Answered { answer, connection, connected }
            }
            // In a box, because it is large.
            Fleet::Cluster(cluster) => Box::pin(cluster.call(key, request)).await?,
        };
        Ok(Answered { answer: reply::read(answer)?, connection, connected })
    }

    /// Sends a command to every server that has names, one after the other.
    pub(super) async fn each<T: FromRedisValue>(
        &self,
        mut command: impl FnMut(&mut Cmd, &[T]) -> bool,
    ) -> Result<Vec<T>> {
        let links = match self {
            Fleet::One(link) => vec![&**link],
            Fleet::Cluster(_) => Vec::new(),
        };
        let members = match self {
            Fleet::One(_) => Vec::new(),
            Fleet::Cluster(cluster) => cluster.primaries().await?,
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
    pub(super) async fn writer(&self, key: &str) -> Option<Writer> {
        match self {
            Fleet::One(link) => Some(link.writer()),
            Fleet::Cluster(cluster) => Box::pin(cluster.member(key)).await.ok().map(|link| link.writer()),
        }
    }

    /// Hears a sharded channel where a key is. False if there is no such thing; then the channel for everybody will do.
    pub(super) async fn listen(&self, key: &str, channel: impl FnOnce() -> String) -> bool {
        match self {
            Fleet::One(_) => false,
            Fleet::Cluster(cluster) => Box::pin(cluster.listen(key, &channel())).await,
        }
    }

    pub(super) async fn subscribe(&self, channel: &str) -> Result<()> {
        match self {
            Fleet::One(link) => link.subscribe(channel).await,
            Fleet::Cluster(cluster) => cluster.subscribe(channel).await,
        }
    }

    pub(super) async fn unsubscribe(&self, channel: &str) -> Result<()> {
        match self {
            Fleet::One(link) => link.unsubscribe(channel).await,
            Fleet::Cluster(cluster) => cluster.unsubscribe(channel).await,
        }
    }

    /// Ends all connections; there will be no others.
    pub(super) fn close(&self) {
        match self {
            Fleet::One(link) => link.close(),
            Fleet::Cluster(cluster) => cluster.close(),
        }
    }

    /// Why a call may have had no answer.
    pub(super) fn trouble(&self) -> String {
        match self {
            Fleet::One(link) => link.trouble(),
            Fleet::Cluster(cluster) => cluster.trouble(),
        }
    }

    /// True if it is so of a server that we know.
    pub(super) fn any(&self, so: impl Fn(&Facts) -> bool) -> bool {
        match self {
            Fleet::One(link) => link.facts().is_some_and(|facts| so(&facts)),
            Fleet::Cluster(cluster) => cluster.any(so),
        }
    }
}
