//! The cost of a cycle beside many names.
//!
//! A reference client on a store of its own, with one name, runs in turns with the crowded one: the
//! ratio is what the other names cost. Idle names must cost nothing. Names that are held take room:
//! what the engine stands on gets slower, too, as trees get deeper and caches too small, and the
//! engine must not add to that.

use std::time::Duration;

use leasehold::{Client, Options};

use crate::ground::Ground;
use crate::kit::{self, Goal, Result};
use crate::{Place, Plan, tens};

/// Long enough for no lease to be renewed while this runs.
const LEASE: Duration = Duration::from_secs(3600);
const ROUNDS: usize = 9;
const CYCLES: u64 = 2_000;

/// Names that are held while others come and go.
pub(crate) fn in_use(plan: Plan, place: &Place) -> Result<()> {
    println!("\n{}, names in use", place.engine);
    kit::one_thread()?.block_on(async {
        let (crowded, alone) = clients(place).await?;
        let mut held = Vec::new();
        let memory_before = resident()?;
        let mut last = f64::NAN;
        for count in tens(plan.names) {
            while (held.len() as u64) < count {
                let name = spread_out(held.len() as u64);
                held.push(crowded.mutex(&name)?.lock().await?);
            }
            last = step(count, &crowded, &alone, plan.names).await?;
        }
        let grown = resident()?.saturating_sub(memory_before) as f64 / held.len() as f64;
        println!("  memory per name that is held                 {} bytes", kit::thousands(grown));
        let ground = ground_growth(plan.names, place)?;
        println!("  cost with most names / with one              × {last:.2}");
        println!("  the same for {:<31} × {ground:.2}", Ground::label(&place.engine));
        kit::verdict("growth / growth of what it stands on", Goal::AtMost(1.0), last / ground);
        // A million releases would take longer than the measurement.
        std::mem::forget(held);
        Ok(())
    })
}

/// Names that were used and are free again.
pub(crate) fn idle(plan: Plan, place: &Place) -> Result<()> {
    println!("\n{}, names that were used and are idle", place.engine);
    kit::one_thread()?.block_on(async {
        let (crowded, alone) = clients(place).await?;
        let memory_before = resident()?;
        let mut last = f64::NAN;
        let mut used = 0;
        for count in tens(plan.names) {
            while used < count {
                crowded.mutex(spread_out(used))?.lock().await?.release().await?;
                used += 1;
            }
            last = step(count, &crowded, &alone, plan.names).await?;
        }
        kit::verdict("cost with most names / with one", Goal::AtMost(2.0), last);
        let grown = resident()?.saturating_sub(memory_before) as f64 / used as f64;
        println!("  memory per name that was used                {} bytes", kit::thousands(grown));
        Ok(())
    })
}

/// How the cost of what the engine stands on grows with the rows in it.
fn ground_growth(most: u64, place: &Place) -> Result<f64> {
    let mut crowded = Ground::open(&place.engine, &place.dir.path().join("ground"))?;
    let mut alone = Ground::open(&place.engine, &place.dir.path().join("ground-alone"))?;
    crowded.fill((0..most).map(spread_out))?;
    alone.fill([spread_out(0)].into_iter())?;
    let mut seed = most;
    let mut time = |ground: &mut Ground| {
        let started = kit::thread_time();
        for _ in 0..CYCLES {
            seed += 1;
            ground.cycle(&format!("{}/free", spread_out(spread(seed) % most)))?;
        }
        Result::Ok((kit::thread_time() - started).as_secs_f64())
    };
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let reference = time(&mut alone)?;
        ratios.push(time(&mut crowded)? / reference);
    }
    Ok(kit::median(ratios))
}

async fn clients(place: &Place) -> Result<(Client, Client)> {
    let options = Options::new().lease(LEASE);
    let crowded = leasehold::connect_with(&place.url("crowded"), options.clone()).await?;
    let alone = leasehold::connect_with(&place.url("alone"), options).await?;
    std::mem::forget(alone.mutex(spread_out(0))?.lock().await?);
    Ok((crowded, alone))
}

/// Measures both clients in turns, and prints.
async fn step(count: u64, crowded: &Client, alone: &Client, most: u64) -> Result<f64> {
    let (mut costs, mut ratios) = (Vec::new(), Vec::new());
    let mut seed = count;
    for _ in 0..ROUNDS {
        let reference = cycles(alone, &mut seed, most).await?;
        let cost = cycles(crowded, &mut seed, most).await?;
        costs.push(cost);
        ratios.push(cost / reference);
    }
    let ratio = kit::median(ratios);
    println!(
        "  {:>9} names: {:>6.2} µs a cycle, × {ratio:.2}",
        kit::thousands(count as f64),
        kit::median(costs)
    );
    Ok(ratio)
}

/// Microseconds for a cycle on a name that nobody holds, anywhere between those that are held.
async fn cycles(client: &Client, seed: &mut u64, most: u64) -> Result<f64> {
    let started = kit::thread_time();
    for _ in 0..CYCLES {
        *seed += 1;
        let name = format!("{}/free", spread_out(spread(*seed) % most));
        client.mutex(&name)?.lock().await?.release().await?;
    }
    Ok((kit::thread_time() - started).as_secs_f64() * 1e6 / CYCLES as f64)
}

/// Names in no order.
fn spread_out(index: u64) -> String {
    format!("stock/{:016x}", spread(index))
}

/// Another number for every number.
fn spread(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Bytes of memory in use by this process, the mapped store included.
fn resident() -> Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let resident: u64 = pages.split_whitespace().nth(1).ok_or("statm has a second field")?.parse()?;
    Ok(resident * rustix::param::page_size() as u64)
}
