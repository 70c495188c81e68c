//! Names that are shared with others who use ZooKeeper's recipe. tests/interop has those others.

use std::sync::Arc;

use leasehold::{Error, Loss};

use super::*;
use crate::bench::{ms, not_within, refuses, soon};
use crate::engines::zookeeper::raw;
use crate::steps::refuses_the_kit;

/// Cases of this mode, and those of every engine that it can run.
pub(super) fn groups() -> Vec<Group> {
    let with = |option| Arc::new(raw(option));
    // What this mode does not promise: names that can be listed, names of any kind, and cells.
    let promised = |mut group: Group| {
        let other = ["tells_names_apart"];
        group.cases.retain(|(name, _)| !other.contains(name) && !name.starts_with("a_latch"));
        group
    };
    // Nor observers.
    let elections = || {
        let mut group = promised(crate::leader::group());
        let observed = ["observer", "by_itself", "vacancy"];
        group.cases.retain(|(name, _)| !observed.iter().any(|word| name.contains(word)));
        assert_eq!(group.cases.len(), 10, "cases that have other names now");
        group
    };
    // Nor several permits at a time, nor another number of them.
    let permits = || {
        let mut group = crate::semaphore::group();
        let one_by_one = ["gives_out_as_many_as_there_are", "a_lost_permit_comes_back_once"];
        group.cases.retain(|(name, _)| one_by_one.contains(name));
        assert_eq!(group.cases.len(), one_by_one.len(), "cases that have other names now");
        group
    };
    let every = |number: usize| promised(crate::exclusive::groups().swap_remove(number));
    vec![
        crate::on(&with("raw"), "raw", cases()),
        crate::on(&with("raw"), "raw_mutex", every(0)),
        crate::on(&with("raw"), "raw_waiting", promised(crate::waiting::group())),
        crate::on(&with("raw=rwlock"), "raw_rwlock", promised(crate::rwlock::group())),
        crate::on(&with("raw=kazoo"), "raw_kazoo_mutex", every(0)),
        crate::on(&with("raw=kazoo"), "raw_kazoo_leader", elections()),
        crate::on(&with("raw=latch"), "raw_latch_leader", elections()),
        crate::on(&with("raw=semaphore"), "raw_permit", every(2)),
        crate::on(&with("raw=semaphore"), "raw_semaphore", permits()),
        crate::on(&with("raw=semaphore"), "raw_permits", permit_cases()),
        crate::on(&with("raw=latch"), "raw_latch", latch_cases()),
        crate::on(&with("raw=kazoo"), "raw_kazoo", kazoo_cases()),
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

fn permit_cases() -> Group {
    cases!(
        "raw_permits",
        [
            a_permit_that_is_deleted_by_hand_is_lost,
            a_line_that_is_deleted_by_hand_lets_nobody_in_beyond,
            permits_are_called_as_curator_calls_them,
            only_single_permits_are_shared,
            those_who_do_not_wait_are_let_in_while_there_are_permits,
        ]
    )
}

fn latch_cases() -> Group {
    cases!("raw_latch", [leaders_are_called_as_curator_calls_them, only_elections_are_shared])
}

fn kazoo_cases() -> Group {
    cases!("raw_kazoo", [nodes_are_called_as_kazoo_calls_them, observers_are_refused])
}

/// The nodes below a name that have numbers, the first one first.
fn contenders(ground: &Ground, name: &str) -> Vec<String> {
    let path = format!("{}/{name}", path(ground));
    // The servers delete a directory that is empty.
    let listed = server(ground).try_cli(&["ls", "-R", &path]).unwrap_or_default();
    let number = |node: &str| node.len().checked_sub(10).and_then(|at| node.get(at..)).map(str::to_owned);
    let numbered = |line: &&str| {
        line.starts_with('/') && number(line).is_some_and(|digits| digits.parse::<u32>().is_ok())
    };
    let mut nodes: Vec<String> = listed.lines().filter(numbered).map(str::to_owned).collect();
    nodes.sort_by_key(|node| number(node));
    nodes
}

/// A UUID as Curator writes it, and what follows it.
fn after_uuid(node: &str) -> &str {
    let (_, node) = node.rsplit_once('/').expect("a path");
    let rest = node.strip_prefix("_c_").expect("Curator's");
    let (uuid, rest) = rest.split_at(36);
    assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{node}");
    rest
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
    assert_eq!(after_uuid(&nodes[0]), "-lock-0000000000");
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
    refuses_the_kit(&client);
    let engine = ground.engine().await;
    refuses(engine.list(Family::Lock, "", None, 10).await);
    refuses(engine.list_cells("", None, 10).await);
    for name in ["", "a//b", "a/../b", "b/"] {
        let error = client.mutex(name).expect("a name").lock().await.expect_err("no path of a node");
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    }
}

async fn a_permit_that_is_deleted_by_hand_is_lost(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let semaphore = |client: &Client| client.semaphore("x", 2).expect("a name").lease(ms(3000));
    let first = semaphore(&one).acquire().await.expect("free");
    let second = semaphore(&one).acquire().await.expect("free");
    assert!(second.token() > first.token());
    assert!(semaphore(&two).try_acquire().await.expect("an answer").is_none());
    let permits: Vec<_> = contenders(&ground, "x/leases");
    assert_eq!(permits.len(), 2, "{permits:?}");
    server(&ground).cli(&["delete", &permits[0]]);
    let third = soon("a permit", semaphore(&two).acquire()).await.expect("free");
    assert!(third.token() > second.token());
    assert_eq!(soon("the loss", first.lost()).await, Loss::Gone);
    first.release().await.expect_err("it was lost");
    assert!(second.is_held() && third.is_held());
    assert!(semaphore(&one).try_acquire().await.expect("an answer").is_none());
    assert!(contenders(&ground, "x/locks").is_empty(), "whoever holds has left the line");
}

/// The line keeps order. Who holds is counted, whatever becomes of the line.
async fn a_line_that_is_deleted_by_hand_lets_nobody_in_beyond(mut ground: Ground) {
    let (one, two, three) = (ground.client().await, ground.client().await, ground.client().await);
    let semaphore = |client: &Client| client.semaphore("x", 1).expect("a name").lease(ms(3000));
    let held = semaphore(&one).acquire().await.expect("free");
    let mut waiting = Vec::new();
    for client in [&two, &three] {
        let semaphore = semaphore(client);
        waiting.push(tokio::spawn(async move { semaphore.acquire().await }));
        let number = waiting.len() as u32;
        until("it waits", async || one.look(Family::Semaphore, "x").await.expect("a view").waiting == number)
            .await;
    }
    // The first in the line is gone from it, and the second one takes its place.
    server(&ground).cli(&["delete", &contenders(&ground, "x/locks")[0]]);
    let [mut first, mut second] = <[_; 2]>::try_from(waiting).expect("two wait");
    not_within(ms(1500), "two hold the only permit", &mut first).await;
    not_within(ms(1500), "two hold the only permit", &mut second).await;
    assert!(held.is_held());
    held.release().await.expect("held");
    // One, then the other, in whatever order.
    let (guard, mut rest) = tokio::select! {
        guard = &mut first => (guard, second),
        guard = &mut second => (guard, first),
        () = tokio::time::sleep(ms(20_000)) => panic!("nobody gets the permit"),
    };
    let guard = guard.expect("no panic").expect("granted");
    not_within(ms(300), "two hold the only permit", &mut rest).await;
    guard.release().await.expect("held");
    let guard = soon("the other one", rest).await.expect("no panic").expect("granted");
    guard.release().await.expect("held");
}

async fn permits_are_called_as_curator_calls_them(mut ground: Ground) {
    let client = ground.client().await;
    let held = client.semaphore("x", 1).expect("a name").acquire().await.expect("free");
    let permits = contenders(&ground, "x/leases");
    assert_eq!(after_uuid(&permits[0]), "-lease-0000000000");
    let semaphore = client.semaphore("x", 1).expect("a name");
    let waiting = tokio::spawn(async move { semaphore.acquire().await });
    until("it waits", async || client.look(Family::Semaphore, "x").await.expect("a view").waiting == 1).await;
    let line = contenders(&ground, "x/locks");
    assert_eq!(line.len(), 1);
    assert!(after_uuid(&line[0]).starts_with("-lock-"), "{line:?}");
    let view = client.look(Family::Semaphore, "x").await.expect("a view");
    assert_eq!(view.claims.len(), 1, "who waits with a node does not hold: {view:?}");
    held.release().await.expect("held");
    soon("its turn", waiting).await.expect("no panic").expect("granted").release().await.expect("held");
}

async fn only_single_permits_are_shared(mut ground: Ground) {
    let client = ground.client().await;
    let semaphore = client.semaphore("x", 3).expect("a name");
    let error = semaphore.acquire_many(2).await.expect_err("one at a time");
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("one"), "{error}");
    refuses(semaphore.resize(4).await);
    refuses(client.mutex("x").expect("a name").lock().await);
    assert!(matches!(client.election("x"), Err(Error::Unsupported { .. })));
}

/// They meet in the line, which moves.
async fn those_who_do_not_wait_are_let_in_while_there_are_permits(mut ground: Ground) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let semaphore = ground.client().await.semaphore("x", 8).expect("a name");
        for _ in 0..4 {
            let semaphore = semaphore.clone();
            tasks.spawn(async move { semaphore.try_acquire().await });
        }
    }
    let mut permits = Vec::new();
    while let Some(permit) = tasks.join_next().await {
        permits.push(permit.expect("no panic").expect("an answer").expect("there are permits"));
    }
    let ninth = ground.client().await.semaphore("x", 8).expect("a name").try_acquire().await;
    assert!(ninth.expect("an answer").is_none(), "there are eight");
}

