//! Other processes: that hold, leave, are killed, stopped and forked.
//!
//! An engine that does not reach other processes must say so; that is what these cases check then.

use std::time::Duration;

use leasehold::engine::{AfterDeath, Reach};
use leasehold::{Client, Family, Standing};
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::{Ground, ms, soon, until};
use crate::child::Child;
use crate::{Group, cases};

pub(crate) fn group() -> Group {
    cases!(
        "process",
        [
            another_process_holds_and_releases,
            two_processes_of_one_host_are_two_owners,
            a_process_that_leaves_frees_what_it_held,
            a_killed_process_frees_what_it_held,
            a_killed_waiter_holds_up_nobody,
            a_stopped_process_loses_its_lease_and_is_told_first,
            a_stopped_waiter_holds_up_nobody_for_long,
            a_forked_child_can_not_use_the_client,
            a_forked_child_drops_the_client_and_connects,
            a_forked_child_connects_and_drops_the_client,
            a_forked_child_keeps_the_client_and_connects,
            workers_that_were_forked_first_exclude_each_other,
            a_command_keeps_the_claims_of_its_killed_wrapper,
            a_stopped_wrapper_loses_its_lease_whatever_its_command_does,
        ]
    )
}

/// A second process, or the check that the engine declares that it has none.
async fn child(ground: &Ground, client: &Client) -> Option<Child> {
    let child = ground.child().await;
    if child.is_none() {
        assert_eq!(client.guarantees().reach, Reach::Process);
    }
    child
}

