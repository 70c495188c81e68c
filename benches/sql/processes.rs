//! Sixteen processes that want the same name: how often it changes hands, who gets it, and how long
//! the hand-over takes. Beside what others do in the same database.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use rustix::time::{ClockId, clock_gettime};
use tokio_postgres::NoTls;
use tokio_postgres::types::Type;

use crate::bare::postgres::SHEDLOCK;
use crate::kit::{self, Goal, Result};

const PROCESSES: usize = 16;
/// ShedLock does not wait. Whoever wants to asks again.
const SHEDLOCK_PAUSE: Duration = Duration::from_millis(5);

/// What some processes did.
struct Round {
    /// Sections of each process.
    counts: Vec<f64>,
    rate: f64,
    /// From a release to the next holder, where that is another process.
    gaps: Vec<f64>,
}

/// Runs `kinds`, each with its URL, in turns; the first one is ours. `commit` is the time of a bare
/// statement that takes a lease.
pub(crate) fn run(kinds: &[(&str, &str)], commit: f64, rounds: usize, slice: Duration) -> Result<()> {
    println!("one name, {PROCESSES} processes; a commit takes {:.2} ms", commit * 1e3);
    let mut alone = Vec::new();
    let mut all: Vec<Vec<Round>> = kinds.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        alone.push(round(kinds[0], 1, slice)?);
        for (kind, rounds) in kinds.iter().zip(&mut all) {
            rounds.push(round(*kind, PROCESSES, slice)?);
        }
    }
    let rate = |rounds: &[Round]| kit::median(rounds.iter().map(|round| round.rate).collect());
    println!("  {:<32} {:>9} cycles/s", "ours, one process alone", kit::thousands(rate(&alone)));
    for ((kind, _), rounds) in kinds.iter().zip(&all) {
        println!(
            "  {kind:<32} {:>9} cycles/s, spread {:.2}, gap p50 {:.2} ms, p99 {:.2} ms",
            kit::thousands(rate(rounds)),
            spread(rounds),
            gap(rounds, 0.5) * 1e3,
            gap(rounds, 0.99) * 1e3,
        );
    }
    kit::verdict("16 processes / one alone", Goal::AtLeast(0.5), rate(&all[0]) / rate(&alone));
    kit::verdict("spread of the turns", Goal::AtMost(1.3), spread(&all[0]));
    kit::verdict("gap p50 / commit", Goal::AtMost(2.0), gap(&all[0], 0.5) / commit);
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

fn round((kind, url): (&str, &str), processes: usize, slice: Duration) -> Result<Round> {
    let millis = slice.as_millis().to_string();
    let child = ["--child", kind, url, &millis].map(str::to_owned).to_vec();
    // When it was granted, when it was given back, and whose it was.
    let mut sections: Vec<(f64, f64, usize)> = Vec::new();
    let mut counts = Vec::new();
    for (process, lines) in kit::together(&vec![child; processes])?.into_iter().enumerate() {
        for line in &lines {
            let numbers = kit::numbers(line)?;
            sections.push((numbers[0], numbers[1], process));
        }
        counts.push(lines.len() as f64);
    }
    sections.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let handed_over = sections.windows(2).filter(|pair| pair[0].2 != pair[1].2);
    let gaps = handed_over.map(|pair| pair[1].0 - pair[0].1).collect();
    Ok(Round { rate: counts.iter().sum::<f64>() / slice.as_secs_f64(), counts, gaps })
}

/// A clock that all processes share.
fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// One of the processes: `KIND URL MILLIS`.
pub(crate) fn child(arguments: &[String]) -> Result<()> {
    let [kind, url, millis] = arguments else { return Err("KIND URL MILLIS".into()) };
    let slice = Duration::from_millis(millis.parse()?).as_secs_f64();
    let sections = kit::one_thread()?.block_on(async {
        match kind.as_str() {
            "pg_advisory_lock" => advisory(url, slice).await,
            "ShedLock's statements" => shedlock(url, slice).await,
            "GET_LOCK" => get_lock(url, slice).await,
            _ => ours(url, slice).await,
        }
    })?;
    for (granted, released) in sections {
        println!("{granted:.9} {released:.9}");
    }
    Ok(())
}

type Sections = Vec<(f64, f64)>;

async fn ours(url: &str, slice: f64) -> Result<Sections> {
    let client = leasehold::connect(url).await?;
    let mutex = client.mutex("processes")?;
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

async fn advisory(url: &str, slice: f64) -> Result<Sections> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    kit::ready()?;
    let (started, mut sections) = (now(), Vec::new());
    while now() < started + slice {
        client.query_typed("select pg_advisory_lock(7)", &[]).await?;
        sections.push((now(), now()));
        client.query_typed("select pg_advisory_unlock(7)", &[]).await?;
    }
    Ok(sections)
}

async fn shedlock(url: &str, slice: f64) -> Result<Sections> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    kit::ready()?;
    let me = std::process::id().to_string();
    let (started, mut sections) = (now(), Vec::new());
    while now() < started + slice {
        if client.execute_typed(SHEDLOCK.take, &[(&me, Type::TEXT)]).await? == 0 {
            tokio::time::sleep(SHEDLOCK_PAUSE).await;
            continue;
        }
        sections.push((now(), now()));
        client.execute_typed(SHEDLOCK.give_back, &[(&me, Type::TEXT)]).await?;
    }
    Ok(sections)
}

async fn get_lock(url: &str, slice: f64) -> Result<Sections> {
    let mut connection = mysql_async::Conn::from_url(url).await?;
    kit::ready()?;
    let (started, mut sections) = (now(), Vec::new());
    while now() < started + slice {
        connection.query_drop("select get_lock('processes', 60)").await?;
        sections.push((now(), now()));
        connection.query_drop("select release_lock('processes')").await?;
    }
    Ok(sections)
}
