//! Who is let in, and what is said to those who are not.

use std::time::Instant;

use leasehold::Error;

use super::*;
use crate::bench::ms;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "access",
        [
            a_user_has_its_nodes_to_itself,
            a_port_where_nobody_listens_is_named,
            a_port_that_is_not_zookeepers_is_named,
            a_server_without_a_majority_says_so,
            a_server_that_wants_sasl_is_named,
        ]
    )
    .cases
}

async fn a_user_has_its_nodes_to_itself(ground: Ground) {
    let port = server(&ground).port();
    let url = format!("zookeeper://app:hunter2@127.0.0.1:{port}/shop");
    let (one, two) = (connect(&url).await, connect(&url).await);
    let held = lock(&one, "x", ms(3000)).await;
    let waiting = wait(&two, "x", ms(3000)).await;
    held.release().await.expect("held");
    waiting.await.expect("no panic").expect("granted").release().await.expect("held");
    for other in ["app:hunter3@", "other:hunter2@", ""] {
        let said = refused(&format!("zookeeper://{other}127.0.0.1:{port}/shop")).await;
        assert!(said.contains("USER:PASSWORD") && !said.contains("hunter"), "{said}");
    }
}

async fn a_port_where_nobody_listens_is_named(_: Ground) {
    let server = ZooKeeper::start();
    let port = server.port();
    server.kill();
    let started = Instant::now();
    let said = refused(&format!("zookeeper://127.0.0.1:{port}")).await;
    assert!(said.contains(&format!("`127.0.0.1:{port}`")) && said.contains("refused"), "{said}");
    assert!(started.elapsed() < ms(4000), "said after {:?}", started.elapsed());
}

async fn a_port_that_is_not_zookeepers_is_named(_: Ground) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            use tokio::io::AsyncWriteExt as _;
            stream.write_all(b"220 mail.example.org ESMTP\r\n").await.ok();
        }
    });
    let error = leasehold::connect(&format!("zookeeper://127.0.0.1:{port}")).await.expect_err("no ZooKeeper");
    assert!(error.to_string().contains(&format!("`127.0.0.1:{port}`")), "{error}");
    assert!(matches!(error, Error::Engine { .. } | Error::Unavailable { .. }), "{error:?}");
}

async fn a_server_without_a_majority_says_so(_: Ground) {
    let ensemble = Ensemble::start(3);
    ensemble.members[1..].iter().for_each(ZooKeeper::kill);
    let port = ensemble.members[0].port();
    until("it notices", async || !ensemble.members[0].serves()).await;
    let said = refused(&format!("zookeeper://127.0.0.1:{port}")).await;
    assert!(said.contains(&format!("`127.0.0.1:{port}`")) && said.contains("majority"), "{said}");
}

async fn a_server_that_wants_sasl_is_named(_: Ground) {
    let server = ZooKeeper::start_with(&[
        "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "sessionRequireClientSASLAuth=true",
    ]);
    let port = server.port();
    let error = leasehold::connect(&format!("zookeeper://127.0.0.1:{port}")).await.expect_err("no SASL");
    let said = error.to_string();
    assert!(said.contains(&format!("`127.0.0.1:{port}`")) && said.contains("no SASL"), "{said}");
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
}
