//! A program without async: threads that compute, and take a lock for each step.
//!
//! `cargo run -p leasehold --example blocking --features blocking`

use std::time::Duration;

use leasehold::Options;
use leasehold::blocking::{self, Client};

fn main() -> leasehold::Result<()> {
    let url = std::env::var("LEASEHOLD_ON").unwrap_or_else(|_| "file:".into());
    // Short, to show that it is renewed: the thread of the client does that while we compute.
    let client = blocking::connect_with(&url, Options::new().lease(Duration::from_millis(500)))?;
    std::thread::scope(|threads| {
        let clients = (1..=3).map(|number| (number, client.clone()));
        let workers: Vec<_> =
            clients.map(|(number, client)| threads.spawn(move || work(&client, number))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no thread panics"))
    })?;
    client.close()
}

fn work(client: &Client, number: u32) -> leasehold::Result<()> {
    let table = client.mutex("example/blocking")?;
    let Some(guard) = table.lock_for(Duration::from_secs(10))? else {
        println!("thread {number}: not in time");
        return Ok(());
    };
    println!("thread {number}: holds it under token {}", guard.token());
    let sum = compute(Duration::from_secs(1)); // twice the lease, without a word to the client
    guard.check()?; // before the step that must not be made too late
    println!("thread {number}: {sum}, and still {:?}", guard.standing());
    guard.release()
}

/// Keeps a core busy.
fn compute(time: Duration) -> u64 {
    let (start, mut sum) = (std::time::Instant::now(), 0_u64);
    while start.elapsed() < time {
        sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
    }
    sum
}
