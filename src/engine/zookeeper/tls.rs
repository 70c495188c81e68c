//! Certificates: read before the first connection, so that a wrong file is named.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::url::Certificates;
use crate::engine::tls::{authorities, identity};
use crate::error::{Error, Result};

/// How connections are encrypted. The server's certificate and its host name are always checked.
pub(super) fn connector(certificates: &Certificates) -> Result<TlsConnector> {
    let roots = match &certificates.ca {
        Some(file) => authorities(file)?.roots,
        None => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(Error::invalid(
                    "this system has no trusted certificates; name a file with `ca=FILE`",
                ));
            }
            roots
        }
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid(format!("no encryption is possible: {error}")))?
        .with_root_certificates(roots);
    let config = match &certificates.own {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let own = identity(cert, key)?;
            config
                .with_client_auth_cert(own.chain, own.key)
                .map_err(|error| Error::invalid(format!("`{cert}` can not be used: {error}")))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}
