//! One task, nobody else: what a cycle costs.

use heed::EnvFlags;
use leasehold::Mutex;
use tokio::runtime::Runtime;

use crate::Plan;
use crate::bare::{BareFlock, BareStore};
use crate::kit::{self, Goal, Result, Runner};

/// The rate of one task that takes a mutex and gives it back.
fn cycles(runtime: &Runtime, mutex: &Mutex, slice: std::time::Duration) -> Result<f64> {
    runtime.block_on(async {
        let started = tokio::time::Instant::now();
        let mut count = 0;
        loop {
            for _ in 0..64 {
                mutex.lock().await?.release().await?;
            }
            count += 64;
            let elapsed = started.elapsed();
            if elapsed >= slice {
                return Ok(f64::from(count) / elapsed.as_secs_f64());
            }
        }
    })
}

pub(crate) fn memory(plan: Plan) -> Result<()> {
    let runtime = kit::one_thread()?;
    let mutex = runtime.block_on(async { leasehold::connect("memory:").await?.mutex("stock/42") })?;
    let bare = tokio::sync::Mutex::new(());
    println!("\nmemory, one task");
    let race = kit::race(
        plan.rounds,
        plan.slice,
        vec![
            Runner::new("memory:", |slice| cycles(&runtime, &mutex, slice)),
            Runner::new("tokio::sync::Mutex (no lease, no token)", |slice| {
                runtime.block_on(async {
                    let started = tokio::time::Instant::now();
                    let mut count = 0;
                    while started.elapsed() < slice {
                        for _ in 0..1024 {
                            drop(std::hint::black_box(bare.lock().await));
                        }
                        count += 1024;
                    }
                    Ok(f64::from(count) / started.elapsed().as_secs_f64())
                })
            }),
        ],
    )?;
    race.print();
    kit::verdict("memory, cycles/s", Goal::AtLeast(1_000_000.0), race.median(0));
    Ok(())
}

pub(crate) fn file(plan: Plan) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let runtime = kit::one_thread()?;
    let url = format!("file:{}", dir.path().join("leasehold").display());
    let mutex = runtime.block_on(async { leasehold::connect(&url).await?.mutex("stock/42") })?;
    let bare = BareStore::open(&dir.path().join("bare"), EnvFlags::NO_SYNC)?;
    let mapped = BareStore::open(&dir.path().join("mapped"), EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP)?;
    let locked = BareFlock::open(&dir.path().join("flock"))?;
    println!("\nfile, one task");
    let race = kit::race(
        plan.rounds,
        plan.slice,
        vec![
            Runner::new("file:", |slice| cycles(&runtime, &mutex, slice)),
            Runner::new("bare store: LMDB NO_SYNC", |slice| kit::rate(slice, || bare.cycle(b"nlstock/42"))),
            Runner::new("for scale: LMDB NO_SYNC WRITE_MAP", |slice| {
                kit::rate(slice, || mapped.cycle(b"nlstock/42"))
            }),
            Runner::new("for scale: flock(2)", |slice| kit::rate(slice, || locked.cycle())),
        ],
    )?;
    race.print();
    kit::verdict("file / bare store", Goal::AtLeast(0.5), race.ratio(0, 1));
    Ok(())
}
