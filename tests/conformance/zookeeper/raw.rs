//! Names that are shared with others who use ZooKeeper's recipe. tests/interop has those others.

use std::sync::Arc;

use leasehold::{Error, Loss};

use super::*;
use crate::bench::{Setup, ms, not_within, refuses, soon};
use crate::engines::zookeeper::{Raw, RawServer};

/// Cases of this mode, and those of every engine that it can run.
pub(super) fn groups() -> Vec<Group> {
    let mutexes: Arc<dyn Setup> = Arc::new(Raw { option: "raw" });
    let rwlocks: Arc<dyn Setup> = Arc::new(Raw { option: "raw=rwlock" });
    // What this mode does not promise: names that can be listed, names of any kind, and cells.
    let promised = |mut group: Group| {
        let other = ["tells_names_apart"];
        group.cases.retain(|(name, _)| !other.contains(name) && !name.starts_with("a_latch"));
        group
    };
    let mut every = crate::exclusive::groups();
    vec![
        crate::on(&mutexes, "raw", cases()),
        crate::on(&mutexes, "raw_mutex", promised(every.swap_remove(0))),
        crate::on(&mutexes, "raw_waiting", promised(crate::waiting::group())),
        crate::on(&rwlocks, "raw_rwlock", promised(crate::rwlock::group())),
    ]
}

fn cases() -> Group {
    cases!(
        "raw",
        [
            a_node_that_is_deleted_by_hand_is_lost,
            a_waiter_whose_node_is_deleted_does_not_hold,
            nodes_are_called_as_curator_calls_them,
            an_empty_directory_that_is_deleted_is_made_again,
            what_is_not_promised_is_refused,
        ]
    )
}

fn server(ground: &Ground) -> &ZooKeeper {
    &ground.bench_of::<RawServer>().server
}

/// The nodes of those who contend for a name, the first one first.
fn contenders(ground: &Ground, name: &str) -> Vec<String> {
    let whole = &ground.bench_of::<RawServer>().path;
    let path = format!("/{}/{name}", whole.split('?').next().expect("a path"));
    let listed = server(ground).cli(&["ls", "-R", &path]);
    let mut nodes: Vec<String> =
        listed.lines().filter(|line| line.contains("-lock-")).map(str::to_owned).collect();
    nodes.sort_by_key(|node| node[node.len() - 10..].to_owned());
    nodes
}

async fn a_node_that_is_deleted_by_hand_is_lost(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(3000)).await;
    server(&ground).cli(&["delete", &contenders(&ground, "x")[0]]);
    let next = soon("another holder", lock(&two, "x", ms(3000))).await;
    assert!(next.token() > held.token());
    assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
    held.release().await.expect_err("it was lost");
    // It was not the node of the next one that went.
    assert!(one.mutex("x").expect("a name").try_lock().await.expect("an answer").is_none());
    next.release().await.expect("held");
}

async fn a_waiter_whose_node_is_deleted_does_not_hold(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(3000)).await;
    let mut waiting = wait(&two, "x", ms(3000)).await;
    server(&ground).cli(&["delete", &contenders(&ground, "x")[1]]);
    not_within(ms(1500), "a waiter without a node holds", &mut waiting).await;
    assert!(held.is_held());
    held.release().await.expect("held");
    // It has queued again.
    soon("its turn", waiting).await.expect("no panic").expect("granted").release().await.expect("held");
}

async fn nodes_are_called_as_curator_calls_them(mut ground: Ground) {
    let client = ground.client().await;
    let held = lock(&client, "deep/below/x", ms(3000)).await;
    let nodes = contenders(&ground, "deep/below/x");
    let (_, node) = nodes[0].rsplit_once('/').expect("a path");
    let (uuid, number) =
        node.strip_prefix("_c_").and_then(|rest| rest.split_once("-lock-")).expect("Curator's");
    assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{node}");
    assert_eq!(number, "0000000000");
    let stat = server(&ground).cli(&["stat", &nodes[0]]);
    let (_, change) = stat.split_once("cZxid = 0x").expect("a number");
    let change = u64::from_str_radix(change.lines().next().expect("a line").trim(), 16).expect("a number");
    assert_eq!(held.token().get(), change, "the token is the number of the change, as it is");
    held.release().await.expect("held");
}

async fn an_empty_directory_that_is_deleted_is_made_again(mut ground: Ground) {
    let client = ground.client().await;
    let first = lock(&client, "x", ms(3000)).await;
    let (token, node) = (first.token(), contenders(&ground, "x")[0].clone());
    let (directory, _) = node.rsplit_once('/').expect("a path");
    first.release().await.expect("held");
    // The servers of the tests look every second.
    until("it is gone", async || server(&ground).try_cli(&["ls", directory]).is_err()).await;
    let second = soon("a lock", lock(&client, "x", ms(3000))).await;
    assert!(second.token() > token, "numbers of nodes start again, tokens do not");
    second.release().await.expect("held");
}

async fn what_is_not_promised_is_refused(mut ground: Ground) {
    let client = ground.client().await;
    assert!(matches!(client.semaphore("x", 3), Err(Error::Unsupported { .. })));
    assert!(matches!(client.election("x"), Err(Error::Unsupported { .. })));
    let engine = ground.engine().await;
    refuses(engine.list(Family::Lock, "", None, 10).await);
    refuses(engine.list_cells("", None, 10).await);
    for name in ["", "a//b", "a/../b", "b/"] {
        let error = client.mutex(name).expect("a name").lock().await.expect_err("no path of a node");
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    }
}
