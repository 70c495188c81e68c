//! Members that are killed, paused and started again.

use std::time::Instant;

use leasehold::Loss;
use leasehold::engine::{CellValue, Swap, Swapped, Write};

use super::*;
use crate::bench::{ms, soon};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    let own = cases!(
        "members",
        [
            a_majority_that_is_lost_costs_the_session_and_comes_back,
            what_one_member_has_written_another_reads_at_once,
        ]
    );
    let mut cases = own.cases;
    cases.extend(crate::members::cases::<Ensemble>());
    cases
}

async fn a_majority_that_is_lost_costs_the_session_and_comes_back(mut ground: Ground) {
    let options = ground.options().call_limit(ms(1500));
    let client = ground.client_with(options).await;
    // Its lease would be much longer.
    let held = lock(&client, "x", ms(60_000)).await;
    let token = held.token();
    let ensemble = members::<Ensemble>(&ground);
    let lost = Instant::now();
    ensemble.members[1..].iter().for_each(ZooKeeper::kill);
    let error = client.mutex("y").expect("a name").lock_for(ms(3000)).await.expect_err("no majority");
    assert!(error.is_retryable() && error.to_string().contains("127.0.0.1:"), "{error}");
    assert_eq!(soon("the loss", held.lost()).await, Loss::Deadline);
    assert!(lost.elapsed() < ms(4500), "its session has four seconds: {:?}", lost.elapsed());
    drop(held);
    ensemble.members[1..].iter().for_each(ZooKeeper::restart);
    ensemble.wait_until_it_serves();
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

/// Any member answers reads, and may not have heard of the last write yet.
async fn what_one_member_has_written_another_reads_at_once(ground: Ground) {
    let members = &members::<Ensemble>(&ground).members;
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
