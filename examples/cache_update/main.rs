//! A cache under readers and writers of several processes.
//!
//! ```text
//! cargo run --release -p leasehold --features cache --example cache_update
//! cargo run --release -p leasehold --features cache,redis --example cache_update -- --on redis://127.0.0.1/
//! ```
//!
//! Four parts, one after the other:
//!
//! * **update**: thousands of readers and writers on a few names. A writer changes the source, then
//!   invalidates. A reader notes the last invalidation that has returned, asks, and compares.
//! * **hot**: a hundred nodes (clients with a cache of their own) read one name: first it is cold,
//!   then it expires again and again. Every load of every process is written down.
//! * **failing**: the loader fails for a while.
//! * **paused** (with `--server PID`): the store is stopped (`kill -STOP`) for a while.
//!
//! It prints loads, waiting, and what callers got; and ends with an error if a value was served
//! that was older than its last acknowledged invalidation, or if a name was loaded more than once
//! for an expiry.
//!
//! `--processes 8`, `--nodes 100` and `--readers 2000` (of all processes together), `--writers 64`,
//! `--names 50`, `--seconds 5` of each part, and `--local 0`: for how many milliseconds readers of
//! the first part use the memory of their process; then what is older must be within that bound.

#[path = "../processes/mod.rs"]
mod processes;

mod source;
mod tally;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::kit::cache::{Cache, Loaded, Origin};
use processes::{Arguments, Result, Worker, now, random, random_time};
use source::Source;
use tally::Tally;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::JoinSet;

