//! A pool of workers over all processes: at most three jobs run at a time, however many workers
//! there are.
//!
//! `cargo run -p leasehold --example workers`, in two terminals at the same time. For servers:
//! `LEASEHOLD_ON=redis://127.0.0.1/ cargo run -p leasehold --example workers --features redis`.

use std::time::Duration;

use leasehold::{Result, Semaphore};
use tokio::task::JoinSet;

/// All who use the name must say the same number; `Semaphore::resize` changes it for all.
const PERMITS: u32 = 3;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("LEASEHOLD_ON").unwrap_or_else(|_| "file:".into());
    let client = leasehold::connect(&url).await?;
    let permits = client.semaphore("example/workers", PERMITS)?;

    let mut workers = JoinSet::new();
    for job in 1..=9 {
        workers.spawn(work(permits.clone(), job));
    }
    while let Some(done) = workers.join_next().await {
        done.expect("no worker panics")?;
    }
    client.close().await
}

async fn work(permits: Semaphore, job: u32) -> Result<()> {
    // Waits in line, also behind the workers of other processes. A worker that dies gives its
    // permit back: at once on one machine, after its lease on servers.
    let permit = permits.acquire().await?;
    println!("job {job} starts; {} permits are free", permits.available().await?);
    permit.run(tokio::time::sleep(Duration::from_millis(500))).await?;
    println!("job {job} is done");
    permit.release().await
}
