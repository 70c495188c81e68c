//! Where the server is now: it may be known, or the sentinels may have to be asked.

use std::fmt;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, ProtocolVersion, RedisConnectionInfo,
    RedisResult,
};

use super::replicas::{Replicas, of_member};
use super::sentinel::Sentinels;
use crate::engine::url::{Host, Login};
use crate::error::{Error, Result};

/// Whether a server is spoken to over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    None,
    Tls,
}

/// A server at a host of a URL, as the driver wants it.
pub(crate) fn info_of_host(
    host: &Host,
    login: &Login,
    encryption: Encryption,
    db: i64,
) -> Result<ConnectionInfo> {
    let (host, port) = (host.name.clone(), host.port);
    let addr = match encryption {
        Encryption::None => ConnectionAddr::Tcp(host, port),
        Encryption::Tls => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
    };
    info(addr, login, db)
}

/// A server at an address, as the driver wants it.
pub(crate) fn info(addr: ConnectionAddr, login: &Login, db: i64) -> Result<ConnectionInfo> {
    let mut settings = RedisConnectionInfo::default().set_db(db);
    if let Some(user) = &login.user {
        settings = settings.set_username(user);
    }
    if let Some(password) = &login.password {
        settings = settings.set_password(password.reveal());
    }
    let info = addr.into_connection_info();
    let info = info
        .map_err(|error| Error::invalid(format!("the driver refuses the address: {}", error.category())))?;
    Ok(info.set_redis_settings(settings))
}

/// Where the server is.
pub(crate) enum Source {
    /// Always there.
    Fixed(ConnectionInfo),
    /// Always there, as one of the members of a cluster.
    Member(ConnectionInfo),
    /// Wherever the sentinels say.
    Sentinels(Sentinels),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Fixed(info) | Source::Member(info) => match info.addr() {
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
            Source::Fixed(info) | Source::Member(info) => Ok(info.clone()),
            Source::Sentinels(sentinels) => sentinels.find().await,
        }
    }

    /// What must never be said.
    pub(crate) fn password(&self) -> Option<&str> {
        let info = match self {
            Source::Fixed(info) | Source::Member(info) => info,
            Source::Sentinels(sentinels) => sentinels.node(),
        };
        info.redis_settings().password().filter(|password| !password.is_empty())
    }

    /// Waits until the server is known to be somewhere else, and counts the replicas meanwhile.
    pub(crate) async fn moved_from(&self, addr: &ConnectionAddr, replicas: &Replicas) {
        match self {
            Source::Fixed(_) | Source::Member(_) => std::future::pending().await,
            Source::Sentinels(sentinels) => sentinels.moved_from(addr, replicas).await,
        }
    }

    /// Counts the replicas that the server has, if somebody knows: whether they are there or not.
    pub(crate) async fn count_replicas(
        &self,
        connection: &mut MultiplexedConnection,
        replicas: &Replicas,
    ) -> RedisResult<()> {
        match self {
            Source::Fixed(_) => {}
            Source::Sentinels(sentinels) => replicas.heard(sentinels.replicas()),
            Source::Member(_) => {
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

/// A connection that speaks the protocol that we need, and notices a peer that has vanished.
pub(crate) fn client(info: ConnectionInfo) -> redis::RedisResult<redis::Client> {
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = TcpSettings::default().set_nodelay(true);
    redis::Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp))
}
