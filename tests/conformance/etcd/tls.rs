//! Servers that are spoken to over TLS.

use super::*;
use crate::encrypted::at;
use crate::servers::Certificates;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    let mut cases = cases!("tls", [a_server_that_speaks_otherwise_is_refused]).cases;
    cases.extend(crate::encrypted::cases("etcds", |certificates| {
        Box::new(Etcd::start_tls(certificates, "server"))
    }));
    cases
}

async fn a_server_that_speaks_otherwise_is_refused(ground: Ground) {
    let certificates = Certificates::make();
    let said = refused(&at("etcds", server(&ground).port(), &certificates, &[("ca", "ca.crt")])).await;
    assert!(said.contains("starts with `etcd://`"), "{said}");
    let encrypted = Etcd::start_tls(&certificates, "server");
    let said = refused(&format!("etcd://127.0.0.1:{}", encrypted.port())).await;
    assert!(said.contains("starts with `etcds://`"), "{said}");
}
