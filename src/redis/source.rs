//! Where the server is now: it may be known, or the sentinels may have to be asked.

use std::fmt;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, ConnectionInfo, RedisResult};

use super::replicas::{Replicas, of_member};
use super::sentinel::Sentinels;
use crate::error::Result;

/// Where the server is.
pub(crate) enum Source {
    /// Always there.
    Fixed(ConnectionInfo),
    /// Wherever the sentinels say.
    Sentinels(Sentinels),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Fixed(info) => match info.addr() {
                ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }
                    if host.contains(':') =>
                {
                    write!(f, "[{host}]:{port}")
                }
                addr => write!(f, "{addr}"),
            },
            Source::Sentinels(sentinels) => write!(f, "{sentinels}"),
        }
    }
}

impl Source {
    /// Finds the server.
    pub(crate) async fn find(&self) -> Result<ConnectionInfo> {
        match self {
            Source::Fixed(info) => Ok(info.clone()),
            Source::Sentinels(sentinels) => sentinels.find().await,
        }
    }

    /// What must never be said.
    pub(crate) fn password(&self) -> Option<&str> {
        let info = match self {
            Source::Fixed(info) => info,
            Source::Sentinels(sentinels) => sentinels.node(),
        };
        info.redis_settings().password().filter(|password| !password.is_empty())
    }

    /// Waits until the server is known to be somewhere else, and counts the replicas meanwhile.
    pub(crate) async fn moved_from(&self, addr: &ConnectionAddr, replicas: &Replicas) {
        match self {
            Source::Fixed(_) => std::future::pending().await,
            Source::Sentinels(sentinels) => sentinels.moved_from(addr, replicas).await,
        }
    }

    /// Counts the replicas that the server has, whether they are there or not.
    pub(crate) async fn count_replicas(
        &self,
        connection: &mut MultiplexedConnection,
        replicas: &Replicas,
    ) -> RedisResult<()> {
        match self {
            Source::Sentinels(sentinels) => replicas.heard(sentinels.replicas()),
            // A member of a cluster: of other servers nobody knows it, and nobody asks.
            Source::Fixed(_) => {
                let nodes: String = redis::cmd("CLUSTER").arg("NODES").query_async(connection).await?;
                replicas.heard(of_member(&nodes));
            }
        }
        Ok(())
    }

    /// Lets go of what it is connected to.
    pub(crate) fn close(&self) {
        if let Source::Sentinels(sentinels) = self {
            sentinels.close();
        }
    }
}
