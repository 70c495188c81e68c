//! What somebody else does to the keys and leases of a client.

use leasehold::claim::{Answer, Ask};
use leasehold::{Error, Loss, Name, Standing};

use super::*;
use crate::bench::{ask, ms, soon};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "state",
        [
            a_lease_that_is_revoked_costs_the_claim_at_once,
            a_waiter_whose_lease_is_revoked_queues_again,
            a_name_that_is_deleted_by_hand_is_lost,
            a_queue_that_is_deleted_by_hand_is_joined_again,
            a_key_that_is_not_ours_is_named,
            a_compaction_under_a_watch_is_survived,
            a_store_without_space_says_so_and_is_used_again,
            many_names_cost_few_leases,
            a_name_and_one_below_it_do_not_meet,
            nothing_is_left_of_names_that_nobody_uses,
            what_the_dead_and_the_past_leave_is_swept,
        ]
    )
    .cases
}

/// The leases that there are, by their numbers.
fn leases(server: &Etcd) -> Vec<String> {
    let listed = server.ctl(&["lease", "list"]);
    listed.lines().skip(1).map(str::to_owned).collect()
}

/// The keys of a case.
fn keys(ground: &Ground) -> Vec<String> {
    let prefix = key(ground, "");
    let listed = server(ground).ctl(&["get", &prefix, "--prefix", "--keys-only"]);
    let keys = listed.lines().filter_map(|line| line.strip_prefix(&prefix));
    keys.filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

/// The whole key of a name.
fn key(ground: &Ground, rest: &str) -> String {
    let (_, prefix) = ground.url().rsplit_once('/').expect("a prefix");
    format!("{prefix}/{rest}")
}

async fn a_lease_that_is_revoked_costs_the_claim_at_once(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    // Other cases have had leases at this server.
    let before = leases(server(&ground));
    let held = lock(&one, "x", ms(30_000)).await;
    let own: Vec<_> = leases(server(&ground)).into_iter().filter(|id| !before.contains(id)).collect();
    let waiting = wait(&two, "x", ms(30_000)).await;
    assert_eq!(own.len(), 1, "one lease for one length: {own:?}");
    server(&ground).ctl(&["lease", "revoke", &own[0]]);
    assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
    let next = soon("the next holder", waiting).await.expect("no panic").expect("granted");
    assert!(next.token() > held.token());
    // The client goes on, with another lease.
    let error = held.release().await.expect_err("it was lost");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert_eq!(next.standing(), Standing::Held);
    next.release().await.expect("held");
    soon("a lock", lock(&one, "x", ms(30_000))).await.release().await.expect("held");
}

async fn a_waiter_whose_lease_is_revoked_queues_again(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(30_000)).await;
    let before = leases(server(&ground));
    let waiting = wait(&two, "x", ms(30_000)).await;
    let own: Vec<_> = leases(server(&ground)).into_iter().filter(|id| !before.contains(id)).collect();
    assert!(!own.is_empty(), "a waiter has a lease");
    for id in own {
        server(&ground).ctl(&["lease", "revoke", &id]);
    }
    held.release().await.expect("held");
    let next = soon("its turn", waiting).await.expect("no panic").expect("granted");
    assert!(one.mutex("x").expect("a name").try_lock().await.expect("an answer").is_none());
    next.release().await.expect("held");
}

async fn a_name_that_is_deleted_by_hand_is_lost(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(2000)).await;
    // A block of tokens, of which the last may have been used.
    server(&ground).ctl(&["del", &key(&ground, "n/l/x")]);
    let next = soon("another holder", lock(&two, "x", ms(2000))).await;
    assert!(next.token() > held.token(), "{:?} after {:?}", next.token(), held.token());
    assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
    held.release().await.expect_err("it was lost");
    assert_eq!(next.standing(), Standing::Held);
    assert!(one.mutex("x").expect("a name").try_lock().await.expect("an answer").is_none());
    next.release().await.expect("held");
}

async fn a_queue_that_is_deleted_by_hand_is_joined_again(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    assert_eq!(server(&ground).ctl(&["del", "--prefix", &key(&ground, "q/l/x/")]), "1");
    held.release().await.expect("held");
    soon("its turn", waiting).await.expect("no panic").expect("granted").release().await.expect("held");
    // Waiters without their name: it was deleted.
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    server(&ground).ctl(&["del", &key(&ground, "n/l/x")]);
    soon("its turn", waiting).await.expect("no panic").expect("granted").release().await.expect("held");
    drop(held);
}

async fn a_key_that_is_not_ours_is_named(mut ground: Ground) {
    let client = ground.client().await;
    server(&ground).ctl(&["put", &key(&ground, "n/l/x"), "who knows what this is"]);
    let error = client.mutex("x").expect("a name").lock().await.expect_err("not ours");
    assert!(matches!(error, Error::Engine { .. }) && error.to_string().contains("`x`"), "{error}");
}

