//! Certificates: read before the first connection, so that a wrong file is named.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Socket;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::Certificates;
use crate::error::{Error, Result};

/// An encrypted stream.
pub(super) type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// What makes encrypted connections. The server's certificate and its host name are always checked.
pub(super) fn connector(certificates: &Certificates) -> Result<MakeRustlsConnect> {
    let mut roots = RootCertStore::empty();
    match &certificates.root {
        Some(file) => {
            for certificate in read_certificates(file)? {
                roots.add(certificate).map_err(|error| useless(file, &error.to_string()))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(Error::invalid(
                    "this system has no trusted certificates; name a file with `sslrootcert=FILE`",
                ));
            }
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid(format!("no encryption is possible: {error}")))?
        .with_root_certificates(roots);
    let config = match &certificates.own {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = read_certificates(cert)?;
            let private = PrivateKeyDer::from_pem_slice(&read(key)?)
                .map_err(|_| useless(key, "there is no private key in it"))?;
            config
                .with_client_auth_cert(chain, private)
                .map_err(|error| useless(key, &format!("it is not the key of `{cert}` ({error})")))?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn read(file: &str) -> Result<Vec<u8>> {
    std::fs::read(file).map_err(|error| Error::invalid(format!("can not read `{file}`: {error}")))
}

fn read_certificates(file: &str) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(file)?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(useless(file, "there is no certificate in it")),
    }
}

fn useless(file: &str, why: &str) -> Error {
    Error::invalid(format!("can not use `{file}`: {why}; a PEM file is needed"))
}
