//! The tables: made by whoever is first, swept, dropped and deleted from by hand.

use leasehold::{Error, Loss};

use super::*;
use crate::bench::{ms, soon, until};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "tables",
        [
            many_may_make_them_at_once,
            they_can_be_in_a_schema_and_have_another_name,
            they_can_be_made_by_the_migration,
            an_unknown_format_is_refused,
            tables_of_others_are_refused,
            dropped_tables_are_made_anew,
            a_row_that_is_deleted_by_hand_is_a_loss,
            a_row_that_is_changed_by_hand_is_an_error,
            a_row_that_is_changed_by_hand_is_in_nobodys_way,
            what_keeps_all_names_from_being_renewed_is_said,
            a_damaged_row_stops_no_sweep,
            waiters_without_a_name_are_forgotten,
            idle_rows_are_swept_and_tokens_go_on_rising,
            expired_cells_are_swept_and_versions_go_on_rising,
            whoever_writes_cells_sweeps_the_table,
            whoever_only_looks_at_cells_sweeps_nothing,
        ]
    )
    .cases
}

async fn many_may_make_them_at_once(ground: Ground) {
    let url = ground.url().to_owned();
    let all: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn({
                let url = url.clone();
                async move { connect(&url).await }
            })
        })
        .collect();
    for client in all {
        let client = soon("a connection", client).await.expect("no panic");
        lock(&client, "x", ms(9000)).await.release().await.expect("held");
    }
}

async fn they_can_be_in_a_schema_and_have_another_name(mut ground: Ground) {
    let usual = ground.client().await;
    let url = format!("{}?schema=Odd%20%22schema&table=my-locks", ground.url());
    let client = connect(&url).await;
    let held = lock(&client, "x", ms(9000)).await;
    lock(&usual, "x", ms(9000)).await.release().await.expect("another table");
    let count = server(&ground).query(r#"select count(*) from "Odd ""schema"."my-locks_names""#);
    assert_eq!(count, "1");
    held.release().await.expect("held");
}

async fn they_can_be_made_by_the_migration(ground: Ground) {
    let server = server(&ground);
    server.query(&leasehold::engine::postgres::migration(None, None).expect("a migration"));
    // Made by the superuser, and not ours yet.
    let error = refused(ground.url()).await;
    assert!(error.contains("grant select, insert, update, delete"), "{error}");
    for table in ["names", "queue", "cells", "format"] {
        server.query(&format!("alter table leasehold_{table} owner to leasehold"));
    }
    let client = connect(ground.url()).await;
    lock(&client, "x", ms(9000)).await.release().await.expect("held");
}

async fn an_unknown_format_is_refused(mut ground: Ground) {
    drop(ground.client().await);
    server(&ground).query("insert into leasehold_format values (7)");
    let error = refused(ground.url()).await;
    assert!(error.contains("format 7") && error.contains("upgrade"), "{error}");
}

async fn tables_of_others_are_refused(ground: Ground) {
    let server = server(&ground);
    server.query("create table leasehold_names (name text)");
    server.query("alter table leasehold_names owner to leasehold");
    let client = connect(ground.url()).await;
    let error = client.mutex("x").expect("a name").try_lock().await.expect_err("refused");
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    assert!(error.to_string().contains("table=PREFIX"), "{error}");
}

async fn dropped_tables_are_made_anew(mut ground: Ground) {
    let client = ground.client().await;
    let held = lock(&client, "x", ms(6000)).await;
    server(&ground).query("drop table leasehold_names, leasehold_queue, leasehold_cells, leasehold_format");
    assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
    let mutex = client.mutex("x").expect("a name");
    let mut next = None;
    until("it works again", async || {
        next = mutex.try_lock().await.ok().flatten();
        next.is_some()
    })
    .await;
    let next = next.expect("granted");
    assert!(next.token() > held.token());
    next.release().await.expect("held");
}

async fn a_row_that_is_deleted_by_hand_is_a_loss(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(4000)).await;
    let waiting = tokio::spawn({
        let mutex = two.mutex("x").expect("a name");
        async move { mutex.lock().await.expect("granted") }
    });
    until("it waits", async || one.look(leasehold::Family::Lock, "x").await.expect("a view").waiting == 1)
        .await;
    server(&ground).query("delete from leasehold_names");
    assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
    let next = soon("its turn", waiting).await.expect("no panic");
    assert!(next.token() > held.token());
    next.release().await.expect("held");
}

async fn a_row_that_is_changed_by_hand_is_an_error(mut ground: Ground) {
    let client = ground.client().await;
    lock(&client, "x", ms(9000)).await.release().await.expect("held");
    server_to_hurt(&ground).query(
        "alter table leasehold_names alter column last drop not null; update leasehold_names set last = null",
    );
    let error = client.look(leasehold::Family::Lock, "x").await.expect_err("no token is known");
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    assert!(
        error.to_string().contains("leasehold_names") && error.to_string().contains("by hand"),
        "{error}"
    );
    // Others are not concerned.
    lock(&client, "y", ms(9000)).await.release().await.expect("held");
}

