//! A paused holder writes late, and the resource refuses it.
//!
//! `cargo run -p leasehold --example fencing`
//!
//! The first holder stands still under its lease, as a process does that is stopped, swapped out or
//! collecting garbage. Its lease ends, another holder takes over and writes. Then the first one
//! wakes up and finishes the write that it had begun. No lock can call that write back; the token
//! that it carries can.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Error, Fence, Result, Token};

const LEASE: Duration = Duration::from_millis(200);

/// A protected resource: it checks the token and writes in one step.
#[derive(Default)]
struct Stock {
    fence: Fence,
    amount: Mutex<u32>,
}

impl Stock {
    fn write(&self, token: Token, amount: u32) -> Result<()> {
        let mut stored = self.amount.lock().expect("nobody panics with it");
        self.fence.admit(token)?;
        *stored = amount;
        Ok(())
    }
}

/// Holds the name, stands still for longer than the lease, and writes.
async fn paused_holder(stock: Arc<Stock>, held: std::sync::mpsc::Sender<()>) -> Result<()> {
    let client = leasehold::connect("memory:shop").await?;
    let guard = client.mutex("stock/42")?.lease(LEASE).lock().await?;
    println!("first:  holds `stock/42` under token {}", guard.token());
    stock.write(guard.token(), 10)?;
    held.send(()).expect("the second holder listens");

    // Everything in this thread stands still, the renewal of the lease too.
    std::thread::sleep(LEASE * 3);

    println!("first:  wakes up ({:?}) and finishes a write that it had begun", guard.standing());
    match stock.write(guard.token(), 11) {
        Err(error @ Error::Fenced { .. }) => println!("stock:  {error}"),
        other => panic!("a late write was accepted: {other:?}"),
    }
    Ok(())
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

fn main() -> Result<()> {
    let stock = Arc::new(Stock::default());
    let (held, is_held) = std::sync::mpsc::channel();
    let first = std::thread::spawn({
        let stock = Arc::clone(&stock);
        move || run(paused_holder(stock, held))
    });
    is_held.recv().expect("the first holder says so");

    run(async {
        let client = leasehold::connect("memory:shop").await?;
        let guard = client.mutex("stock/42")?.lock().await?;
        println!("second: holds `stock/42` under token {}", guard.token());
        stock.write(guard.token(), 9)?;
        guard.release().await
    })?;

    first.join().expect("the first holder does not panic")?;
    let amount = *stock.amount.lock().expect("nobody panics with it");
    assert_eq!(amount, 9);
    println!("stock:  {amount}, as the second holder left it");
    Ok(())
}
