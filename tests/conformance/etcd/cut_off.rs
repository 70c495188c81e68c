//! A member that is cut off from the others, while clients still reach it.

use super::*;
use crate::bench::ms;
use crate::members::a_side_that_is_cut_off_is_granted_nothing;
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
    let inside = patient(ground, &cluster.hosts(&[member])).await;
    let outside = patient(ground, &cluster.hosts(&[(member + 1) % 3, (member + 2) % 3])).await;
    let (cut_off, heal) = (|| cluster.cut_off(member), || cluster.heal());
    a_side_that_is_cut_off_is_granted_nothing(&inside, &outside, ms(5000), cut_off, heal).await;
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