async fn a_row_that_is_changed_by_hand_is_in_nobodys_way(ground: Ground) {
    let spoil = |ground: &Ground| {
        let server = server_to_hurt(ground);
        server.query("alter table leasehold_names alter column last drop not null");
        server.query(r"update leasehold_names set last = null where key = '\x6c78'");
    };
    crate::tables::a_row_that_is_changed_by_hand_is_in_nobodys_way(ground, spoil).await;
}

async fn waiters_without_a_name_are_forgotten(mut ground: Ground) {
    let client = ground.client().await;
    drop(client.look(leasehold::Family::Lock, "x").await.expect("a view"));
    server(&ground).query(
        "insert into leasehold_queue select '\\x6c78', n, decode(lpad(to_hex(n), 32, '0'), 'hex'), \
         9e15::bigint, '\\x00' from generate_series(0, 9) n",
    );
    // By the short way, which does not look at the queue.
    let held = lock(&client, "x", ms(9000)).await;
    let other = ground.client().await;
    let waiting = tokio::spawn({
        let mutex = other.mutex("x").expect("a name");
        async move { mutex.lock_for(ms(5000)).await.expect("an answer").is_some() }
    });
    until("it waits or fails", async || {
        waiting.is_finished()
            || client.look(leasehold::Family::Lock, "x").await.is_ok_and(|view| view.waiting == 1)
    })
    .await;
    held.release().await.expect("held");
    assert!(soon("its turn", waiting).await.expect("no panic"));
}

async fn idle_rows_are_swept_and_tokens_go_on_rising(mut ground: Ground) {
    const NAMES: usize = 600;
    let client = ground.client().await;
    let mut last = None;
    for number in 0..NAMES {
        let guard = lock(&client, &format!("n{number:04}"), ms(9000)).await;
        last = Some(guard.token());
        guard.release().await.expect("held");
    }
    let held = lock(&client, "held", ms(90_000)).await;
    let server = server(&ground);
    let count = || server.query("select count(*) from leasehold_names").parse::<usize>().expect("a number");
    assert!(count() > NAMES / 2);
    // As if that had been a while ago.
    server.query("update leasehold_names set last = last - 120000000 where record is null");
    until("the old rows are gone", async || {
        for _ in 0..64 {
            lock(&client, "x", ms(9000)).await.release().await.expect("held");
        }
        count() < 10
    })
    .await;
    let again = lock(&client, &format!("n{:04}", NAMES - 1), ms(9000)).await;
    assert!(Some(again.token()) > last, "tokens rise");
    assert!(held.is_held());
    assert!(
        ground.client().await.mutex("held").expect("a name").try_lock().await.expect("an answer").is_none()
    );
}

async fn expired_cells_are_swept_and_versions_go_on_rising(mut ground: Ground) {
    let client = ground.client().await;
    let latch = |number: u32| client.latch(format!("l{number}"), 2).expect("a name");
    for number in 0..20 {
        latch(number).count_down().await.expect("counted");
    }
    let server = server(&ground);
    let count = || server.query("select count(*) from leasehold_cells").parse::<usize>().expect("a number");
    assert_eq!(count(), 20);
    let version = || -> i64 {
        let version = server.query("select version from leasehold_cells where key = 'cl7'");
        version.parse().expect("a number")
    };
    let before = version();
    // As if that had been a while ago.
    server.query("update leasehold_cells set expires = 1, version = version - 120000000 where key <> 'cl3'");
    until("the old cells are gone", async || {
        for _ in 0..256 {
            lock(&client, "x", ms(9000)).await.release().await.expect("held");
        }
        count() == 1
    })
    .await;
    assert_eq!(latch(3).count_down().await.expect("counted"), 0);
    assert_eq!(latch(7).count_down().await.expect("counted"), 1, "it is a new one");
    assert!(version() > before, "versions rise");
}

/// Makes cells as old as if they had been written a while ago.
const AGE: &str = "update leasehold_cells set expires = 1, version = version - 120000000";

fn age_but_one() -> String {
    format!("{AGE} where key <> 'ckept'")
}

fn query(ground: &Ground, text: &str) -> String {
    server(ground).query(text)
}

async fn whoever_writes_cells_sweeps_the_table(ground: Ground) {
    crate::tables::whoever_writes_cells_sweeps_the_table(ground, query, &age_but_one()).await;
}

async fn whoever_only_looks_at_cells_sweeps_nothing(ground: Ground) {
    crate::tables::whoever_only_looks_at_cells_sweeps_nothing(ground, query, AGE).await;
}

async fn a_damaged_row_stops_no_sweep(ground: Ground) {
    let spoil = "update leasehold_queue set waiter = ''; \
         update leasehold_names set last = last - 120000000";
    crate::tables::a_damaged_row_stops_no_sweep(ground, query, spoil, &age_but_one()).await;
}

async fn what_keeps_all_names_from_being_renewed_is_said(ground: Ground) {
    server_to_hurt(&ground);
    crate::tables::what_keeps_all_names_from_being_renewed_is_said(ground, query).await;
}