async fn another_process_holds_and_releases(mut ground: Ground) {
    let client = ground.client().await;
    let Some(mut child) = child(&ground, &client).await else { return };
    let token = child.lock("x", ms(30_000)).await;
    let mutex = client.mutex("x").expect("a name");
    assert!(mutex.try_lock().await.expect("an answer").is_none());
    let view = client.look(Family::Lock, "x").await.expect("a view");
    assert_eq!(view.claims[0].claim.holder.pid, child.pid());
    assert_eq!(view.claims[0].claim.holder.label, "child");
    let waiting = tokio::spawn(async move { mutex.lock().await.map(|guard| guard.token().get()) });
    until("we wait", async || client.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    assert_eq!(child.ask("release x").await, "released");
    assert!(soon("our turn", waiting).await.expect("no panic").expect("granted") > token);
}

async fn two_processes_of_one_host_are_two_owners(mut ground: Ground) {
    let client = ground.client().await;
    let Some(mut one) = child(&ground, &client).await else { return };
    let mut two = child(&ground, &client).await.expect("another");
    one.lock("x", ms(30_000)).await;
    assert_eq!(two.ask("try x 30000").await, "busy");
    assert_eq!(two.ask("release x").await, "released");
    assert_eq!(one.ask("standing x").await, "Held");
    assert!(client.mutex("x").expect("a name").try_lock().await.expect("an answer").is_none());
}

async fn freed_by(client: &Client, token: u64, after: Duration) -> Duration {
    let before = tokio::time::Instant::now();
    let guard = soon("our turn", client.mutex("x").expect("a name").lock()).await.expect("granted");
    let waited = before.elapsed();
    assert!(guard.token().get() > token);
    assert!(waited < after, "waited {waited:?}");
    waited
}

/// A lease that is much longer than the case, unless it is what frees the names of the dead.
fn lease(ground: &Ground) -> Duration {
    match ground.promises().after_death {
        AfterDeath::AtOnce => ms(30_000),
        _ => ms(3000),
    }
}

/// How long after a death the name may take to be free, on a machine that is busy.
fn bound(ground: &Ground) -> Duration {
    match ground.promises().after_death {
        AfterDeath::AtOnce => ms(1000),
        _ => lease(ground) + ms(2000),
    }
}

async fn a_process_that_leaves_frees_what_it_held(mut ground: Ground) {
    let client = ground.client().await;
    let Some(mut child) = child(&ground, &client).await else { return };
    let token = child.lock("x", lease(&ground)).await;
    child.exit().await;
    freed_by(&client, token, bound(&ground)).await;
}

async fn a_killed_process_frees_what_it_held(mut ground: Ground) {
    let client = ground.client().await;
    for waits_before in [false, true] {
        let Some(mut child) = child(&ground, &client).await else { return };
        let token = child.lock("x", lease(&ground)).await;
        if waits_before {
            let mutex = client.mutex("x").expect("a name");
            let waiting = tokio::spawn(async move { mutex.lock().await.map(|guard| guard.token().get()) });
            until("we wait", async || client.look(Family::Lock, "x").await.expect("a view").waiting == 1)
                .await;
            let before = tokio::time::Instant::now();
            child.kill().await;
            assert!(soon("our turn", waiting).await.expect("no panic").expect("granted") > token);
            assert!(before.elapsed() < bound(&ground), "waited {:?}", before.elapsed());
        } else {
            child.kill().await;
            freed_by(&client, token, bound(&ground)).await;
        }
    }
}

async fn a_killed_waiter_holds_up_nobody(mut ground: Ground) {
    let client = ground.client().await;
    let Some(mut waiter) = child(&ground, &client).await else { return };
    let held = client.mutex("x").expect("a name").lock().await.expect("free");
    waiter.say("lock x 30000").await;
    until("it waits", async || client.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    waiter.kill().await;
    let second = ground.client().await;
    let mutex = second.mutex("x").expect("a name");
    let behind = tokio::spawn(async move { mutex.lock().await.map(|guard| guard.token()) });
    until("we wait behind it", async || client.look(Family::Lock, "x").await.expect("a view").waiting >= 1)
        .await;
    let before = tokio::time::Instant::now();
    held.release().await.expect("held");
    soon("our turn", behind).await.expect("no panic").expect("granted");
    assert!(before.elapsed() < ms(6000), "a dead waiter held us up for {:?}", before.elapsed());
}

async fn a_stopped_process_loses_its_lease_and_is_told_first(mut ground: Ground) {
    let client = ground.client().await;
    let Some(mut child) = child(&ground, &client).await else { return };
    let token = child.lock("x", ms(500)).await;
    child.stop();
    freed_by(&client, token, ms(5000)).await;
    child.resume();
    assert_eq!(child.ask("standing x").await, format!("{:?}", Standing::Lost));
    assert!(child.ask("release x").await.starts_with("error lost `x`"));
}

async fn a_stopped_waiter_holds_up_nobody_for_long(mut ground: Ground) {
    let client = ground.client().await;
    let Some(mut waiter) = child(&ground, &client).await else { return };
    let held = client.mutex("x").expect("a name").lock().await.expect("free");
    waiter.say("lock x 30000").await;
    until("it waits", async || client.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    waiter.stop();
    held.release().await.expect("held");
    // It was handed the name and can not say that it heard; the lease of 30 s is not waited for.
    let before = tokio::time::Instant::now();
    let guard = soon("our turn", client.mutex("x").expect("a name").lock()).await.expect("granted");
    assert!(before.elapsed() < ms(8000), "held up for {:?}", before.elapsed());
    waiter.resume();
    guard.release().await.expect("held");
    assert!(waiter.line().await.starts_with("held "), "it gets its turn when it runs again");
}

async fn a_forked_child_can_not_use_the_client(mut ground: Ground) {
    let client = ground.client().await;
    let Some(mut child) = child(&ground, &client).await else { return };
    child.lock("x", ms(30_000)).await;
    let answer = child.ask("fork x").await;
    assert!(answer.starts_with("refused") && answer.contains("fork"), "{answer}");
    assert_eq!(child.ask("standing x").await, "Held");
    assert_eq!(child.ask("release x").await, "released");
}

/// A parent holds, and its fork connects for itself: it is refused while the parent holds, and no
/// longer.
async fn connects_in_a_fork(mut ground: Ground, order: &str) {
    let client = ground.client().await;
    let Some(mut parent) = child(&ground, &client).await else { return };
    let token = parent.lock("x", ms(30_000)).await;
    parent.lock("kept", ms(30_000)).await;
    assert_eq!(parent.ask(&format!("fork-connect x {order}")).await, "busy");
    assert_eq!(parent.ask("standing x").await, "Held");
    for name in ["x", "kept"] {
        let taken = client.mutex(name).expect("a name").try_lock().await.expect("an answer");
        assert!(taken.is_none(), "free, and its holder lives");
    }
    parent.say("release x").await;
    let mut heard = Vec::new();
    for _ in 0..3 {
        heard.push(parent.line().await);
    }
    assert!(heard.contains(&"released".to_owned()), "{heard:?}");
    let next = heard.iter().find_map(|line| line.strip_prefix("fork held ")?.parse().ok());
    assert!(next.is_some_and(|next: u64| next > token), "{heard:?}");
    assert!(heard.contains(&"fork left".to_owned()), "{heard:?}");
    // All that is over in the fork, and nothing of it in the parent.
    let taken = client.mutex("kept").expect("a name").try_lock().await.expect("an answer");
    assert!(taken.is_none(), "free, and its holder lives");
    assert_eq!(parent.ask("standing kept").await, "Held");
    assert_eq!(parent.ask("release kept").await, "released");
    let held = client.mutex("x").expect("a name").lock().await.expect("free");
    parent.say("lock x 30000").await;
    until("it waits", async || client.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    held.release().await.expect("held");
    assert!(parent.line().await.starts_with("held "), "it is called as before");
}

async fn a_forked_child_drops_the_client_and_connects(ground: Ground) {
    connects_in_a_fork(ground, "drop-then-connect").await;
}

async fn a_forked_child_connects_and_drops_the_client(ground: Ground) {
    connects_in_a_fork(ground, "connect-then-drop").await;
}

async fn a_forked_child_keeps_the_client_and_connects(ground: Ground) {
    connects_in_a_fork(ground, "keep").await;
}

async fn workers_that_were_forked_first_exclude_each_other(mut ground: Ground) {
    const WORKERS: usize = 5;
    let client = ground.client().await;
    if ground.promises().reach == Reach::Process {
        assert_eq!(client.guarantees().reach, Reach::Process);
        return;
    }
    let mut workers = Child::start_workers(ground.url(), WORKERS);
    let mut first = Vec::new();
    for _ in 0..WORKERS {
        first.push(workers.line().await);
    }
    let busy = first.iter().filter(|line| *line == "first busy").count();
    // Where there is no order, all who ask at the same time may be refused.
    let none = if ground.promises().fair { WORKERS - 1 } else { WORKERS };
    assert!((WORKERS - 1..=none).contains(&busy), "one of them holds: {first:?}");
    workers.say("go on").await;
    let mut tokens: Vec<u64> =
        first.iter().filter_map(|line| line.strip_prefix("first ")?.parse().ok()).collect();
    for _ in 0..WORKERS {
        let line = workers.line().await;
        let token = line.strip_prefix("then ").and_then(|token| token.parse().ok());
        tokens.push(token.unwrap_or_else(|| panic!("a worker said `{line}`")));
    }
    assert_eq!(workers.line().await, "(ended)");
    assert!(tokens.is_sorted_by(|a, b| a < b), "no token is given twice: {tokens:?}");
}

/// The program that a child has started with its lifeline, if the engine has one.
async fn command(child: &mut Child, client: &Client) -> Option<Pid> {
    let answer = child.ask("lifeline").await;
    if answer == "none" {
        assert_ne!(client.guarantees().after_death, AfterDeath::AtOnce);
        return None;
    }
    let pid = answer.parse().ok().and_then(Pid::from_raw);
    Some(pid.unwrap_or_else(|| panic!("the child said `{answer}`")))
}

async fn a_command_keeps_the_claims_of_its_killed_wrapper(mut ground: Ground) {
    const LEASE: Duration = ms(1000);
    let client = ground.client().await;
    let Some(mut wrapper) = child(&ground, &client).await else { return };
    let token = wrapper.lock("x", LEASE).await;
    assert!(wrapper.ask("lock beside 1000").await.starts_with("held"));
    let Some(command) = command(&mut wrapper, &client).await else { return };
    wrapper.kill().await;

    // One waits in the queue all the time, one asks and goes, one looks.
    let waiter = ground.client().await;
    let mutex = waiter.mutex("x").expect("a name");
    let waiting = tokio::spawn(async move { mutex.lock().await.map(|guard| guard.token().get()) });
    until("it waits", async || client.look(Family::Lock, "x").await.expect("a view").waiting == 1).await;
    let killed = tokio::time::Instant::now();
    while killed.elapsed() < LEASE * 5 / 2 {
        let taken = client.mutex("x").expect("a name").try_lock().await.expect("an answer");
        assert!(taken.is_none(), "free {:?} after its wrapper was killed", killed.elapsed());
        let view = client.look(Family::Lock, "x").await.expect("a view");
        assert_eq!(view.claims[0].claim.token, token);
        let listed = client.list(Family::Lock, None, 10).await.expect("a list");
        assert_eq!(listed.len(), 2, "{listed:?}");
        assert!(!waiting.is_finished(), "the waiter got it");
        tokio::time::sleep(ms(20)).await;
    }
    // A client that renews meets it too.
    let mut third = child(&ground, &client).await.expect("another");
    assert_eq!(third.ask("try beside 30000").await, "busy");

    let ended = tokio::time::Instant::now();
    kill_process(command, Signal::KILL).expect("it runs");
    assert!(soon("our turn", waiting).await.expect("no panic").expect("granted") > token);
    assert!(ended.elapsed() < bound(&ground), "waited {:?}", ended.elapsed());
    assert!(third.ask("try beside 30000").await.starts_with("held"));
}

async fn a_stopped_wrapper_loses_its_lease_whatever_its_command_does(mut ground: Ground) {
    let client = ground.client().await;
    let Some(mut wrapper) = child(&ground, &client).await else { return };
    let token = wrapper.lock("x", ms(500)).await;
    let Some(command) = command(&mut wrapper, &client).await else { return };
    wrapper.stop();
    freed_by(&client, token, ms(5000)).await;
    wrapper.resume();
    assert_eq!(wrapper.ask("standing x").await, format!("{:?}", Standing::Lost));
    // And what is released is free, whoever has the lifeline.
    wrapper.lock("x", ms(30_000)).await;
    assert_eq!(wrapper.ask("release x").await, "released");
    let taken = client.mutex("x").expect("a name").try_lock().await.expect("an answer");
    assert!(taken.is_some(), "it was released");
    kill_process(command, Signal::KILL).expect("it runs");
}
