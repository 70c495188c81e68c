//! Sessions that are ended, and servers that die, are slow or have no room.

use std::pin::pin;

use leasehold::claim::{Answer, Ask, OwnerId, Released};
use leasehold::engine::Engine;
use leasehold::{Error, Name, Standing};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};

use super::*;
use crate::bench::{ask, ms, not_within};
use crate::servers::Proxy;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "outage",
        [
            killed_sessions_cost_no_claim,
            killed_statements_are_tried_again_or_said,
            a_killed_server_keeps_claims_queue_and_tokens,
            a_server_that_is_shut_down_keeps_claims,
            a_connection_that_is_open_on_our_side_only_is_replaced,
            sessions_that_may_not_be_idle_are_kept,
            a_statement_that_may_not_take_long_is_an_outage_that_says_so,
            other_settings_of_the_server_are_not_ours,
            a_server_without_connections_left_says_so,
            a_server_that_is_full_says_so_and_costs_nothing,
            one_connection_is_enough,
            a_locked_row_is_waited_for_and_holds_up_no_other_name,
            a_waiter_whose_row_is_locked_is_waited_for,
            a_deadlock_is_tried_again,
            a_full_disk_is_an_outage_that_says_so,
        ]
    )
    .cases
}

/// Kills what clients have on the server.
fn kill_all(server: &MariaDb, what: &str) {
    let ids = server.sql("select id from information_schema.processlist where user = 'leasehold'");
    for id in ids.lines() {
        // It may have ended by itself.
        server.try_sql("", &format!("kill {what} {id}"), ms(5000)).ok();
    }
}

async fn killed_sessions_cost_no_claim(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(9000)).await;
    let waiting = wait(&two).await;
    for round in 0..3 {
        kill_all(server(&ground), "connection");
        // The answer to a request under way may be lost.
        let mutex = one.mutex(format!("y{round}")).expect("a name");
        let mut other = None;
        until("a lock", async || {
            other = mutex.try_lock().await.ok().flatten();
            other.is_some()
        })
        .await;
        other.expect("granted").release().await.expect("held");
    }
    assert_ne!(held.standing(), Standing::Lost);
    held.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");
}

async fn killed_statements_are_tried_again_or_said(mut ground: Ground) {
    let client = ground.client().await;
    let server = server(&ground);
    for _ in 0..5 {
        let mutex = client.mutex("x").expect("a name");
        let work = tokio::spawn(async move {
            for _ in 0..50 {
                match mutex.try_lock().await {
                    Ok(Some(guard)) => drop(guard.release().await),
                    Ok(None) => {}
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
        });
        kill_all(server, "query");
        soon("the work", work).await.expect("no panic");
    }
    let guard = soon("the name", client.mutex("x").expect("a name").lock()).await.expect("nobody holds it");
    guard.release().await.expect("held");
}

async fn a_killed_server_keeps_claims_queue_and_tokens(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(20_000)).await;
    let token = held.token();
    let waiting = wait(&two).await;
    server_to_hurt(&ground).restart();
    until("it is held again", async || held.standing() == Standing::Held).await;
    assert!(!waiting.is_finished());
    held.release().await.expect("held");
    let next = granted(waiting).await;
    assert!(next.token() > token);
    next.release().await.expect("held");
}

async fn a_server_that_is_shut_down_keeps_claims(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(20_000)).await;
    let server = server_to_hurt(&ground);
    server.stop();
    let error = two.mutex("x").expect("a name").lock_for(ms(300)).await;
    assert!(!matches!(error, Ok(Some(_))), "it is held");
    server.restart();
    until("it answers", async || matches!(two.mutex("x").expect("a name").try_lock().await, Ok(None))).await;
    assert_ne!(held.standing(), Standing::Lost);
    held.release().await.expect("held");
}

