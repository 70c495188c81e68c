//! What somebody else does to the nodes and sessions of a client.

use leasehold::{Error, Loss, Standing};

use super::*;
use crate::bench::{ms, soon};
use crate::servers::Proxy;

pub(super) fn cases() -> Vec<(&'static str, Case)> {
    cases!(
        "state",
        [
            a_session_whose_node_is_deleted_costs_the_claim_at_once,
            a_waiter_whose_session_ends_queues_again,
            a_session_that_expires_costs_the_claim_before_another_holds,
            a_session_that_was_deleted_unheard_is_granted_nothing,
            a_short_cut_costs_nothing,
            a_name_that_is_deleted_by_hand_is_lost,
            a_queue_that_is_deleted_by_hand_is_joined_again,
            a_node_that_is_not_ours_is_named,
            many_names_cost_one_session,
            a_client_that_holds_a_thousand_names_is_hardly_heard,
            a_name_and_one_below_it_do_not_meet,
            names_of_any_kind_are_told_apart,
            what_the_dead_leave_is_swept,
            a_name_that_nobody_uses_is_swept_after_minutes,
        ]
    )
    .cases
}

/// The path that the nodes of a case are under.
fn path(ground: &Ground, rest: &str) -> String {
    format!("{}/{rest}", super::path(ground))
}

/// The nodes below a path, whole.
fn nodes(ground: &Ground, rest: &str) -> Vec<String> {
    let listed = server(ground).cli(&["ls", "-R", &path(ground, rest)]);
    listed.lines().filter(|line| line.starts_with('/')).map(str::to_owned).collect()
}

/// The node of a name, and those of its waiters.
fn nodes_of(ground: &Ground, name: &str) -> Vec<String> {
    let (end, inside) = (format!("/{name}"), format!("/{name}/"));
    let all = nodes(ground, "n").into_iter();
    all.filter(|node| node.ends_with(&end) || node.contains(&inside)).collect()
}

fn sessions(ground: &Ground) -> Vec<String> {
    nodes(ground, "s").into_iter().skip(1).collect()
}

async fn a_session_whose_node_is_deleted_costs_the_claim_at_once(mut ground: Ground) {
    let one = ground.client().await;
    let held = lock(&one, "x", ms(30_000)).await;
    let own = sessions(&ground);
    assert_eq!(own.len(), 1, "one session for one client: {own:?}");
    let two = ground.client().await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    server(&ground).cli(&["delete", &own[0]]);
    assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
    let next = soon("the next holder", waiting).await.expect("no panic").expect("granted");
    assert!(next.token() > held.token());
    // The client goes on, with another session.
    let error = held.release().await.expect_err("it was lost");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert_eq!(next.standing(), Standing::Held);
    next.release().await.expect("held");
    soon("a lock", lock(&one, "x", ms(30_000))).await.release().await.expect("held");
}

async fn a_waiter_whose_session_ends_queues_again(mut ground: Ground) {
    let one = ground.client().await;
    let held = lock(&one, "x", ms(30_000)).await;
    let before = sessions(&ground);
    let two = ground.client().await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    for session in sessions(&ground).iter().filter(|session| !before.contains(session)) {
        server(&ground).cli(&["delete", session]);
    }
    until("it waits again", async || {
        one.look(Family::Lock, "x").await.expect("a view").waiting == 1 && sessions(&ground).len() == 2
    })
    .await;
    held.release().await.expect("held");
    let next = soon("its turn", waiting).await.expect("no panic").expect("granted");
    assert!(one.mutex("x").expect("a name").try_lock().await.expect("an answer").is_none());
    next.release().await.expect("held");
}

/// A client behind a proxy, with a lease that is much longer than its session.
async fn behind(ground: &Ground) -> (Client, Proxy) {
    let proxy = Proxy::start(server(ground).port());
    let url = ground.url().replace(&server(ground).port().to_string(), &proxy.port().to_string());
    (connect(&url).await, proxy)
}

async fn a_session_that_expires_costs_the_claim_before_another_holds(mut ground: Ground) {
    let near = ground.client().await;
    for fault in [Proxy::cut, Proxy::stall] {
        let (far, proxy) = behind(&ground).await;
        let held = lock(&far, "x", ms(30_000)).await;
        let waiting = wait(&near, "x", ms(30_000)).await;
        fault(&proxy);
        let next = soon("the next holder", waiting).await.expect("no panic").expect("granted");
        assert_eq!(held.standing(), Standing::Lost, "two hold the name");
        assert!(next.token() > held.token());
        proxy.pass();
        assert_eq!(soon("the loss", held.lost()).await, Loss::Deadline);
        drop(held);
        next.release().await.expect("held");
        // With another session.
        soon("a lock", lock(&far, "x", ms(30_000))).await.release().await.expect("held");
    }
}

