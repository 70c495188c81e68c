//! Members that are killed, paused and started again.

use leasehold::Loss;

use super::*;
use crate::bench::{ms, soon};

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    let mut cases = cases!("members", [a_majority_that_is_lost_costs_the_lease_and_comes_back]).cases;
    cases.extend(crate::members::cases::<EtcdCluster>());
    cases
}

async fn a_majority_that_is_lost_costs_the_lease_and_comes_back(mut ground: Ground) {
    let options = ground.options().call_limit(ms(1500));
    let client = ground.client_with(options).await;
    let held = lock(&client, "x", ms(4000)).await;
    let token = held.token();
    let cluster = members::<EtcdCluster>(&ground);
    cluster.members[1..].iter().for_each(Etcd::kill);
    let error = client.mutex("y").expect("a name").lock_for(ms(3000)).await.expect_err("no majority");
    assert!(error.is_retryable() && error.to_string().contains("127.0.0.1:"), "{error}");
    assert_eq!(soon("the loss", held.lost()).await, Loss::Deadline);
    drop(held);
    cluster.members[1..].iter().for_each(Etcd::restart);
    cluster.wait_until_healthy();
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
