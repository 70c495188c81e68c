//! Who is let in, and what is said to those who are not.

use std::time::Instant;

use leasehold::Error;

use super::*;
use crate::bench::ms;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "access",
        [
            a_user_is_let_in_and_a_wrong_password_is_not,
            a_user_without_rights_is_told_what_it_needs,
            a_server_without_users_says_so,
            a_port_where_nobody_listens_is_named,
            a_port_that_is_not_for_clients_is_named,
        ]
    )
    .cases
}

/// A server that wants users: `root`, and `app` that may use the keys under `shop/`.
fn guarded() -> Etcd {
    let server = Etcd::start();
    server.ctl(&["user", "add", "root:masterkey"]);
    server.ctl(&["user", "grant-role", "root", "root"]);
    server.ctl(&["user", "add", "app:hunter2"]);
    server.ctl(&["role", "add", "shop"]);
    server.ctl(&["role", "grant-permission", "shop", "--prefix=true", "readwrite", "shop/"]);
    server.ctl(&["user", "grant-role", "app", "shop"]);
    server.ctl(&["auth", "enable"]);
    server
}

async fn a_user_is_let_in_and_a_wrong_password_is_not(_: Ground) {
    let server = guarded();
    let port = server.port();
    let url = format!("etcd://app:hunter2@127.0.0.1:{port}/shop");
    let (one, two) = (connect(&url).await, connect(&url).await);
    let held = lock(&one, "x", ms(3000)).await;
    let waiting = wait(&two, "x", ms(3000)).await;
    held.release().await.expect("held");
    waiting.await.expect("no panic").expect("granted").release().await.expect("held");
    let said = refused(&format!("etcd://app:hunter3@127.0.0.1:{port}/shop")).await;
    assert!(said.contains("password") && !said.contains("hunter3"), "{said}");
    let said = refused(&format!("etcd://127.0.0.1:{port}/shop")).await;
    assert!(said.contains("user") && said.contains("USER:PASSWORD"), "{said}");
}

async fn a_user_without_rights_is_told_what_it_needs(_: Ground) {
    let server = guarded();
    let said = refused(&format!("etcd://app:hunter2@127.0.0.1:{}/elsewhere", server.port())).await;
    assert!(said.contains("readwrite") && said.contains("prefix"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

async fn a_server_without_users_says_so(ground: Ground) {
    let port = server(&ground).port();
    let said = refused(&format!("etcd://app:hunter2@127.0.0.1:{port}")).await;
    assert!(said.contains("authentication is not enabled") && !said.contains("hunter2"), "{said}");
}

async fn a_port_where_nobody_listens_is_named(_: Ground) {
    let server = Etcd::start();
    let port = server.port();
    server.kill();
    let started = Instant::now();
    let said = refused(&format!("etcd://127.0.0.1:{port}")).await;
    assert!(said.contains(&format!("`127.0.0.1:{port}`")) && said.contains("refused"), "{said}");
    assert!(started.elapsed() < ms(4000), "said after {:?}", started.elapsed());
}

async fn a_port_that_is_not_for_clients_is_named(ground: Ground) {
    if server(&ground).serves_clients_everywhere() {
        return;
    }
    // The port at which members talk to each other.
    let port = server(&ground).peer_port();
    let error = leasehold::connect(&format!("etcd://127.0.0.1:{port}")).await.expect_err("no clients there");
    let said = error.to_string();
    assert!(said.contains(&format!("`127.0.0.1:{port}`")), "{said}");
    assert!(matches!(error, Error::Engine { .. } | Error::Unavailable { .. }), "{error:?}");
}
