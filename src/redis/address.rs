//! How the driver is told where a server is, and how to speak to it.

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion};

/// Another server that is spoken to as one that is known.
pub(crate) fn like(known: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let host = host.to_owned();
    let addr = match known.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    known.clone().set_addr(addr)
}

/// A connection that speaks the protocol that we need, and notices a peer that has vanished.
pub(crate) fn client(info: ConnectionInfo) -> redis::RedisResult<redis::Client> {
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = TcpSettings::default().set_nodelay(true);
    redis::Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp))
}