/// How long a hot value is fresh.
const FRESH: Duration = Duration::from_millis(400);
/// The names of the hot value, and of those of the parts in which something is away.
const HOT: u32 = 1000;
const AWAY: u32 = 2000;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::read();
    if let Some([url, dir, number]) = arguments.of_worker() {
        return work(url, Path::new(dir), number.parse()?).await;
    }
    let dir = tempfile::tempdir()?;
    let url = arguments.url(&dir);
    let count = arguments.number("--processes", 8)?.max(1);
    let seconds = arguments.number("--seconds", 5)?;
    let path = dir.path().display().to_string();
    let scope = random(u64::MAX);
    let mut workers = Vec::new();
    for number in 0..count {
        workers.push(Worker::start(&[&url, &path, &number.to_string()]).await?);
    }
    let mut wrong = Vec::new();

    let (readers, writers) = (arguments.number("--readers", 2000)?, arguments.number("--writers", 64)?);
    let (names, local) = (arguments.number("--names", 50)?, arguments.number("--local", 0)?);
    let (each, writes) = (readers.div_ceil(count), writers.div_ceil(count));
    let part = format!("update update-{scope} {seconds} {each} {writes} {names} {local} {count}");
    let mut tally = ask(&mut workers, &part).await?;
    tally.print(&format!(
        "update: {} readers and {} writers of {count} processes, {names} names",
        each * count,
        writes * count
    ));
    if tally.count("WRONG") > 0 || tally.count("invalidations") == 0 || tally.count("gets") == 0 {
        wrong.push("update: a value older than its last acknowledged invalidation was served".to_owned());
    }

    let nodes = arguments.number("--nodes", 100)?.div_ceil(count);
    let part = format!("hot hot-{scope} {seconds} {nodes}");
    let mut tally = ask(&mut workers, &part).await?;
    tally.print(&format!("hot: one name, {} nodes of {count} processes", nodes * count));
    let loads = hot_loads(dir.path())?;
    println!("  loads, one by one      {}", loads.count);
    println!("  loads while cold       {}", loads.cold);
    println!("  loads per expiry       {:.2}", loads.per_expiry);
    println!("  loads at once, most    {}", loads.at_once);
    if loads.cold != 1 || loads.per_expiry > 1.0 || loads.at_once != 1 || loads.count < 3 {
        wrong.push("hot: a name was loaded more than once for an expiry".to_owned());
    }

    let part = format!("failing failing-{scope} {seconds} 50");
    let mut tally = ask(&mut workers, &part).await?;
    tally.print("failing: the loader fails half of the time; values that were there, and new names");
    if let Some(server) = arguments.text("--server") {
        let part = format!("paused paused-{scope} {seconds} 50");
        tell(&mut workers, &part).await?;
        tokio::time::sleep(Duration::from_secs(u64::from(seconds)) / 4).await;
        signal(server, "STOP").await?;
        tokio::time::sleep(Duration::from_secs(u64::from(seconds)) / 2).await;
        signal(server, "CONT").await?;
        let mut tally = hear(&mut workers).await?;
        tally.print("paused: the store is stopped half of the time; values that were there, and new names");
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

async fn signal(pid: &str, signal: &str) -> Result<()> {
    let sent = tokio::process::Command::new("kill").args([&format!("-{signal}"), pid]).status().await?;
    if sent.success() { Ok(()) } else { Err(format!("`kill -{signal} {pid}` has failed").into()) }
}

async fn tell(workers: &mut [Worker], part: &str) -> Result<()> {
    for worker in workers.iter_mut() {
        worker.say(part).await?;
    }
    Ok(())
}

async fn hear(workers: &mut [Worker]) -> Result<Tally> {
    let mut tally = Tally::default();
    for worker in workers.iter_mut() {
        let line = worker.line().await?.ok_or("a worker has ended")?;
        tally.merge(Tally::from_line(&line));
    }
    Ok(tally)
}

async fn ask(workers: &mut [Worker], part: &str) -> Result<Tally> {
    tell(workers, part).await?;
    hear(workers).await
}

struct Loads {
    count: usize,
    /// How many began before the first had ended.
    cold: usize,
    per_expiry: f64,
    at_once: usize,
}

/// What the processes have written down of the hot name.
fn hot_loads(dir: &Path) -> Result<Loads> {
    let mut loads: Vec<_> = Source::loads(dir)?.into_iter().filter(|(name, ..)| *name == HOT).collect();
    loads.sort_unstable_by_key(|(_, began, _)| *began);
    let first = loads.iter().map(|(_, _, ended)| *ended).min().unwrap_or(0);
    let cold = loads.iter().filter(|(_, began, _)| *began <= first).count();
    let running = |at: u64| loads.iter().filter(|(_, began, ended)| *began <= at && at < *ended).count();
    let at_once = loads.iter().map(|(_, began, _)| running(*began)).max().unwrap_or(0);
    // The next expiry is at the earliest when the shortest lifetime is over since the last load.
    let shortest = u64::try_from((FRESH * 9 / 10).as_micros())?;
    let mut expiries = 0;
    let mut ended = 0;
    for (_, began, end) in &loads {
        if *began >= ended + shortest || ended == 0 {
            expiries += 1;
        }
        ended = *end;
    }
    let per_expiry = loads.len() as f64 / f64::from(expiries.max(1));
    Ok(Loads { count: loads.len(), cold, per_expiry, at_once })
}

/// One of the processes.
async fn work(url: &str, dir: &Path, process: u32) -> Result<()> {
    let source = Arc::new(Source::open(dir)?);
    println!("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).ok_or("too few words").map(|word| word.parse::<u32>());
        let (name, seconds) = (words[1].to_owned(), number(2)??);
        let end = Instant::now() + Duration::from_secs(u64::from(seconds));
        let tally = match words[0] {
            "update" => {
                let (readers, writers, names) = (number(3)??, number(4)??, number(5)??);
                let (local, processes) = (number(6)??, number(7)??);
                let local = Duration::from_millis(u64::from(local));
                let owns = move |name: u32| name % processes == process;
                update(url, &source, &name, end, readers, writers, names, local, owns).await?
            }
            "hot" => hot(url, &source, &name, end, number(3)??).await?,
            "failing" => away(url, &source, &name, seconds, end, number(3)??, true).await?,
            "paused" => away(url, &source, &name, seconds, end, number(3)??, false).await?,
            other => return Err(format!("what is `{other}`?").into()),
        };
        println!("{}", tally.to_line());
    }
    Ok(())
}

/// A cache of the source, whose values are versions.
fn cache(client: &leasehold::Client, source: &Arc<Source>, name: &str, fresh: Duration) -> Result<Cache> {
    let source = Arc::clone(source);
    let load = move |name: String| {
        let source = Arc::clone(&source);
        async move {
            let (number, began) = (name.parse::<u32>()?, now());
            let version = source.version(number)?;
            tokio::time::sleep(Duration::from_millis(5) + random_time(10)).await;
            source.note_load(number, began)?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Loaded::value(version.to_be_bytes()))
        }
    };
    // A busy machine must not be taken for a store that is away.
    Ok(client.cache(name, fresh, load)?.deadline(Duration::from_secs(20))?)
}

fn version(got: &leasehold::kit::cache::Got) -> Result<u64> {
    Ok(u64::from_be_bytes(got.value().ok_or("no value")?.try_into()?))
}

#[allow(clippy::too_many_arguments, reason = "what the user has typed")]
async fn update(
    url: &str,
    source: &Arc<Source>,
    name: &str,
    end: Instant,
    readers: u32,
    writers: u32,
    names: u32,
    local: Duration,
    owns: impl Fn(u32) -> bool,
) -> Result<Tally> {
    let client = leasehold::connect(url).await?;
    let cache = cache(&client, source, name, Duration::from_millis(500))?.local_for(local)?;
    let mut tasks: JoinSet<Result<Tally>> = JoinSet::new();
    for _ in 0..readers {
        let (cache, source) = (cache.clone(), Arc::clone(source));
        tasks.spawn(async move {
            let mut tally = Tally::default();
            while Instant::now() < end {
                // One name is hotter than the others.
                let name = if random(2) == 0 { 0 } else { u32::try_from(random(names.into()))? };
                let (least, at) = source.acknowledged(name)?;
                let asked = Instant::now();
                let got = cache.get(name.to_string()).await;
                tally.got(&got, asked.elapsed());
                tally.add("gets", 1);
                let got = got?;
                if version(&got)? < least {
                    let in_bound = got.origin() == Origin::Local
                        && now().saturating_sub(at) <= u64::try_from(local.as_micros())?;
                    tally.add(if in_bound { "older-in-bound" } else { "WRONG" }, 1);
                }
                tokio::time::sleep(random_time(20)).await;
            }
            Ok(tally)
        });
    }
    let own: Vec<u32> = (0..names).filter(|name| owns(*name)).collect();
    // A name has one writer at a time.
    for chunk in own.chunks(own.len().div_ceil(writers.max(1) as usize).max(1)) {
        let (cache, source, own) = (cache.clone(), Arc::clone(source), chunk.to_vec());
        tasks.spawn(async move {
            let mut tally = Tally::default();
            while Instant::now() < end {
                let name = own[usize::try_from(random(own.len() as u64))?];
                let version = source.change(name)?;
                cache.invalidate(name.to_string()).await?;
                source.acknowledge(name, version)?;
                tally.add("invalidations", 1);
                tokio::time::sleep(random_time(40)).await;
            }
            Ok(tally)
        });
    }
    let tally = join(tasks).await?;
    client.close().await.ok();
    Ok(with_figures(tally, &[&cache]))
}

