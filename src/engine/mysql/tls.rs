//! Certificates, as the driver wants them.

use mysql_async::{ClientIdentity, SslOpts};
use rustls::RootCertStore;

use super::certificates::Certificates;
use crate::engine::tls::{authorities, choose_cryptography, identity};
use crate::error::Result;

/// What the driver needs to know to speak TLS, and to check that the server is the one that was
/// named.
pub(super) fn options(certificates: &Certificates) -> Result<SslOpts> {
    choose_cryptography();
    let trusted = match &certificates.root {
        Some(file) => authorities(file)?.certificates,
        None => {
            // One that can not be used is passed over: a system has hundreds.
            let mut roots = RootCertStore::empty();
            let found = rustls_native_certs::load_native_certs().certs.into_iter();
            found.filter(|certificate| roots.add(certificate.clone()).is_ok()).collect()
        }
    };
    let root_certs = trusted.iter().map(|certificate| certificate.to_vec().into()).collect();
    let mut options = SslOpts::default().with_disable_built_in_roots(true).with_root_certs(root_certs);
    if let Some((cert, key)) = &certificates.own {
        let own = identity(cert, key)?;
        let identity = ClientIdentity::new(own.cert_pem.into(), own.key_pem.into());
        options = options.with_client_identity(Some(identity));
    }
    Ok(options)
}
