//! What a name costs in a database that nobody else wants: round trips.

use crate::bench::{Ground, ms};
use crate::steps::{connect, lock};
use crate::{Case, cases};

pub(crate) fn cases() -> Vec<(&'static str, Case)> {
    cases!("round_trips", [a_free_name_costs_one_to_take_and_one_to_give_back]).cases
}

/// The least that ten cycles add to a count. What a client does beside them adds to it now and
/// then.
pub(crate) async fn least_of_ten_cycles(url: &str, mut count: impl FnMut() -> u64) -> u64 {
    let client = connect(url).await;
    let mut least = u64::MAX;
    for _ in 0..6 {
        let before = count();
        for _ in 0..10 {
            lock(&client, "x", ms(30_000)).await.release().await.expect("held");
        }
        least = least.min(count() - before);
    }
    least
}

async fn a_free_name_costs_one_to_take_and_one_to_give_back(ground: Ground) {
    let (url, proxies) = ground.behind_proxies();
    assert_eq!(least_of_ten_cycles(&url, || proxies[0].round_trips()).await, 20);
}
