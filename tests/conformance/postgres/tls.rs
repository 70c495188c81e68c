//! A server that is spoken to over TLS.

use super::*;
use crate::bench::{ms, soon};
use crate::servers::Certificates;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "tls",
        [
            an_encrypted_connection_locks_and_wakes,
            a_server_that_nobody_vouches_for_is_refused,
            a_user_who_needs_a_certificate_gives_one,
        ]
    )
    .cases
}

async fn an_encrypted_connection_locks_and_wakes(_: Ground) {
    let certificates = Certificates::make();
    let server = Postgres::start_tls(&certificates, "server");
    let root = certificates.path("ca.crt");
    let url = format!("{}?sslmode=require&sslrootcert={}", server.url(), root.display());
    let (one, two) = (connect(&url).await, connect(&url).await);
    let held = lock(&one, "x", ms(9000)).await;
    let waiting = tokio::spawn({
        let mutex = two.mutex("x").expect("a name");
        async move { mutex.lock().await.expect("granted") }
    });
    tokio::time::sleep(ms(100)).await;
    held.release().await.expect("held");
    soon("its turn", waiting).await.expect("no panic").release().await.expect("held");
    let encrypted = "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) \
                     where application_name = 'leasehold'";
    assert_eq!(server.sql(encrypted), "t");
}

async fn a_server_that_nobody_vouches_for_is_refused(_: Ground) {
    let certificates = Certificates::make();
    let server = Postgres::start_tls(&certificates, "elsewhere");
    let root = certificates.path("ca.crt");
    let wrong_name = format!("{}?sslmode=require&sslrootcert={}", server.url(), root.display());
    let wrong_root = format!("{}?sslmode=require", server.url());
    for url in [wrong_name, wrong_root] {
        let error = refused(&url).await;
        assert!(error.contains("can not be trusted") || error.contains("no trusted"), "{error}");
    }
    let error = refused(&format!("{}?sslmode=require&sslrootcert=/nowhere", server.url())).await;
    assert!(error.contains("`/nowhere`"), "{error}");
}

async fn a_user_who_needs_a_certificate_gives_one(_: Ground) {
    let certificates = Certificates::make();
    let server = Postgres::start_tls(&certificates, "server");
    server.sql(
        "do $$ begin execute format('copy (select %L union all select %L) to %L', \
         'host all postgres 127.0.0.1/32 trust', \
         'hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca', \
         current_setting('hba_file')); end $$",
    );
    server.sql("select pg_reload_conf()");
    let file = |name: &str| certificates.path(name).display().to_string();
    let url = format!("{}?sslmode=require&sslrootcert={}", server.url(), file("ca.crt"));
    let error = refused(&url).await;
    assert!(error.contains("client certificate") && error.contains("sslcert=FILE"), "{error}");
    let client =
        connect(&format!("{url}&sslcert={}&sslkey={}", file("client.crt"), file("client.key"))).await;
    lock(&client, "x", ms(9000)).await.release().await.expect("held");
    let error = refused(&format!("{url}&sslcert={}&sslkey={}", file("client.crt"), file("server.key"))).await;
    assert!(error.contains("is not the key of"), "{error}");
}
