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
//!   invalidates. A reader notes the last invalidation that has returned, asks, and compares. One
//!   get in a hundred is compared with the source by the cache itself.
//! * **hot**: a hundred nodes (clients with a cache of their own) read one name: first it is cold,
//!   then it expires again and again. Every load of every process is written down.
//! * **failing**: the loader fails for a while. Some names are changed meanwhile.
//! * **paused** (with `--server PID`): the store is stopped (`kill -STOP`) for a while. Some names
//!   are changed meanwhile.
//!
//! It prints loads, waiting, and what callers got, and ends with an error
//!
//! * if a value was served that is older than an invalidation that was acknowledged before the
//!   reader asked; from the memory of another process, if it is so for longer than the bound; and
//!   while the store is away, unless the reader was told that (`Origin::Away`);
//! * if the cache found an entry that differs from the source;
//! * if a name was loaded more than once for an expiry;
//! * if a reader of a value that was there got none because the loader failed or the store was
//!   away, or anybody waited for longer than five seconds.
//!
//! With `--forget-invalidations` writers do not invalidate, and it must end with an error.
//!
//! `--processes 8`, `--nodes 100` and `--readers 2000` (of all processes together), `--writers 64`,
//! `--names 50`, `--seconds 5` of each part, and `--local 100`: for how many milliseconds readers
//! of the first part use the memory of their process.

#[path = "../processes/mod.rs"]
mod processes;

mod judge;
mod source;
mod tally;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use judge::{Known, Seen, Verdict, judge};
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
/// Readers of each process in those parts. Of each five, one reads new names, and one reads a name
/// that is changed meanwhile.
const READERS: u32 = 50;
/// Nobody waits for longer.
const LONGEST: u64 = 5_000_000;
/// The cache compares one get in so many with the source, and again after the patience.
const SAMPLED: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(1);

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
    let (names, local) = (arguments.number("--names", 50)?, arguments.number("--local", 100)?);
    let (each, writes) = (readers.div_ceil(count), writers.div_ceil(count));
    let forget = u32::from(arguments.has("--forget-invalidations"));
    let part = format!("update update-{scope} {seconds} {count} {each} {writes} {names} {local} {forget}");
    let mut tally = ask(&mut workers, &part).await?;
    tally.print(&format!(
        "update: {} readers and {} writers of {count} processes, {names} names",
        each * count,
        writes * count
    ));
    for what in ["invalidations", "gets", "compared"] {
        expect(&mut wrong, tally.count(what) > 0, &format!("update: no {what}"));
    }
    expect(&mut wrong, tally.count("WRONG") == 0, "update: values that were too old were served");
    expect(&mut wrong, tally.count("different") == 0, "update: entries differ from the source");

    let nodes = arguments.number("--nodes", 100)?.div_ceil(count);
    let part = format!("hot hot-{scope} {seconds} {count} {nodes}");
    let mut tally = ask(&mut workers, &part).await?;
    tally.print(&format!("hot: one name, {} nodes of {count} processes", nodes * count));
    let loads = hot_loads(dir.path())?;
    println!("  {:<52} {}", "loads that the source has noted", loads.count);
    println!("  {:<52} {}", "  while it was cold", loads.cold);
    println!("  {:<52} {:.2}", "  for each expiry", loads.per_expiry);
    println!("  {:<52} {}", "  at the same time, at the most", loads.at_once);
    if loads.cold != 1 || loads.per_expiry > 1.0 || loads.at_once != 1 || loads.count < 3 {
        wrong.push("hot: a name was loaded more than once for an expiry".to_owned());
    }

    let part = format!("failing failing-{scope} {seconds} {count}");
    let mut tally = ask(&mut workers, &part).await?;
    tally.print("failing: the loader fails half of the time; values that were there, and new names");
    away_is_right(&mut wrong, "failing", &tally);
    expect(&mut wrong, tally.count("loads-failed") > 0, "failing: no load has failed");
    expect(&mut wrong, tally.count("changed-told") > 0, "failing: nobody was told of a failure");
    if let Some(server) = arguments.text("--server") {
        let part = format!("paused paused-{scope} {seconds} {count}");
        tell(&mut workers, &part).await?;
        tokio::time::sleep(Duration::from_secs(u64::from(seconds)) / 4).await;
        signal(server, "STOP").await?;
        tokio::time::sleep(Duration::from_secs(u64::from(seconds)) / 2).await;
        signal(server, "CONT").await?;
        let mut tally = hear(&mut workers).await?;
        tally.print("paused: the store is stopped half of the time; values that were there, and new names");
        away_is_right(&mut wrong, "paused", &tally);
        let without = tally.count("away") > 0 && tally.count("bypass") > 0;
        expect(&mut wrong, without, "paused: nobody was served without the store; is that its PID?");
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

fn expect(wrong: &mut Vec<String>, holds: bool, otherwise: &str) {
    if !holds {
        wrong.push(otherwise.to_owned());
    }
}

/// What callers must have got while the loader failed, or the store was stopped.
fn away_is_right(wrong: &mut Vec<String>, part: &str, tally: &Tally) {
    let mut expect = |holds, otherwise: &str| expect(wrong, holds, &format!("{part}: {otherwise}"));
    expect(tally.count("WRONG") == 0, "values that were invalidated were served");
    expect(tally.count("invalidations") > 0, "nothing was invalidated");
    expect(tally.count("known-got") > 0, "nobody read a value that was there");
    expect(tally.count("known-told") == 0, "readers of values that were there got none");
    expect(tally.slowest < LONGEST, "a reader waited for longer than five seconds");
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
        let seconds = Duration::from_secs(number(2)??.into());
        let part = Part {
            url,
            source: &source,
            name: words[1],
            seconds,
            end: Instant::now() + seconds,
            process,
            processes: number(3)??,
        };
        let tally = match words[0] {
            "update" => {
                let (readers, writers, names) = (number(4)??, number(5)??, number(6)??);
                let local = Duration::from_millis(number(7)??.into());
                update(&part, readers, writers, names, local, number(8)?? > 0).await?
            }
            "hot" => hot(&part, number(4)??).await?,
            "failing" => away(&part, true).await?,
            "paused" => away(&part, false).await?,
            other => return Err(format!("what is `{other}`?").into()),
        };
        println!("{}", tally.to_line());
    }
    Ok(())
}

