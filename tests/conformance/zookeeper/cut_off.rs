//! A member that is cut off from the others, while clients still reach it.

use leasehold::Standing;

use super::*;
use crate::bench::ms;
use crate::members::a_side_that_is_cut_off_is_granted_nothing;
use crate::servers::{Cut, DividedEnsemble};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "cut_off",
        [
            a_follower_that_is_cut_off_grants_nothing,
            a_leader_that_is_cut_off_grants_nothing,
            a_follower_whose_lines_break_grants_nothing,
            a_client_of_a_member_that_is_cut_off_finds_another,
        ]
    )
    .cases
}

/// Calls wait for the election of another leader.
async fn patient(ground: &mut Ground, hosts: &str, session: &str) -> Client {
    let options = ground.options().call_limit(ms(60_000));
    let url = format!("zookeeper://{hosts}/cut?session_timeout={session}");
    leasehold::connect_with(&url, options).await.expect("the engine is there")
}

async fn a_follower_that_is_cut_off_grants_nothing(mut ground: Ground) {
    let ensemble = DividedEnsemble::start(3);
    let follower = (ensemble.leader() + 1) % 3;
    grants_nothing(&mut ground, &ensemble, follower, Cut::Silently).await;
}

async fn a_leader_that_is_cut_off_grants_nothing(mut ground: Ground) {
    let ensemble = DividedEnsemble::start(3);
    let leader = ensemble.leader();
    grants_nothing(&mut ground, &ensemble, leader, Cut::Silently).await;
}

async fn a_follower_whose_lines_break_grants_nothing(mut ground: Ground) {
    let ensemble = DividedEnsemble::start(3);
    let follower = (ensemble.leader() + 1) % 3;
    grants_nothing(&mut ground, &ensemble, follower, Cut::Loudly).await;
}

async fn grants_nothing(ground: &mut Ground, ensemble: &DividedEnsemble, member: usize, how: Cut) {
    // An election takes longer than the session of those who are cut off.
    let inside = patient(ground, &ensemble.hosts(&[member]), "4s").await;
    let outside = patient(ground, &ensemble.hosts(&[(member + 1) % 3, (member + 2) % 3]), "30s").await;
    let (cut_off, heal) = (|| ensemble.cut_off(member, how), || ensemble.heal());
    a_side_that_is_cut_off_is_granted_nothing(&inside, &outside, ms(30_000), cut_off, heal).await;
}

/// How many sessions a member serves.
fn served(ensemble: &DividedEnsemble, member: usize) -> usize {
    ensemble.member(member).ask("cons").matches("sid=").count()
}

async fn a_client_of_a_member_that_is_cut_off_finds_another(mut ground: Ground) {
    let ensemble = DividedEnsemble::start(3);
    for (member, how) in [(0, Cut::Silently), (1, Cut::Loudly), (2, Cut::Silently)] {
        let hosts = ensemble.hosts(&[member, (member + 1) % 3]);
        // Whichever member it is connected to.
        let client = loop {
            let before = served(&ensemble, member);
            let client = patient(&mut ground, &hosts, "30s").await;
            if served(&ensemble, member) > before {
                break client;
            }
        };
        let held = lock(&client, "x", ms(30_000)).await;
        ensemble.cut_off(member, how);
        within("a lock", lock(&client, "y", ms(30_000))).await.release().await.expect("held");
        // It may be in doubt for a moment.
        within("the renewal", async {
            while held.standing() != Standing::Held {
                if held.standing() == Standing::Lost {
                    panic!("a claim was lost when {member} was cut off: {:?}", held.lost().await);
                }
                tokio::time::sleep(ms(20)).await;
            }
        })
        .await;
        within("the release", held.release()).await.expect("held");
        ensemble.heal();
    }
}
