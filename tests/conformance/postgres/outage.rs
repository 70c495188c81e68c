//! Sessions that are ended, and servers that die, are slow or have no room.

use std::future::poll_fn;
use std::task::Poll;

use leasehold::{Error, Standing};
use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::bench::{ms, not_within, soon, until};
use crate::servers::Proxy;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "outage",
        [
            ended_sessions_cost_no_claim,
            a_killed_stranger_resets_the_server_and_costs_no_claim,
            a_killed_server_keeps_claims_queue_and_tokens,
            a_grant_is_on_disk_whatever_the_role_says_and_a_release_is_not,
            a_name_that_is_handed_over_is_on_disk_whatever_the_role_says,
            a_connection_that_is_open_on_our_side_only_is_replaced,
            sessions_that_may_not_be_idle_are_made_anew,
            a_statement_that_may_not_take_long_is_an_outage_that_says_so,
            strict_isolation_is_not_ours,
            strict_isolation_behind_a_pooler_is_tried_again,
            nothing_is_prepared_behind_a_pooler_that_ignores_options,
            a_request_that_is_put_aside_holds_up_nobody,
            a_server_without_connections_left_says_so,
            a_server_that_is_full_says_so_and_costs_nothing,
            a_pooler_that_is_full_says_so,
            one_connection_is_enough,
            a_full_disk_is_an_outage_that_says_so,
            a_promoted_standby_keeps_what_it_has_heard,
        ]
    )
    .cases
}

/// Ends all sessions of clients.
const END_SESSIONS: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
     where application_name = 'leasehold'";

async fn ended_sessions_cost_no_claim(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(9000)).await;
    let waiting = tokio::spawn({
        let mutex = two.mutex("x").expect("a name");
        async move { mutex.lock().await.expect("granted") }
    });
    until("it waits", async || one.look(leasehold::Family::Lock, "x").await.expect("a view").waiting == 1)
        .await;
    for _ in 0..3 {
        server(&ground).sql(END_SESSIONS);
        let other = lock(&one, "y", ms(9000)).await;
        other.release().await.expect("held");
    }
    assert_ne!(held.standing(), Standing::Lost);
    held.release().await.expect("held");
    let next = soon("its turn", waiting).await.expect("no panic");
    next.release().await.expect("held");
}

/// The server ends every session when one of its processes is killed: advisory locks would be gone.
async fn a_killed_stranger_resets_the_server_and_costs_no_claim(mut ground: Ground) {
    let client = ground.client().await;
    // A release that the server forgets with the reset costs a lease.
    let held = lock(&client, "x", ms(6000)).await;
    let server = server_to_hurt(&ground);
    let strangers = "select pid from pg_stat_activity where backend_type = 'autovacuum launcher'";
    let pid: i32 = server.sql(strangers).parse().expect("a process");
    kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("killed");
    let mutex = client.mutex("x").expect("a name");
    until("the server is back", async || matches!(mutex.try_lock().await, Ok(None))).await;
    assert_ne!(held.standing(), Standing::Lost);
    held.release().await.expect("held");
    let next = soon("the next", mutex.lock()).await.expect("free");
    next.release().await.expect("held");
}

async fn a_killed_server_keeps_claims_queue_and_tokens(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(20_000)).await;
    let token = held.token();
    let waiting = tokio::spawn({
        let mutex = two.mutex("x").expect("a name");
        async move { mutex.lock().await.expect("granted") }
    });
    not_within(ms(300), "it got in", async { until("never", async || waiting.is_finished()).await }).await;
    let server = server_to_hurt(&ground);
    server.restart();
    until("it is held again", async || held.standing() == Standing::Held).await;
    held.release().await.expect("held");
    let next = soon("its turn", waiting).await.expect("no panic");
    assert!(next.token() > token);
    next.release().await.expect("held");
}

/// A server that keeps for long to itself what nobody waits for, as a role that does not wait.
fn lazy_server() -> Postgres {
    let server = Postgres::start_with(&["wal_writer_delay=10s"]);
    server.sql("alter role leasehold set synchronous_commit = off");
    server
}

