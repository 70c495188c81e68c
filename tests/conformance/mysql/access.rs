//! Who may do what, and what is said to those who may not.

use leasehold::Error;

use super::*;
use crate::bench::{ms, until_within};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "access",
        [
            a_wrong_password_is_named_and_not_shown,
            a_missing_database_is_named,
            a_server_that_is_not_there_is_named,
            another_kind_of_server_is_named,
            a_user_without_rights_is_told_which,
            a_user_that_may_not_make_tables_is_told_how,
            the_documented_grants_are_enough,
            a_read_only_server_is_refused,
            a_socket_works,
            wrong_options_are_refused,
        ]
    )
    .cases
}

async fn a_wrong_password_is_named_and_not_shown(ground: Ground) {
    let error = refused(&ground.url().replace("secret", "hunter2")).await;
    assert!(error.contains("does not accept the user or the password"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

async fn a_missing_database_is_named(ground: Ground) {
    server_to_hurt(&ground).sql("grant all privileges on nothing.* to leasehold@'%'");
    let (server, _) = ground.url().rsplit_once('/').expect("a database");
    let error = refused(&format!("{server}/nothing")).await;
    assert!(error.contains("no database `nothing`"), "{error}");
}

async fn a_server_that_is_not_there_is_named(_: Ground) {
    let error = leasehold::connect("mysql://leasehold:hunter2@127.0.0.1:1/leasehold").await;
    let error = error.expect_err("nobody is there");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("can not reach `127.0.0.1:1`: connection refused"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

async fn another_kind_of_server_is_named(_: Ground) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::io::AsyncWriteExt::write_all(&mut stream, b"220 mail ready\r\n220 at your service\r\n")
                .await
                .ok();
        }
    });
    let error = refused(&format!("mysql://leasehold:hunter2@127.0.0.1:{port}/leasehold")).await;
    assert!(error.contains(&format!("`127.0.0.1:{port}`")) && !error.contains("hunter2"), "{error}");
}

/// The URL of another user, who is made.
fn as_user(ground: &Ground, user: &str) -> String {
    server_to_hurt(ground).sql(&format!("create user {user}@'%' identified by 'secret'"));
    ground.url().replace("leasehold:secret", &format!("{user}:secret"))
}

async fn a_user_without_rights_is_told_which(mut ground: Ground) {
    drop(ground.client().await);
    let url = as_user(&ground, "app");
    server(&ground).sql("grant select on leasehold.leasehold_format to app@'%'");
    let client = connect(&url).await;
    let error = client.mutex("x").expect("a name").try_lock().await.expect_err("refused");
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    for needed in ["SELECT, INSERT, UPDATE and DELETE", "`leasehold_names`", "`leasehold_cells`"] {
        assert!(error.to_string().contains(needed), "{needed}: {error}");
    }
}

async fn a_user_that_may_not_make_tables_is_told_how(ground: Ground) {
    let url = as_user(&ground, "app");
    server(&ground).sql("grant select, insert, update, delete on leasehold.* to app@'%'");
    let error = refused(&url).await;
    assert!(error.contains("CREATE") && error.contains("leasehold sql mysql"), "{error}");
}

/// Exactly what docs/mysql.md says.
async fn the_documented_grants_are_enough(ground: Ground) {
    let url = as_user(&ground, "app");
    let server = server(&ground);
    server.query(&leasehold::engine::mysql::migration(None).expect("a migration"));
    let docs = include_str!("../../../docs/mysql.md");
    let (_, grants) = docs.split_once("```sql grants\n").expect("the grants");
    let (grants, _) = grants.split_once("```").expect("their end");
    server.query(grants);
    let (one, two) = (connect(&url).await, connect(&url).await);
    let held = lock(&one, "x", ms(1000)).await;
    let waiting = wait(&two).await;
    // Renewed meanwhile.
    tokio::time::sleep(ms(1500)).await;
    held.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");
    let latch = one.latch("l", 1).expect("a name");
    assert_eq!(latch.count_down().await.expect("counted"), 0);
    soon("the latch", two.latch("l", 1).expect("a name").wait()).await.expect("open");
    assert!(one.list(Family::Lock, None, 10).await.expect("a list").is_empty());
    // A guard is checked in a transaction of the same user's.
    let held = lock(&one, "x", ms(60_000)).await;
    let mut database = super::guarding::database_as(&ground, "app").await;
    let verify = held.verify_sql().expect("a database");
    assert!(super::guarding::passes(&mut database, &verify).await);
    assert_eq!(two.break_claims(Family::Lock, "x").await.expect("broken").len(), 1);
    assert!(!super::guarding::passes(&mut database, &verify).await);
    // And the tables are swept.
    lock(&one, "old", ms(60_000)).await.release().await.expect("held");
    let old = "select count(*) from leasehold_names where record is null";
    assert_ne!(server.query(old), "0");
    server.query("update leasehold_names set last = last - 120000000 where record is null");
    until_within(ms(60_000), "old rows are gone", async || {
        for _ in 0..64 {
            lock(&one, "y", ms(60_000)).await.release().await.expect("held");
        }
        server.query(old) == "1"
    })
    .await;
}

async fn a_read_only_server_is_refused(mut ground: Ground) {
    let client = ground.client().await;
    let server = server_to_hurt(&ground);
    server.sql("set global read_only = 1");
    let error = leasehold::connect(ground.url()).await.expect_err("it can not be written");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("name the primary"), "{error}");
    let error = client.mutex("x").expect("a name").try_lock().await.expect_err("it can not be written");
    assert!(error.is_retryable(), "{error}");
    server.sql("set global read_only = 0");
    until("it goes on", async || {
        let guard = client.mutex("x").expect("a name").try_lock().await.ok().flatten();
        guard.is_some()
    })
    .await;
}

async fn a_socket_works(ground: Ground) {
    let socket = server(&ground).dir().parent().expect("a home").join("socket");
    let client = connect(&format!("{}?socket={}", ground.url(), socket.display())).await;
    lock(&client, "x", ms(9000)).await.release().await.expect("held");
    let error = refused("mysql://leasehold@localhost/leasehold?socket=/nowhere").await;
    assert!(error.contains("`/nowhere`"), "{error}");
}

async fn wrong_options_are_refused(ground: Ground) {
    for (option, said) in [
        ("tabel=x", "did you mean `table`"),
        ("connections=0", "connections"),
        ("sslmode=maybe", "sslmode"),
        ("sslcert=/x", "sslmode=require"),
    ] {
        let error = refused(&format!("{}?{option}", ground.url())).await;
        assert!(error.contains(said) && !error.contains("secret"), "{option}: {error}");
    }
}
