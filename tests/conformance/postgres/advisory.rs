//! Advisory locks, shared with programs that know nothing of leasehold.

use std::sync::Arc;

use leasehold::{Error, Family, Loss};
use tokio_postgres::{Client as Database, NoTls};

use super::*;
use crate::bench::{ms, refuses, soon, until};
use crate::engines::postgres::advisory;
use crate::servers::PgBouncer;
use crate::setup::Under;
use crate::steps::refuses_the_kit;

/// Cases of this mode, and those of every engine that it can run.
pub(super) fn groups() -> Vec<Group> {
    let setup = Arc::new(advisory());
    // What this mode does not promise: names that can be listed, more names than sessions, tokens.
    const NOT_PROMISED: [&str; 4] = [
        "tells_names_apart",
        "one_of_many_leases_is_lost_alone",
        "many_leases_are_renewed_in_few_calls",
        "a_waiter_survives_when_the_name_is_broken",
    ];
    let promised = |mut group: Group| {
        group.cases.retain(|(name, _)| !NOT_PROMISED.contains(name));
        group
    };
    let mut every = crate::exclusive::groups();
    vec![
        crate::on(&setup, "advisory", cases()),
        crate::on(&setup, "advisory_mutex", promised(every.swap_remove(0))),
        crate::on(&setup, "advisory_lease", promised(crate::lease::group())),
        crate::on(&setup, "advisory_waiting", promised(crate::waiting::group())),
    ]
}

fn cases() -> Group {
    cases!(
        "advisory",
        [
            a_stranger_and_a_guard_exclude_each_other,
            a_stranger_waits_in_the_same_queue,
            readers_share_with_strangers,
            a_session_that_ends_is_a_guard_that_is_lost_at_once,
            a_waiter_that_gives_up_leaves_no_session_behind,
            a_pooler_is_refused,
            a_process_that_dies_frees_its_names_at_once,
            what_is_not_promised_is_refused,
            more_names_than_sessions_are_refused_with_the_option,
        ]
    )
}

fn server(ground: &Ground) -> &Postgres {
    &ground.bench_of::<Under<Postgres>>().store
}

/// A program of somebody else.
async fn stranger(ground: &Ground) -> Database {
    let port = server(ground).port();
    let address = format!("host=127.0.0.1 port={port} user=leasehold password=secret dbname=leasehold");
    let (client, connection) = tokio_postgres::connect(&address, NoTls).await.expect("the server");
    tokio::spawn(connection);
    client
}

async fn says(database: &Database, statement: &str) -> bool {
    database.query_one(statement, &[]).await.expect("an answer").get(0)
}

async fn a_stranger_and_a_guard_exclude_each_other(mut ground: Ground) {
    let (client, stranger) = (ground.client().await, stranger(&ground).await);
    for (name, key) in [("42", "42"), ("-7", "-7"), ("3,-4", "3, -4"), ("stock/42", "-3261840518839529631")] {
        let mutex = client.mutex(name).expect("a name");
        let held = mutex.lock().await.expect("free");
        assert!(!says(&stranger, &format!("select pg_try_advisory_lock({key})")).await, "{name}");
        held.release().await.expect("held");
        assert!(says(&stranger, &format!("select pg_try_advisory_lock({key})")).await, "{name}");
        assert!(mutex.try_lock().await.expect("an answer").is_none(), "{name}");
        let view = client.look(Family::Lock, name).await.expect("a view");
        assert_eq!(view.claims.len(), 1, "{name}: {view:?}");
        assert!(says(&stranger, &format!("select pg_advisory_unlock({key})")).await, "{name}");
        mutex.try_lock().await.expect("an answer").expect("free").release().await.expect("held");
    }
}

async fn a_stranger_waits_in_the_same_queue(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let (first, second) = (stranger(&ground).await, stranger(&ground).await);
    let waiting = async |count: u32| {
        until("it waits", async || one.look(Family::Lock, "5").await.expect("a view").waiting == count).await;
    };
    assert!(says(&first, "select pg_try_advisory_lock(5)").await);
    let ours = tokio::spawn({
        let mutex = two.mutex("5").expect("a name");
        async move { mutex.lock().await.expect("granted") }
    });
    waiting(1).await;
    let theirs = tokio::spawn(async move {
        second.execute("select pg_advisory_lock(5)", &[]).await.expect("granted");
        second
    });
    waiting(2).await;
    assert!(says(&first, "select pg_advisory_unlock(5)").await);
    let held = soon("our turn", ours).await.expect("no panic");
    assert!(!theirs.is_finished());
    held.release().await.expect("held");
    let second = soon("their turn", theirs).await.expect("no panic");
    assert!(says(&second, "select pg_advisory_unlock(5)").await);
}