/// The token of the claim that a name's row has.
fn stored_token(server: &Postgres, name: &str) -> Option<u64> {
    let query = format!("select at + first_token from leasehold_names where key = 'l{name}'");
    server.query(&query).parse().ok()
}

async fn a_grant_is_on_disk_whatever_the_role_says_and_a_release_is_not(_: Ground) {
    let server = lazy_server();
    let mut lost_releases = 0;
    for round in 0..3 {
        let client = connect(&server.url()).await;
        let released_name = format!("released{round}");
        let released = lock(&client, &released_name, ms(60_000)).await;
        let name = format!("held{round}");
        let held = lock(&client, &name, ms(60_000)).await;
        released.release().await.expect("held");
        server.restart();
        assert_eq!(stored_token(&server, &name), Some(held.token().get()));
        lost_releases += usize::from(stored_token(&server, &released_name).is_some());
        let other = connect(&server.url()).await;
        assert!(other.mutex(&name).expect("a name").try_lock().await.expect("an answer").is_none());
        until("it is held again", async || held.standing() == Standing::Held).await;
        let token = held.token();
        held.release().await.expect("held");
        let next = soon("the next", other.mutex(&name).expect("a name").lock()).await.expect("free");
        assert!(next.token() > token);
    }
    assert!(lost_releases > 0, "the server has lost nothing, so this shows nothing");
}

/// Starts to wait for a name, and returns when its holder sees that.
async fn wait_behind(holder: &Client, waiter: &Client, name: &str) -> tokio::task::JoinHandle<Guard> {
    let mutex = waiter.mutex(name).expect("a name").lease(ms(60_000));
    let waiting = tokio::spawn(async move { mutex.lock().await.expect("granted") });
    until("it waits", async || {
        holder.look(leasehold::Family::Lock, name).await.expect("a view").waiting == 1
    })
    .await;
    waiting
}

/// Whoever gives a name back tells the next one its grant, and has it on disk before, if it listens
/// itself. So both listen here.
async fn a_name_that_is_handed_over_is_on_disk_whatever_the_role_says(_: Ground) {
    let server = lazy_server();
    for round in 0..3 {
        let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
        let first_name = format!("first{round}");
        let first = lock(&two, &first_name, ms(60_000)).await;
        let waiting = wait_behind(&two, &one, &first_name).await;
        first.release().await.expect("held");
        soon("its turn", waiting).await.expect("no panic").release().await.expect("held");
        let name = format!("n{round}");
        let held = lock(&one, &name, ms(60_000)).await;
        let waiting = wait_behind(&one, &two, &name).await;
        until("both listen", async || server.sql(LISTENING) == "2").await;
        held.release().await.expect("held");
        let next = soon("its turn", waiting).await.expect("no panic");
        server.restart();
        assert_eq!(stored_token(&server, &name), Some(next.token().get()));
        until("it is held again", async || next.standing() == Standing::Held).await;
    }
}

async fn a_connection_that_is_open_on_our_side_only_is_replaced(ground: Ground) {
    let server = server(&ground);
    let proxy = Proxy::start(server.port());
    let client = connect(&Postgres::url_at(proxy.port())).await;
    let held = lock(&client, "x", ms(20_000)).await;
    // What is open stays open, and nothing comes through any more; new connections do.
    proxy.stall_open();
    let other = tokio::time::timeout(ms(15_000), async {
        loop {
            if let Ok(guard) = client.mutex("y").expect("a name").lock().await {
                return guard;
            }
        }
    });
    other.await.expect("within the time that a probe takes").release().await.expect("held");
    // It is told again if the connection is not replaced yet.
    if let Err(error) = held.release().await {
        assert!(error.is_retryable(), "{error}");
    }
    let direct = connect(&server.url()).await;
    let next = soon("the name is free", direct.mutex("x").expect("a name").lock()).await.expect("free");
    next.release().await.expect("held");
}

async fn sessions_that_may_not_be_idle_are_made_anew(_: Ground) {
    let server = Postgres::start_with(&["idle_session_timeout=150ms"]);
    let client = connect(&server.url()).await;
    for _ in 0..4 {
        let held = lock(&client, "x", ms(9000)).await;
        tokio::time::sleep(ms(250)).await;
        assert_ne!(held.standing(), Standing::Lost);
        held.release().await.expect("held");
    }
}