/// What a process is told to do.
struct Part<'a> {
    url: &'a str,
    source: &'a Arc<Source>,
    name: &'a str,
    seconds: Duration,
    end: Instant,
    process: u32,
    processes: u32,
}

impl Part<'_> {
    /// A name is changed by one process.
    fn owns(&self, name: u32) -> bool {
        name % self.processes == self.process
    }
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

async fn update(
    part: &Part<'_>,
    readers: u32,
    writers: u32,
    names: u32,
    local: Duration,
    forget: bool,
) -> Result<Tally> {
    let (source, end, process, processes) = (part.source, part.end, part.process, part.processes);
    let client = leasehold::connect(part.url).await?;
    let cache = cache(&client, source, part.name, Duration::from_millis(500))?.local_for(local)?;
    let bound = u64::try_from(local.as_micros())?;
    let mut tasks: JoinSet<Result<Tally>> = JoinSet::new();
    for _ in 0..readers {
        let (cache, source) = (cache.clone(), Arc::clone(source));
        tasks.spawn(async move {
            let mut tally = Tally::default();
            while Instant::now() < end {
                // One name is hotter than the others.
                let name = if random(2) == 0 { 0 } else { u32::try_from(random(names.into()))? };
                // Who has invalidated it forgets it at once.
                let bound = if name % processes == process { 0 } else { bound };
                let known = Known { acknowledged: source.acknowledged(name)?, asked: now(), bound };
                let asked = Instant::now();
                let got = cache.get_sampled(name.to_string(), SAMPLED, PATIENCE).await;
                tally.got(&got, asked.elapsed());
                let got = got?;
                let seen = Seen { version: version(&got)?, from_memory: got.origin() == Origin::Local };
                match judge(seen, known, |version| source.acknowledged_at(name, version)) {
                    Verdict::Right => {}
                    Verdict::WithinBound => tally.add("within-bound", 1),
                    Verdict::Wrong => tally.add("WRONG", 1),
                }
                tokio::time::sleep(random_time(20)).await;
            }
            Ok(tally)
        });
    }
    let own: Vec<u32> = (0..names).filter(|name| part.owns(*name)).collect();
    // A name has one writer at a time.
    for chunk in own.chunks(own.len().div_ceil(writers.max(1) as usize).max(1)) {
        let (cache, source, own) = (cache.clone(), Arc::clone(source), chunk.to_vec());
        tasks.spawn(async move {
            let mut tally = Tally::default();
            while Instant::now() < end {
                let name = own[usize::try_from(random(own.len() as u64))?];
                let version = source.change(name)?;
                if !forget {
                    cache.invalidate(name.to_string()).await?;
                }
                source.acknowledge(name, version)?;
                tally.add("invalidations", 1);
                tokio::time::sleep(random_time(40)).await;
            }
            Ok(tally)
        });
    }
    let mut tally = join(tasks).await?;
    // The last comparisons are under way.
    tokio::time::sleep(PATIENCE * 3 / 2).await;
    tally.figures([&cache]);
    client.close().await.ok();
    Ok(tally)
}