async fn a_connection_that_is_open_on_our_side_only_is_replaced(ground: Ground) {
    let proxy = Proxy::start(server(&ground).port());
    let client = connect(&format!("{}?connections=1", MariaDb::url_at(proxy.port()))).await;
    let held = lock(&client, "x", ms(20_000)).await;
    // What is open stays open, and nothing comes through any more; new connections do.
    proxy.stall_open();
    let other = tokio::time::timeout(ms(15_000), async {
        loop {
            if let Ok(guard) = client.mutex("x2").expect("a name").lock().await {
                return guard;
            }
        }
    });
    other.await.expect("within the time that a probe takes").release().await.expect("held");
    held.release().await.expect("held");
}

async fn sessions_that_may_not_be_idle_are_kept(_: Ground) {
    let server = MariaDb::start_with(&["--wait-timeout=1", "--interactive-timeout=1"]);
    let client = connect(&server.url()).await;
    lock(&client, "x", ms(9000)).await.release().await.expect("held");
    let connections = || {
        let count = "select count(*) from information_schema.processlist where user = 'leasehold'";
        // The session that asks may not be idle either, and on a slow machine it is.
        (0..20).find_map(|_| server.try_sql("", count, ms(5000)).ok()).expect("an answer")
    };
    let before = connections();
    not_within(ms(2500), "a session ended", until("never", async || connections() < before)).await;
    lock(&client, "x", ms(9000)).await.release().await.expect("held");
}

async fn a_statement_that_may_not_take_long_is_an_outage_that_says_so(mut ground: Ground) {
    let client = ground.client().await;
    let held = lock(&client, "x", ms(20_000)).await;
    let server = server_to_hurt(&ground);
    server.query(
        "create trigger slow before update on leasehold_names for each row set new.last = new.last + sleep(1)",
    );
    server.sql("set global max_statement_time = 0.2");
    kill_all(server, "connection");
    let mut error = None;
    until("it takes too long", async || {
        error = client.break_claims(Family::Lock, "x").await.err();
        error.as_ref().is_some_and(|error| error.to_string().contains("took too long"))
    })
    .await;
    assert!(matches!(error, Some(Error::Unavailable { .. })), "{error:?}");
    server.sql("set global max_statement_time = 0");
    server.query("drop trigger slow");
    kill_all(server, "connection");
    until("it is held again", async || held.standing() == Standing::Held).await;
    held.release().await.expect("held");
}

/// Many clients on one name.
async fn contend(url: &str) {
    const TURNS: usize = 10;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = connect(url).await;
        tasks.push(tokio::spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..TURNS {
                let guard = lock(&client, "x", ms(20_000)).await;
                tokens.push(guard.token());
                guard.release().await.expect("held");
            }
            tokens
        }));
    }
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.extend(soon("the turns", task).await.expect("no panic"));
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 4 * TURNS);
}

async fn other_settings_of_the_server_are_not_ours(_: Ground) {
    let server = MariaDb::start_with(&[
        "--transaction-isolation=SERIALIZABLE",
        "--autocommit=0",
        "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,SIMULTANEOUS_ASSIGNMENT",
        "--default-time-zone=+05:30",
        "--character-set-server=utf16",
        "--default-storage-engine=Aria",
        "--log-bin",
        "--binlog-format=ROW",
    ]);
    contend(&server.url()).await;
    let engines = "select group_concat(distinct engine) from information_schema.tables where table_schema = 'leasehold'";
    assert_eq!(server.sql(engines), "InnoDB");
}

async fn a_server_without_connections_left_says_so(ground: Ground) {
    let server = server_to_hurt(&ground);
    server.sql("alter user leasehold@'%' with max_user_connections 1");
    let one = connect(ground.url()).await;
    let error = leasehold::connect(ground.url()).await.expect_err("there is none left");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("no connection left"), "{error}");
    lock(&one, "x", ms(9000)).await.release().await.expect("held");
}

/// A session of somebody else.
async fn session(server: &MariaDb, user: &str) -> mysql_async::Result<Conn> {
    let options = OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(server.port())
        .user(Some(user))
        .pass((user == "leasehold").then_some("secret"))
        .db_name(Some("leasehold"));
    Conn::new(options).await
}

