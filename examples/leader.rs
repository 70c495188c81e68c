//! One leader among several processes, and everybody sees who it is.
//!
//! `cargo run -p leasehold --example leader` in two or three terminals; then end the leader with
//! Ctrl-C, or with `kill -9`, and see who leads next. For servers:
//! `LEASEHOLD_ON=redis://127.0.0.1/ cargo run -p leasehold --example leader --features redis`.

use std::ops::ControlFlow;
use std::time::Duration;

use leasehold::Result;
use leasehold::lock::{Election, Leadership, Observed};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("LEASEHOLD_ON").unwrap_or_else(|_| "file:".into());
    let client = leasehold::connect(&url).await?;
    let election = client.election("example/leader")?;
    let me = format!("process {}", std::process::id());

    tokio::select! {
        // Campaigns, works, and campaigns again whenever the leadership was lost.
        done = election.lead(&me, work) => done?,
        done = observe(&election) => done?,
        _ = tokio::signal::ctrl_c() => println!("{me}: ends"),
    }
    // Resigns now, so that the next leader need not wait until the lease has ended.
    client.close().await
}

/// What only the leader does. It is stopped where it awaits when the leadership is lost.
async fn work(leadership: Leadership) -> ControlFlow<()> {
    for step in 1.. {
        // Whoever stores what the leader did refuses a lower token than the last one it saw.
        println!("I lead: step {step} under token {}", leadership.token());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    ControlFlow::Break(())
}

/// What everybody does.
async fn observe(election: &Election) -> Result<()> {
    let mut observer = election.observe().await?;
    loop {
        match observer.next().await {
            Ok(Observed::Leader(leader)) => println!("led by {}", String::from_utf8_lossy(&leader.value)),
            Ok(Observed::Vacant) => println!("nobody leads"),
            Ok(_) => {}
            // The engine is away. Nothing is missed: it goes on where it stopped.
            Err(error) if error.is_retryable() => {
                println!("{error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(error) => return Err(error),
        }
    }
}
