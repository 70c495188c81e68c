//! Mutexes.

use std::fs;
use std::path::Path;
use std::time::Instant;

use leasehold::{Client, Error, Family, Loss};
use tempfile::TempDir;

use super::{
    Case, NAME, assert_empty, client, client_at, etcd_cases, etcdctl, go, interrupt, ms, until_waiting,
};
use crate::fleet::{Worked, worked};
use crate::servers::{Etcd, Proxy};

pub(super) fn all() -> Vec<(&'static str, Case)> {
    etcd_cases!([
        gos_release_lets_us_in,
        our_release_lets_go_in,
        a_go_client_that_dies_lets_us_in,
        one_of_ours_that_is_cut_off_lets_go_in,
        etcdctl_and_we_take_turns,
        a_lock_that_was_taken_away_is_lost,
        a_mixed_fleet_counts_right,
    ])
}

async fn gos_release_lets_us_in(etcd: Etcd) {
    let (one, two) = (client(&etcd).await, client(&etcd).await);
    let mut stranger = go(&etcd, "mutex", 10).await;
    assert_eq!(stranger.ask("take").await, "held");
    let mutex = one.mutex(NAME).expect("a name");
    assert!(mutex.try_lock().await.expect("an answer").is_none());
    let first = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&one, Family::Lock, 1).await;
    let mutex = two.mutex(NAME).expect("a name");
    let second = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&one, Family::Lock, 2).await;
    assert!(!first.is_finished() && !second.is_finished(), "two hold the name");
    assert_eq!(stranger.ask("release").await, "released");
    let guard = first.await.expect("no panic").expect("held");
    assert!(!second.is_finished(), "who came second is let in second");
    let before = guard.token();
    guard.release().await.expect("released");
    let guard = second.await.expect("no panic").expect("held");
    assert!(guard.token() > before);
    guard.release().await.expect("released");
    assert_empty(&etcd);
}

async fn our_release_lets_go_in(etcd: Etcd) {
    let ours = client(&etcd).await;
    let mut stranger = go(&etcd, "mutex", 10).await;
    let guard = ours.mutex(NAME).expect("a name").lease(ms(6000)).lock().await.expect("held");
    assert_eq!(stranger.ask("try").await, "busy");
    stranger.tell("take");
    until_waiting(&ours, Family::Lock, 1).await;
    // Longer than a renewal.
    tokio::time::sleep(ms(2500)).await;
    assert!(stranger.is_silent() && guard.is_held(), "two hold the name");
    guard.release().await.expect("released");
    assert_eq!(stranger.answer().await, "held");
    assert_eq!(stranger.ask("release").await, "released");
    assert_empty(&etcd);
}

async fn a_go_client_that_dies_lets_us_in(etcd: Etcd) {
    let ours = client(&etcd).await;
    let mut stranger = go(&etcd, "mutex", 3).await;
    assert_eq!(stranger.ask("take").await, "held");
    let mutex = ours.mutex(NAME).expect("a name");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&ours, Family::Lock, 1).await;
    let died = Instant::now();
    drop(stranger);
    let guard = waiting.await.expect("no panic").expect("held");
    assert!(died.elapsed() > ms(1500), "let in {:?} after its last word", died.elapsed());
    guard.release().await.expect("released");
}

async fn one_of_ours_that_is_cut_off_lets_go_in(etcd: Etcd) {
    let proxy = Proxy::start(etcd.port());
    let ours = client_at(proxy.port()).await;
    let mut stranger = go(&etcd, "mutex", 10).await;
    let guard = ours.mutex(NAME).expect("a name").lease(ms(5000)).lock().await.expect("held");
    stranger.tell("take");
    until_waiting(&ours, Family::Lock, 1).await;
    proxy.cut();
    assert_eq!(guard.lost().await, Loss::Deadline);
    // It knew before anybody else could hold the name.
    assert!(stranger.is_silent(), "two held the name");
    assert_eq!(stranger.answer().await, "held");
}

