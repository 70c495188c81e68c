//! Locks at a majority of servers, shared with the clients that do the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{Client, Mutex};
use tokio::task::JoinSet;

use crate::fleet::{self, Worked};
use crate::servers::{Quorum, Redis};
use crate::strangers::{Foreign, Stranger};

/// A case: given servers and a client that is not ours, it returns or panics.
pub(crate) type Case = fn(Ground) -> std::pin::Pin<Box<dyn Future<Output = ()>>>;

/// The clients that can ask several servers.
pub(crate) const THEIRS: [&str; 4] = ["redlock_5", "redlock_4", "rslock", "redsync"];

macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        vec![$((stringify!($case), (|ground| Box::pin($case(ground))) as Case)),*]
    };
}

pub(crate) fn all() -> Vec<(&'static str, Case)> {
    cases![
        a_lock_of_theirs_keeps_us_out_and_ours_them,
        one_server_that_is_down_changes_nothing,
        our_waiter_hears_of_their_release,
        a_mixed_fleet_counts_right,
    ]
}

pub(crate) struct Ground {
    quorum: Quorum,
    foreign: &'static Foreign,
}

impl Ground {
    pub(crate) fn new(foreign: &'static Foreign) -> Ground {
        Ground { quorum: Quorum::start_with(3, &[]), foreign }
    }

    async fn client(&self) -> Client {
        // No queue of ours keeps strangers out for ever: there is none.
        let options = self.foreign.options.replace("&strangers", "");
        leasehold::connect(&format!("{}/{options}", self.quorum.url())).await.expect("a client")
    }

    fn mutex(&self, client: &Client) -> Mutex {
        client.mutex(self.foreign.ours).expect("a mutex")
    }

    async fn stranger(&self) -> Stranger {
        let ports: Vec<String> = self.quorum.servers.iter().map(|server| server.port().to_string()).collect();
        self.foreign.stranger(&ports.join(",")).await
    }

    /// How many servers have something at the key of the lock.
    fn keys(&self) -> usize {
        let has = |server: &&Redis| !server.command(&["GET", self.foreign.key]).is_nil();
        self.quorum.servers.iter().filter(has).count()
    }
}

async fn a_lock_of_theirs_keeps_us_out_and_ours_them(ground: Ground) {
    let (client, mut stranger) = (ground.client().await, ground.stranger().await);
    let mutex = ground.mutex(&client);
    for _ in 0..5 {
        assert_eq!(stranger.ask("try 20000").await, "held");
        assert!(mutex.try_lock().await.expect("an answer").is_none(), "both hold it");
        assert_eq!(stranger.ask("release").await, "released");
        let guard = mutex.try_lock().await.expect("an answer").expect("free");
        assert_eq!(stranger.ask("try 20000").await, "busy");
        assert!(ground.keys() >= 2, "what they tried in vain is left as it was");
        guard.release().await.expect("still ours");
    }
}

async fn one_server_that_is_down_changes_nothing(ground: Ground) {
    let (client, mut stranger) = (ground.client().await, ground.stranger().await);
    ground.quorum.servers[1].kill();
    let mutex = ground.mutex(&client);
    assert_eq!(stranger.ask("take 20000").await, "held");
    assert!(mutex.try_lock().await.expect("an answer").is_none(), "both hold it");
    stranger.ask("release").await;
    let guard = mutex.lock().await.expect("free");
    assert_eq!(stranger.ask("try 20000").await, "busy");
    guard.release().await.expect("still ours");
}

async fn our_waiter_hears_of_their_release(ground: Ground) {
    let (client, mut stranger) = (ground.client().await, ground.stranger().await);
    assert_eq!(stranger.ask("take 20000").await, "held");
    let mutex = ground.mutex(&client);
    let waiting = tokio::spawn(async move { mutex.lock().await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished(), "both hold it");
    let released = std::time::Instant::now();
    assert_eq!(stranger.ask("release").await, "released");
    waiting.await.expect("no panic").expect("held").release().await.expect("released");
    assert!(released.elapsed() < Duration::from_millis(1000), "{:?}", released.elapsed());
}

async fn a_mixed_fleet_counts_right(ground: Ground) {
    const OURS: usize = 2;
    const THEIRS: usize = 2;
    // There is no order at a quorum: who asks five times a second gets in only where the name is
    // free for a while.
    const REST: Duration = Duration::from_millis(20);
    let mut strangers = Vec::new();
    for _ in 0..THEIRS {
        strangers.push(ground.stranger().await);
    }
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let counter = &ground.quorum.servers[0];
    for _ in 0..OURS {
        let mutex = ground.mutex(&ground.client().await);
        tasks.spawn(fleet::work(mutex, counter.connect(), REST, Arc::clone(&over)));
    }
    // Short leases: two that ask at the same time may each be left with a server, and redlock 5
    // gives such a one back only with its lease.
    strangers.iter_mut().for_each(|stranger| stranger.tell("work 1500 2000"));
    let mut theirs = Vec::new();
    for stranger in &mut strangers {
        theirs.push(fleet::worked(&stranger.answer().await));
    }
    over.store(true, Ordering::Relaxed);
    let ours = tasks.join_all().await;
    let sum = |all: &[Worked]| all.iter().map(|worked| worked.sections).sum::<u64>();
    println!("{}: ours {} sections, theirs {}", ground.foreign.word, sum(&ours), sum(&theirs));
    let counted = counter.command(&["GET", "counter"]).text();
    assert_eq!(counted, (sum(&ours) + sum(&theirs)).to_string(), "two were in at once");
    assert!(ours.iter().all(|worker| worker.sections > 0), "one of ours was starved: {ours:?}");
}
