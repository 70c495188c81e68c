//! What the tables of both SQL engines go through, whatever the columns of a database are called.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::engine::{CellValue, Swap, Swapped, Write};
use leasehold::{Loss, Name};

use crate::bench::{Ground, ms, soon, until};
use crate::cells::{add, name};
use crate::steps::lock;

/// `spoil` changes the row of the name `x` by hand.
pub(crate) async fn a_row_that_is_changed_by_hand_is_in_nobodys_way(
    mut ground: Ground,
    spoil: impl FnOnce(&Ground),
) {
    const LEASE: Duration = ms(3000);
    const NAMES: [&str; 4] = ["x", "y1", "y2", "y3"];
    let (client, other) = (ground.client().await, ground.client().await);
    // At the same time, so that they are renewed by the same calls.
    let mut rest = soon("all are held", join_all(NAMES.map(|name| lock(&client, name, LEASE)))).await;
    let spoiled = rest.remove(0);
    spoil(&ground);
    // Nobody can tell whether it is held.
    assert_eq!(soon("the loss", spoiled.lost()).await, Loss::Deadline);
    tokio::time::sleep(LEASE).await;
    for (guard, name) in rest.into_iter().zip(&NAMES[1..]) {
        assert!(guard.is_held(), "{name} is lost with it");
        let taken = other.mutex(*name).expect("a name").try_lock().await.expect("an answer");
        assert!(taken.is_none(), "{name} is not held any more");
        guard.release().await.expect("held");
    }
}

/// `age` is a statement after which all cells but `kept` have expired a while ago.
pub(crate) async fn whoever_writes_cells_sweeps_the_table(
    mut ground: Ground,
    query: impl Fn(&Ground, &str) -> String,
    age: &str,
) {
    // It holds nothing, and so it renews nothing.
    let engine = ground.engine().await;
    let count = || query(&ground, "select count(*) from leasehold_cells").parse::<usize>().expect("a number");
    let put = async |name: Name, lives: Duration| {
        let version = engine.read(std::slice::from_ref(&name)).await.expect("an answer").cells[0].version;
        let write = Write::Put(CellValue { bytes: vec![1; 8], lives });
        let swapped = engine.swap(vec![Swap { name, version, write }]).await.expect("an answer");
        assert!(matches!(swapped, Swapped::Yes), "{swapped:?}");
    };
    for by_rule in [false, true] {
        for number in 0..20 {
            put(name(&format!("c{number}")), ms(1)).await;
        }
        assert!(count() >= 20);
        query(&ground, age);
        until("the old cells are gone", async || {
            for _ in 0..64 {
                if by_rule {
                    engine.apply(&[name("kept")], &add(1)).await.expect("an answer");
                } else {
                    put(name("kept"), ms(60_000)).await;
                }
            }
            count() <= 1
        })
        .await;
    }
}
