//! Servers that are spoken to over TLS.

use super::*;
use crate::encrypted::at;
use crate::servers::Certificates;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    let mut cases = cases!("tls", [a_server_that_speaks_otherwise_is_refused]).cases;
    cases.extend(crate::encrypted::cases("zookeepers", |certificates| {
        Box::new(ZooKeeper::start_tls(certificates, "server"))
    }));
    cases
}

async fn a_server_that_speaks_otherwise_is_refused(ground: Ground) {
    let certificates = Certificates::make();
    let plain = server(&ground).port();
    let said = refused(&at("zookeepers", plain, &certificates, &[("ca", "ca.crt")])).await;
    assert!(said.contains(&format!("127.0.0.1:{plain}")), "{said}");
    let encrypted = ZooKeeper::start_tls(&certificates, "server");
    let said = refused(&format!("zookeeper://127.0.0.1:{}", encrypted.port())).await;
    assert!(said.contains("`zookeepers://`"), "{said}");
}
