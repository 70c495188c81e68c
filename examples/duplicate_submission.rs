//! An order that eight processes send a thousand times, while some of them are killed, is placed
//! once.
//!
//! ```text
//! cargo run -p leasehold --features once --example duplicate_submission
//! cargo run -p leasehold --features once,redis --example duplicate_submission -- --on redis://127.0.0.1/
//! ```
//!
//! In each round all processes submit the same order at the same time, and one or two of them are
//! killed with `kill -9` at a random moment. Placing an order is a line in a file. After each round
//! the order was placed exactly once, or it is told as unknown and was placed at most once. If it
//! was ever placed twice, or a caller was given a result of an order that was not placed, the
//! program ends with an error.
//!
//! `--rounds 20`, `--processes 8`, `--submissions 1000` (of all processes together, per round).

#[path = "processes/mod.rs"]
mod processes;

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::kit::once::{IfRunning, Once, Submission};
use processes::{Arguments, Result, Worker, random, random_time};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::JoinSet;

/// A process that was killed is given up after this.
const LEASE: Duration = Duration::from_secs(1);

/// What callers were told.
#[derive(Debug, Default)]
struct Told {
    placed: u32,
    replayed: u32,
    in_progress: u32,
    unknown: u32,
    /// The engine did not answer, or the lease was lost.
    failed: u32,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::read();
    if let Some([url, orders]) = arguments.of_worker() {
        return work(url, Path::new(orders)).await;
    }
    let dir = tempfile::tempdir()?;
    let (url, orders) = (arguments.url(&dir), dir.path().join("orders"));
    let rounds = arguments.number("--rounds", 20)?;
    let count = arguments.number("--processes", 8)?.max(1);
    let each = arguments.number("--submissions", 1000)?.div_ceil(count);
    File::create(&orders)?;

    let path = orders.display().to_string();
    let mut workers = Vec::new();
    for _ in 0..count {
        workers.push(Worker::start(&[&url, &path]).await?);
    }
    let client = leasehold::connect(&url).await?;
    // Keys of this run alone, on an engine that may be used for something else.
    let scope = format!("duplicate-submission-{}", random(u64::MAX));
    let once = client.once(&scope)?.lease(LEASE).if_running(IfRunning::Wait(LEASE * 60));
    let (mut told, mut killed) = (Told::default(), 0);
    let (mut exactly_once, mut unknown_placed, mut unknown_not_placed, mut not_begun) = (0, 0, 0, 0);
    let mut wrong = Vec::new();
    for round in 0..rounds {
        let key = format!("{}-{round}", random(u64::MAX));
        for worker in &mut workers {
            worker.say(&format!("{scope} {key} {each}")).await?;
        }
        tokio::time::sleep(random_time(60)).await;
        let mut dead = HashSet::new();
        for _ in 0..=random(2) {
            let victim = usize::try_from(random(u64::from(count)))?;
            workers[victim].kill().await?;
            dead.insert(victim);
        }
        killed += dead.len();
        let before = (told.placed, told.replayed);
        for (number, worker) in workers.iter_mut().enumerate() {
            match worker.line().await? {
                Some(line) => told.add(&line)?,
                None if dead.contains(&number) => {}
                None => return Err("a worker ended that was not killed".into()),
            }
            if dead.contains(&number) {
                *worker = Worker::start(&[&url, &path]).await?;
            }
        }
        let successes = told.placed + told.replayed - before.0 - before.1;
        let runners = told.placed - before.0;
        let placed = std::fs::read_to_string(&orders)?.lines().filter(|line| *line == key).count();
        let end = outcome(&once, &key).await?;
        match (end, placed) {
            (End::Placed, 1) => exactly_once += 1,
            (End::Unknown, 1) => unknown_placed += 1,
            (End::Unknown, 0) => unknown_not_placed += 1,
            (End::Free, 0) => not_begun += 1,
            _ => wrong.push(format!("round {round}: {end:?}, but it was placed {placed} times")),
        }
        if runners > 1 || successes > 0 && placed != 1 {
            wrong.push(format!(
                "round {round}: {successes} were told that it was placed, {runners} placed it"
            ));
        }
    }
    client.close().await.ok();
    println!(
        "{} submissions of {rounds} orders by {count} processes, {killed} killed",
        rounds * each * count
    );
    println!("  placed exactly once                   {exactly_once}");
    println!("  unknown, and it was placed            {unknown_placed}");
    println!("  unknown, and it was not placed        {unknown_not_placed}");
    println!("  all who had begun were killed before  {not_begun}");
    println!("  wrong                                 {}", wrong.len());
    println!("callers were told: {told:?}");
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

impl Told {
    fn line(&self) -> String {
        let Told { placed, replayed, in_progress, unknown, failed } = self;
        format!("{placed} {replayed} {in_progress} {unknown} {failed}")
    }

