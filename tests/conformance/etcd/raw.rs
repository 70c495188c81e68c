//! Names that are shared with `etcdctl lock`, which takes them as Go's `concurrency` package does.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;

use leasehold::{Loss, Standing};
use tempfile::TempDir;

use super::*;
use crate::bench::{ms, not_within, refuses, soon};
use crate::engines::etcd::raw;
use crate::steps::refuses_the_kit;

/// Cases of this mode, and those of every engine that it can run.
pub(super) fn groups() -> Vec<Group> {
    let setup = Arc::new(raw());
    // What this mode does not promise: names that can be listed, and cells.
    let promised = |mut group: Group| {
        let other = ["tells_names_apart"];
        group.cases.retain(|(name, _)| !other.contains(name) && !name.starts_with("a_latch"));
        group
    };
    let mut every = crate::exclusive::groups();
    vec![
        crate::on(&setup, "raw", cases()),
        crate::on(&setup, "raw_mutex", promised(every.swap_remove(0))),
        crate::on(&setup, "raw_waiting", promised(crate::waiting::group())),
        crate::on(&setup, "raw_leader", promised(crate::leader::group())),
    ]
}

fn cases() -> Group {
    cases!(
        "raw",
        [
            etcdctl_holds_and_a_client_waits,
            a_client_holds_and_etcdctl_waits,
            a_mixed_fleet_counts_right,
            a_key_that_is_deleted_by_hand_is_lost,
            a_waiter_whose_lease_is_revoked_does_not_hold,
            what_is_not_promised_is_refused,
        ]
    )
}

/// `etcdctl lock NAME -- sh -c SCRIPT`, in a directory.
fn stranger(ground: &Ground, dir: &Path, script: &str) -> Child {
    let mut command = server(ground).ctl_command(&["lock", "x", "--", "sh", "-c", script]);
    command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("etcdctl starts")
}

async fn etcdctl_holds_and_a_client_waits(mut ground: Ground) {
    let dir = TempDir::new().expect("a directory");
    let client = ground.client().await;
    let mut held =
        stranger(&ground, dir.path(), "touch held; while [ ! -e free ]; do sleep 0.02; done; touch freed");
    until("it holds", async || dir.path().join("held").exists()).await;
    let mutex = client.mutex("x").expect("a name").lease(ms(6000));
    assert!(mutex.try_lock().await.expect("an answer").is_none());
    let mut waiting = tokio::spawn(async move { mutex.lock().await });
    not_within(ms(500), "two hold the name", &mut waiting).await;
    fs::write(dir.path().join("free"), "").expect("a file");
    let guard = soon("its turn", waiting).await.expect("no panic").expect("granted");
    assert!(dir.path().join("freed").exists(), "two hold the name");
    guard.release().await.expect("held");
    held.wait().expect("a child");
}

async fn a_client_holds_and_etcdctl_waits(mut ground: Ground) {
    let dir = TempDir::new().expect("a directory");
    let client = ground.client().await;
    let held = lock(&client, "x", ms(6000)).await;
    let mut stranger = stranger(&ground, dir.path(), "touch held");
    until("it waits", async || client.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    // Longer than a third of a lease: it is renewed, and nobody else gets in.
    tokio::time::sleep(ms(300)).await;
    assert!(!dir.path().join("held").exists() && held.standing() == Standing::Held, "two hold the name");
    held.release().await.expect("held");
    until("its turn", async || dir.path().join("held").exists()).await;
    stranger.wait().expect("a child");
}

/// A read, a pause and a write: without a lock some are lost.
const ADD_ONE: &str = "n=$(cat count); sleep 0.01; echo $((n + 1)) >count";

async fn a_mixed_fleet_counts_right(mut ground: Ground) {
    const EACH: usize = 8;
    let dir = TempDir::new().expect("a directory");
    let count = dir.path().join("count");
    fs::write(&count, "0\n").expect("a file");
    let mut ours = Vec::new();
    for _ in 0..2 {
        let client = ground.client().await;
        let count = count.clone();
        ours.push(tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..EACH {
                let guard = lock(&client, "x", ms(6000)).await;
                let n: usize = fs::read_to_string(&count).expect("a file").trim().parse().expect("a number");
                tokio::time::sleep(ms(10)).await;
                fs::write(&count, format!("{}\n", n + 1)).expect("a file");
                assert!(guard.token().get() > last, "tokens rise");
                last = guard.token().get();
                guard.release().await.expect("held");
            }
        }));
    }
    let mut strangers: Vec<Child> = (0..EACH).map(|_| stranger(&ground, dir.path(), ADD_ONE)).collect();
    for task in ours {
        tokio::time::timeout(ms(60_000), task).await.expect("in time").expect("no panic");
    }
    for stranger in &mut strangers {
        assert!(stranger.wait().expect("a child").success());
    }
    assert_eq!(fs::read_to_string(&count).expect("a file").trim(), (3 * EACH).to_string());
}

async fn a_key_that_is_deleted_by_hand_is_lost(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(6000)).await;
    server(&ground).ctl(&["del", "--prefix", "x/"]);
    let next = soon("another holder", lock(&two, "x", ms(6000))).await;
    assert!(next.token() > held.token());
    assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
    held.release().await.expect_err("it was lost");
    // It was not the key of the next one that went.
    assert!(one.mutex("x").expect("a name").try_lock().await.expect("an answer").is_none());
    next.release().await.expect("held");
}

async fn a_waiter_whose_lease_is_revoked_does_not_hold(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(6000)).await;
    let mut waiting = wait(&two, "x", ms(6000)).await;
    let listed = server(&ground).ctl(&["get", "x/", "--prefix", "--keys-only", "--sort-by=CREATE"]);
    let last = listed.lines().rfind(|line| !line.is_empty()).expect("two keys").to_owned();
    server(&ground).ctl(&["lease", "revoke", last.strip_prefix("x/").expect("a key of this name")]);
    not_within(ms(1500), "a waiter without a lease holds", &mut waiting).await;
    assert_eq!(held.standing(), Standing::Held);
    held.release().await.expect("held");
    // It has queued again.
    soon("its turn", waiting).await.expect("no panic").expect("granted").release().await.expect("held");
}

async fn what_is_not_promised_is_refused(mut ground: Ground) {
    let client = ground.client().await;
    refuses(client.semaphore("x", 2));
    refuses(client.rwlock("x"));
    refuses_the_kit(&client);
    refuses(client.mutex("x").expect("a name").lock_delay(ms(500)).lock().await);
    let said = refused(&format!("{}&what=1", ground.url())).await;
    assert!(said.contains("raw"), "{said}");
}