async fn a_server_that_is_full_says_so_and_costs_nothing(_: Ground) {
    let server = MariaDb::start_with(&["--max-connections=12"]);
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = lock(&one, "x", ms(1500)).await;
    let mut strangers = Vec::new();
    while let Ok(stranger) = session(&server, "leasehold").await {
        strangers.push(stranger);
        assert!(strangers.len() < 100, "there is always room");
    }
    let error = leasehold::connect(&server.url()).await.expect_err("there is none left");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("has no connection left"), "{error}");
    let waiting = wait(&two).await;
    // With the sessions that it has: others are refused.
    for number in 0..20 {
        lock(&one, &format!("n{number}"), ms(9000)).await.release().await.expect("held");
    }
    not_within(ms(2000), "the lease was lost", held.lost()).await;
    assert!(!waiting.is_finished());
    held.release().await.expect("held");
    granted(waiting).await.release().await.expect("held");
    for stranger in strangers {
        stranger.disconnect().await.expect("ended");
    }
    until("there is room", async || leasehold::connect(&server.url()).await.is_ok()).await;
}

async fn one_connection_is_enough(ground: Ground) {
    let server = server_to_hurt(&ground);
    server.sql("alter user leasehold@'%' with max_user_connections 1");
    let client = connect(ground.url()).await;
    let held = lock(&client, "held", ms(900)).await;
    for number in 0..20 {
        lock(&client, &format!("n{number}"), ms(9000)).await.release().await.expect("held");
    }
    not_within(ms(2000), "the lease was lost", held.lost()).await;
    held.release().await.expect("held");
}

async fn a_locked_row_is_waited_for_and_holds_up_no_other_name(mut ground: Ground) {
    let client = ground.client().await;
    lock(&client, "x", ms(9000)).await.release().await.expect("held");
    let others: Vec<Guard> = {
        let mut others = Vec::new();
        for number in 0..10 {
            others.push(lock(&client, &format!("n{number}"), ms(1500)).await);
        }
        others
    };
    let mut stranger = session(server(&ground), "root").await.expect("the server");
    let lock_all =
        "start transaction; select * from leasehold_names where name_key in (0x6c78, 0x6c6e33) for update";
    stranger.query_drop(lock_all).await.expect("locked");
    let mut waiting = tokio::spawn({
        let mutex = client.mutex("x").expect("a name");
        async move { mutex.lock_for(ms(8000)).await }
    });
    not_within(ms(2500), "a locked row was changed", &mut waiting).await;
    for (number, guard) in others.iter().enumerate().filter(|(number, _)| *number != 3) {
        assert_eq!(guard.standing(), Standing::Held, "{number} is renewed beside a row that is locked");
    }
    stranger.query_drop("rollback").await.expect("unlocked");
    // It may have given up shortly before: the outcome was not known in time.
    drop(soon("an answer", waiting).await.expect("no panic"));
    let guard = soon("the name", client.mutex("x").expect("a name").lock()).await.expect("granted");
    guard.release().await.expect("held");
}

/// What a server counts.
async fn status(operator: &mut Conn, what: &str) -> u64 {
    let asked = format!("show global status like '{what}'");
    let row: Option<(String, u64)> = operator.query_first(asked).await.expect("an answer");
    row.expect("MariaDB counts it").1
}

/// A name that owner 1 has and owner 2 waits for.
async fn held_and_waited_for(engine: &dyn Engine) -> (Name, u64, Ask) {
    let name = Name::new(Family::Lock, "x").expect("a name");
    let Answer::Granted(grant) = engine.acquire(&name, &ask(1)).await.expect("an answer") else {
        panic!("not granted");
    };
    let waiter = Ask { wait: true, ..ask(2) };
    let queued = engine.acquire(&name, &waiter).await.expect("an answer");
    assert!(matches!(queued, Answer::Queued(_)), "{queued:?}");
    (name, grant.token, Ask { round: 2, ..waiter })
}

const LOCK_WAITERS: &str = "select * from leasehold_queue where name_key = 0x6c78 for update";