    fn add(&mut self, line: &str) -> Result<()> {
        let numbers: Vec<u32> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [placed, replayed, in_progress, unknown, failed] = numbers[..] else {
            return Err(format!("a worker said `{line}`").into());
        };
        self.placed += placed;
        self.replayed += replayed;
        self.in_progress += in_progress;
        self.unknown += unknown;
        self.failed += failed;
        Ok(())
    }
}

/// How it ended with an order.
#[derive(Clone, Copy, Debug)]
enum End {
    Placed,
    Unknown,
    /// Nobody has placed it, and anybody could.
    Free,
}

async fn outcome(once: &Once, key: &str) -> Result<End> {
    match once.run(key, ORDER, |_| async { Err(()) }).await? {
        Submission::Done { .. } => Ok(End::Placed),
        Submission::Unknown { .. } => Ok(End::Unknown),
        Submission::Failed(()) => Ok(End::Free),
        other => Err(format!("`{key}` is {other:?}").into()),
    }
}

const ORDER: &[u8] = b"two apples";

/// Submits orders as it is told to: `SCOPE KEY COUNT`.
async fn work(url: &str, orders: &Path) -> Result<()> {
    let client = leasehold::connect(url).await?;
    println!("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let [scope, key, count] = line.split(' ').collect::<Vec<_>>()[..] else { return Err(line.into()) };
        let once = client.once(scope)?.lease(LEASE);
        let mut calls = JoinSet::new();
        for number in 0..count.parse::<u32>()? {
            // Some want to be told, and some to wait.
            let wait = if number % 2 == 0 { IfRunning::Wait(LEASE * 20) } else { IfRunning::Tell };
            calls.spawn(submit(once.clone().if_running(wait), key.to_owned(), orders.to_owned()));
        }
        let mut told = Told::default();
        while let Some(call) = calls.join_next().await {
            match call? {
                Ok(Submission::Done { replayed: false, .. }) => told.placed += 1,
                Ok(Submission::Done { .. }) => told.replayed += 1,
                Ok(Submission::InProgress { .. }) => told.in_progress += 1,
                Ok(Submission::Unknown { .. }) => told.unknown += 1,
                Ok(other) => return Err(format!("{other:?}").into()),
                Err(_) => told.failed += 1,
            }
        }
        println!("{}", told.line());
    }
    Ok(())
}

async fn submit(once: Once, key: String, orders: PathBuf) -> leasehold::Result<Submission<String>> {
    let place = |_token| async {
        // The moments before and after it are when a crash hurts.
        tokio::time::sleep(random_time(20)).await;
        let file = OpenOptions::new().append(true).open(&orders);
        // One write, so lines of several processes do not mix.
        file.and_then(|mut file| file.write_all(format!("{key}\n").as_bytes()))
            .map_err(|error| error.to_string())?;
        tokio::time::sleep(random_time(20)).await;
        Ok(b"order placed".to_vec())
    };
    once.run(&key, ORDER, place).await
}
