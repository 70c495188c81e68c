//! Files with certificates and keys: read and tried before the first connection, so that a wrong
//! file is named.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::{Error, Result};

/// Those who may vouch for a server. Each driver wants them in another form.
#[allow(dead_code, reason = "each engine uses one of the forms")]
pub(crate) struct Authorities {
    pub(crate) pem: Vec<u8>,
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    pub(crate) roots: RootCertStore,
}

/// Our own certificate, and its key.
#[allow(dead_code, reason = "each engine uses one of the forms")]
pub(crate) struct Identity {
    pub(crate) cert_pem: Vec<u8>,
    pub(crate) key_pem: Vec<u8>,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// The program may have chosen its cryptography. If nobody has, some drivers panic at the first
/// connection.
#[allow(dead_code, reason = "not every driver needs it")]
pub(crate) fn choose_cryptography() {
    if CryptoProvider::get_default().is_none() {
        ring::default_provider().install_default().ok();
    }
}

/// Reads the file of the authorities that are trusted.
pub(crate) fn authorities(file: &str) -> Result<Authorities> {
    let pem = read(file)?;
    let certificates = certificates(file, &pem)?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(|error| useless(file, &error.to_string()))?;
    }
    Ok(Authorities { pem, certificates, roots })
}

/// Reads our own certificate and its key, and tries whether they go together.
pub(crate) fn identity(cert: &str, key: &str) -> Result<Identity> {
    let (cert_pem, key_pem) = (read(cert)?, read(key)?);
    let chain = certificates(cert, &cert_pem)?;
    let private =
        PrivateKeyDer::from_pem_slice(&key_pem).map_err(|_| useless(key, "there is no private key in it"))?;
    let provider =
        CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid(format!("no encryption is possible: {error}")))?
        .with_root_certificates(RootCertStore::empty())
        .with_client_auth_cert(chain.clone(), private.clone_key())
        .map_err(|error| useless(key, &format!("it is not the key of `{cert}` ({error})")))?;
    Ok(Identity { cert_pem, key_pem, chain, key: private })
}

fn read(file: &str) -> Result<Vec<u8>> {
    std::fs::read(file).map_err(|error| Error::invalid(format!("can not read `{file}`: {error}")))
}

fn certificates(file: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(useless(file, "there is no certificate in it")),
    }
}

fn useless(file: &str, why: &str) -> Error {
    Error::invalid(format!("can not use `{file}`: {why}; a PEM file is needed"))
}
