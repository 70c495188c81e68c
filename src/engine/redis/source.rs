//! Where the server is now: it may be known, or the sentinels may have to be asked.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ProtocolVersion};

use super::failure::{ENGINE, unreachable};
use crate::error::{Error, Result};

/// How long a sentinel has to answer before the next one is asked.
const SENTINEL_LIMIT: Duration = Duration::from_millis(800);

/// Where the server is.
pub(super) enum Source {
    /// Always there.
    Fixed(ConnectionInfo),
    /// Wherever the sentinels say.
    Sentinels(Sentinels),
}

/// The sentinels of a server that can fail over to another.
pub(super) struct Sentinels {
    pub(super) sentinels: Vec<ConnectionInfo>,
    /// What they call it.
    pub(super) primary: String,
    /// How to talk to the server itself; its address is theirs to say.
    pub(super) node: ConnectionInfo,
    /// The sentinel that answered last.
    pub(super) current: tokio::sync::Mutex<Option<MultiplexedConnection>>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Fixed(info) => write!(f, "{}", info.addr()),
            Source::Sentinels(sentinels) => {
                let first =
                    sentinels.sentinels.first().map(|info| info.addr().to_string()).unwrap_or_default();
                write!(f, "{} of {first}", sentinels.primary)
            }
        }
    }
}

impl Source {
    /// Finds the server.
    pub(super) async fn find(&self) -> Result<ConnectionInfo> {
        match self {
            Source::Fixed(info) => Ok(info.clone()),
            Source::Sentinels(sentinels) => sentinels.find().await,
        }
    }

    /// What must never be said.
    pub(super) fn password(&self) -> Option<&str> {
        let info = match self {
            Source::Fixed(info) => info,
            Source::Sentinels(sentinels) => &sentinels.node,
        };
        info.redis_settings().password().filter(|password| !password.is_empty())
    }

    /// True if the server is known to be somewhere else by now.
    pub(super) async fn moved_from(&self, addr: &ConnectionAddr) -> bool {
        match self {
            Source::Fixed(_) => false,
            Source::Sentinels(sentinels) => sentinels.find().await.is_ok_and(|info| info.addr() != addr),
        }
    }

    /// How many copies of the server's data there should be beside its own, if somebody knows.
    pub(super) async fn replicas(&self) -> Option<u32> {
        match self {
            Source::Fixed(_) => None,
            Source::Sentinels(sentinels) => sentinels.replicas().await.ok(),
        }
    }
}

impl Sentinels {
    async fn find(&self) -> Result<ConnectionInfo> {
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("get-master-addr-by-name").arg(&self.primary);
        let found: Option<(String, u16)> = self.ask(&ask).await?;
        let Some((host, port)) = found else {
            let what = format!("the sentinels know no primary `{}`; check its name in the URL", self.primary);
            return Err(Error::Engine { engine: ENGINE, what, source: None });
        };
        let addr = match self.node.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Ok(self.node.clone().set_addr(addr))
    }

    async fn replicas(&self) -> Result<u32> {
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("master").arg(&self.primary);
        let facts: std::collections::HashMap<String, String> = self.ask(&ask).await?;
        Ok(facts.get("num-slaves").and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    /// Asks the sentinel that answered last, or whichever answers first.
    async fn ask<T: redis::FromRedisValue>(&self, question: &redis::Cmd) -> Result<T> {
        let mut current = self.current.lock().await;
        if let Some(connection) = &mut *current {
            let answer = tokio::time::timeout(SENTINEL_LIMIT, question.query_async(connection)).await;
            if let Ok(Ok(answer)) = answer {
                return Ok(answer);
            }
            *current = None;
        }
        let mut failure = None;
        for sentinel in &self.sentinels {
            let (found, server) = (self.ask_one(sentinel, question).await, sentinel.addr().to_string());
            match found {
                Ok((connection, answer)) => {
                    *current = Some(connection);
                    return Ok(answer);
                }
                Err(error) => failure = Some(unreachable(&server, error)),
            }
        }
        Err(failure.unwrap_or_else(|| Error::invalid("no sentinel is given")))
    }

    async fn ask_one<T: redis::FromRedisValue>(
        &self,
        sentinel: &ConnectionInfo,
        question: &redis::Cmd,
    ) -> redis::RedisResult<(MultiplexedConnection, T)> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(SENTINEL_LIMIT))
            .set_response_timeout(Some(SENTINEL_LIMIT));
        let client = redis::Client::open(sentinel.clone())?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let answer = question.query_async(&mut connection).await?;
        Ok((connection, answer))
    }
}

/// A connection that speaks the protocol that we need, and notices a peer that has vanished.
pub(super) fn client(info: ConnectionInfo) -> redis::RedisResult<redis::Client> {
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = TcpSettings::default().set_nodelay(true);
    redis::Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp))
}