/// Every write that grants something asks whether the session of the holder is there.
async fn a_session_that_was_deleted_unheard_is_granted_nothing(mut ground: Ground) {
    let near = ground.client().await;
    let proxy = Proxy::start(server(&ground).port());
    // Its session outlives the cut, and is asked for every other second.
    let url = ground
        .url()
        .replace(&server(&ground).port().to_string(), &proxy.port().to_string())
        .replace("session_timeout=4s", "session_timeout=20s");
    let before = sessions(&ground);
    let far = connect(&url).await;
    lock(&far, "x", ms(1000)).await.release().await.expect("held");
    let own: Vec<_> = sessions(&ground).into_iter().filter(|session| !before.contains(session)).collect();
    assert_eq!(own.len(), 1, "{own:?}");
    proxy.cut();
    server(&ground).cli(&["delete", &own[0]]);
    // It asks for a name that is free before it has heard of its session's end.
    let mutex = far.mutex("x").expect("a name").lease(ms(10_000));
    let asking = tokio::spawn(async move { mutex.lock().await });
    proxy.pass();
    let held = soon("a lock", asking).await.expect("no panic").expect("granted");
    let other = near.mutex("x").expect("a name").try_lock().await.expect("an answer");
    assert!(other.is_none(), "two hold the name, one of them by a session that is gone");
    assert_eq!(held.standing(), Standing::Held);
    held.release().await.expect("held");
}

async fn a_short_cut_costs_nothing(ground: Ground) {
    let (far, proxy) = behind(&ground).await;
    let held = lock(&far, "x", ms(30_000)).await;
    for _ in 0..5 {
        proxy.reset();
        let other = soon("another lock", lock(&far, "y", ms(30_000))).await;
        soon("the release", other.release()).await.expect("held");
        assert_ne!(held.standing(), Standing::Lost);
    }
    assert_eq!(sessions(&ground).len(), 1, "it is the same session");
    held.release().await.expect("held");
}

async fn a_name_that_is_deleted_by_hand_is_lost(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(2000)).await;
    for node in nodes_of(&ground, "x") {
        server(&ground).cli(&["delete", &node]);
    }
    let next = soon("another holder", lock(&two, "x", ms(2000))).await;
    assert!(next.token() > held.token(), "{:?} after {:?}", next.token(), held.token());
    assert_eq!(soon("the loss", held.lost()).await, Loss::Gone);
    held.release().await.expect_err("it was lost");
    assert_eq!(next.standing(), Standing::Held);
    assert!(one.mutex("x").expect("a name").try_lock().await.expect("an answer").is_none());
    next.release().await.expect("held");
}

async fn a_queue_that_is_deleted_by_hand_is_joined_again(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    let rows: Vec<_> = nodes_of(&ground, "x").into_iter().filter(|node| node.contains("/x/")).collect();
    assert_eq!(rows.len(), 1, "one waits: {rows:?}");
    server(&ground).cli(&["delete", &rows[0]]);
    held.release().await.expect("held");
    soon("its turn", waiting).await.expect("no panic").expect("granted").release().await.expect("held");
    // The whole name, with those who wait for it.
    let held = lock(&one, "x", ms(30_000)).await;
    let waiting = wait(&two, "x", ms(30_000)).await;
    let name = nodes_of(&ground, "x").into_iter().find(|node| node.ends_with("/x")).expect("a node");
    server(&ground).cli(&["deleteall", &name]);
    soon("its turn", waiting).await.expect("no panic").expect("granted").release().await.expect("held");
    drop(held);
}

async fn a_node_that_is_not_ours_is_named(mut ground: Ground) {
    let client = ground.client().await;
    lock(&client, "x", ms(30_000)).await.release().await.expect("held");
    let name = nodes_of(&ground, "x").into_iter().next().expect("a node");
    server(&ground).cli(&["set", &name, "who-knows-what-this-is"]);
    let error = client.mutex("x").expect("a name").lock().await.expect_err("not ours");
    assert!(matches!(error, Error::Engine { .. }) && error.to_string().contains("`x`"), "{error}");
}

async fn many_names_cost_one_session(mut ground: Ground) {
    let client = ground.client().await;
    let mut guards = Vec::new();
    for n in 0..200 {
        guards.push(lock(&client, &format!("x{n}"), ms(2000 + 100 * (n % 10))).await);
    }
    assert_eq!(sessions(&ground).len(), 1);
    for guard in guards {
        guard.release().await.expect("held");
    }
}

/// A number that the server tells.
fn figure(ground: &Ground, name: &str) -> u64 {
    let told = server(ground).ask("mntr");
    let line = told.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{told}"));
    line.trim().parse::<f64>().expect("a number") as u64
}

