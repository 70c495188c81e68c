//! Who may do what, and what is said to those who may not.

use leasehold::Error;

use super::*;
use crate::bench::{ms, soon, until_within};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "access",
        [
            a_wrong_password_is_named_and_not_shown,
            a_missing_database_is_named,
            a_server_that_is_not_there_is_named,
            a_role_without_rights_is_told_which,
            a_role_that_may_not_make_tables_is_told_how,
            the_documented_grants_are_enough,
            a_standby_is_refused,
            a_socket_works,
            wrong_options_are_refused,
        ]
    )
    .cases
}

async fn a_wrong_password_is_named_and_not_shown(ground: Ground) {
    let error = refused(&ground.url().replace("secret", "hunter2")).await;
    assert!(error.contains("password") && error.contains("`leasehold`"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

async fn a_missing_database_is_named(ground: Ground) {
    let url = ground.url().strip_suffix("leasehold").expect("the database is last").to_owned();
    let error = refused(&format!("{url}nothing")).await;
    assert!(error.contains("no database `nothing`"), "{error}");
}

async fn a_server_that_is_not_there_is_named(_: Ground) {
    let error = leasehold::connect("postgres://leasehold:hunter2@127.0.0.1:1/leasehold").await;
    let error = error.expect_err("nobody is there");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("`127.0.0.1:1`") && !error.contains("hunter2"), "{error}");
}

/// The URL of another role.
fn as_role(ground: &Ground, role: &str) -> String {
    ground.url().replace("leasehold:secret", &format!("{role}:secret"))
}

fn create_role(ground: &Ground, role: &str) {
    let server = server_to_hurt(ground);
    server.query(&format!("create role {role} login password 'secret'"));
}

async fn a_role_without_rights_is_told_which(mut ground: Ground) {
    drop(ground.client().await);
    create_role(&ground, "app");
    let error = refused(&as_role(&ground, "app")).await;
    for needed in
        ["`app`", "grant select, insert, update, delete", "\"leasehold_names\"", "\"leasehold_format\""]
    {
        assert!(error.contains(needed), "{needed}: {error}");
    }
}

async fn a_role_that_may_not_make_tables_is_told_how(ground: Ground) {
    create_role(&ground, "app");
    let error = refused(&as_role(&ground, "app")).await;
    assert!(error.contains("`app`") && error.contains("leasehold sql postgres"), "{error}");
}

/// Exactly what docs/postgres.md says.
async fn the_documented_grants_are_enough(ground: Ground) {
    create_role(&ground, "app");
    let server = server(&ground);
    server.query(&leasehold::engine::postgres::migration(None, None).expect("a migration"));
    let docs = include_str!("../../../docs/postgres.md");
    let (_, grants) = docs.split_once("```sql grants\n").expect("the grants");
    let (grants, _) = grants.split_once("```").expect("their end");
    server.query(grants);
    let url = as_role(&ground, "app");
    let (one, two) = (connect(&url).await, connect(&url).await);
    let held = lock(&one, "x", ms(3000)).await;
    let waiting = tokio::spawn({
        let mutex = two.mutex("x").expect("a name");
        async move { mutex.lock().await.expect("granted") }
    });
    // Renewed meanwhile.
    tokio::time::sleep(ms(3500)).await;
    held.release().await.expect("held");
    soon("its turn", waiting).await.expect("no panic").release().await.expect("held");
    let latch = one.latch("l", 1).expect("a name");
    assert_eq!(latch.count_down().await.expect("counted"), 0);
    soon("the latch", two.latch("l", 1).expect("a name").wait()).await.expect("open");
    assert!(one.list(leasehold::Family::Lock, None, 10).await.expect("a list").is_empty());
    // A guard is checked in a transaction of the same user's.
    let held = lock(&one, "x", ms(60_000)).await;
    let mut database = super::guarding::database_as(&ground, "app").await;
    let verify = held.verify_sql().expect("a database");
    assert!(super::guarding::passes(&mut database, &verify).await);
    assert_eq!(two.break_claims(leasehold::Family::Lock, "x").await.expect("broken").len(), 1);
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

async fn a_standby_is_refused(ground: Ground) {
    let server = server_to_hurt(&ground);
    drop(connect(ground.url()).await);
    let standby = server.start_standby(server.port());
    let error = leasehold::connect(&standby.url()).await.expect_err("it can not be written to");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("standby"), "{error}");
    // Of several servers the primary is found.
    let both = format!("127.0.0.1:{},127.0.0.1:{}", standby.port(), server.port());
    let url = server.url().replace(&format!("127.0.0.1:{}", server.port()), &both);
    let client = connect(&url).await;
    lock(&client, "x", ms(9000)).await.release().await.expect("held");
}

async fn a_socket_works(ground: Ground) {
    let server = server(&ground);
    let (directory, port) = (server.dir(), server.port());
    let directory = directory.parent().expect("its home").display().to_string();
    let directory = if std::path::Path::new(&format!("{directory}/.s.PGSQL.{port}")).exists() {
        directory
    } else {
        server.dir().display().to_string()
    };
    let url = format!("postgres:///leasehold?host={directory}&port={port}&user=leasehold&password=secret");
    let client = connect(&url).await;
    lock(&client, "x", ms(9000)).await.release().await.expect("held");
}

async fn wrong_options_are_refused(ground: Ground) {
    for (option, said) in [
        ("shcema=x", "did you mean `schema`"),
        ("connections=0", "connections"),
        ("sslmode=maybe", "sslmode"),
        ("listen=perhaps", "listen"),
        ("sslcert=/x", "sslmode=require"),
    ] {
        let error = refused(&format!("{}?{option}", ground.url())).await;
        assert!(error.contains(said) && !error.contains("secret@"), "{option}: {error}");
    }
}
