//! Certificates, as the driver wants them.

use redis::{ClientTlsConfig, ConnectionInfo, TlsCertificates};

use crate::engine::tls::{authorities, choose_cryptography, identity};
use crate::error::{Error, Result};

/// A server with the file of the authorities that we trust, and our own certificate and key.
/// Without such a file, the system's authorities are trusted.
pub(crate) fn with_certificates(
    info: ConnectionInfo,
    ca: Option<&str>,
    own: Option<(&str, &str)>,
) -> Result<ConnectionInfo> {
    choose_cryptography();
    let root_cert = ca.map(authorities).transpose()?.map(|trusted| trusted.pem);
    let own = own.map(|(cert, key)| identity(cert, key)).transpose()?;
    let client_tls = own.map(|own| ClientTlsConfig { client_cert: own.cert_pem, client_key: own.key_pem });
    let client = redis::Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
        .map_err(|error| Error::invalid(format!("the certificates can not be used: {error}")))?;
    Ok(client.get_connection_info().clone())
}
