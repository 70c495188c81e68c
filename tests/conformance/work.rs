//! Clients that want one name, while somebody hurts the servers: nobody may hold it twice.
//!
//! `LEASEHOLD_SECTIONS=20000` asks for longer runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use leasehold::{Client, Standing};
use tokio::task::JoinHandle;

use crate::bench::ms;
use crate::history::{Rules, Section, check};

/// How many sections somebody asks for.
fn asked_for() -> Option<usize> {
    std::env::var("LEASEHOLD_SECTIONS").ok().and_then(|count| count.parse().ok())
}

/// How many sections are to be seen.
fn wanted() -> usize {
    asked_for().unwrap_or(1500)
}

/// How few of them will do, on a machine that is too busy to see more in the time that there is.
fn needed() -> usize {
    asked_for().unwrap_or(500)
}

/// Eight clients that want one name, and what they have seen.
pub(crate) struct Work {
    stop: Arc<AtomicBool>,
    seen: Arc<std::sync::Mutex<Vec<Section>>>,
    workers: Vec<JoinHandle<()>>,
    limit: Instant,
}

impl Work {
    pub(crate) async fn start(mut client: impl AsyncFnMut() -> Client) -> Work {
        const WORKERS: u64 = 8;
        let began = Instant::now();
        let limit = began + if wanted() > 2000 { ms(3_000_000) } else { ms(100_000) };
        let mut work = Work { stop: Arc::default(), seen: Arc::default(), workers: Vec::new(), limit };
        for worker in 0..WORKERS {
            let client = client().await;
            let (stop, seen) = (Arc::clone(&work.stop), Arc::clone(&work.seen));
            work.workers.push(tokio::spawn(async move {
                let micros = || began.elapsed().as_micros() as u64;
                while !stop.load(Ordering::Acquire) {
                    let mutex = client.mutex("x").expect("a name").lease(ms(3000));
                    let asked = micros();
                    let Ok(Some(guard)) = mutex.lock_for(ms(4000)).await else { continue };
                    let granted = micros();
                    tokio::task::yield_now().await;
                    // What ends before the guard says so is not counted as held.
                    let (token, released) = (guard.token().get(), micros());
                    if guard.standing() != Standing::Lost {
                        let section = Section { worker, asked, granted, released, token, weight: 1 };
                        seen.lock().expect("no panic").push(section);
                    }
                    guard.release().await.ok();
                }
            }));
        }
        work
    }

    fn count(&self) -> usize {
        self.seen.lock().expect("no panic").len()
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.count() < wanted() && Instant::now() < self.limit
    }

    /// Waits for some more sections, or for as long as an election takes.
    pub(crate) async fn some_more(&self) {
        let more = self.count() + (wanted() / 40).max(150);
        let until = Instant::now() + ms(6000);
        while self.count() < more && Instant::now() < until {
            tokio::time::sleep(ms(20)).await;
        }
    }

    pub(crate) async fn end(self, faults: usize) {
        self.stop.store(true, Ordering::Release);
        for worker in self.workers {
            let ended = tokio::time::timeout(ms(30_000), worker).await;
            ended.expect("a worker took too long").expect("no panic");
        }
        let seen = self.seen.lock().expect("no panic");
        let rules = Rules { capacity: 1, rising_beyond: 0, fifo_beyond: None };
        let summary = check(&seen, rules).expect("a good history");
        println!("{summary:?} with {faults} faults");
        assert!(summary.sections >= needed() && faults >= 3, "{summary:?} with {faults} faults");
    }
}