/// A release that hands a name over fails in the middle of its transaction.
async fn a_waiter_whose_row_is_locked_is_waited_for(mut ground: Ground) {
    let engine = ground.engine().await;
    let server = server(&ground);
    let (name, token, waiter) = held_and_waited_for(&*engine).await;
    let mut stranger = session(server, "root").await.expect("the server");
    stranger.query_drop("start transaction").await.expect("begun");
    stranger.query_drop(LOCK_WAITERS).await.expect("locked");
    let mut releasing = pin!(engine.release(&name, OwnerId(1), token));
    // Longer than a statement waits.
    not_within(ms(2000), "the waiter left the queue", &mut releasing).await;
    stranger.query_drop("rollback").await.expect("unlocked");
    assert_eq!(soon("the release", releasing).await.expect("an answer"), Released::Claim);
    assert_eq!(server.sql("select count(*) from information_schema.innodb_trx"), "0", "nothing is open");
    let next = engine.acquire(&name, &waiter).await.expect("an answer");
    assert!(matches!(next, Answer::Granted(next) if next.token > token), "{next:?}");
}

/// A release that hands a name over locks its row and then that of the waiter. Somebody does the
/// same in the other order, and the server ends the smaller of the two transactions: ours.
async fn a_deadlock_is_tried_again(mut ground: Ground) {
    let engine = ground.engine().await;
    let server = server(&ground);
    let (mut stranger, mut operator) = (
        session(server, "root").await.expect("the server"),
        session(server, "root").await.expect("the server"),
    );
    stranger.query_drop("create table large (n int) engine = InnoDB").await.expect("a table");
    // The release waits for a second. Where a machine stalls for longer, the two do not meet.
    for _ in 0..10 {
        let (name, token, waiter) = held_and_waited_for(&*engine).await;
        let before = status(&mut operator, "Innodb_deadlocks").await;
        stranger.query_drop("start transaction").await.expect("begun");
        stranger.query_drop("insert into large select seq from seq_1_to_1000").await.expect("written");
        stranger.query_drop(LOCK_WAITERS).await.expect("locked");
        let releasing = engine.release(&name, OwnerId(1), token);
        let meeting = async {
            let waits = async {
                while status(&mut operator, "Innodb_row_lock_current_waits").await == 0 {
                    tokio::time::sleep(ms(2)).await;
                }
            };
            if tokio::time::timeout(ms(2500), waits).await.is_ok() {
                let lock_name = "select * from leasehold_names where name_key = 0x6c78 for update";
                stranger.query_drop(lock_name).await.expect("the release was ended");
            }
            stranger.query_drop("rollback").await.expect("unlocked");
            status(&mut operator, "Innodb_deadlocks").await
        };
        let (released, after) = tokio::join!(releasing, meeting);
        if after > before {
            assert_eq!(released.expect("tried again"), Released::Claim);
            let next = engine.acquire(&name, &waiter).await.expect("an answer");
            assert!(matches!(next, Answer::Granted(next) if next.token > token), "{next:?}");
            return;
        }
        engine.break_claims(&name).await.expect("an answer");
        engine.release(&name, OwnerId(2), 0).await.expect("an answer");
    }
    panic!("there was no deadlock");
}

async fn a_full_disk_is_an_outage_that_says_so(_: Ground) {
    let (server, disk) = MariaDb::start_on_disk();
    let client = connect(&server.url()).await;
    let held = lock(&client, "x", ms(60_000)).await;
    disk.fill();
    let mut others = Vec::new();
    let error = loop {
        assert!(others.len() < 10_000, "there is always room");
        let name = format!("{:0>400}", others.len());
        match soon("an answer", client.mutex(name).expect("a name").try_lock()).await {
            Ok(other) => others.push(other.expect("free")),
            Err(error) => break error,
        }
    };
    assert!(error.is_retryable() && error.to_string().contains("is its disk full?"), "{error}");
    assert_ne!(held.standing(), Standing::Lost);
    disk.mend();
    drop(others);
    let next = soon("a lock", client.mutex("y").expect("a name").lock()).await.expect("granted");
    next.release().await.expect("held");
    soon("the release", held.release()).await.expect("held");
}
