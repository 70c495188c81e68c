//! What the server is asked, by its log.

use std::time::Duration;

use leasehold::Family;

use super::*;
use crate::bench::{ms, soon, until};
use crate::round_trips::least_of_ten_cycles;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "statements",
        [
            a_free_name_takes_one_to_take_and_one_to_give_back,
            only_a_release_that_somebody_waits_for_notifies,
            a_client_listens_over_one_session,
        ]
    )
    .cases
}

/// How many statements of clients so far have a word in them. They log all from now on.
fn counter<'a>(server: &'a Postgres, word: &'static str) -> impl Fn() -> u64 + 'a {
    server.sql("alter role leasehold set log_statement = 'all'");
    let before = server.log().len();
    move || {
        let log = server.log().split_off(before);
        // What is written over several lines has tabs before all but the first one.
        let log = log.replace("\n\t", " ");
        let asked = |line: &&str| line.contains("LOG:  execute ") || line.contains("LOG:  statement: ");
        log.lines().filter(asked).filter(|line| line.contains(word)).count() as u64
    }
}

async fn a_free_name_takes_one_to_take_and_one_to_give_back(ground: Ground) {
    let count = counter(server_to_hurt(&ground), "");
    assert_eq!(least_of_ten_cycles(ground.url(), count).await, 20);
}

/// How many times clients have called somebody so far. A client also calls itself, to find out
/// whether it hears.
fn calls(server: &Postgres) -> impl Fn() -> u64 + '_ {
    server.sql("alter role leasehold set log_statement = 'all'");
    let before = server.log().len();
    move || {
        let log = server.log().split_off(before);
        // Newer servers write `Parameters`.
        let calls = log.lines().filter(|line| line.contains("arameters: $1 = '{leasehold_"));
        calls.filter(|line| !line.contains("$2 = '{h")).count() as u64
    }
}

async fn only_a_release_that_somebody_waits_for_notifies(ground: Ground) {
    const TURNS: u64 = 5;
    let count = calls(server_to_hurt(&ground));
    assert_eq!(least_of_ten_cycles(ground.url(), &count).await, 0);
    assert_eq!(count(), 0, "nobody waited");
    let (one, two) = (connect(ground.url()).await, connect(ground.url()).await);
    for _ in 0..TURNS {
        let held = lock(&one, "y", ms(30_000)).await;
        let waiting = tokio::spawn({
            let mutex = two.mutex("y").expect("a name");
            async move { mutex.lock().await.expect("granted") }
        });
        until("it waits", async || one.look(Family::Lock, "y").await.expect("a view").waiting == 1).await;
        held.release().await.expect("held");
        soon("its turn", waiting).await.expect("no panic").release().await.expect("held");
    }
    until("the last one was sent", async || count() >= TURNS).await;
    assert_eq!(count(), TURNS, "one for each release that somebody waited for");
}

async fn a_client_listens_over_one_session(ground: Ground) {
    const NAMES: usize = 20;
    // Whoever renews listens, too: not before the case is over.
    const LEASE: Duration = ms(600_000);
    let url = format!("{}?connections=1", ground.url());
    let (one, two) = (connect(&url).await, connect(&url).await);
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for number in 0..NAMES {
        held.push(lock(&one, &format!("n{number}"), LEASE).await);
        let mutex = two.mutex(format!("n{number}")).expect("a name");
        waiting.push(tokio::spawn(async move { mutex.lock().await.expect("granted") }));
    }
    // It watches, too.
    let latch = two.latch("latch", 1).expect("a name");
    let opened = tokio::spawn(async move { latch.wait().await });
    let all_wait = async |name: &str| one.look(Family::Lock, name).await.expect("a view").waiting == 1;
    for number in 0..NAMES {
        until("it waits", async || all_wait(&format!("n{number}")).await).await;
    }
    let sessions = "select count(*) from pg_stat_activity \
         where application_name = 'leasehold' and datname = 'leasehold'";
    let server = server(&ground);
    until("it listens", async || server.sql(LISTENING) == "1").await;
    // One for requests each, and that.
    assert_eq!(server.sql(sessions), "3");
    one.latch("latch", 1).expect("a name").count_down().await.expect("counted");
    soon("the latch", opened).await.expect("no panic").expect("open");
    for (held, waiting) in held.into_iter().zip(waiting) {
        held.release().await.expect("held");
        soon("its turn", waiting).await.expect("no panic").release().await.expect("held");
    }
}
