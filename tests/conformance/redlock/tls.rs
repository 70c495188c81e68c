//! Servers that speak in secret.

use super::{connect, lock, quorum_cases, taken};
use crate::Case;
use crate::bench::ms;
use crate::servers::{Certificates, TlsRedis};

pub(super) fn cases(servers: usize) -> Vec<(&'static str, Case)> {
    quorum_cases!(servers, [encrypted_servers_vote])
}

async fn encrypted_servers_vote(servers: usize) {
    let certificates = Certificates::make();
    let all: Vec<TlsRedis> = (0..servers).map(|_| TlsRedis::start(&certificates, "server", false)).collect();
    let hosts: Vec<String> = all.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let ca = certificates.path("ca.crt");
    let url = format!("redlocks://{}/?ca={}", hosts.join(","), ca.display());
    let (one, two) = (connect(&url).await, connect(&url).await);
    let held = lock(&one, "x", ms(9000)).await;
    assert!(taken(&two, "x").await);
    // Those who came by the plain ports see the same.
    let hosts: Vec<String> = all.iter().map(|server| format!("127.0.0.1:{}", server.server.port())).collect();
    let plain = connect(&format!("redlock://{}", hosts.join(","))).await;
    assert!(taken(&plain, "x").await);
    held.release().await.expect("held");
    lock(&plain, "x", ms(9000)).await.release().await.expect("held");
    // Nobody vouches for them without the authority.
    let url = url.replace("ca.crt", "other-ca.crt");
    let error = leasehold::connect(&url).await.expect_err("another authority");
    assert!(error.to_string().contains("certificate"), "{error}");
}
