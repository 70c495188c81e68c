//! What contending clients cost the database's other work: the rate of `pgbench` beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::kit::{self, Goal, Result};
use crate::servers::Postgres;
use crate::turn;

const CLIENTS: usize = 32;
const SCALE: &str = "5";

pub(crate) fn run(runtime: &Runtime, server: &Postgres, rounds: usize, slice: Duration) -> Result<()> {
    println!("pgbench beside {CLIENTS} clients that want the same name");
    let seconds = slice.as_secs().max(1).to_string();
    let limit = slice + Duration::from_secs(60);
    server.pgbench(&["-i", "-q", "-s", SCALE], limit)?;
    let measure = || -> Result<f64> {
        let said = server.pgbench(&["-n", "-c", "4", "-T", &seconds], limit)?;
        let rate = said.lines().find_map(|line| line.strip_prefix("tps = "));
        Ok(rate.and_then(|rate| rate.split(' ').next()).ok_or("pgbench does not say its rate")?.parse()?)
    };
    for (what, held) in [("for no time", Duration::ZERO), ("for 10 ms each", Duration::from_millis(10))] {
        let (mut ratios, mut turns) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let alone = measure()?;
            let crowd = runtime.block_on(Crowd::start(&server.url(), held))?;
            let beside = measure()?;
            turns.push(runtime.block_on(crowd.end())? as f64 / slice.as_secs().max(1) as f64);
            ratios.push(beside / alone);
        }
        let turns = kit::thousands(kit::median(turns));
        println!("  held {what}: {turns} turns/s of ours beside it");
        kit::verdict("pgbench beside them / alone", Goal::AtLeast(0.8), kit::median(ratios));
    }
    Ok(())
}

/// Clients that take one name in turns, until the end.
struct Crowd {
    over: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    tasks: JoinSet<Result<()>>,
}

impl Crowd {
    async fn start(url: &str, held: Duration) -> Result<Crowd> {
        let (over, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..CLIENTS {
            let client = leasehold::connect(&format!("{url}?connections=1")).await?;
            let (over, turns) = (Arc::clone(&over), Arc::clone(&turns));
            tasks.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    turn(client.clone(), "crowd".to_owned(), held).await?;
                    turns.fetch_add(1, Ordering::Relaxed);
                }
                Ok(client.close().await?)
            });
        }
        Ok(Crowd { over, turns, tasks })
    }

    async fn end(mut self) -> Result<u64> {
        let turns = self.turns.load(Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        Ok(turns)
    }
}