async fn a_statement_that_may_not_take_long_is_an_outage_that_says_so(mut ground: Ground) {
    let client = ground.client().await;
    let held = lock(&client, "x", ms(9000)).await;
    let server = server(&ground);
    server.query("create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(1); return new; end'");
    server.query("create trigger slow before update on leasehold_names for each row execute function slow()");
    server.query("alter role leasehold set statement_timeout = '100ms'");
    server.sql(END_SESSIONS);
    let error = loop {
        match client.break_claims(leasehold::Family::Lock, "x").await {
            Err(error) if error.to_string().contains("statement_timeout") => break error,
            // Its session was ended.
            Err(error) => assert!(error.is_retryable(), "{error}"),
            Ok(_) => panic!("it takes a second"),
        }
    };
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    server.query("drop trigger slow on leasehold_names");
    server.query("alter role leasehold reset statement_timeout");
    soon("the release", held.release()).await.expect("held");
}

/// Many tasks on one name, each with a client of its own: what a stricter isolation would refuse.
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
        // Behind a pooler they poll.
        let taken = tokio::time::timeout(ms(60_000), task).await.expect("the turns took too long");
        tokens.extend(taken.expect("no panic"));
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 4 * TURNS);
}

async fn strict_isolation_is_not_ours(ground: Ground) {
    let server = server(&ground);
    server.sql("alter database leasehold set default_transaction_isolation = 'serializable'");
    let before = server.log().len();
    contend(&server.url()).await;
    let log = server.log().split_off(before);
    assert!(!log.contains("could not serialize"), "{log}");
}

async fn strict_isolation_behind_a_pooler_is_tried_again(ground: Ground) {
    let server = server(&ground);
    server.sql("alter database leasehold set default_transaction_isolation = 'serializable'");
    let pooler = crate::servers::PgBouncer::start(server);
    contend(&pooler.url()).await;
}

async fn nothing_is_prepared_behind_a_pooler_that_ignores_options(ground: Ground) {
    let settings = ["ignore_startup_parameters=options,extra_float_digits"];
    let pooler = crate::servers::PgBouncer::start_with(server(&ground), &settings);
    // Cases before this one have written to it, too.
    let before = server(&ground).log().len();
    contend(&pooler.url()).await;
    let log = server(&ground).log().split_off(before);
    assert!(!log.contains("prepared statement"), "{log}");
}

/// A statement is prepared at its second use. Others that use it meanwhile do not wait for that.
async fn a_request_that_is_put_aside_holds_up_nobody(mut ground: Ground) {
    let engine = ground.engine().await;
    let names = [leasehold::Name::new(leasehold::Family::Cell, "x").expect("a name")];
    engine.read(&names).await.expect("an answer");
    let mut aside = engine.read(&names);
    // Sent, and not looked at again.
    poll_fn(|context| Poll::Ready(aside.as_mut().poll(context).is_pending())).await;
    for _ in 0..3 {
        soon("another one", engine.read(&names)).await.expect("an answer");
    }
    drop(aside);
}

async fn a_server_without_connections_left_says_so(ground: Ground) {
    let server = server_to_hurt(&ground);
    server.sql("alter role leasehold connection limit 1");
    let one = connect(&format!("{}?listen=off&connections=1", server.url())).await;
    let error = leasehold::connect(&server.url()).await.expect_err("there is none left");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("max_connections") && error.contains("too many connections"), "{error}");
    lock(&one, "x", ms(9000)).await.release().await.expect("held");
}

/// Sessions of others, up to the one that is refused.
async fn fill(port: u16) -> Vec<tokio_postgres::Client> {
    let address = format!("host=127.0.0.1 port={port} user=leasehold password=secret dbname=leasehold");
    let mut sessions = Vec::new();
    while let Ok((session, connection)) = tokio_postgres::connect(&address, tokio_postgres::NoTls).await {
        tokio::spawn(connection);
        sessions.push(session);
        assert!(sessions.len() < 100, "there is always room");
    }
    sessions
}