async fn readers_share_with_strangers(mut ground: Ground) {
    let (client, stranger) = (ground.client().await, stranger(&ground).await);
    let lock = client.rwlock("5").expect("a name");
    let reader = lock.read().await.expect("free");
    assert!(says(&stranger, "select pg_try_advisory_lock_shared(5)").await);
    assert!(!says(&stranger, "select pg_try_advisory_lock(5)").await);
    reader.release().await.expect("held");
    assert!(lock.try_write().await.expect("an answer").is_none());
    assert!(says(&stranger, "select pg_advisory_unlock_shared(5)").await);
    let writer = lock.try_write().await.expect("an answer").expect("free");
    let reader = writer.downgrade().await.expect("a reader");
    assert!(says(&stranger, "select pg_try_advisory_lock_shared(5)").await);
    reader.release().await.expect("held");
}

async fn a_session_that_ends_is_a_guard_that_is_lost_at_once(mut ground: Ground) {
    let client = ground.client().await;
    let (held, other) = (lock(&client, "5", ms(60_000)).await, lock(&client, "6", ms(60_000)).await);
    server(&ground).sql(
        "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and objid = 5 and granted",
    );
    assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
    let error = held.release().await.expect_err("lost");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    other.release().await.expect("a session of its own");
}

async fn a_waiter_that_gives_up_leaves_no_session_behind(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "5", ms(60_000)).await;
    let mutex = two.mutex("5").expect("a name");
    assert!(mutex.lock_for(ms(300)).await.expect("an answer").is_none());
    until("its session has gone", async || one.look(Family::Lock, "5").await.expect("a view").waiting == 0)
        .await;
    let waiting = tokio::spawn(async move { mutex.lock().await.map(drop) });
    until("it waits", async || one.look(Family::Lock, "5").await.expect("a view").waiting == 1).await;
    waiting.abort();
    held.release().await.expect("held");
    // Nobody is left who would get it.
    until("it is free", async || one.look(Family::Lock, "5").await.expect("a view").claims.is_empty()).await;
    lock(&one, "5", ms(9000)).await.release().await.expect("held");
}

async fn a_pooler_is_refused(ground: Ground) {
    for settings in [&[][..], &["ignore_startup_parameters=options,extra_float_digits"]] {
        let pooler = PgBouncer::start_with(server(&ground), settings);
        let said = refused(&pooler.url().replacen("://", "+advisory://", 1)).await;
        assert!(said.contains("there is a pooler"), "{said}");
    }
}

async fn a_process_that_dies_frees_its_names_at_once(mut ground: Ground) {
    let client = ground.client().await;
    let mut child = ground.child().await.expect("other processes share names");
    child.lock("x", ms(600_000)).await;
    let mutex = client.mutex("x").expect("a name");
    assert!(mutex.try_lock().await.expect("an answer").is_none());
    child.kill().await;
    soon("the lock", mutex.lock()).await.expect("granted").release().await.expect("held");
}

async fn what_is_not_promised_is_refused(mut ground: Ground) {
    let client = ground.client().await;
    refuses(client.semaphore("x", 2));
    refuses(client.election("x"));
    refuses_the_kit(&client);
    refuses(client.list(Family::Lock, None, 10).await);
    let delayed = client.mutex("x").expect("a name").lock_delay(ms(1000));
    refuses(delayed.lock().await);
    let held = lock(&client, "x", ms(9000)).await;
    refuses(held.verify_sql());
    held.release().await.expect("held");
    let said = refused(&format!("{}?table=x", ground.url())).await;
    assert!(said.contains("does not know an option of the URL"), "{said}");
}

async fn more_names_than_sessions_are_refused_with_the_option(ground: Ground) {
    let client = connect(&format!("{}?connections=2", ground.url())).await;
    let (one, two) = (lock(&client, "1", ms(9000)).await, lock(&client, "2", ms(9000)).await);
    let error = client.mutex("3").expect("a name").try_lock().await.expect_err("no session left");
    assert!(error.is_retryable() && error.to_string().contains("connections=N"), "{error}");
    one.release().await.expect("held");
    let three = lock(&client, "3", ms(9000)).await;
    two.release().await.expect("held");
    three.release().await.expect("held");
}
