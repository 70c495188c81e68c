//! Several of ours and several of theirs on one lock, which is all that protects a counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Client, Mutex};
use tokio::task::JoinSet;

use crate::cases;
use crate::servers::Connection;
use crate::strangers::Ground;

pub(crate) fn all() -> Vec<(&'static str, crate::Case)> {
    cases!([a_mixed_fleet_counts_right])
}

/// How long they work; ours go on until all of them have got in once more. So none of theirs is
/// starved by a queue that does not end, or the case takes too long.
const TIME: Duration = Duration::from_millis(1500);
/// Clients of ours, and tasks of each.
const OURS: usize = 3;
const TASKS: usize = 2;
const THEIRS: usize = 2;

/// What one worker, or one side, has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worked {
    pub(crate) sections: u64,
    pub(crate) longest: Duration,
}

impl Worked {
    fn and(self, other: Worked) -> Worked {
        Worked { sections: self.sections + other.sections, longest: self.longest.max(other.longest) }
    }
}

async fn a_mixed_fleet_counts_right(ground: Ground) {
    let mut strangers = Vec::new();
    for _ in 0..THEIRS {
        strangers.push(ground.stranger().await);
    }
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..OURS {
        let client = ground.client().await;
        for _ in 0..TASKS {
            let (mutex, counter) = (ground.mutex(&client), ground.redis.connect());
            tasks.spawn(work(mutex, counter, Duration::ZERO, Arc::clone(&over)));
        }
        clients.push(client);
    }
    // One that looks once in a lease would take its time to find one of the moments at which the
    // name is free.
    let seldom = ground.foreign.looks_within > TIME / 2;
    let lease = if seldom { 1000 } else { 10_000 };
    strangers.iter_mut().for_each(|stranger| stranger.tell(&format!("work {} {lease}", TIME.as_millis())));
    if seldom {
        tokio::time::sleep(TIME).await;
        over.store(true, Ordering::Relaxed);
    }
    let mut theirs = Vec::new();
    for stranger in &mut strangers {
        theirs.push(worked(&stranger.answer().await));
    }
    over.store(true, Ordering::Relaxed);
    let ours = tasks.join_all().await;
    let sum = |all: &[Worked]| all.iter().copied().fold(Worked::default(), Worked::and);
    let (our_sum, their_sum) = (sum(&ours), sum(&theirs));
    println!(
        "{}: ours {} sections, longest wait {:?}; theirs {} sections, longest wait {:?}",
        ground.foreign.word, our_sum.sections, our_sum.longest, their_sum.sections, their_sum.longest
    );
    let counted = ground.redis.command(&["GET", "counter"]).text();
    assert_eq!(counted, (our_sum.sections + their_sum.sections).to_string(), "two were in at once");
    assert!(ours.iter().all(|worker| worker.sections > 0), "one of ours was starved: {ours:?}");
    assert_eq!(ground.value(), None, "all was given back");
    for client in clients {
        Client::close(&client).await.expect("closed");
    }
}

/// What a stranger says of its work.
pub(crate) fn worked(said: &str) -> Worked {
    let mut words = said.strip_prefix("worked ").expect("it worked").split(' ');
    let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
    Worked { sections: number(), longest: Duration::from_millis(number()) }
}

/// Adds one to a counter that nothing else protects, again and again, and rests in between.
pub(crate) async fn work(
    mutex: Mutex,
    mut redis: Connection,
    rest: Duration,
    over: Arc<AtomicBool>,
) -> Worked {
    let mut worked = Worked::default();
    while !over.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let guard = mutex.lock().await.expect("held");
        worked.longest = worked.longest.max(asked.elapsed());
        let count = redis.command(&["GET", "counter"]);
        let count = if count.is_nil() { 0 } else { count.text().parse::<u64>().expect("a number") };
        tokio::time::sleep(Duration::from_millis(2)).await;
        redis.command(&["SET", "counter", &(count + 1).to_string()]).ok();
        guard.release().await.expect("still held");
        worked.sections += 1;
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
    }
    worked
}