async fn a_compaction_under_a_watch_is_survived(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    for _ in 0..3 {
        let held = lock(&one, "x", ms(30_000)).await;
        let waiting = wait(&two, "x", ms(30_000)).await;
        let status = server(&ground).ctl(&["endpoint", "status", "-w", "json"]);
        let (_, rest) = status.split_once("\"revision\":").expect("a revision");
        let revision: String = rest.chars().take_while(char::is_ascii_digit).collect();
        server(&ground).ctl(&["compact", &revision]);
        server(&ground).ctl(&["defrag"]);
        held.release().await.expect("held");
        soon("its turn", waiting).await.expect("no panic").expect("granted").release().await.expect("held");
    }
}

async fn a_store_without_space_says_so_and_is_used_again(_: Ground) {
    let server = Etcd::start_with(&["--quota-backend-bytes", "1048576"]);
    let client = connect(&format!("etcd://127.0.0.1:{}", server.port())).await;
    let held = lock(&client, "held", ms(30_000)).await;
    let much = "x".repeat(100_000);
    let full = (0..40).any(|n| server.try_ctl(&["put", &format!("filler{n}"), &much]).is_err());
    assert!(full, "the quota is reached");
    until("the alarm is raised", async || server.ctl(&["alarm", "list"]).contains("NOSPACE")).await;
    let error = client.mutex("x").expect("a name").lock_for(ms(500)).await.expect_err("no space");
    assert!(error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains("space") && error.to_string().contains("alarm disarm"), "{error}");
    // What is held can be given back: that takes no space.
    held.release().await.expect("held");
    server.ctl(&["del", "--prefix", "filler"]);
    let status = server.ctl(&["endpoint", "status", "-w", "json"]);
    let (_, rest) = status.split_once("\"revision\":").expect("a revision");
    let revision: String = rest.chars().take_while(char::is_ascii_digit).collect();
    server.ctl(&["compact", &revision]);
    server.ctl(&["defrag"]);
    server.ctl(&["alarm", "disarm"]);
    soon("a lock", lock(&client, "x", ms(30_000))).await.release().await.expect("held");
}

async fn many_names_cost_few_leases(mut ground: Ground) {
    let client = ground.client().await;
    let before = leases(server(&ground)).len();
    let mut guards = Vec::new();
    for n in 0..200 {
        guards.push(lock(&client, &format!("x{n}"), ms(30_000)).await);
    }
    let after = leases(server(&ground)).len();
    assert!(after <= before + 1, "{} leases for one length", after - before);
    for guard in guards {
        guard.release().await.expect("held");
    }
}

async fn a_name_and_one_below_it_do_not_meet(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let above = lock(&one, "a", ms(30_000)).await;
    let below = soon("one below", lock(&two, "a/b", ms(30_000))).await;
    let waits_above = wait(&two, "a", ms(30_000)).await;
    let waits_below = wait(&one, "a/b", ms(30_000)).await;
    below.release().await.expect("held");
    soon("the one below", waits_below)
        .await
        .expect("no panic")
        .expect("granted")
        .release()
        .await
        .expect("held");
    above.release().await.expect("held");
    soon("the one above", waits_above)
        .await
        .expect("no panic")
        .expect("granted")
        .release()
        .await
        .expect("held");
}

async fn nothing_is_left_of_names_that_nobody_uses(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    held.release().await.expect("held");
    soon("its turn", waiting).await.expect("no panic").expect("granted").release().await.expect("held");
    let left = keys(&ground);
    assert!(left.iter().all(|key| key.starts_with("s/")), "{left:?}");
    one.close().await.expect("closed");
    two.close().await.expect("closed");
    assert_eq!(keys(&ground), Vec::<String>::new());
}

async fn what_the_dead_and_the_past_leave_is_swept(mut ground: Ground) {
    // Two that share a name, and a client that ends without a word.
    let engine = ground.engine().await;
    let name = Name::new(Family::Semaphore, "x").expect("a name");
    for owner in [1, 2] {
        let ask = Ask { weight: 1, capacity: 2, lease: ms(500), ..ask(owner) };
        let answer = engine.acquire(&name, &ask).await.expect("an answer");
        assert!(matches!(answer, Answer::Granted(_)), "{answer:?}");
    }
    // A cell that was over in 1970, and one that can not be read.
    let (over, other) = (key(&ground, "n/c/over"), key(&ground, "n/c/other"));
    server(&ground).ctl(&["put", &over, "\x01\x01\x01\x01A"]);
    server(&ground).ctl(&["put", &other, "~"]);
    assert!(keys(&ground).contains(&"n/s/x".to_owned()));
    drop(engine);
    until("its session ends", async || !keys(&ground).iter().any(|key| key.starts_with("s/"))).await;
    assert!(keys(&ground).contains(&"n/s/x".to_owned()), "a name that is shared belongs to no session");
    let client = ground.client().await;
    until("it is swept", async || keys(&ground) == ["n/c/other"]).await;
    drop(client);
}
