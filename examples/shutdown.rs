//! Ends on Ctrl-C or TERM without losing work: what is begun is finished, and every name is free at
//! once.
//!
//! `cargo run -p leasehold --example shutdown`, then Ctrl-C or `kill`.
//!
//! A process that just ends leaves its names to their leases on a server: up to half a minute in
//! which nobody works. Kubernetes and systemd send TERM and wait; this uses the time.

use std::time::Duration;

use leasehold::{Mutex, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("LEASEHOLD_ON").unwrap_or_else(|_| "file:".into());
    let client = leasehold::connect(&url).await?;
    let (stop, stopped) = watch::channel(false);
    let worker = tokio::spawn(work(client.mutex("example/shutdown")?, stopped));

    let mut term = signal(SignalKind::terminate()).expect("signals can be heard");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = term.recv() => {}
    }
    println!("asked to end");
    stop.send_replace(true);
    // Less than the one who sent TERM waits before KILL. What is not done by then is stopped by
    // `close`: its guard is lost, and `run` drops it.
    let in_time = tokio::time::timeout(Duration::from_secs(8), worker).await.is_ok();
    println!("{}", if in_time { "the work is done" } else { "the work took too long" });
    // Gives back what is still held and waits until the engine has heard, at most one call's time.
    client.close().await
}

async fn work(mutex: Mutex, mut stopped: watch::Receiver<bool>) -> Result<()> {
    loop {
        // A wait can be given up at any time: a dropped future leaves the queue.
        let guard = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => return Ok(()),
            guard = mutex.lock() => guard?,
        };
        println!("work begins under token {}", guard.token());
        // Work that was begun is not given up, unless the lease is lost.
        guard.run(tokio::time::sleep(Duration::from_secs(2))).await?;
        println!("work is done");
        guard.release().await?;
    }
}
