//! Sixteen processes that want the same name: how often it changes hands, and who gets it.

use std::time::{Duration, Instant};

use crate::free::cycle;
use crate::kit::{self, Again, Goal, Result};
use crate::peers::{CRATE, CURATOR, KAZOO, Peer};

const PROCESSES: usize = 16;
const ROUNDS: usize = 3;
const SLICE: Duration = Duration::from_secs(3);
const OURS: &str = "ours";

pub(crate) fn run(address: &str) -> Result<()> {
    println!("one name, {PROCESSES} processes");
    let kinds = [OURS, CRATE, CURATOR, KAZOO];
    let mut all: Vec<Vec<Vec<f64>>> = vec![Vec::new(); kinds.len()];
    for _ in 0..ROUNDS {
        for (kind, rounds) in kinds.iter().zip(&mut all) {
            rounds.push(round(kind, address)?);
        }
    }
    let rate = |rounds: &[Vec<f64>]| {
        let rates = rounds.iter().map(|counts| counts.iter().sum::<f64>() / SLICE.as_secs_f64());
        kit::median(rates.collect())
    };
    let spread = |rounds: &[Vec<f64>]| {
        let sums = (0..PROCESSES).map(|process| rounds.iter().map(|counts| counts[process]).sum());
        kit::spread(&sums.collect::<Vec<f64>>())
    };
    for (kind, rounds) in kinds.iter().zip(&all) {
        let rate = kit::thousands(rate(rounds));
        println!("  {kind:<32} {rate:>9} cycles/s, spread {:.2}", spread(rounds));
    }
    for (kind, rounds) in kinds.iter().zip(&all).skip(1) {
        kit::verdict(&format!("ours / {kind}"), Goal::AtLeast(0.9), rate(&all[0]) / rate(rounds));
    }
    Ok(())
}

/// The cycles of each process.
fn round(kind: &str, address: &str) -> Result<Vec<f64>> {
    let millis = SLICE.as_millis().to_string();
    if kind == CURATOR || kind == KAZOO {
        let mut peers = Vec::new();
        for _ in 0..PROCESSES {
            peers.push(Peer::start(kind, address, &format!("/{kind}/one"))?);
        }
        peers.iter_mut().try_for_each(|peer| peer.tell(&format!("cycle {millis}")))?;
        return peers.iter_mut().map(Peer::cycles).collect();
    }
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        children.push(Again::start(&["--child", kind, address, &millis])?);
    }
    children.iter_mut().try_for_each(Again::until_ready)?;
    children.iter_mut().try_for_each(Again::go)?;
    let count = |child: Again| {
        let lines = child.answer()?;
        Ok(kit::numbers(lines.first().ok_or("a child said nothing")?)?[0])
    };
    children.into_iter().map(count).collect()
}

/// One of the processes: `KIND ADDRESS MILLIS`.
pub(crate) fn child(arguments: &[String]) -> Result<()> {
    let [kind, address, millis] = arguments else { return Err("KIND ADDRESS MILLIS".into()) };
    let slice = Duration::from_millis(millis.parse()?);
    let cycles = kit::one_thread()?.block_on(async {
        match kind.as_str() {
            CRATE => crates(address, slice).await,
            _ => ours(address, slice).await,
        }
    })?;
    println!("{cycles}");
    Ok(())
}

async fn ours(address: &str, slice: Duration) -> Result<u32> {
    let client = leasehold::connect(&format!("zookeeper://{address}/processes")).await?;
    let mutex = client.mutex("one")?.lease(Duration::from_secs(30));
    // Connected, and its own line heard.
    mutex.lock().await?.release().await?;
    kit::ready()?;
    let (started, mut cycles) = (Instant::now(), 0);
    while started.elapsed() < slice {
        mutex.lock().await?.release().await?;
        cycles += 1;
    }
    client.close().await?;
    Ok(cycles)
}

async fn crates(address: &str, slice: Duration) -> Result<u32> {
    let client = zookeeper_client::Client::connect(address).await?;
    cycle(&client, "/crate/one").await?;
    kit::ready()?;
    let (started, mut cycles) = (Instant::now(), 0);
    while started.elapsed() < slice {
        cycle(&client, "/crate/one").await?;
        cycles += 1;
    }
    Ok(cycles)
}
