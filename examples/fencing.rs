//! A paused holder writes late, and the resource refuses it.
//!
//! `cargo run -p leasehold --example fencing`
//!
//! The holder goes to sleep under its lease, as a process does that is stopped, swapped out or collecting garbage. Its
//! lease ends, another holder takes over and writes. Then the first one wakes up in the middle of its own write.
//! No lock can call that write back; the token that it carries can.

use std::sync::Mutex;
use std::time::Duration;

use leasehold::{Error, Fence, Token};

/// A protected resource: it checks the token and writes in one step.
#[derive(Default)]
struct Stock {
    fence: Fence,
    amount: Mutex<u32>,
}

impl Stock {
    fn write(&self, token: Token, amount: u32) -> leasehold::Result<()> {
        let mut stored = self.amount.lock().expect("nobody panics with it");
        self.fence.admit(token)?;
        *stored = amount;
        Ok(())
    }

    fn read(&self) -> u32 {
        *self.amount.lock().expect("nobody panics with it")
    }
}

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let stock = Stock::default();
    // Two clients, as two processes would have.
    let paused = leasehold::connect("memory:shop").await?;
    let quick = leasehold::connect("memory:shop").await?;
    let lease = Duration::from_millis(200);

    let first = paused.mutex("stock/42")?.lease(lease).lock().await?;
    println!("first  holds `stock/42` under token {}", first.token());
    stock.write(first.token(), 10)?;

    // The whole process of the first holder stands still: no renewal, no timer, nothing.
    let pause = std::thread::spawn(|| std::thread::sleep(Duration::from_millis(10)));
    pause.join().expect("it only sleeps");
    println!("first  is paused for longer than its lease");
    quick.break_claims(leasehold::Family::Lock, "stock/42").await?;

    let second = quick.mutex("stock/42")?.lease(lease).lock().await?;
    println!("second holds `stock/42` under token {}", second.token());
    stock.write(second.token(), 9)?;

    println!("first  wakes up and finishes the write that it had begun");
    match stock.write(first.token(), 11) {
        Err(error @ Error::Fenced { .. }) => println!("refused: {error}"),
        other => panic!("a late write was accepted: {other:?}"),
    }
    assert_eq!(stock.read(), 9);
    println!("the stock is {}, as the second holder left it", stock.read());
    second.release().await
}
