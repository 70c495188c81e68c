//! Servers that are spoken to over TLS with certificates on both sides: etcd and ZooKeeper.

use crate::bench::ms;
use crate::members::wait;
use crate::servers::Certificates;
use crate::setup::AnyServer;
use crate::steps::{connect, lock, refused};
use crate::{Case, case};

/// Starts a server that asks for certificates, and has one of these itself.
type Start = fn(&Certificates) -> Box<AnyServer>;

pub(crate) fn cases(scheme: &'static str, start: Start) -> Vec<(&'static str, Case)> {
    vec![
        (
            "an_encrypted_connection_locks_and_wakes",
            case(move |_| an_encrypted_connection_locks_and_wakes(scheme, start)),
        ),
        (
            "a_server_that_nobody_vouches_for_is_refused",
            case(move |_| a_server_that_nobody_vouches_for_is_refused(scheme, start)),
        ),
        (
            "certificates_that_can_not_be_used_are_refused",
            case(move |_| certificates_that_can_not_be_used_are_refused(scheme)),
        ),
    ]
}

/// The URL of a server, with files as options.
pub(crate) fn at(scheme: &str, port: u16, certificates: &Certificates, options: &[(&str, &str)]) -> String {
    let option = |(word, file): &(&str, &str)| format!("{word}={}", certificates.path(file).display());
    format!("{scheme}://127.0.0.1:{port}?{}", options.iter().map(option).collect::<Vec<_>>().join("&"))
}

async fn an_encrypted_connection_locks_and_wakes(scheme: &str, start: Start) {
    let certificates = Certificates::make();
    let server = start(&certificates);
    let own = [("ca", "ca.crt"), ("cert", "client.crt"), ("key", "client.key")];
    let url = at(scheme, server.port(), &certificates, &own);
    let (one, two) = (connect(&url).await, connect(&url).await);
    let held = lock(&one, "x", ms(9000)).await;
    let waiting = wait(&two, "x", ms(9000)).await;
    held.release().await.expect("held");
    waiting.await.expect("no panic").expect("granted").release().await.expect("held");
    // It asks for a certificate of ours.
    refused(&at(scheme, server.port(), &certificates, &[("ca", "ca.crt")])).await;
}

async fn a_server_that_nobody_vouches_for_is_refused(scheme: &str, start: Start) {
    let certificates = Certificates::make();
    let server = start(&certificates);
    let said = refused(&at(scheme, server.port(), &certificates, &[("ca", "other-ca.crt")])).await;
    assert!(said.contains("certificate") && said.contains(&format!("127.0.0.1:{}", server.port())), "{said}");
}

async fn certificates_that_can_not_be_used_are_refused(scheme: &str) {
    let certificates = Certificates::make();
    for (options, words) in [
        (vec![("ca", "missing.crt")], "can not read"),
        (vec![("ca", "ca.key")], "no certificate"),
        (vec![("ca", "ca.crt"), ("cert", "client.crt"), ("key", "client.crt")], "no private key"),
        (vec![("cert", "client.crt")], "given together"),
    ] {
        let said = refused(&at(scheme, 1, &certificates, &options)).await;
        assert!(said.contains(words), "{said}");
    }
}
