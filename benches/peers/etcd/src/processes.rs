//! Sixteen processes that want the same name: how often it changes hands, who gets it, and how long
//! the hand-over takes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use etcd_client::LockOptions;

use crate::kit::{self, Again, Goal, Result};
use crate::others::{LOCK_API, OURS, Other};

const PROCESSES: usize = 16;
const ROUNDS: usize = 3;
const SLICE: Duration = Duration::from_secs(3);

/// What some processes did.
struct Round {
    /// Sections of each process.
    counts: Vec<f64>,
    rate: f64,
    /// From a release to the next holder, where that is another process.
    gaps: Vec<f64>,
}

pub(crate) fn run(address: &str, others: &[Other]) -> Result<()> {
    println!("one name, {PROCESSES} processes");
    let kinds: Vec<&Other> = std::iter::once(&OURS).chain(others).collect();
    let mut all: Vec<Vec<Round>> = kinds.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (kind, rounds) in kinds.iter().zip(&mut all) {
            rounds.push(round(kind, address)?);
        }
    }
    let rate = |rounds: &[Round]| kit::median(rounds.iter().map(|round| round.rate).collect());
    for (kind, rounds) in kinds.iter().zip(&all) {
        println!(
            "  {:<32} {:>9} cycles/s, spread {:.2}, gap p50 {:.2} ms, p99 {:.2} ms",
            kind.label,
            kit::thousands(rate(rounds)),
            spread(rounds),
            gap(rounds, 0.5) * 1e3,
            gap(rounds, 0.99) * 1e3,
        );
    }
    for (kind, rounds) in kinds.iter().zip(&all).skip(1) {
        kit::verdict(&format!("ours / {}", kind.label), Goal::AtLeast(4.0), rate(&all[0]) / rate(rounds));
    }
    kit::verdict("gap p50, ms", Goal::AtMost(5.0), gap(&all[0], 0.5) * 1e3);
    Ok(())
}

/// Most over fewest sections of a process, in all rounds together.
fn spread(rounds: &[Round]) -> f64 {
    let sum = |process: usize| rounds.iter().map(|round| round.counts[process]).sum();
    kit::spread(&(0..PROCESSES).map(sum).collect::<Vec<f64>>())
}

fn gap(rounds: &[Round], part: f64) -> f64 {
    let mut gaps: Vec<f64> = rounds.iter().flat_map(|round| round.gaps.iter().copied()).collect();
    gaps.sort_unstable_by(f64::total_cmp);
    gaps.get((gaps.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
}

fn round(kind: &Other, address: &str) -> Result<Round> {
    let millis = SLICE.as_millis().to_string();
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        children.push(match &kind.program {
            Some(program) => Again::start_program(program, &["one", address, "go/one", &millis])?,
            None => Again::start(&["--child", kind.label, address, &millis])?,
        });
    }
    children.iter_mut().try_for_each(Again::until_ready)?;
    children.iter_mut().try_for_each(Again::go)?;
    // When it was granted, when it was given back, and whose it was.
    let mut sections: Vec<(f64, f64, usize)> = Vec::new();
    let mut counts = Vec::new();
    for (process, child) in children.into_iter().enumerate() {
        let lines = child.answer()?;
        for line in &lines {
            let numbers = kit::numbers(line)?;
            sections.push((numbers[0], numbers[1], process));
        }
        counts.push(lines.len() as f64);
    }
    sections.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let handed_over = sections.windows(2).filter(|pair| pair[0].2 != pair[1].2);
    let gaps = handed_over.map(|pair| pair[1].0 - pair[0].1).collect();
    Ok(Round { rate: counts.iter().sum::<f64>() / SLICE.as_secs_f64(), counts, gaps })
}

/// A clock that all processes share, also those in Go.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// One of the processes: `KIND ADDRESS MILLIS`.
pub(crate) fn child(arguments: &[String]) -> Result<()> {
    let [kind, address, millis] = arguments else { return Err("KIND ADDRESS MILLIS".into()) };
    let slice = Duration::from_millis(millis.parse()?).as_secs_f64();
    let sections = kit::one_thread()?.block_on(async {
        match kind.as_str() {
            LOCK_API => lock_api(address, slice).await,
            _ => ours(address, slice).await,
        }
    })?;
    for (granted, released) in sections {
        println!("{granted:.9} {released:.9}");
    }
    Ok(())
}

type Sections = Vec<(f64, f64)>;

async fn ours(address: &str, slice: f64) -> Result<Sections> {
    let client = leasehold::connect(&format!("etcd://{address}/processes")).await?;
    let mutex = client.mutex("one")?.lease(Duration::from_secs(30));
    // Connected, and its own line heard.
    mutex.lock().await?.release().await?;
    kit::ready()?;
    let (started, mut sections) = (now(), Vec::new());
    while now() < started + slice {
        let guard = mutex.lock().await?;
        sections.push((now(), now()));
        guard.release().await?;
    }
    client.close().await?;
    Ok(sections)
}

async fn lock_api(address: &str, slice: f64) -> Result<Sections> {
    let mut client = etcd_client::Client::connect([address], None).await?;
    let lease = client.lease_grant(30, None).await?.id();
    kit::ready()?;
    let (started, mut sections) = (now(), Vec::new());
    while now() < started + slice {
        let held = client.lock("api/one", Some(LockOptions::new().with_lease(lease))).await?;
        sections.push((now(), now()));
        client.unlock(held.key()).await?;
    }
    client.lease_revoke(lease).await?;
    Ok(sections)
}
