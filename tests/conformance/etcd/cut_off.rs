//! A member that is cut off from the others, while clients still reach it.

use leasehold::Loss;

use super::members::within;
use super::*;
use crate::bench::{ms, not_within};
use crate::servers::Divided;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "cut_off",
        [
            a_follower_that_is_cut_off_grants_nothing,
            a_leader_that_is_cut_off_grants_nothing,
            a_client_of_a_member_that_is_cut_off_finds_another,
        ]
    )
    .cases
}

/// Calls wait for the election of another leader.
async fn patient(ground: &mut Ground, hosts: &str) -> Client {
    let options = ground.options().call_limit(ms(60_000));
    leasehold::connect_with(&format!("etcd://{hosts}/cut"), options).await.expect("the engine is there")
}

async fn a_follower_that_is_cut_off_grants_nothing(mut ground: Ground) {
    let cluster = Divided::start(3);
    let leader = cluster.leader();
    grants_nothing(&mut ground, &cluster, (leader + 1) % 3).await;
}

async fn a_leader_that_is_cut_off_grants_nothing(mut ground: Ground) {
    let cluster = Divided::start(3);
    let leader = cluster.leader();
    grants_nothing(&mut ground, &cluster, leader).await;
}

async fn grants_nothing(ground: &mut Ground, cluster: &Divided, member: usize) {
    // One client is on each side. Each has something, and wants what the other has.
    let inside = patient(ground, &cluster.hosts(&[member])).await;
    let outside = patient(ground, &cluster.hosts(&[(member + 1) % 3, (member + 2) % 3])).await;
    let lease = ms(5000);
    let (lost, kept) = (lock(&inside, "lost", lease).await, lock(&outside, "kept", lease).await);
    let waiting = wait(&outside, "lost", lease).await;
    cluster.cut_off(member);
    let mutex = inside.mutex("kept").expect("a name").lease(lease);
    let mut asks = tokio::spawn(async move { mutex.lock().await });
    let mutex = inside.mutex("free").expect("a name").lease(lease);
    let mut asks_for_more = tokio::spawn(async move { mutex.lock().await });
    // It learns of its loss before anybody else can hold the name.
    assert_eq!(within("the loss", lost.lost()).await, Loss::Deadline);
    assert!(!waiting.is_finished(), "two held the name");
    let next = within("its turn", waiting).await.expect("no panic").expect("granted");
    assert!(next.token() > lost.token());
    drop(lost);
    // Those who are many go on, and for longer than a lease; the other gets nothing.
    for _ in 0..5 {
        within("a lock", lock(&outside, "free", lease)).await.release().await.expect("held");
        not_within(ms(700), "a member that is cut off grants", &mut asks).await;
        not_within(ms(700), "a member that is cut off grants", &mut asks_for_more).await;
    }
    assert!(kept.is_held() && next.is_held(), "those who are many lost a claim");
    cluster.heal();
    within("the release", next.release()).await.expect("held");
    within("the release", kept.release()).await.expect("held");
    // It was in doubt whether it had asked. Now it has, and gets both.
    let guards = (within("its turn", asks).await, within("its turn", asks_for_more).await);
    for guard in [guards.0, guards.1] {
        // A call that was not answered in time is an error, and no claim.
        if let Ok(guard) = guard.expect("no panic") {
            guard.release().await.expect("held");
        }
    }
    for name in ["lost", "kept", "free"] {
        within("a lock", lock(&inside, name, lease)).await.release().await.expect("held");
    }
}

async fn a_client_of_a_member_that_is_cut_off_finds_another(mut ground: Ground) {
    let cluster = Divided::start(3);
    for member in 0..3 {
        let other = (member + 1) % 3;
        let client = patient(&mut ground, &cluster.hosts(&[member, other])).await;
        let held = lock(&client, "x", ms(20_000)).await;
        cluster.cut_off(member);
        within("a lock", lock(&client, "y", ms(20_000))).await.release().await.expect("held");
        within("the release", held.release()).await.expect("held");
        cluster.heal();
    }
}