async fn a_server_that_is_full_says_so_and_costs_nothing(_: Ground) {
    // Three of them are kept for superusers.
    let server = Postgres::start_with(&["max_connections=10"]);
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = lock(&one, "x", ms(1500)).await;
    let strangers = fill(server.port()).await;
    let error = leasehold::connect(&server.url()).await.expect_err("there is none left");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("has no connection left"), "{error}");
    // With the session that each of them has: the others are refused, and so is one to listen.
    let waiting = tokio::spawn({
        let mutex = two.mutex("x").expect("a name");
        async move { mutex.lock().await.expect("granted") }
    });
    for number in 0..20 {
        lock(&one, &format!("n{number}"), ms(9000)).await.release().await.expect("held");
    }
    not_within(ms(2000), "the lease was lost", held.lost()).await;
    assert!(!waiting.is_finished());
    held.release().await.expect("held");
    soon("its turn", waiting).await.expect("no panic").release().await.expect("held");
    drop(strangers);
    until("there is room", async || leasehold::connect(&server.url()).await.is_ok()).await;
}

async fn a_pooler_that_is_full_says_so(ground: Ground) {
    let pooler = crate::servers::PgBouncer::start_with(server(&ground), &["max_client_conn=3"]);
    let strangers = fill(pooler.port()).await;
    let error = leasehold::connect(&pooler.url()).await.expect_err("there is none left");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("max_client_conn"), "{error}");
    drop(strangers);
    until("there is room", async || leasehold::connect(&pooler.url()).await.is_ok()).await;
}

async fn one_connection_is_enough(ground: Ground) {
    let server = server_to_hurt(&ground);
    server.sql("alter role leasehold connection limit 1");
    let client = connect(&server.url()).await;
    for number in 0..20 {
        lock(&client, &format!("n{number}"), ms(9000)).await.release().await.expect("held");
    }
}

/// The URL of several servers.
fn url_of(servers: [&Postgres; 2]) -> String {
    let hosts = servers.map(|server| format!("127.0.0.1:{}", server.port())).join(",");
    servers[0].url().replace(&format!("127.0.0.1:{}", servers[0].port()), &hosts)
}

async fn a_promoted_standby_keeps_what_it_has_heard(ground: Ground) {
    let server = server_to_hurt(&ground);
    drop(connect(ground.url()).await);
    let standby = server.start_standby(server.port());
    let url = url_of([server, &standby]);
    let (one, two) = (connect(&url).await, connect(&url).await);
    let held = lock(&one, "x", ms(30_000)).await;
    let token = held.token();
    until("the standby has heard", async || {
        standby.query("select count(*) from leasehold_names where record is not null") == "1"
    })
    .await;
    server.kill();
    standby.promote();
    let theirs = two.mutex("x").expect("a name");
    until("the standby is used", async || matches!(theirs.try_lock().await, Ok(None))).await;
    assert!(held.is_held());
    soon("the release", held.release()).await.expect("held");
    let next = soon("the next", theirs.lock()).await.expect("free");
    assert!(next.token() > token, "tokens rise over a promotion");
    next.release().await.expect("held");
}

async fn a_full_disk_is_an_outage_that_says_so(_: Ground) {
    let (server, disk) = Postgres::start_on_disk();
    let client = connect(&server.url()).await;
    let held = lock(&client, "x", ms(60_000)).await;
    disk.fill();
    let mut others = Vec::new();
    let error = loop {
        assert!(others.len() < 3000, "there is always room");
        let name = format!("{:0>400}", others.len());
        match soon("an answer", client.mutex(name).expect("a name").try_lock()).await {
            Ok(other) => others.push(other.expect("free")),
            Err(error) => break error,
        }
    };
    assert!(error.is_retryable() && error.to_string().contains("no room left"), "{error}");
    disk.mend();
    drop(others);
    let next = soon("a lock", client.mutex("y").expect("a name").lock()).await.expect("granted");
    next.release().await.expect("held");
    soon("the release", held.release()).await.expect("held");
}
