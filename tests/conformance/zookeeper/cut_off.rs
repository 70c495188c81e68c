//! A member that is cut off from the others, while clients still reach it.

use leasehold::{Loss, Standing};

use super::members::within;
use super::*;
use crate::bench::{ms, not_within};
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
    // One client is on each side. Each has something, and wants what the other has. Those who are
    // many elect a leader meanwhile, which takes them longer than the session of the other.
    let inside = patient(ground, &ensemble.hosts(&[member]), "4s").await;
    let outside = patient(ground, &ensemble.hosts(&[(member + 1) % 3, (member + 2) % 3]), "30s").await;
    let lease = ms(30_000);
    let (lost, kept) = (lock(&inside, "lost", lease).await, lock(&outside, "kept", lease).await);
    let waiting = wait(&outside, "lost", lease).await;
    ensemble.cut_off(member, how);
    let mutex = inside.mutex("kept").expect("a name").lease(lease);
    let mut asks = tokio::spawn(async move { mutex.lock().await });
    let mutex = inside.mutex("free").expect("a name").lease(lease);
    let mut asks_for_more = tokio::spawn(async move { mutex.lock().await });
    // It learns of its loss by its own clock, before anybody else can hold the name.
    assert_eq!(within("the loss", lost.lost()).await, Loss::Deadline);
    assert!(!waiting.is_finished(), "two held the name");
    let next = within("its turn", waiting).await.expect("no panic").expect("granted");
    assert!(next.token() > lost.token());
    drop(lost);
    // Those who are many go on, and for longer than a session; the other gets nothing.
    for _ in 0..5 {
        within("a lock", lock(&outside, "free", lease)).await.release().await.expect("held");
        not_within(ms(700), "a member that is cut off grants", &mut asks).await;
        not_within(ms(700), "a member that is cut off grants", &mut asks_for_more).await;
    }
    assert!(kept.is_held() && next.is_held(), "those who are many lost a claim");
    ensemble.heal();
    within("the release", next.release()).await.expect("held");
    within("the release", kept.release()).await.expect("held");
    for asked in [asks, asks_for_more] {
        // A call that was not answered in time is an error, and no claim.
        if let Ok(guard) = within("its turn", asked).await.expect("no panic") {
            guard.release().await.expect("held");
        }
    }
    for name in ["lost", "kept", "free"] {
        within("a lock", lock(&inside, name, lease)).await.release().await.expect("held");
    }
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