async fn etcdctl_and_we_take_turns(etcd: Etcd) {
    let ours = client(&etcd).await;
    let mut held = etcdctl(&etcd, &["lock", NAME]);
    // It prints its key once it holds.
    assert!(held.answer().await.starts_with(NAME));
    let mutex = ours.mutex(NAME).expect("a name");
    assert!(mutex.try_lock().await.expect("an answer").is_none());
    let waiting = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&ours, Family::Lock, 1).await;
    interrupt(&held);
    let guard = waiting.await.expect("no panic").expect("held");
    let mut next = etcdctl(&etcd, &["lock", NAME]);
    until_waiting(&ours, Family::Lock, 1).await;
    assert!(next.is_silent() && guard.is_held(), "two hold the name");
    guard.release().await.expect("released");
    assert!(next.answer().await.starts_with(NAME));
}

async fn a_lock_that_was_taken_away_is_lost(etcd: Etcd) {
    let ours = client(&etcd).await;
    let mut stranger = go(&etcd, "mutex", 10).await;
    let guard = ours.mutex(NAME).expect("a name").lease(ms(5000)).lock().await.expect("held");
    etcd.ctl(&["del", "--prefix", NAME]);
    assert_eq!(stranger.ask("take").await, "held");
    assert_eq!(guard.lost().await, Loss::Gone);
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    // A late word of ours has not touched its key.
    assert!(ours.mutex(NAME).expect("a name").try_lock().await.expect("an answer").is_none());
    // And one that an operator takes away from it is ours.
    assert_eq!(ours.break_claims(Family::Lock, NAME).await.expect("broken").len(), 1);
    let guard = ours.mutex(NAME).expect("a name").try_lock().await.expect("an answer").expect("free");
    guard.release().await.expect("released");
}

/// A read, a pause and a write: without a lock some are lost.
async fn add_one(client: &Client, file: &Path, count: usize) -> Worked {
    let mut done = Worked::default();
    let mut last = 0;
    for _ in 0..count {
        let asked = Instant::now();
        let guard = client.mutex(NAME).expect("a name").lock().await.expect("held");
        done.longest = done.longest.max(asked.elapsed());
        let text = fs::read_to_string(file).expect("a file");
        let number: u64 = text.trim().parse().expect("a number");
        tokio::time::sleep(ms(2)).await;
        fs::write(file, format!("{}\n", number + 1)).expect("a file");
        assert!(guard.token().get() > last, "tokens rise");
        last = guard.token().get();
        guard.release().await.expect("held");
        done.sections += 1;
    }
    done
}

/// Four of ours, two processes with Go's package, and `etcdctl` again and again.
async fn a_mixed_fleet_counts_right(etcd: Etcd) {
    const EACH: usize = 25;
    const COMMANDS: usize = 8;
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("count");
    fs::write(&file, "0\n").expect("a file");
    let mut strangers = Vec::new();
    for _ in 0..2 {
        let mut stranger = go(&etcd, "mutex", 20).await;
        stranger.tell(&format!("work 3000 {}", file.display()));
        strangers.push(stranger);
    }
    let mut ours = Vec::new();
    for _ in 0..4 {
        let (client, file) = (client(&etcd).await, file.clone());
        ours.push(tokio::spawn(async move { add_one(&client, &file, EACH).await }));
    }
    let script = format!("read n <'{0}'; sleep 0.002; echo $((n + 1)) >'{0}'; echo done", file.display());
    let mut commands: Vec<_> =
        (0..COMMANDS).map(|_| etcdctl(&etcd, &["lock", NAME, "--", "sh", "-c", &script])).collect();
    let mut counted = 0;
    for task in ours {
        let done = task.await.expect("no panic");
        println!("ours: {} sections, longest wait {:?}", done.sections, done.longest);
        counted += done.sections;
    }
    for stranger in &mut strangers {
        let done = worked(&stranger.answer().await);
        println!("Go: {} sections, longest wait {:?}", done.sections, done.longest);
        assert!(done.sections > 0, "one was starved");
        counted += done.sections;
    }
    for command in &mut commands {
        assert_eq!(command.answer().await, "done");
        counted += 1;
    }
    println!("etcdctl: {COMMANDS} sections");
    let found: u64 = fs::read_to_string(&file).expect("a file").trim().parse().expect("a number");
    assert_eq!(found, counted, "two were in at once");
}
