//! Servers that are spoken to over TLS.

use super::*;
use crate::bench::Ground;
use crate::servers::{Certificates, Proxy, TlsRedis};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "server",
        [
            an_encrypted_connection_locks_and_wakes,
            an_encrypted_connection_is_made_anew,
            a_server_that_nobody_vouches_for_is_refused,
            a_server_that_asks_for_a_certificate_gets_one,
            certificates_that_can_not_be_used_are_refused,
            a_server_that_speaks_otherwise_is_refused,
        ]
    )
    .cases
}

fn at(port: u16, certificates: &Certificates, options: &[(&str, &str)]) -> String {
    let option = |(word, file): &(&str, &str)| format!("{word}={}", certificates.path(file).display());
    format!("rediss://127.0.0.1:{port}/?{}", options.iter().map(option).collect::<Vec<_>>().join("&"))
}

async fn an_encrypted_connection_locks_and_wakes(_: Ground) {
    let certificates = Certificates::make();
    let server = TlsRedis::start(&certificates, "server", false);
    let url = at(server.port(), &certificates, &[("ca", "ca.crt")]);
    let (one, two) = (connect(&url).await, connect(&url).await);
    let held = lock(&one, ms(9000)).await;
    let waiting = wait(&two, ms(9000)).await;
    held.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");
    // Those who came by the plain port see the same.
    let plain = connect(&server.server.url()).await;
    let held = lock(&one, ms(9000)).await;
    assert!(try_lock(&plain).await.expect("an answer").is_none());
    held.release().await.expect("held");
    leave(&server.server, [one, two, plain]).await;
}

async fn an_encrypted_connection_is_made_anew(_: Ground) {
    let certificates = Certificates::make();
    let server = TlsRedis::start(&certificates, "server", false);
    let proxy = Proxy::start(server.port());
    let client = connect(&at(proxy.port(), &certificates, &[("ca", "ca.crt")])).await;
    let held = lock(&client, ms(9000)).await;
    proxy.reset();
    until("it is back", async || client.look(Family::Lock, "x").await.is_ok()).await;
    held.release().await.expect("held");
    leave(&server.server, [client]).await;
}

async fn a_server_that_nobody_vouches_for_is_refused(_: Ground) {
    let certificates = Certificates::make();
    let server = TlsRedis::start(&certificates, "server", false);
    let elsewhere = TlsRedis::start(&certificates, "elsewhere", false);
    for url in [
        at(server.port(), &certificates, &[]),
        at(server.port(), &certificates, &[("ca", "other-ca.crt")]),
        at(elsewhere.port(), &certificates, &[("ca", "ca.crt")]),
    ] {
        let error = refused(&url).await;
        assert!(matches!(error, Error::Engine { .. }), "{error:?}");
        assert!(error.to_string().contains("certificate"), "{url}: {error}");
    }
}

async fn a_server_that_asks_for_a_certificate_gets_one(_: Ground) {
    let certificates = Certificates::make();
    let server = TlsRedis::start(&certificates, "server", true);
    let own = [("ca", "ca.crt"), ("cert", "client.crt"), ("key", "client.key")];
    let client = connect(&at(server.port(), &certificates, &own)).await;
    lock(&client, ms(9000)).await.release().await.expect("held");
    let error = refused(&at(server.port(), &certificates, &own[..1])).await;
    assert!(matches!(error, Error::Engine { .. }) && error.to_string().contains("`?cert="), "{error}");
    leave(&server.server, [client]).await;
}

async fn certificates_that_can_not_be_used_are_refused(_: Ground) {
    let certificates = Certificates::make();
    std::fs::write(certificates.path("empty.crt"), "").expect("a file");
    std::fs::write(certificates.path("broken.key"), "nothing of the kind").expect("a file");
    for (options, word) in [
        (&[("ca", "missing.crt")][..], "missing.crt"),
        (&[("ca", "empty.crt")], "empty.crt"),
        (&[("ca", "ca.crt"), ("cert", "client.crt")], "`key`"),
        (&[("ca", "ca.crt"), ("cert", "client.crt"), ("key", "broken.key")], "broken.key"),
        (&[("ca", "ca.crt"), ("cert", "client.crt"), ("key", "server.key")], "server.key"),
    ] {
        let error = refused(&at(1, &certificates, options)).await;
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

async fn a_server_that_speaks_otherwise_is_refused(ground: Ground) {
    let certificates = Certificates::make();
    let server = TlsRedis::start(&certificates, "server", false);
    let error = refused(&at(ground.server().port(), &certificates, &[("ca", "ca.crt")])).await;
    assert!(error.to_string().contains("TLS"), "{error}");
    let error = refused(&format!("redis://127.0.0.1:{}", server.port())).await;
    assert!(error.to_string().contains("rediss:"), "{error}");
}
