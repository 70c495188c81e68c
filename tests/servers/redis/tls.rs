//! A Redis server that speaks TLS beside its plain port.

use std::path::Path;

use super::super::port::Port;
use super::super::tls::Certificates;
use super::Redis;

/// A server with a second port, where it speaks TLS.
pub(crate) struct TlsRedis {
    pub(crate) server: Redis,
    port: Port,
}

impl TlsRedis {
    /// `name` is the certificate that it shows; `demanding` asks its clients for theirs.
    pub(crate) fn start(certificates: &Certificates, name: &str, demanding: bool) -> TlsRedis {
        let port = Port::reserve();
        let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
        let file = |file: &str| text(&certificates.path(file));
        let server = Redis::start_with(&[
            "--tls-port",
            &port.number().to_string(),
            "--tls-ca-cert-file",
            &file("ca.crt"),
            "--tls-cert-file",
            &file(&format!("{name}.crt")),
            "--tls-key-file",
            &file(&format!("{name}.key")),
            "--tls-auth-clients",
            if demanding { "yes" } else { "no" },
        ]);
        TlsRedis { server, port }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }
}
