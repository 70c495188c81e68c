//! Servers that are spoken to over TLS.

use super::*;
use crate::bench::ms;
use crate::servers::Certificates;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "tls",
        [
            an_encrypted_connection_locks_and_wakes,
            a_server_that_nobody_vouches_for_is_refused,
            a_server_that_speaks_otherwise_is_refused,
            certificates_that_can_not_be_used_are_refused,
        ]
    )
    .cases
}

fn at(port: u16, certificates: &Certificates, options: &[(&str, &str)]) -> String {
    let option = |(word, file): &(&str, &str)| format!("{word}={}", certificates.path(file).display());
    format!("zookeepers://127.0.0.1:{port}?{}", options.iter().map(option).collect::<Vec<_>>().join("&"))
}

async fn an_encrypted_connection_locks_and_wakes(_: Ground) {
    let certificates = Certificates::make();
    let server = ZooKeeper::start_tls(&certificates, "server");
    let own = [("ca", "ca.crt"), ("cert", "client.crt"), ("key", "client.key")];
    let url = at(server.port(), &certificates, &own);
    let (one, two) = (connect(&url).await, connect(&url).await);
    let held = lock(&one, "x", ms(9000)).await;
    let waiting = wait(&two, "x", ms(9000)).await;
    held.release().await.expect("held");
    waiting.await.expect("no panic").expect("granted").release().await.expect("held");
    // It asks for a certificate of ours.
    refused(&at(server.port(), &certificates, &[("ca", "ca.crt")])).await;
}

async fn a_server_that_nobody_vouches_for_is_refused(_: Ground) {
    let certificates = Certificates::make();
    let server = ZooKeeper::start_tls(&certificates, "server");
    let said = refused(&at(server.port(), &certificates, &[("ca", "other-ca.crt")])).await;
    assert!(said.contains("certificate") && said.contains(&format!("127.0.0.1:{}", server.port())), "{said}");
}

async fn a_server_that_speaks_otherwise_is_refused(ground: Ground) {
    let certificates = Certificates::make();
    let plain = server(&ground).port();
    let said = refused(&at(plain, &certificates, &[("ca", "ca.crt")])).await;
    assert!(said.contains(&format!("127.0.0.1:{plain}")), "{said}");
    let encrypted = ZooKeeper::start_tls(&certificates, "server");
    let said = refused(&format!("zookeeper://127.0.0.1:{}", encrypted.port())).await;
    assert!(said.contains("`zookeepers://`"), "{said}");
}

async fn certificates_that_can_not_be_used_are_refused(_: Ground) {
    let certificates = Certificates::make();
    for (options, words) in [
        (vec![("ca", "missing.crt")], "can not read"),
        (vec![("ca", "ca.key")], "no certificate"),
        (vec![("ca", "ca.crt"), ("cert", "client.crt"), ("key", "client.crt")], "no private key"),
        (vec![("cert", "client.crt")], "given together"),
    ] {
        let said = refused(&at(1, &certificates, &options)).await;
        assert!(said.contains(words), "{said}");
    }
}
