//! A server that is spoken to over TLS.

use super::*;
use crate::bench::ms;
use crate::servers::Certificates;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "tls",
        [
            an_encrypted_connection_locks,
            a_server_that_nobody_vouches_for_is_refused,
            a_user_who_needs_a_certificate_gives_one,
            a_server_without_tls_is_refused,
        ]
    )
    .cases
}

async fn an_encrypted_connection_locks(_: Ground) {
    let certificates = Certificates::make();
    let server = MariaDb::start_tls(&certificates, "server");
    server.sql("alter user leasehold@'%' require ssl");
    let root = certificates.path("ca.crt");
    let url = format!("{}?sslmode=require&sslrootcert={}", server.url(), root.display());
    let (one, two) = (connect(&url).await, connect(&url).await);
    let held = lock(&one, "x", ms(9000)).await;
    let waiting = wait(&two).await;
    held.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");
    let error = refused(&server.url()).await;
    assert!(error.contains("does not accept the user"), "{error}");
}

async fn a_server_that_nobody_vouches_for_is_refused(_: Ground) {
    let certificates = Certificates::make();
    let server = MariaDb::start_tls(&certificates, "elsewhere");
    let root = certificates.path("ca.crt");
    let wrong_name = format!("{}?sslmode=require&sslrootcert={}", server.url(), root.display());
    let other_root = certificates.path("other-ca.crt");
    let wrong_root = format!("{}?sslmode=require&sslrootcert={}", server.url(), other_root.display());
    for url in [wrong_name, wrong_root, format!("{}?sslmode=require", server.url())] {
        let error = refused(&url).await;
        assert!(error.contains("can not be trusted"), "{error}");
    }
    let error = refused(&format!("{}?sslmode=require&sslrootcert=/nowhere", server.url())).await;
    assert!(error.contains("`/nowhere`"), "{error}");
}

async fn a_user_who_needs_a_certificate_gives_one(_: Ground) {
    let certificates = Certificates::make();
    let server = MariaDb::start_tls(&certificates, "server");
    server.sql("alter user leasehold@'%' require x509");
    let file = |name: &str| certificates.path(name).display().to_string();
    let url = format!("{}?sslmode=require&sslrootcert={}", server.url(), file("ca.crt"));
    let error = refused(&url).await;
    assert!(error.contains("does not accept the user"), "{error}");
    let client =
        connect(&format!("{url}&sslcert={}&sslkey={}", file("client.crt"), file("client.key"))).await;
    lock(&client, "x", ms(9000)).await.release().await.expect("held");
    let error = refused(&format!("{url}&sslcert={}&sslkey={}", file("client.crt"), file("server.key"))).await;
    assert!(error.contains("is not the key of"), "{error}");
}

async fn a_server_without_tls_is_refused(ground: Ground) {
    let error = refused(&format!("{}?sslmode=require", ground.url())).await;
    assert!(error.contains("does not speak TLS"), "{error}");
}
