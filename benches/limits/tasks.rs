//! Sixteen tasks of one process on one name: rate, fairness, longest wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Mutex, Options};

use crate::Plan;
use crate::kit::{self, Goal, Result};

const TASKS: usize = 16;

/// What all tasks did in one round.
struct Round {
    rate: f64,
    sections: Vec<f64>,
    longest: Duration,
}

pub(crate) fn run(plan: Plan) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let runtime = kit::two_threads()?;
    let file = format!("file:{}", dir.path().display());
    let off = Options::new().hand_over(Duration::ZERO, 0);
    let setups = [
        ("memory, local queue", "memory:", Options::new()),
        ("memory, local queue off", "memory:", off.clone()),
        ("file, local queue", file.as_str(), Options::new()),
        ("file, local queue off", file.as_str(), off),
    ];
    let mut mutexes = Vec::new();
    for (_, url, options) in &setups {
        let client = runtime.block_on(leasehold::connect_with(url, options.clone()))?;
        mutexes.push(client.mutex("stock/42")?);
    }
    let mut rounds: Vec<Vec<Round>> = setups.iter().map(|_| Vec::new()).collect();
    for _ in 0..plan.rounds.div_ceil(2) {
        for (mutex, rounds) in mutexes.iter().zip(&mut rounds) {
            rounds.push(runtime.block_on(round(mutex, plan.slice * 2))?);
        }
    }
    println!("\n{TASKS} tasks on one name, two threads");
    for ((label, ..), rounds) in setups.iter().zip(&rounds) {
        println!(
            "  {label:<44} {:>11} cycles/s, longest wait {:.1?}, sections per task {}",
            kit::thousands(kit::median(rounds.iter().map(|round| round.rate).collect())),
            rounds.iter().map(|round| round.longest).max().unwrap_or_default(),
            kit::range(&rounds.last().ok_or("at least one round")?.sections),
        );
        let spreads = rounds.iter().map(|round| kit::spread(&round.sections)).collect();
        kit::verdict("  most / fewest sections of a task", Goal::AtMost(1.1), kit::median(spreads));
    }
    Ok(())
}

async fn round(mutex: &Mutex, slice: Duration) -> Result<Round> {
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (mutex, stop) = (mutex.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let (mut sections, mut longest) = (0.0, Duration::ZERO);
                while !stop.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    let guard = mutex.lock().await?;
                    longest = longest.max(asked.elapsed());
                    sections += 1.0;
                    // Time for the others to come and find the name taken.
                    tokio::task::yield_now().await;
                    guard.release().await?;
                }
                kit::Result::Ok((sections, longest))
            })
        })
        .collect();
    let started = Instant::now();
    tokio::time::sleep(slice).await;
    stop.store(true, Ordering::Relaxed);
    let mut done = Round { rate: 0.0, sections: Vec::new(), longest: Duration::ZERO };
    for task in tasks {
        let (sections, longest) = task.await??;
        done.sections.push(sections);
        done.longest = done.longest.max(longest);
    }
    done.rate = done.sections.iter().sum::<f64>() / started.elapsed().as_secs_f64();
    Ok(done)
}
