//! The servers: one, or the members of a cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use redis::FromRedisValue;

use super::cluster::Cluster;
use super::errors;
use super::link::{Answered, Connected, Link};
use super::requirements::Facts;
use super::scan::scan;
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

impl Topology {
    /// A connection to the server that has a key.
    pub(crate) async fn connected(&self, key: &str) -> Result<Arc<Connected>> {
        match self {
            Topology::One(link) => link.connected().await,
            Topology::Cluster(cluster) => Box::pin(cluster.connected(key)).await,
        }
    }

    /// Which connection to the server that has a key we have now, if there is one.
    pub(crate) async fn epoch(&self, key: &str) -> Option<u64> {
        match self {
            Topology::One(link) => Some(link.connected_now()?.epoch),
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

    /// Runs a script at the server that has a key.
    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        key: &str,
        script: impl Fn(&Connected) -> Invocation + Send + Sync,
    ) -> Result<Answered<T>> {
        let Answered { answer, connection, connected } = match self {
            Topology::One(link) => link.run(script).await?,
            // In a box, because it is large.
            Topology::Cluster(cluster) => Box::pin(cluster.run(key, &script)).await?,
        };
        Ok(Answered { answer: errors::read(answer)?, connection, connected })
    }

    /// The keys that fit a pattern, on all servers.
    pub(crate) async fn scan(&self, pattern: &str) -> Result<BTreeSet<String>> {
        match self {
            Topology::One(link) => scan(link, pattern).await,
            Topology::Cluster(cluster) => {
                let mut found = BTreeSet::new();
                for member in cluster.primaries().await? {
                    found.append(&mut scan(&member, pattern).await?);
                }
                Ok(found)
            }
        }
    }

    /// Hears a sharded channel where a key is. False if there is no such thing; then the channel
    /// for everybody will do.
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
        let is_so = |link: &Arc<Link>| link.facts().is_some_and(|facts| so(&facts));
        match self {
            Topology::One(link) => is_so(link),
            Topology::Cluster(cluster) => cluster.links().iter().any(is_so),
        }
    }
}
