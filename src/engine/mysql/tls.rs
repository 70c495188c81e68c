//! Certificates: read and tried before the first connection, so that a wrong file is named.

use mysql_async::{ClientIdentity, SslOpts};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::certificates::Certificates;
use crate::error::{Error, Result};

/// What the driver needs to know to speak TLS, and to check that the server is the one that was
/// named.
pub(super) fn options(certificates: &Certificates) -> Result<SslOpts> {
    // The program may have chosen its cryptography. If nobody has, the driver panics at the first
    // connection.
    if CryptoProvider::get_default().is_none() {
        rustls::crypto::ring::default_provider().install_default().ok();
    }
    let mut roots = RootCertStore::empty();
    let mut trusted = Vec::new();
    if let Some(file) = &certificates.root {
        for certificate in read_certificates(file, &read(file)?)? {
            roots.add(certificate.clone()).map_err(|error| useless(file, &error.to_string()))?;
            trusted.push(certificate);
        }
    } else {
        // One that can not be used is passed over: a system has hundreds.
        let found = rustls_native_certs::load_native_certs().certs.into_iter();
        trusted.extend(found.filter(|certificate| roots.add(certificate.clone()).is_ok()));
    }
    let root_certs = trusted.iter().map(|certificate| certificate.to_vec().into()).collect();
    let mut options = SslOpts::default().with_disable_built_in_roots(true).with_root_certs(root_certs);
    if let Some((cert, key)) = &certificates.own {
        let (cert_bytes, key_bytes) = (read(cert)?, read(key)?);
        let chain = read_certificates(cert, &cert_bytes)?;
        let private = PrivateKeyDer::from_pem_slice(&key_bytes)
            .map_err(|_| useless(key, "there is no private key in it"))?;
        let fits =
            ClientConfig::builder().with_root_certificates(roots).with_client_auth_cert(chain, private);
        fits.map_err(|error| useless(key, &format!("it is not the key of `{cert}` ({error})")))?;
        let identity = ClientIdentity::new(cert_bytes.into(), key_bytes.into());
        options = options.with_client_identity(Some(identity));
    }
    Ok(options)
}

fn read(file: &str) -> Result<Vec<u8>> {
    std::fs::read(file).map_err(|error| Error::invalid(format!("can not read `{file}`: {error}")))
}

fn read_certificates(file: &str, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(useless(file, "there is no certificate in it")),
    }
}

fn useless(file: &str, why: &str) -> Error {
    Error::invalid(format!("can not use `{file}`: {why}; a PEM file is needed"))
}
