//! Strangers that the cases play themselves: one that asks now and then beside a queue of ours that
//! never ends, and some that are odd.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::Error;
use tokio::task::JoinSet;

use crate::cases;
use crate::fleet;
use crate::strangers::Ground;

pub(crate) fn all() -> Vec<(&'static str, crate::Case)> {
    cases!([
        a_queue_lets_a_stranger_in_that_was_seen,
        a_queue_lets_a_stranger_in_that_is_expected,
        nobody_of_ours_gets_in_before_those_who_waited,
        our_readers_keep_strangers_out,
        a_lock_that_is_no_string_is_left_alone,
    ])
}

/// As the more patient of them do.
const ASKS_EVERY: Duration = Duration::from_millis(200);
/// How many times it is let in.
const ENOUGH: usize = 2;

async fn a_queue_lets_a_stranger_in_that_was_seen(ground: Ground) {
    // For as long as it takes until all of ours stand in the queue.
    ground.redis.command(&["SET", ground.foreign.key, "mine", "NX", "PX", "500"]).ok();
    stranger_gets_in(&ground, "").await;
}

async fn a_queue_lets_a_stranger_in_that_is_expected(ground: Ground) {
    stranger_gets_in(&ground, "?strangers").await;
}

async fn stranger_gets_in(ground: &Ground, options: &str) {
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let url = format!("{}/{options}", ground.redis.url());
    for _ in 0..4 {
        let client = leasehold::connect(&url).await.expect("a client");
        let (mutex, counter) = (ground.mutex(&client), ground.redis.connect());
        tasks.spawn(fleet::work(mutex, counter, Duration::ZERO, Arc::clone(&over)));
    }
    let mut redis = ground.redis.connect();
    let mut waits = Vec::new();
    let mut since = Instant::now();
    while waits.len() < ENOUGH {
        tokio::time::sleep(ASKS_EVERY).await;
        if !redis.command(&["SET", ground.foreign.key, "mine", "NX", "PX", "20"]).is_nil() {
            waits.push(since.elapsed());
            since = Instant::now();
        }
    }
    over.store(true, Ordering::Relaxed);
    let ours: u64 = tasks.join_all().await.iter().map(|worked| worked.sections).sum();
    println!("a stranger beside {ours} sections of ours waited {waits:?}");
}

async fn nobody_of_ours_gets_in_before_those_who_waited(ground: Ground) {
    let (one, two) = (ground.client().await, ground.client().await);
    for _ in 0..10 {
        ground.redis.command(&["SET", ground.foreign.key, "mine", "NX", "PX", "20000"]).ok();
        let (first, second) = (ground.mutex(&one), ground.mutex(&two));
        let first = tokio::spawn(async move { first.lock().await });
        ground.until_waiting(&one, 1).await;
        // Free, and the first in the queue does not know it yet.
        ground.redis.command(&["DEL", ground.foreign.key]);
        assert!(second.try_lock().await.expect("an answer").is_none(), "a newcomer was faster");
        first.await.expect("no panic").expect("held").release().await.expect("released");
    }
}

async fn our_readers_keep_strangers_out(ground: Ground) {
    let client = ground.client().await;
    let lock = client.rwlock(ground.foreign.ours).expect("a lock");
    let take = || ground.redis.command(&["SET", ground.foreign.key, "mine", "NX", "PX", "20000"]);
    let (one, two) = (lock.read().await.expect("held"), lock.read().await.expect("held"));
    assert!(take().is_nil());
    one.release().await.expect("released");
    assert!(take().is_nil(), "one of two is left");
    two.release().await.expect("released");
    take().ok();
    assert!(lock.try_read().await.expect("an answer").is_none());
}

async fn a_lock_that_is_no_string_is_left_alone(ground: Ground) {
    let client = ground.client().await;
    let mutex = ground.mutex(&client);
    // As Redisson keeps its locks.
    ground.redis.command(&["HSET", ground.foreign.key, "owner", "1"]);
    let refused = mutex.try_lock().await.expect_err("no lock of ours, and none that we know");
    assert!(matches!(refused, Error::Engine { .. }), "{refused:?}");
    assert_eq!(ground.redis.command(&["HGETALL", ground.foreign.key]).texts(), ["owner", "1"]);
}