async fn leaders_are_called_as_curator_calls_them(mut ground: Ground) {
    let client = ground.client().await;
    let leader = client.election("x").expect("a name").campaign("me:8080").await.expect("elected");
    let nodes = contenders(&ground, "x");
    assert_eq!(after_uuid(&nodes[0]), "-latch-0000000000");
    assert_eq!(server(&ground).cli(&["get", &nodes[0]]).lines().next_back(), Some("me:8080"));
    leader.proclaim("me:9090").await.expect("leading");
    assert_eq!(server(&ground).cli(&["get", &nodes[0]]).lines().next_back(), Some("me:9090"));
    leader.resign().await.expect("leading");
}

async fn only_elections_are_shared(mut ground: Ground) {
    let client = ground.client().await;
    refuses(client.mutex("x").expect("a name").lock().await);
    assert!(matches!(client.semaphore("x", 3), Err(Error::Unsupported { .. })));
    observers_are_refused(ground).await;
}

async fn nodes_are_called_as_kazoo_calls_them(mut ground: Ground) {
    let client = ground.client().await;
    let held = lock(&client, "x", ms(3000)).await;
    let nodes = contenders(&ground, "x");
    let (_, node) = nodes[0].rsplit_once('/').expect("a path");
    let (hex, number) = node.split_once("__lock__").expect("kazoo's");
    assert!(hex.len() == 32 && hex.chars().all(|digit| digit.is_ascii_hexdigit()), "{node}");
    assert_eq!(number, "0000000000");
    held.release().await.expect("held");
    // kazoo remembers that the directory is there. The servers of the tests look every second.
    tokio::time::sleep(ms(3000)).await;
    let (directory, _) = nodes[0].rsplit_once('/').expect("a path");
    server(&ground).cli(&["ls", directory]);
}

/// What watches tell is not enough to tell every change.
async fn observers_are_refused(mut ground: Ground) {
    let client = ground.client().await;
    let error = client.election("x").expect("a name").observe().await.expect_err("no log");
    assert!(
        matches!(error, Error::Unsupported { .. }) && error.to_string().contains("ask who leads"),
        "{error}"
    );
}
