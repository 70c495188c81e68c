//! Certificates: read before the first connection, so that a wrong file is named.

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::url::Certificates;
use crate::error::{Error, Result};

/// How connections are encrypted. The server's certificate and its host name are always checked.
pub(super) fn config(certificates: &Certificates) -> Result<ClientTlsConfig> {
    let mut config = ClientTlsConfig::new();
    config = match &certificates.ca {
        Some(file) => config.ca_certificate(Certificate::from_pem(read(file, "CERTIFICATE")?)),
        None => config.with_native_roots(),
    };
    if let Some((cert, key)) = &certificates.own {
        config = config.identity(Identity::from_pem(read(cert, "CERTIFICATE")?, read(key, "PRIVATE KEY")?));
    }
    Ok(config)
}

/// A PEM file that has something of that kind in it.
fn read(file: &str, kind: &str) -> Result<String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::invalid(format!("can not read `{file}`: {error}")))?;
    if !text.contains(&format!("{kind}-----")) {
        return Err(Error::invalid(format!(
            "can not use `{file}`: there is no {} in it; a PEM file is needed",
            kind.to_lowercase()
        )));
    }
    Ok(text)
}