/// What holding costs is the session's, not the names'.
async fn a_client_that_holds_a_thousand_names_is_hardly_heard(ground: Ground) {
    ground.bench_of::<Under<ZooKeeper>>().store.spoil();
    let before = (figure(&ground, "zk_num_alive_connections"), figure(&ground, "zk_watch_count"));
    // As it is unless a URL says otherwise.
    let client = connect(&ground.url().replace("session_timeout=4s", "session_timeout=10s")).await;
    let mut guards = Vec::new();
    for n in 0..1000 {
        guards.push(lock(&client, &format!("x{n}"), ms(30_000)).await);
    }
    let connections = figure(&ground, "zk_num_alive_connections") - before.0;
    let watches = figure(&ground, "zk_watch_count") - before.1;
    // Two rounds of renewals.
    let (requests, started) = (figure(&ground, "zk_packets_received"), std::time::Instant::now());
    tokio::time::sleep(ms(20_000)).await;
    let requests = figure(&ground, "zk_packets_received") - requests;
    let per_second = requests as f64 / started.elapsed().as_secs_f64();
    println!(
        "1,000 names: {} sessions, {connections} connections, {watches} watches, {per_second:.1} requests/s",
        sessions(&ground).len()
    );
    assert!(sessions(&ground).len() == 1 && connections == 1 && watches <= 2);
    assert!(per_second < 12.0, "{per_second} requests a second");
    assert!(guards.iter().all(Guard::is_held));
}

async fn a_name_and_one_below_it_do_not_meet(mut ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let above = lock(&one, "a", ms(30_000)).await;
    let below = soon("one below", lock(&two, "a/b", ms(30_000))).await;
    let waits_above = wait(&two, "a", ms(30_000)).await;
    let waits_below = wait(&one, "a/b", ms(30_000)).await;
    below.release().await.expect("held");
    let next = soon("the one below", waits_below).await.expect("no panic").expect("granted");
    next.release().await.expect("held");
    above.release().await.expect("held");
    let next = soon("the one above", waits_above).await.expect("no panic").expect("granted");
    next.release().await.expect("held");
}

async fn names_of_any_kind_are_told_apart(mut ground: Ground) {
    let client = ground.client().await;
    let long = "n".repeat(4096);
    let names =
        [".", "..", "a", "a/b", "a%2Fb", "%", "%2E", "/", "//", "zookeeper", "é", "\u{1}", "\u{f8ff}", &long];
    let mut guards = Vec::new();
    for name in names {
        guards.push(soon("a lock", lock(&client, name, ms(30_000))).await);
    }
    let mut listed: Vec<String> = Vec::new();
    for (name, _) in client.list(Family::Lock, None, 100).await.expect("a list") {
        listed.push(name.as_str().to_owned());
    }
    let mut expected: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    for guard in guards {
        guard.release().await.expect("held");
    }
}

async fn what_the_dead_leave_is_swept(mut ground: Ground) {
    let dead = ground.client().await;
    let held = lock(&dead, "x", ms(30_000)).await;
    let own = sessions(&ground);
    std::mem::forget(held);
    server(&ground).cli(&["delete", &own[0]]);
    // A client sweeps soon after it has connected.
    let client = ground.client().await;
    let name = nodes_of(&ground, "x").into_iter().next().expect("a node");
    until("it is empty", async || {
        let stat = server(&ground).cli(&["stat", &name]);
        stat.contains("dataLength = 0")
    })
    .await;
    drop(client);
}

/// Its version would start again with the next node: nobody may remember it then.
async fn a_name_that_nobody_uses_is_swept_after_minutes(_: Ground) {
    let (server, clock) = ZooKeeper::start_with_clock();
    let url = format!("zookeeper://127.0.0.1:{}/swept?session_timeout=4s", server.port());
    let client = connect(&url).await;
    let first = lock(&client, "x", ms(30_000)).await;
    let token = first.token();
    first.release().await.expect("held");
    let held = lock(&client, "y", ms(30_000)).await;
    let find = |name: &str| {
        let listed = server.cli(&["ls", "-R", "/swept/n"]);
        let end = format!("/{name}");
        listed.lines().find(|line| line.ends_with(&end)).map(str::to_owned)
    };
    assert!(find("x").is_some(), "it is emptied and not deleted");
    // Clients sweep soon after they have connected.
    for (minutes, swept) in [(4, false), (2, true)] {
        clock.advance(ms(minutes * 60_000));
        let sweeper = connect(&url).await;
        if swept {
            until("it is gone", async || find("x").is_none()).await;
        } else {
            tokio::time::sleep(ms(4500)).await;
            assert!(find("x").is_some(), "somebody may remember it");
        }
        drop(sweeper);
    }
    assert!(find("y").is_some() && held.is_held(), "somebody holds it");
    let again = soon("a lock", lock(&client, "x", ms(30_000))).await;
    assert!(again.token() > token, "versions start again, tokens do not");
    again.release().await.expect("held");
    held.release().await.expect("held");
}
