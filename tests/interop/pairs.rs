//! One of ours and one of theirs, step by step.

use std::time::{Duration, Instant};

use leasehold::{Error, Family, Loss};

use crate::cases;
use crate::servers::Proxy;
use crate::strangers::Ground;

pub(crate) fn all() -> Vec<(&'static str, crate::Case)> {
    cases!([
        its_release_lets_us_in,
        its_end_lets_us_in,
        our_release_lets_it_in,
        our_end_lets_it_in,
        a_renewed_lock_of_ours_stays_ours,
        its_late_release_leaves_ours_alone,
        our_late_release_leaves_its_alone,
        a_lock_that_was_taken_away_is_lost,
    ])
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// How soon one of ours finds that a stranger's lock is free. It looks every 50 ms; the rest is for
/// a busy machine.
const SOON: Duration = ms(500);

/// How much later than it should a stranger may find that ours is free, on a busy machine.
const SLACK: Duration = ms(500);

fn assert_within(what: &str, took: Duration, limit: Duration) {
    assert!(took < limit, "{what} took {took:?}, more than {limit:?}");
}

async fn its_release_lets_us_in(ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    let (first, second) = (ground.mutex(&one), ground.mutex(&two));
    let mut stranger = ground.stranger().await;
    assert_eq!(stranger.ask("take 20000").await, "held");
    assert!(first.try_lock().await.expect("an answer").is_none());
    let seen = one.look(Family::Lock, ground.foreign.ours).await.expect("a look").claims;
    assert!(seen[0].claim.holder.label.contains("not leasehold"), "{seen:?}");

    let first = tokio::spawn(async move { first.lock().await });
    ground.until_waiting(&one, 1).await;
    let second = tokio::spawn(async move { second.lock().await });
    ground.until_waiting(&one, 2).await;
    assert_eq!(stranger.ask("release").await, "released");
    let released = Instant::now();
    let guard = first.await.expect("no panic").expect("held");
    assert_within("our wait", released.elapsed(), SOON);
    assert!(!second.is_finished(), "who came second is let in second");
    let before = guard.token();
    guard.release().await.expect("released");
    let guard = second.await.expect("no panic").expect("held");
    assert!(guard.token() > before);
    guard.release().await.expect("released");
    assert_eq!(ground.value(), None);
}

async fn its_end_lets_us_in(ground: Ground) {
    let client = ground.client().await;
    let mutex = ground.mutex(&client);
    let mut stranger = ground.stranger().await;
    assert_eq!(stranger.ask("take 1000").await, "held");
    let left = ground.redis.command(&["PTTL", ground.foreign.key]).int();
    let ends = Instant::now() + ms(left.unsigned_abs());
    let guard = mutex.lock().await.expect("held");
    let now = Instant::now();
    // The server counts in whole milliseconds.
    assert!(now + ms(2) > ends, "let in {:?} too early", ends - now);
    assert_within("our wait", now.saturating_duration_since(ends), SOON);
    guard.release().await.expect("released");
}

async fn our_release_lets_it_in(ground: Ground) {
    let client = ground.client().await;
    let mut stranger = ground.stranger().await;
    let guard = ground.mutex(&client).lock().await.expect("held");
    assert_eq!(stranger.ask("try 1000").await, "busy");
    stranger.tell("take 1000");
    // Some of them wait as long as one lease of theirs before they look again, so they are let in
    // at the end of it.
    tokio::time::sleep(ms(300)).await;
    assert!(stranger.is_silent() && guard.is_held());
    guard.release().await.expect("released");
    let released = Instant::now();
    assert_eq!(stranger.answer().await, "held");
    assert_within("its wait", released.elapsed(), ground.foreign.looks_within + SLACK);
    assert_eq!(stranger.ask("release").await, "released");
    assert_eq!(ground.value(), None);
}

async fn our_end_lets_it_in(ground: Ground) {
    let proxy = Proxy::start(ground.redis.port());
    let client = ground.client_at(proxy.port()).await;
    let mut stranger = ground.stranger().await;
    let guard = ground.mutex(&client).lease(ms(1000)).lock().await.expect("held");
    stranger.tell("take 1000");
    // From now on this client can neither renew nor release.
    proxy.cut();
    let before = Instant::now();
    let left = ground.redis.command(&["PTTL", ground.foreign.key]).int();
    let ends = before + ms(left.unsigned_abs());
    let until = guard.remaining();
    assert!(Instant::now() + until <= ends, "held for longer than the key is there");
    assert_eq!(guard.lost().await, Loss::Deadline);
    assert_eq!(stranger.answer().await, "held");
    assert_within(
        "its wait",
        Instant::now().saturating_duration_since(ends),
        ground.foreign.looks_within + SLACK,
    );
    drop(guard);
}

async fn a_renewed_lock_of_ours_stays_ours(ground: Ground) {
    let client = ground.client().await;
    let mut stranger = ground.stranger().await;
    let guard = ground.mutex(&client).lease(ms(900)).lock().await.expect("held");
    stranger.tell("take 1000");
    // More than two leases.
    tokio::time::sleep(ms(2000)).await;
    assert!(stranger.is_silent() && guard.is_held());
    guard.release().await.expect("released");
    assert_eq!(stranger.answer().await, "held");
}

async fn its_late_release_leaves_ours_alone(ground: Ground) {
    let client = ground.client().await;
    let mut stranger = ground.stranger().await;
    assert_eq!(stranger.ask("take 1000").await, "held");
    // Ours once its lease has ended.
    let guard = ground.mutex(&client).lease(ms(900)).lock().await.expect("held");
    let ours = ground.value().expect("held");
    assert!(ours.starts_with("leasehold/1 "), "{ours}");
    let answer = stranger.ask("release").await;
    // rslock does not tell.
    assert!(answer == "gone" || ground.foreign.word == "rslock", "{answer}");
    let owner = |value: &str| value.split(' ').nth(1).map(str::to_owned);
    assert_eq!(ground.value().and_then(|value| owner(&value)), owner(&ours));
    // Beyond the next renewal, which would find out.
    tokio::time::sleep(ms(400)).await;
    guard.release().await.expect("still held");
}

async fn our_late_release_leaves_its_alone(ground: Ground) {
    let client = ground.client().await;
    let mut stranger = ground.stranger().await;
    // So long that a machine which stands still for a moment does not make the renewal late.
    let lease = ms(2400);
    let guard = ground.mutex(&client).lease(lease).lock().await.expect("held");
    // Somebody thinks that it knows better.
    ground.redis.command(&["DEL", ground.foreign.key]);
    assert_eq!(stranger.ask("take 20000").await, "held");
    let theirs = ground.value();
    let left = || ground.redis.command(&["PTTL", ground.foreign.key]).int();
    let lost = tokio::time::timeout(lease, guard.lost()).await.expect("told at the next renewal");
    assert_eq!(lost, Loss::Gone);
    assert!(left() > 15_000, "a renewal of ours has touched its lease");
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    assert_eq!(ground.value(), theirs);

    // The same before the renewal has found out.
    assert_eq!(stranger.ask("release").await, "released");
    let guard = ground.mutex(&client).lease(ms(60_000)).lock().await.expect("held");
    ground.redis.command(&["DEL", ground.foreign.key]);
    assert_eq!(stranger.ask("take 20000").await, "held");
    let theirs = ground.value();
    assert!(matches!(guard.release().await, Err(Error::Lost { why: Loss::Gone, .. })));
    assert_eq!(ground.value(), theirs);

    // And while others of ours wait.
    assert_eq!(stranger.ask("release").await, "released");
    let guard = ground.mutex(&client).lease(ms(60_000)).lock().await.expect("held");
    let (other, mutex) = (ground.client().await, ground.mutex(&ground.client().await));
    let waiter = tokio::spawn(async move { mutex.lock().await });
    ground.until_waiting(&other, 1).await;
    ground.redis.command(&["DEL", ground.foreign.key]);
    if stranger.ask("try 20000").await == "held" {
        let theirs = ground.value();
        assert!(matches!(guard.release().await, Err(Error::Lost { why: Loss::Gone, .. })));
        assert_eq!(ground.value(), theirs);
        assert!(!waiter.is_finished());
        assert_eq!(stranger.ask("release").await, "released");
    }
    waiter.await.expect("no panic").expect("held").release().await.expect("released");
}

async fn a_lock_that_was_taken_away_is_lost(ground: Ground) {
    let client = ground.client().await;
    let name = ground.foreign.ours;
    for overwritten in [false, true] {
        // So long that a machine which stands still for a moment does not make the renewal late.
        let lease = ms(2400);
        let guard = ground.mutex(&client).lease(lease).lock().await.expect("held");
        match overwritten {
            true => ground.redis.command(&["SET", ground.foreign.key, "mine", "PX", "3000"]).ok(),
            false => drop(ground.redis.command(&["DEL", ground.foreign.key])),
        }
        let lost = tokio::time::timeout(lease, guard.lost()).await.expect("told at the next renewal");
        assert_eq!(lost, Loss::Gone, "overwritten: {overwritten}");
        assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    }
    // One that forgot to say when its lock ends: an operator can break it.
    ground.redis.command(&["SET", ground.foreign.key, "for ever"]).ok();
    let limit = ms(200);
    assert!(ground.mutex(&client).lock_for(limit).await.expect("an answer").is_none());
    let broken = client.break_claims(Family::Lock, name).await.expect("broken");
    assert_eq!(broken.len(), 1);
    ground
        .mutex(&client)
        .try_lock()
        .await
        .expect("an answer")
        .expect("free")
        .release()
        .await
        .expect("released");
}
