//! The cost of a hand-over while many wait for the same name.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use leasehold::{Client, Options};
use tokio::task::LocalSet;

use crate::kit::{self, Goal, Result};
use crate::{Place, Plan, tens};

const ROUNDS: usize = 3;

pub(crate) fn run(plan: Plan, place: &Place) -> Result<()> {
    let queues = [
        ("local queue", Options::new()),
        ("local queue off: all wait in the engine", Options::new().hand_over(Duration::ZERO, 0)),
    ];
    for (label, options) in queues {
        println!("\n{}, waiters on one name, {label}", place.engine);
        let runtime = kit::one_thread()?;
        let client = runtime.block_on(leasehold::connect_with(&place.url("waiters"), options))?;
        let mut ratio = f64::NAN;
        for count in tens(plan.waiters) {
            let (mut costs, mut ratios) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let reference = LocalSet::new().block_on(&runtime, hand_overs(&client, 1))?;
                let cost = LocalSet::new().block_on(&runtime, hand_overs(&client, count))?;
                costs.push(cost);
                ratios.push(cost / reference);
            }
            ratio = kit::median(ratios);
            let cost = kit::median(costs);
            println!(
                "  {:>9} waiting: {cost:>6.2} µs a hand-over, × {ratio:.2}",
                kit::thousands(count as f64)
            );
        }
        kit::verdict("cost with most waiters / with one", Goal::AtMost(2.0), ratio);
    }
    Ok(())
}

/// Microseconds for a hand-over while `count` tasks wait.
async fn hand_overs(client: &Client, count: u64) -> Result<f64> {
    let mutex = client.mutex("stock/42")?;
    let first = mutex.lock().await?;
    let enough = (count * 2).max(4_000);
    let (waiting, done, stopped) =
        (Rc::new(Cell::new(0)), Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(None)));
    let tasks: Vec<_> = (0..=count)
        .map(|_| {
            let mutex = mutex.clone();
            let (waiting, done, stopped) = (Rc::clone(&waiting), Rc::clone(&done), Rc::clone(&stopped));
            tokio::task::spawn_local(async move {
                waiting.set(waiting.get() + 1);
                while stopped.get().is_none() {
                    let guard = mutex.lock().await?;
                    done.set(done.get() + 1);
                    if done.get() == enough {
                        stopped.set(Some(kit::thread_time()));
                    }
                    guard.release().await?;
                }
                kit::Result::Ok(())
            })
        })
        .collect();
    // The embedded engines answer at once, so a task that has started stands in the queue.
    while waiting.get() <= count {
        tokio::task::yield_now().await;
    }
    let started = kit::thread_time();
    first.release().await?;
    for task in tasks {
        task.await??;
    }
    let stopped = stopped.get().ok_or("the last hand-over was counted")?;
    Ok((stopped - started).as_secs_f64() * 1e6 / enough as f64)
}
