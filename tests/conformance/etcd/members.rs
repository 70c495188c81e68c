//! Members that are killed, paused and started again.

use std::time::Instant;

use leasehold::{Loss, Standing};

use super::*;
use crate::bench::{ms, soon};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "members",
        [
            a_leader_that_is_killed_costs_no_claim,
            a_leader_that_is_paused_costs_no_claim,
            a_client_leaves_a_member_that_is_paused,
            a_majority_that_is_lost_costs_the_lease_and_comes_back,
            members_that_are_all_restarted_cost_no_claim,
        ]
    )
    .cases
}

/// Cases wait for elections, on a machine that is busy.
const ELECTED: Duration = ms(30_000);

pub(super) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(ELECTED, work).await.unwrap_or_else(|_| panic!("{what} took too long"))
}

/// A call waits for the election of another leader.
const PATIENT: Duration = ms(20_000);

async fn patient(ground: &mut Ground) -> Client {
    let options = ground.options().call_limit(PATIENT);
    ground.client_with(options).await
}

/// Whoever holds and whoever waits go on.
async fn goes_on(one: &Client, two: &Client, held: Guard, waiting: JoinHandle<Result<Guard>>) {
    // It may be in doubt for a moment.
    within("the renewal", async {
        while held.standing() != Standing::Held || held.remaining() < ms(20_000) {
            assert_ne!(held.standing(), Standing::Lost, "a claim was lost");
            tokio::time::sleep(ms(20)).await;
        }
    })
    .await;
    assert!(!waiting.is_finished(), "two hold the name");
    within("the release", held.release()).await.expect("held");
    let next = within("its turn", waiting).await.expect("no panic").expect("granted");
    assert!(
        within("an answer", one.mutex("x").expect("a name").try_lock()).await.expect("an answer").is_none()
    );
    within("the release", next.release()).await.expect("held");
    within("a lock", lock(two, "y", ms(5000))).await.release().await.expect("held");
}

async fn a_leader_that_is_killed_costs_no_claim(mut ground: Ground) {
    let (one, two) = (patient(&mut ground).await, patient(&mut ground).await);
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    let leader = cluster(&ground).leader();
    leader.kill();
    goes_on(&one, &two, held, waiting).await;
}

async fn a_leader_that_is_paused_costs_no_claim(mut ground: Ground) {
    let (one, two) = (patient(&mut ground).await, patient(&mut ground).await);
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    let leader = cluster(&ground).leader();
    leader.pause();
    goes_on(&one, &two, held, waiting).await;
    leader.resume();
    // The old leader hears of what it has missed, and ends nothing.
    within("a lock", lock(&one, "x", ms(30_000))).await.release().await.expect("held");
}

async fn a_client_leaves_a_member_that_is_paused(mut ground: Ground) {
    let members = cluster(&ground);
    for member in &members.members {
        // Connected to this one alone, at first.
        let other = members.members.iter().find(|other| other.port() != member.port()).expect("three");
        let url = |ports: &[u16]| {
            let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
            format!("etcd://{}/paused", hosts.join(","))
        };
        let options = Options::new().call_limit(PATIENT);
        let url = url(&[member.port(), other.port()]);
        let client = leasehold::connect_with(&url, options).await.expect("the engine is there");
        let held = lock(&client, "x", ms(20_000)).await;
        member.pause();
        let started = Instant::now();
        within("another lock", lock(&client, "y", ms(20_000))).await.release().await.expect("held");
        assert_eq!(held.standing(), Standing::Held, "after {:?}", started.elapsed());
        within("the release", held.release()).await.expect("held");
        member.resume();
        members.wait_until_healthy();
    }
    let client = ground.client().await;
    lock(&client, "x", ms(20_000)).await.release().await.expect("held");
}

async fn a_majority_that_is_lost_costs_the_lease_and_comes_back(mut ground: Ground) {
    let options = ground.options().call_limit(ms(1500));
    let client = ground.client_with(options).await;
    let held = lock(&client, "x", ms(4000)).await;
    let token = held.token();
    let members = &cluster(&ground).members;
    members[1..].iter().for_each(Etcd::kill);
    let error = client.mutex("y").expect("a name").lock_for(ms(3000)).await.expect_err("no majority");
    assert!(error.is_retryable() && error.to_string().contains("127.0.0.1:"), "{error}");
    assert_eq!(soon("the loss", held.lost()).await, Loss::Deadline);
    drop(held);
    members[1..].iter().for_each(Etcd::restart);
    cluster(&ground).wait_until_healthy();
    let next = within("a lock", async {
        loop {
            if let Ok(guard) = client.mutex("x").expect("a name").lease(ms(4000)).lock().await {
                return guard;
            }
        }
    })
    .await;
    assert!(next.token() > token);
    next.release().await.expect("held");
}

async fn members_that_are_all_restarted_cost_no_claim(mut ground: Ground) {
    let (one, two) = (patient(&mut ground).await, patient(&mut ground).await);
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    let members = cluster(&ground);
    members.members.iter().for_each(Etcd::kill);
    members.members.iter().for_each(Etcd::restart);
    members.wait_until_healthy();
    goes_on(&one, &two, held, waiting).await;
}
