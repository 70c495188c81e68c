//! Members that are killed, paused and started again.

use std::time::Instant;

use leasehold::engine::{CellValue, Swap, Swapped, Write};
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
            a_majority_that_is_lost_costs_the_session_and_comes_back,
            members_that_are_all_restarted_are_used_again,
            what_one_member_has_written_another_reads_at_once,
        ]
    )
    .cases
}

/// Cases wait for elections, on a machine that is busy.
pub(super) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(ms(30_000), work).await.unwrap_or_else(|_| panic!("{what} took too long"))
}

/// A call waits for the election of another leader.
const PATIENT: Duration = ms(20_000);

/// A client whose session outlives an election on a machine that is busy.
async fn patient(ground: &Ground) -> Client {
    let url = ground.url().replace("session_timeout=4s", "session_timeout=20s");
    let options = Options::new().call_limit(PATIENT);
    leasehold::connect_with(&url, options).await.expect("the engine is there")
}

/// Whoever holds and whoever waits go on.
async fn goes_on(one: &Client, two: &Client, held: Guard, waiting: JoinHandle<Result<Guard>>) {
    // It may be in doubt for a moment.
    within("the renewal", async {
        while held.standing() != Standing::Held || held.remaining() < ms(8000) {
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

async fn a_leader_that_is_killed_costs_no_claim(ground: Ground) {
    let (one, two) = (patient(&ground).await, patient(&ground).await);
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    ensemble(&ground).leader().kill();
    goes_on(&one, &two, held, waiting).await;
}

async fn a_leader_that_is_paused_costs_no_claim(ground: Ground) {
    let (one, two) = (patient(&ground).await, patient(&ground).await);
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    let leader = ensemble(&ground).leader();
    leader.pause();
    goes_on(&one, &two, held, waiting).await;
    leader.resume();
    // The old leader hears of what it has missed, and ends nothing.
    within("a lock", lock(&one, "x", ms(30_000))).await.release().await.expect("held");
}

async fn a_client_leaves_a_member_that_is_paused(ground: Ground) {
    let members = ensemble(&ground);
    for member in &members.members {
        let other = members.members.iter().find(|other| other.port() != member.port()).expect("three");
        let (first, second) = (member.port(), other.port());
        let url = format!("zookeeper://127.0.0.1:{first},127.0.0.1:{second}/paused?session_timeout=20s");
        let options = Options::new().call_limit(PATIENT);
        let client = leasehold::connect_with(&url, options).await.expect("the engine is there");
        let held = lock(&client, "x", ms(20_000)).await;
        member.pause();
        let started = Instant::now();
        within("another lock", lock(&client, "y", ms(20_000))).await.release().await.expect("held");
        assert_eq!(held.standing(), Standing::Held, "after {:?}", started.elapsed());
        within("the release", held.release()).await.expect("held");
        member.resume();
        members.wait_until_it_serves();
    }
}

async fn a_majority_that_is_lost_costs_the_session_and_comes_back(mut ground: Ground) {
    let options = ground.options().call_limit(ms(1500));
    let client = ground.client_with(options).await;
    // Its lease would be much longer.
    let held = lock(&client, "x", ms(60_000)).await;
    let token = held.token();
    let members = &ensemble(&ground).members;
    let lost = Instant::now();
    members[1..].iter().for_each(ZooKeeper::kill);
    let error = client.mutex("y").expect("a name").lock_for(ms(3000)).await.expect_err("no majority");
    assert!(error.is_retryable() && error.to_string().contains("127.0.0.1:"), "{error}");
    assert_eq!(soon("the loss", held.lost()).await, Loss::Deadline);
    assert!(lost.elapsed() < ms(4500), "its session has four seconds: {:?}", lost.elapsed());
    drop(held);
    members[1..].iter().for_each(ZooKeeper::restart);
    ensemble(&ground).wait_until_it_serves();
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

/// New leaders let every session live for its whole timeout. Ours do not rely on that: without a
/// majority for long enough, they are given up.
async fn members_that_are_all_restarted_are_used_again(ground: Ground) {
    let (one, two) = (patient(&ground).await, patient(&ground).await);
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    let members = ensemble(&ground);
    members.members.iter().for_each(ZooKeeper::kill);
    members.members.iter().for_each(ZooKeeper::restart);
    members.wait_until_it_serves();
    goes_on(&one, &two, held, waiting).await;
}

/// Any member answers reads, and may not have heard of the last write yet.
async fn what_one_member_has_written_another_reads_at_once(ground: Ground) {
    let members = &ensemble(&ground).members;
    let mut engines = Vec::new();
    for member in members {
        let url = format!("zookeeper://127.0.0.1:{}/fresh?session_timeout=20s", member.port());
        engines.push(leasehold::engine::open(&url, &Options::new()).await.expect("the engine is there"));
    }
    let cell = crate::cells::name("x");
    let mut version = 0;
    for round in 0..400_u32 {
        let (writer, reader) = (&engines[round as usize % 3], &engines[(round as usize + 1) % 3]);
        let value = CellValue { bytes: round.to_be_bytes().to_vec(), lives: ms(60_000) };
        let swap = Swap { name: cell.clone(), version, write: Write::Put(value) };
        assert_eq!(writer.swap(vec![swap]).await.expect("an answer"), Swapped::Yes, "round {round}");
        let cells = reader.read(std::slice::from_ref(&cell)).await.expect("an answer");
        let read = &cells.cells[0];
        assert_eq!(read.value.as_deref(), Some(&round.to_be_bytes()[..]), "what was read is old");
        version = read.version;
    }
}
