//! The tables: made by whoever is first, swept, dropped and deleted from by hand.

use leasehold::{Error, Loss};

use super::*;
use crate::bench::ms;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "tables",
        [
            many_may_make_them_at_once,
            they_can_have_another_name,
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
            expired_cells_are_swept,
            whoever_writes_cells_sweeps_the_table,
            whoever_only_looks_at_cells_sweeps_nothing,
        ]
    )
    .cases
}

async fn many_may_make_them_at_once(ground: Ground) {
    let url = ground.url().to_owned();
    let one = || {
        let url = url.clone();
        tokio::spawn(async move { connect(&url).await })
    };
    let all: Vec<_> = (0..8).map(|_| one()).collect();
    for client in all {
        let client = soon("a connection", client).await.expect("no panic");
        lock(&client, "x", ms(9000)).await.release().await.expect("held");
    }
}

async fn they_can_have_another_name(mut ground: Ground) {
    let usual = ground.client().await;
    let client = connect(&format!("{}?table=my_locks", ground.url())).await;
    let held = lock(&client, "x", ms(9000)).await;
    lock(&usual, "x", ms(9000)).await.release().await.expect("another table");
    assert_eq!(server(&ground).query("select count(*) from my_locks_names"), "1");
    held.release().await.expect("held");
}

async fn an_unknown_format_is_refused(mut ground: Ground) {
    drop(ground.client().await);
    server(&ground).query("insert into leasehold_format values (7)");
    let error = refused(ground.url()).await;
    assert!(error.contains("format 7") && error.contains("?table="), "{error}");
}

async fn tables_of_others_are_refused(ground: Ground) {
    server(&ground).query("create table leasehold_names (name text)");
    let client = connect(ground.url()).await;
    let error = client.mutex("x").expect("a name").try_lock().await.expect_err("refused");
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    assert!(error.to_string().contains("?table="), "{error}");
}

async fn dropped_tables_are_made_anew(mut ground: Ground) {
    let client = ground.client().await;
    let held = lock(&client, "x", ms(2000)).await;
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
    let held = lock(&one, "x", ms(1500)).await;
    let waiting = wait(&two).await;
    server(&ground).query("delete from leasehold_names");
    assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
    let next = granted(waiting).await;
    assert!(next.token() > held.token());
    next.release().await.expect("held");
}

async fn a_row_that_is_changed_by_hand_is_an_error(mut ground: Ground) {
    let client = ground.client().await;
    lock(&client, "x", ms(9000)).await.release().await.expect("held");
    let server = server_to_hurt(&ground);
    server.query("alter table leasehold_names modify column last bigint null");
    server.query("update leasehold_names set last = null");
    let error = client.look(leasehold::Family::Lock, "x").await.expect_err("no token is known");
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    assert!(error.to_string().contains("by hand"), "{error}");
    // Others are not concerned.
    lock(&client, "y", ms(9000)).await.release().await.expect("held");
}

async fn a_row_that_is_changed_by_hand_is_in_nobodys_way(ground: Ground) {
    let spoil = |ground: &Ground| {
        let server = server_to_hurt(ground);
        server.query("alter table leasehold_names modify column last bigint null");
        server.query("update leasehold_names set last = null where name_key = 0x6c78");
    };
    crate::tables::a_row_that_is_changed_by_hand_is_in_nobodys_way(ground, spoil).await;
}

async fn waiters_without_a_name_are_forgotten(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    server(&ground).query(
        "insert into leasehold_queue select 0x6c78, seq, unhex(lpad(hex(seq), 32, '0')), 9000000000000000, 0x00 \
         from seq_0_to_9",
    );
    // By the short way, which does not look at the queue.
    let held = lock(&one, "x", ms(9000)).await;
    let mutex = two.mutex("x").expect("a name");
    let waiting = tokio::spawn(async move { mutex.lock_for(ms(5000)).await.expect("an answer").is_some() });
    until("it waits or fails", async || {
        waiting.is_finished() || one.look(Family::Lock, "x").await.is_ok_and(|view| view.waiting == 1)
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
    let other = ground.client().await;
    assert!(other.mutex("held").expect("a name").try_lock().await.expect("an answer").is_none());
}

async fn expired_cells_are_swept(mut ground: Ground) {
    let client = ground.client().await;
    for number in 0..20 {
        let latch = client.latch(format!("l{number}"), 2).expect("a name");
        latch.count_down().await.expect("counted");
    }
    let server = server(&ground);
    let count = || server.query("select count(*) from leasehold_cells").parse::<usize>().expect("a number");
    assert_eq!(count(), 20);
    server.query("update leasehold_cells set expires = 1, version = 1 where name_key <> 0x636c33");
    until("the old cells are gone", async || {
        for _ in 0..256 {
            lock(&client, "x", ms(9000)).await.release().await.expect("held");
        }
        count() == 1
    })
    .await;
    assert_eq!(client.latch("l3", 2).expect("a name").count_down().await.expect("counted"), 0);
}

/// Makes cells as old as if they had been written a while ago.
const AGE: &str = "update leasehold_cells set expires = 1, version = 1";

fn age_but_one() -> String {
    format!("{AGE} where name_key <> 0x636b657074")
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
