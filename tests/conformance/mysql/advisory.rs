//! Locks of sessions, shared with programs that know nothing of leasehold.

use std::sync::Arc;

use leasehold::{Error, Family, Loss};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};

use super::*;
use crate::bench::{ms, refuses};
use crate::engines::mysql::advisory;
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
            a_session_of_another_user_is_not_overlooked,
            a_stranger_waits_in_the_same_queue,
            a_session_that_ends_is_a_guard_that_is_lost,
            a_waiter_that_gives_up_leaves_no_session_behind,
            a_process_that_dies_frees_its_names_at_once,
            what_is_not_promised_is_refused,
        ]
    )
}

fn server(ground: &Ground) -> &MariaDb {
    &ground.bench_of::<Under<MariaDb>>().store
}

/// A program of somebody else.
async fn stranger(ground: &Ground) -> Conn {
    session_of(ground, "leasehold").await
}

async fn session_of(ground: &Ground, user: &str) -> Conn {
    let options = OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(server(ground).port())
        .user(Some(user))
        .pass(Some("secret"))
        .db_name(Some("leasehold"));
    Conn::new(options).await.expect("the server")
}

async fn says(database: &mut Conn, statement: &str) -> bool {
    let said: Option<Option<i64>> = database.query_first(statement).await.expect("an answer");
    said.flatten() == Some(1)
}

async fn a_stranger_and_a_guard_exclude_each_other(mut ground: Ground) {
    let (client, mut stranger) = (ground.client().await, stranger(&ground).await);
    for name in ["jobs", "stock/42", "it's \"é\""] {
        let quoted = format!("'{}'", name.replace('\'', "''"));
        let mutex = client.mutex(name).expect("a name");
        let held = mutex.lock().await.expect("free");
        assert!(!says(&mut stranger, &format!("select get_lock({quoted}, 0)")).await, "{name}");
        held.release().await.expect("held");
        assert!(says(&mut stranger, &format!("select get_lock({quoted}, 0)")).await, "{name}");
        assert!(mutex.try_lock().await.expect("an answer").is_none(), "{name}");
        let view = client.look(Family::Lock, name).await.expect("a view");
        assert_eq!(view.claims.len(), 1, "{name}: {view:?}");
        assert!(says(&mut stranger, &format!("select release_lock({quoted})")).await, "{name}");
        mutex.try_lock().await.expect("an answer").expect("free").release().await.expect("held");
    }
}

/// The server does not show it to a user without the right `PROCESS`.
async fn a_session_of_another_user_is_not_overlooked(mut ground: Ground) {
    let client = ground.client().await;
    server(&ground).sql(
        "create user if not exists other@'%' identified by 'secret'; grant select on leasehold.* to other@'%'",
    );
    let mut other = session_of(&ground, "other").await;
    assert!(says(&mut other, "select get_lock('x', 0)").await);
    let view = client.look(Family::Lock, "x").await.expect("a view");
    assert_eq!(view.claims.len(), 1, "{view:?}");
    assert_eq!(view.claims[0].claim.holder.label, "a session of another user");
    assert_eq!(view.claims[0].claim.holder.pid, other.id());
    assert!(says(&mut other, "select release_lock('x')").await);
    assert!(client.look(Family::Lock, "x").await.expect("a view").claims.is_empty());
}

async fn a_stranger_waits_in_the_same_queue(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let mut first = stranger(&ground).await;
    assert!(says(&mut first, "select get_lock('x', 0)").await);
    let ours = wait(&two).await;
    assert!(says(&mut first, "select release_lock('x')").await);
    let held = soon("our turn", ours).await.expect("no panic");
    let theirs = tokio::spawn(async move { says(&mut first, "select get_lock('x', 60)").await });
    until("it waits", async || {
        let waiting = "select count(*) from information_schema.processlist where state = 'User lock'";
        server(&ground).sql(waiting) == "1"
    })
    .await;
    held.release().await.expect("held");
    assert!(soon("their turn", theirs).await.expect("no panic"));
    until("it is theirs no more", async || {
        one.look(Family::Lock, "x").await.expect("a view").claims.is_empty()
    })
    .await;
}

async fn a_session_that_ends_is_a_guard_that_is_lost(mut ground: Ground) {
    let client = ground.client().await;
    let (held, other) = (lock(&client, "x", ms(60_000)).await, lock(&client, "y", ms(60_000)).await);
    let id = server(&ground).sql("select is_used_lock('x')");
    server(&ground).sql(&format!("kill {id}"));
    assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
    let error = held.release().await.expect_err("lost");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    other.release().await.expect("a session of its own");
}

async fn a_waiter_that_gives_up_leaves_no_session_behind(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(60_000)).await;
    let mutex = two.mutex("x").expect("a name");
    assert!(mutex.lock_for(ms(300)).await.expect("an answer").is_none());
    until("its session has gone", async || one.look(Family::Lock, "x").await.expect("a view").waiting == 0)
        .await;
    wait(&two).await.abort();
    held.release().await.expect("held");
    until("it is free", async || one.look(Family::Lock, "x").await.expect("a view").claims.is_empty()).await;
    lock(&one, "x", ms(9000)).await.release().await.expect("held");
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
    refuses(client.rwlock("x"));
    refuses(client.election("x"));
    refuses_the_kit(&client);
    refuses(client.list(Family::Lock, None, 10).await);
    let delayed = client.mutex("x").expect("a name").lock_delay(ms(1000));
    refuses(delayed.lock().await);
    let held = lock(&client, "x", ms(9000)).await;
    refuses(held.verify_sql());
    held.release().await.expect("held");
}