/// Nodes that read one name: at the same moment while it is cold, and all the time afterwards.
async fn hot(part: &Part<'_>, nodes: u32) -> Result<Tally> {
    let end = part.end;
    let mut caches = Vec::new();
    let mut tasks: JoinSet<Result<Tally>> = JoinSet::new();
    for _ in 0..nodes {
        let client = leasehold::connect(part.url).await?;
        // Everybody waits when it expires, and nobody comes early.
        let cache = cache(&client, part.source, part.name, FRESH)?.stale_for(Duration::ZERO)?.early(0.0)?;
        caches.push((client, cache.clone()));
        for _ in 0..5 {
            let cache = cache.clone();
            tasks.spawn(async move {
                let mut tally = Tally::default();
                while Instant::now() < end {
                    let asked = Instant::now();
                    let got = cache.get(HOT.to_string()).await;
                    tally.got(&got, asked.elapsed());
                    got?;
                    tokio::time::sleep(random_time(20)).await;
                }
                Ok(tally)
            });
        }
    }
    let mut tally = join(tasks).await?;
    tally.figures(caches.iter().map(|(_, cache)| cache));
    for (client, _) in caches {
        client.close().await.ok();
    }
    Ok(tally)
}

/// Readers while the loader fails, or while somebody stops the store.
async fn away(part: &Part<'_>, fails: bool) -> Result<Tally> {
    let (source, end) = (part.source, part.end);
    let client = leasehold::connect(part.url).await?;
    let quarter = part.seconds / 4;
    let (from, to) = (end - quarter * 3, end - quarter);
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
    let cache = client.cache(part.name, Duration::from_millis(500), load)?;
    let cache = cache.stale_for(Duration::from_secs(60))?.deadline(Duration::from_millis(250))?;
    let mut tasks: JoinSet<Result<Tally>> = JoinSet::new();
    for reader in 0..READERS {
        let (cache, source) = (cache.clone(), Arc::clone(source));
        tasks.spawn(async move {
            let mut tally = Tally::default();
            while Instant::now() < end {
                // Most read what was there before; some read what is changed, and some what nobody
                // has asked for.
                let (kind, name) = match reader % 5 {
                    0 => ("new", AWAY + READERS + u32::try_from(random(1 << 20))?),
                    1 => ("changed", AWAY + reader),
                    _ => ("known", AWAY + reader),
                };
                let known = Known { acknowledged: source.acknowledged(name)?, asked: now(), bound: 0 };
                let asked = Instant::now();
                let got = cache.get(name.to_string()).await;
                tally.got(&got, asked.elapsed());
                tally.add(&format!("{kind}-{}", if got.is_ok() { "got" } else { "told" }), 1);
                if let Ok(got) = got {
                    let seen = Seen { version: version(&got)?, from_memory: false };
                    let verdict = judge(seen, known, |version| source.acknowledged_at(name, version));
                    // What a process remembers while the store is away may have been invalidated by
                    // another one, and its caller is told so.
                    let what = if got.origin() == Origin::Away { "older-away" } else { "WRONG" };
                    tally.add(what, u64::from(verdict == Verdict::Wrong));
                }
                tokio::time::sleep(random_time(20)).await;
            }
            Ok(tally)
        });
    }
    let changed = (0..READERS).filter(|reader| reader % 5 == 1).map(|reader| AWAY + reader);
    for name in changed.filter(|name| part.owns(*name)) {
        let (cache, source) = (cache.clone(), Arc::clone(source));
        tasks.spawn(async move {
            let mut tally = Tally::default();
            while Instant::now() < end {
                tokio::time::sleep(Duration::from_millis(100) + random_time(200)).await;
                let version = source.change(name)?;
                // It is not heard while the store is away. Then it is tried again.
                while Instant::now() < end {
                    if cache.invalidate(name.to_string()).await.is_ok() {
                        source.acknowledge(name, version)?;
                        tally.add("invalidations", 1);
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            Ok(tally)
        });
    }
    let mut tally = join(tasks).await?;
    tally.figures([&cache]);
    client.close().await.ok();
    Ok(tally)
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
