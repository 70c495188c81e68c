//! Certificates: read and tried before the first connection, so that a wrong file is named.

use redis::{ClientTlsConfig, ConnectionInfo, TlsCertificates};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::{Error, Result};

/// A server with the file of the authorities that we trust, and our own certificate and key.
/// Without such a file, the system's authorities are trusted.
pub(crate) fn with_certificates(
    info: ConnectionInfo,
    ca: Option<&str>,
    own: Option<(&str, &str)>,
) -> Result<ConnectionInfo> {
    // The program may have chosen its cryptography. If nobody has, the driver panics at the first
    // connection.
    if CryptoProvider::get_default().is_none() {
        rustls::crypto::ring::default_provider().install_default().ok();
    }
    let root_cert = ca.map(read).transpose()?;
    if let (Some(file), Some(bytes)) = (ca, &root_cert) {
        let mut authorities = RootCertStore::empty();
        for certificate in certificates(file, bytes)? {
            authorities.add(certificate).map_err(|error| useless(file, &error.to_string()))?;
        }
    }
    let mut client_tls = None;
    if let Some((cert, key)) = own {
        let (client_cert, client_key) = (read(cert)?, read(key)?);
        let chain = certificates(cert, &client_cert)?;
        let private = PrivateKeyDer::from_pem_slice(&client_key)
            .map_err(|_| useless(key, "there is no private key in it"))?;
        let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
        let fits = config.with_client_auth_cert(chain, private);
        fits.map_err(|error| useless(key, &format!("it is not the key of `{cert}` ({error})")))?;
        client_tls = Some(ClientTlsConfig { client_cert, client_key });
    }
    let client = redis::Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
        .map_err(|error| Error::invalid(format!("the certificates can not be used: {error}")))?;
    Ok(client.get_connection_info().clone())
}

fn read(file: &str) -> Result<Vec<u8>> {
    std::fs::read(file).map_err(|error| Error::invalid(format!("can not read `{file}`: {error}")))
}

fn certificates(file: &str, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(useless(file, "there is no certificate in it")),
    }
}

fn useless(file: &str, why: &str) -> Error {
    Error::invalid(format!("can not use `{file}`: {why}; a PEM file is needed"))
}
