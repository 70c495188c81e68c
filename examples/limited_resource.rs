//! A resource that must not be used more often than a limit allows, used by eight processes.
//!
//! ```text
//! cargo run -p leasehold --example limited_resource
//! cargo run -p leasehold --features redis --example limited_resource -- --on redis://127.0.0.1/
//! ```
//!
//! All processes ask as often as they can. Each use is noted with the time before the request was
//! sent and after its answer came, so it was allowed somewhere between. For every kind of limit the
//! program then looks at every time between one moment and another. If more uses were surely inside
//! it than the limit allows, that is over-admission, and the program ends with an error.
//!
//! `--processes 8`, `--tasks 4` (in each), `--seconds 3` (for each kind of limit).

#[path = "processes/mod.rs"]
mod processes;

use std::time::Duration;

use leasehold::kit::rate::{Limit, Verdict, WhenAway};
use processes::{Arguments, Result, Worker, now, random};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::JoinSet;

const AMOUNT: u32 = 100;
const BURST: u32 = 20;
const PERIOD: Duration = Duration::from_millis(500);

/// Every kind of limit.
const KINDS: [&str; 6] = [
    "token bucket",
    "token bucket, in batches",
    "fixed window",
    "sliding log",
    "sliding window",
    "leaky bucket",
];

fn limit(kind: &str) -> Limit {
    match kind {
        "token bucket" => Limit::token_bucket(AMOUNT, PERIOD).burst(BURST),
        // Less is left of the burst by what comes back while a batch is held.
        "token bucket, in batches" => {
            Limit::token_bucket(AMOUNT, PERIOD).burst(BURST).batches(5, Duration::from_millis(50))
        }
        "fixed window" => Limit::fixed_window(AMOUNT, PERIOD),
        "sliding log" => Limit::sliding_log(AMOUNT, PERIOD),
        "sliding window" => Limit::sliding_window(AMOUNT, PERIOD),
        _ => Limit::leaky_bucket(AMOUNT, PERIOD).queue(BURST - 1),
    }
}

/// The most that a limit allows in a time that begins and ends anywhere.
fn bound(kind: &str, micros: u64) -> u64 {
    let (amount, period) = (u64::from(AMOUNT), 500_000);
    match kind {
        "fixed window" => amount * (micros / period + 2),
        "sliding log" | "sliding window" => amount * (micros / period + 1),
        _ => u64::from(BURST) + amount * micros / period,
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::read();
    if let Some([url, tasks, seconds]) = arguments.of_worker() {
        return work(url, tasks.parse()?, Duration::from_secs(seconds.parse()?)).await;
    }
    let dir = tempfile::tempdir()?;
    let (url, count) = (arguments.url(&dir), arguments.number("--processes", 8)?);
    let tasks = arguments.number("--tasks", 4)?.to_string();
    let seconds = arguments.number("--seconds", 3)?.to_string();
    let mut workers = Vec::new();
    for _ in 0..count {
        workers.push(Worker::start(&[&url, &tasks, &seconds]).await?);
    }
    println!("{count} processes with {tasks} tasks each, {seconds} s for each kind of limit");
    println!("{:<26} {:>10} {:>9} {:>15}", "", "decisions", "allowed", "over-admission");
    let mut broken = false;
    for (number, kind) in KINDS.iter().enumerate() {
        let name = format!("limited-resource-{}", random(u64::MAX));
        for worker in &mut workers {
            worker.say(&format!("{number} {name}")).await?;
        }
        let (mut decisions, mut uses) = (0, Vec::new());
        for worker in &mut workers {
            while let Some(line) = worker.line().await? {
                let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
                match numbers[..] {
                    [sent, answered] => uses.push((sent, answered)),
                    [asked] => {
                        decisions += asked;
                        break;
                    }
                    _ => return Err(format!("a worker said `{line}`").into()),
                }
            }
        }
        let over = over_admission(kind, &uses);
        println!("{kind:<26} {decisions:>10} {:>9} {over:>15}", uses.len());
        // A limit that allows nothing keeps its bound, too.
        broken |= over > 0 || uses.len() < usize::try_from(BURST)?;
    }
    if broken { Err("a limit was not kept, or let nothing through".into()) } else { Ok(()) }
}

/// By how much the bound was exceeded in the worst time: 0 if never.
fn over_admission(kind: &str, uses: &[(u64, u64)]) -> u64 {
    let mut over = 0;
    for &(start, _) in uses {
        // Those that were surely after the start, by their end.
        let mut ends: Vec<u64> =
            uses.iter().filter(|(sent, _)| *sent >= start).map(|(_, end)| *end).collect();
        ends.sort_unstable();
        for (before, end) in ends.iter().enumerate() {
            let inside = u64::try_from(before).unwrap_or(u64::MAX) + 1;
            over = over.max(inside.saturating_sub(bound(kind, end - start)));
        }
    }
    over
}

/// Uses the resource as it is told to: `KIND NAME`.
async fn work(url: &str, tasks: u32, time: Duration) -> Result<()> {
    let client = leasehold::connect(url).await?;
    println!("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let Some((kind, name)) = line.split_once(' ') else { return Err(line.into()) };
        let kind = *KINDS.get(kind.parse::<usize>()?).ok_or("no such limit")?;
        // The engine decides or nobody does, however slow the machine is.
        let limiter = client.limiter(name, limit(kind), WhenAway::Closed)?.deadline(Duration::from_secs(20));
        let end = now() + u64::try_from(time.as_micros())?;
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            let limiter = limiter.clone();
            running.spawn(async move {
                let (mut uses, mut decisions) = (Vec::new(), 0);
                loop {
                    let sent = now();
                    if sent >= end {
                        return Ok::<_, leasehold::Error>((uses, decisions));
                    }
                    decisions += 1;
                    match limiter.check("resource").await? {
                        Verdict::Allowed(_) => uses.push((sent, now())),
                        // Too early on purpose: half of these are refused again.
                        Verdict::Denied { retry_after, .. } => tokio::time::sleep(retry_after / 2).await,
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
        let mut decisions = 0;
        while let Some(task) = running.join_next().await {
            let (uses, asked) = task??;
            decisions += asked;
            for (sent, answered) in uses {
                println!("{sent} {answered}");
            }
        }
        println!("{decisions}");
    }
    Ok(())
}