/// Nodes that read one name: at the same moment while it is cold, and all the time afterwards.
async fn hot(url: &str, source: &Arc<Source>, name: &str, end: Instant, nodes: u32) -> Result<Tally> {
    let mut caches = Vec::new();
    let mut tasks: JoinSet<Result<Tally>> = JoinSet::new();
    for _ in 0..nodes {
        let client = leasehold::connect(url).await?;
        // Everybody waits when it expires, and nobody comes early.
        let cache = cache(&client, source, name, FRESH)?.stale_for(Duration::ZERO)?.early(0.0)?;
        caches.push((client, cache.clone()));
        for _ in 0..5 {
            let cache = cache.clone();
            tasks.spawn(async move {
                let mut tally = Tally::default();
                while Instant::now() < end {
                    let asked = Instant::now();
                    let got = cache.get(HOT.to_string()).await;
                    tally.got(&got, asked.elapsed());
                    tally.add("gets", 1);
                    got?;
                    tokio::time::sleep(random_time(20)).await;
                }
                Ok(tally)
            });
        }
    }
    let tally = join(tasks).await?;
    let all: Vec<&Cache> = caches.iter().map(|(_, cache)| cache).collect();
    let tally = with_figures(tally, &all);
    for (client, _) in caches {
        client.close().await.ok();
    }
    Ok(tally)
}

/// Readers while the loader fails, or while somebody stops the store.
async fn away(
    url: &str,
    source: &Arc<Source>,
    name: &str,
    seconds: u32,
    end: Instant,
    readers: u32,
    fails: bool,
) -> Result<Tally> {
    let client = leasehold::connect(url).await?;
    let half = Duration::from_secs(u64::from(seconds)) / 4;
    let (from, to) = (end - half * 3, end - half);
    let reads = Arc::clone(source);
    let load = move |name: String| {
        let source = Arc::clone(&reads);
        async move {
            if fails && (from..to).contains(&Instant::now()) {
                return Err(Box::<dyn std::error::Error + Send + Sync>::from("the source is down"));
            }
            Ok(Loaded::value(source.version(name.parse::<u32>()?)?.to_be_bytes()))
        }
    };
    let cache = client.cache(name, Duration::from_millis(500), load)?;
    let cache = cache.stale_for(Duration::from_secs(60))?.deadline(Duration::from_millis(250))?;
    let mut tasks: JoinSet<Result<Tally>> = JoinSet::new();
    for reader in 0..readers {
        let cache = cache.clone();
        tasks.spawn(async move {
            let mut tally = Tally::default();
            while Instant::now() < end {
                // Most read what was there before; some read what nobody has asked for.
                let known = reader % 5 > 0;
                let name = if known { AWAY + reader } else { AWAY + u32::try_from(random(1 << 20))? };
                let asked = Instant::now();
                let got = cache.get(name.to_string()).await;
                tally.got(&got, asked.elapsed());
                let whose = if known { "known" } else { "new" };
                tally.add(&format!("{whose}-{}", if got.is_ok() { "got" } else { "failed" }), 1);
                tokio::time::sleep(random_time(20)).await;
            }
            Ok(tally)
        });
    }
    let tally = join(tasks).await?;
    client.close().await.ok();
    Ok(with_figures(tally, &[&cache]))
}

async fn join(mut tasks: JoinSet<Result<Tally>>) -> Result<Tally> {
    let mut tally = Tally::default();
    while let Some(ended) = tasks.join_next().await {
        tally.merge(ended??);
    }
    // Of so many readers a part is enough.
    tally.times.truncate(5000);
    Ok(tally)
}

fn with_figures(mut tally: Tally, caches: &[&Cache]) -> Tally {
    for cache in caches {
        let figures = cache.figures();
        tally.add("loads", figures.loads);
        tally.add("loads-discarded", figures.discarded);
        tally.add("loads-failed", figures.load_failures);
        tally.add("waits-for-others", figures.waited);
    }
    tally
}
