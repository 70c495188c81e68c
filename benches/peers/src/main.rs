//! Leasehold beside its peers on Redis, in one run.
//!
//! ```text
//! cd benches/peers && cargo run --release                 # all
//! cargo run --release -- --free                           # or: --tasks, --processes, --handover, --keeper,
//!                                                         # --shared, --limits, --quorum
//! ```
//!
//! What is compared runs in turns on the same server. One task runs on the server's own core, where
//! a round trip is short and always the same; many tasks have the other core. Redisson may use
//! both. It is built with Maven, and left out where `java` or `mvn` is missing.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use kit::{Goal, Result, Runner};
use leasehold::Client;
use others::Other;
use servers::Redis;

mod limits;
mod others;
mod shared;

#[path = "../../kit.rs"]
mod kit;
#[path = "../../../tests/servers/mod.rs"]
mod servers;

const LEASE: Duration = Duration::from_secs(30);
const ROUNDS: usize = 7;
const SLICE: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    match run(&kit::arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    if let [word, url, who, sections, hold, think] = arguments
        && word == "--child"
    {
        let pause = |text: &String| Result::Ok(Duration::from_millis(text.parse()?));
        return child(url, who, sections.parse()?, pause(hold)?, pause(think)?);
    }
    if let [word, url, kind] = arguments
        && word == "--beside"
    {
        return shared::beside(url, kind);
    }
    let wanted = |part: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == part);
    if ["--free", "--processes", "--quorum"].into_iter().any(wanted) {
        others::install()?;
    }
    // The server stays on the core that it is started on.
    pin(&[0])?;
    let server = Redis::start();
    if wanted("--free") {
        for tasks in [1, 64, 1000] {
            free(&server, tasks)?;
        }
    }
    if wanted("--tasks") {
        tasks(&server)?;
    }
    if wanted("--processes") {
        processes(&server)?;
    }
    if wanted("--handover") {
        handover(&server)?;
    }
    if wanted("--keeper") {
        keeper(&server)?;
    }
    if wanted("--shared") {
        shared::one_process(&server)?;
        shared::two_processes(&server)?;
    }
    if wanted("--limits") {
        limits::on_redis(&server)?;
        limits::in_the_process()?;
    }
    drop(server);
    if wanted("--quorum") {
        quorum()?;
    }
    Ok(())
}

fn pin(cores: &[usize]) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

fn free(server: &Redis, tasks: usize) -> Result<()> {
    pin(&[usize::from(tasks != 1)])?;
    let url = server.url();
    println!("\nfree names, {tasks} tasks");
    let mut runners = vec![
        Runner::new("redis-rs alone (no token, no lease kept)", |slice| bare_free(&url, tasks, false, slice)),
        Runner::new("rslock", |slice| rslock_free(&[&url], tasks, slice)),
        Runner::new("leasehold", |slice| ours_free(&url, tasks, slice)),
        Runner::new("redis-rs alone, with a token", |slice| bare_free(&url, tasks, true, slice)),
    ];
    if tasks == 1 {
        for word in others::ALL {
            runners.push(other_free(word, &server.port().to_string())?);
        }
    }
    // One after the other on one core: what else the machine does shows most here.
    let rounds = if tasks == 1 { 3 * ROUNDS } else { ROUNDS };
    let race = kit::race(rounds, SLICE, runners)?;
    race.print();
    // Whoever is alone gains nothing from what many share.
    let goal = if tasks == 1 { 0.85 } else { 1.5 };
    kit::verdict("leasehold / rslock", Goal::AtLeast(goal), race.ratio(2, 1));
    println!("  leasehold / redis-rs alone {:>18.2}", race.ratio(2, 0));
    println!("  leasehold / redis-rs alone, with a token {:>4.2}", race.ratio(2, 3));
    Ok(())
}

/// Cycles a second of the bare driver on names that nobody else wants; `fenced`, with a token and a
/// look at who waits, which is the least that a fenced lock can do.
fn bare_free(url: &str, tasks: usize, fenced: bool, slice: Duration) -> Result<f64> {
    let client = redis::Client::open(url)?;
    let runtime = kit::one_thread()?;
    let before = Instant::now();
    let cycles = runtime.block_on(async {
        let connection = client.get_multiplexed_async_connection().await?;
        let script = redis::Script::new(RELEASE);
        let end = Instant::now() + slice;
        let task = |number: usize| {
            let (mut connection, script) = (connection.clone(), script.clone());
            tokio::spawn(async move {
                let (key, mut cycles) = (format!("bare:{number}"), 0_u64);
                let (counter, queue) = (format!("{{{key}}}:token"), format!("{{{key}}}:queue"));
                let value = "01234567890123456789";
                while Instant::now() < end {
                    let mut set = redis::cmd("SET");
                    set.arg(&key).arg(value).arg("NX").arg("PX").arg(30_000);
                    if fenced {
                        let mut transaction = redis::pipe();
                        transaction.atomic().add_command(set).incr(&counter, 1).exists(&queue);
                        transaction.query_async::<((), u64, bool)>(&mut connection).await?;
                    } else {
                        set.query_async::<()>(&mut connection).await?;
                    }
                    script.key(&key).arg(value).invoke_async::<()>(&mut connection).await?;
                    cycles += 1;
                }
                Result::<u64>::Ok(cycles)
            })
        };
        sum((0..tasks).map(task).collect()).await
    })?;
    Ok(cycles as f64 / before.elapsed().as_secs_f64())
}

/// Cycles a second of rslock on names that nobody else wants.
fn rslock_free(urls: &[&str], tasks: usize, slice: Duration) -> Result<f64> {
    let manager = rslock::LockManager::new(urls.to_vec());
    let runtime = kit::one_thread()?;
    let before = Instant::now();
    let cycles = runtime.block_on(async {
        let end = Instant::now() + slice;
        let task = |number: usize| {
            let manager = manager.clone();
            tokio::spawn(async move {
                let (key, mut cycles) = (format!("rslock:{number}"), 0_u64);
                while Instant::now() < end {
                    let lock =
                        manager.lock(key.as_bytes(), LEASE).await.map_err(|error| error.to_string())?;
                    manager.unlock(&lock).await;
                    cycles += 1;
                }
                Result::<u64>::Ok(cycles)
            })
        };
        sum((0..tasks).map(task).collect()).await
    })?;
    Ok(cycles as f64 / before.elapsed().as_secs_f64())
}

/// The same of leasehold.
fn ours_free(url: &str, tasks: usize, slice: Duration) -> Result<f64> {
    let runtime = kit::one_thread()?;
    runtime.block_on(async {
        let client = leasehold::connect(url).await?;
        let before = Instant::now();
        let end = before + slice;
        let task = |number: usize| {
            let client = client.clone();
            tokio::spawn(async move {
                let (mutex, mut cycles) = (client.mutex(&number.to_string())?, 0_u64);
                while Instant::now() < end {
                    mutex.lock().await?.release().await?;
                    cycles += 1;
                }
                Result::<u64>::Ok(cycles)
            })
        };
        let cycles = sum((0..tasks).map(task).collect()).await?;
        Ok(cycles as f64 / before.elapsed().as_secs_f64())
    })
}

/// The same of a peer in another language, with one task.
fn other_free<'a>(word: &'static str, ports: &str) -> Result<Runner<'a>> {
    let mut other = Other::start(word, ports, word)?;
    Ok(Runner::new(word, move |slice: Duration| {
        other.tell(slice)?;
        Ok(other.cycled()?.cycles / slice.as_secs_f64())
    }))
}

/// Three servers that know nothing of each other.
fn quorum() -> Result<()> {
    const PROCESSES: usize = 8;
    const SECTIONS: usize = 2000;
    pin(&[0])?;
    let quorum = servers::Quorum::start_with(3, &[]);
    let urls: Vec<String> = quorum.servers.iter().map(Redis::url).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let ports: Vec<String> = quorum.servers.iter().map(|server| server.port().to_string()).collect();
    for tasks in [1, 64] {
        pin(&[usize::from(tasks != 1)])?;
        println!("\nfree names at a majority of 3 servers, {tasks} tasks");
        let mut runners = vec![
            Runner::new("rslock", |slice| rslock_free(&urls, tasks, slice)),
            Runner::new("leasehold", |slice| ours_free(&quorum.url(), tasks, slice)),
        ];
        if tasks == 1 {
            runners.push(other_free(others::REDLOCK, &ports.join(","))?);
        }
        let race = kit::race(ROUNDS, SLICE, runners)?;
        race.print();
        // One round trip more than the others, for a token that they do not have.
        println!("  leasehold / rslock {:>26.2}", race.ratio(1, 0));
    }
    pin(&[1])?;
    println!("\none name at a majority of 3 servers, {PROCESSES} processes");
    let mut ratios = Vec::new();
    for _ in 0..3 {
        let mut rates = Vec::new();
        for who in ["rslock", "leasehold"] {
            let url = if who == "leasehold" { quorum.url() } else { urls.join(" ") };
            let ran = run_children(&url, who, PROCESSES, SECTIONS, (0, 0))?;
            println!(
                "  {who:<18} {:>9} cycles/s, longest wait {:>6.1} ms, spread {:.2}",
                kit::thousands(ran.rate()),
                ran.longest * 1e3,
                ran.spread(),
            );
            rates.push(ran.rate());
        }
        ratios.push(rates[1] / rates[0]);
    }
    println!("  leasehold / rslock {:>26.2}", kit::median(ratios));
    Ok(())
}

async fn sum(tasks: Vec<tokio::task::JoinHandle<Result<u64>>>) -> Result<u64> {
    let mut sum = 0;
    for task in tasks {
        sum += task.await??;
    }
    Ok(sum)
}

/// 16 tasks of one process on one name.
fn tasks(server: &Redis) -> Result<()> {
    const TASKS: usize = 16;
    pin(&[1])?;
    let url = server.url();
    let (mut our_spread, mut their_spread) = (Vec::new(), Vec::new());
    let ours = |slice: Duration| {
        let runtime = kit::one_thread()?;
        let (cycles, spread) = runtime.block_on(async {
            let client = leasehold::connect(&url).await?;
            let end = Instant::now() + slice;
            let task = |_| {
                let client = client.clone();
                tokio::spawn(async move {
                    let (mutex, mut cycles) = (client.mutex("one")?, 0_u64);
                    while Instant::now() < end {
                        mutex.lock().await?.release().await?;
                        cycles += 1;
                    }
                    Result::<u64>::Ok(cycles)
                })
            };
            counted((0..TASKS).map(task).collect()).await
        })?;
        our_spread.push(spread);
        Ok(cycles / slice.as_secs_f64())
    };
    let rslock = |slice: Duration| {
        let manager = rslock::LockManager::new(vec![url.as_str()]);
        let runtime = kit::one_thread()?;
        let (cycles, spread) = runtime.block_on(async {
            let end = Instant::now() + slice;
            let task = |_| {
                let manager = manager.clone();
                tokio::spawn(async move {
                    let mut cycles = 0_u64;
                    while Instant::now() < end {
                        if let Ok(lock) = manager.lock(b"one".as_slice(), LEASE).await {
                            manager.unlock(&lock).await;
                            cycles += 1;
                        }
                    }
                    Result::<u64>::Ok(cycles)
                })
            };
            counted((0..TASKS).map(task).collect()).await
        })?;
        their_spread.push(spread);
        Ok(cycles / slice.as_secs_f64())
    };
    println!("\none name, {TASKS} tasks of one process");
    let race = kit::race(ROUNDS, SLICE, vec![Runner::new("rslock", rslock), Runner::new("leasehold", ours)])?;
    race.print();
    println!("  spread of rslock {:>28.1}", kit::median(their_spread));
    kit::verdict("leasehold / rslock", Goal::AtLeast(20.0), race.ratio(1, 0));
    kit::verdict("spread of leasehold", Goal::AtMost(1.1), kit::median(our_spread));
    Ok(())
}

async fn counted(tasks: Vec<tokio::task::JoinHandle<Result<u64>>>) -> Result<(f64, f64)> {
    let mut counts = Vec::new();
    for task in tasks {
        counts.push(task.await?? as f64);
    }
    Ok((counts.iter().sum(), kit::spread(&counts)))
}

/// 16 processes on one name, beside a token that is popped from a list: no lease, no fence, no
/// order kept over a death.
fn processes(server: &Redis) -> Result<()> {
    const PROCESSES: usize = 16;
    const SECTIONS: usize = 8000;
    const FIRST: usize = 2000;
    pin(&[1])?;
    println!("\none name, {PROCESSES} processes");
    let run = |who: &str, sections: usize| run_on(server, who, PROCESSES, sections, (0, 0));
    let contender = |who: &'static str| {
        // What it takes to get going is not part of a cycle.
        let first = run(who, FIRST)?.commands;
        Result::Ok((who, first, Vec::new()))
    };
    let mut contenders = [contender("blpop")?, contender("leasehold")?];
    // A hand-over is mostly a wait for a core to wake up: single rounds differ by a third.
    for _ in 0..3 * ROUNDS {
        for (who, _, rounds) in &mut contenders {
            rounds.push(run(who, SECTIONS)?);
        }
    }
    let commands = |first: f64, rounds: &[Ran]| {
        let commands = kit::median(rounds.iter().map(|ran| ran.commands - first).collect());
        (commands / (SECTIONS - FIRST) as f64 * 100.0).round() / 100.0
    };
    for (who, first, rounds) in &contenders {
        println!(
            "  {who:<18} {:>9} cycles/s, longest wait {:>6.1} ms, {:.2} commands a cycle, spread {:.2}",
            kit::thousands(kit::median(rounds.iter().map(Ran::rate).collect())),
            rounds.iter().map(|ran| ran.longest * 1e3).fold(0.0, f64::max),
            commands(*first, rounds),
            kit::median(rounds.iter().map(Ran::spread).collect()),
        );
    }
    for word in others::ALL {
        let slice = Duration::from_secs(2);
        let started: Result<Vec<Other>> =
            (0..PROCESSES).map(|_| Other::start(word, &server.port().to_string(), "one")).collect();
        let mut started = started?;
        started.iter_mut().try_for_each(|other| other.tell(slice))?;
        let done: Result<Vec<others::Cycled>> = started.iter_mut().map(Other::cycled).collect();
        let (counts, waits): (Vec<f64>, Vec<f64>) =
            done?.into_iter().map(|cycled| (cycled.cycles, cycled.longest)).unzip();
        println!(
            "  {word:<18} {:>9} cycles/s, longest wait {:>6.1} ms, {} to {} cycles of one process",
            kit::thousands(counts.iter().sum::<f64>() / slice.as_secs_f64()),
            waits.iter().copied().fold(0.0, f64::max),
            counts.iter().copied().fold(f64::INFINITY, f64::min),
            counts.iter().copied().fold(0.0, f64::max),
        );
    }
    let [(_, _, bound), (_, first, ours)] = &contenders;
    let ratios = ours.iter().zip(bound).map(|(ours, bound)| ours.rate() / bound.rate());
    kit::verdict("leasehold / BLPOP", Goal::AtLeast(0.7), kit::median(ratios.collect()));
    kit::verdict("spread", Goal::AtMost(1.3), kit::median(ours.iter().map(Ran::spread).collect()));
    kit::verdict("commands a cycle", Goal::AtMost(3.0), commands(*first, ours));
    Ok(())
}

/// The time from a release to the next grant with one waiter, and the use that is made of a name
/// with 16.
fn handover(server: &Redis) -> Result<()> {
    let measure = |who: &str| {
        let two = run_on(server, who, 2, 400, (2, 0))?;
        let crowd = run_on(server, who, 16, 800, (2, 20))?;
        println!(
            "  {who:<18} gap {:>6.0} µs with one waiter; 16 that hold 2 ms and think 20 ms use {:.0} % of the time",
            two.gap() * 1e6,
            crowd.held() * 100.0
        );
        Result::Ok((two.gap(), crowd.held()))
    };
    pin(&[1])?;
    println!("\nfrom hand to hand");
    let (mut gaps, mut held) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (bound, _) = measure("blpop")?;
        let (ours, used) = measure("leasehold")?;
        gaps.push(ours / bound);
        held.push(used * 100.0);
    }
    kit::verdict("gap / that of BLPOP", Goal::AtMost(2.0), kit::median(gaps));
    kit::verdict("percent of the time used", Goal::AtLeast(85.0), kit::median(held));
    Ok(())
}

/// What the sections of some processes came to, in seconds since boot.
struct Ran {
    /// Grant and release of each section, in order.
    sections: Vec<(f64, f64)>,
    /// When each process had done half of its work, after the start.
    halves: Vec<f64>,
    longest: f64,
    commands: f64,
}

impl Ran {
    fn span(&self) -> f64 {
        let last = self.sections.iter().map(|section| section.1).fold(0.0, f64::max);
        last - self.sections[0].0
    }

    fn rate(&self) -> f64 {
        self.sections.len() as f64 / self.span()
    }

    /// Everybody has as much to do: how far apart they were in the middle of it.
    fn spread(&self) -> f64 {
        kit::spread(&self.halves)
    }

    fn held(&self) -> f64 {
        self.sections.iter().map(|section| section.1 - section.0).sum::<f64>() / self.span()
    }

    fn gap(&self) -> f64 {
        kit::median(self.sections.windows(2).map(|pair| pair[1].0 - pair[0].1).collect())
    }
}

/// Processes on one server, and what it had to do for them.
fn run_on(server: &Redis, who: &str, processes: usize, sections: usize, pauses: (u64, u64)) -> Result<Ran> {
    server.command(&["FLUSHALL"]).ok();
    server.command(&["RPUSH", "bound", "token"]).int();
    server.command(&["CONFIG", "RESETSTAT"]).ok();
    let mut ran = run_children(&server.url(), who, processes, sections, pauses)?;
    // A script is one command, whatever it does inside; a transaction is all that it contains.
    let stats = server.command(&["INFO", "commandstats"]).text();
    let calls = |word: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{word}:calls=")))?;
        line.split(',').next()?.parse::<f64>().ok()
    };
    let calls = |word: &str| calls(word).unwrap_or(0.0);
    ran.commands = calls("evalsha")
        + calls("eval")
        + calls("exec") * 5.0
        + calls("ping")
        + calls("blpop")
        + if who == "blpop" { calls("rpush") } else { 0.0 };
    Ok(ran)
}

fn run_children(
    url: &str,
    who: &str,
    processes: usize,
    sections: usize,
    (hold, think): (u64, u64),
) -> Result<Ran> {
    let words = [
        url.to_owned(),
        who.to_owned(),
        (sections / processes).to_string(),
        hold.to_string(),
        think.to_string(),
    ];
    let child: Vec<String> = ["--child".to_owned()].into_iter().chain(words).collect();
    let answers = kit::together(&vec![child; processes])?;
    let numbers: Vec<Vec<f64>> =
        answers.iter().map(|lines| kit::numbers(&lines[0])).collect::<Result<_>>()?;
    let mut ran = Ran { sections: Vec::new(), halves: Vec::new(), longest: 0.0, commands: 0.0 };
    for numbers in &numbers {
        let sections: Vec<(f64, f64)> = numbers[2..].chunks(2).map(|pair| (pair[0], pair[1])).collect();
        ran.halves.push(sections[sections.len() / 2].1 - numbers[0]);
        ran.longest = ran.longest.max(numbers[1]);
        ran.sections.extend(sections);
    }
    ran.sections.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    Ok(ran)
}

fn boot_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Prints when it started, its longest wait, and the times of every grant and release.
fn child(url: &str, who: &str, sections: usize, hold: Duration, think: Duration) -> Result<()> {
    let runtime = kit::one_thread()?;
    runtime.block_on(async {
        let mut times = Vec::with_capacity(sections);
        let mut longest = Duration::ZERO;
        let rest = async |pause: Duration| {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        };
        let start;
        if who == "blpop" {
            let client = redis::Client::open(url)?;
            let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
            let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            kit::ready()?;
            start = boot_seconds();
            for _ in 0..sections {
                let before = Instant::now();
                let mut pop = redis::cmd("BLPOP");
                pop.arg("bound").arg(0).query_async::<()>(&mut connection).await?;
                longest = longest.max(before.elapsed());
                let granted = boot_seconds();
                rest(hold).await;
                times.push((granted, boot_seconds()));
                redis::cmd("RPUSH").arg("bound").arg("token").query_async::<()>(&mut connection).await?;
                rest(think).await;
            }
        } else if who == "rslock" {
            let manager = rslock::LockManager::new(url.split(' ').collect());
            kit::ready()?;
            start = boot_seconds();
            for _ in 0..sections {
                let before = Instant::now();
                // It gives up after a few tries.
                let lock = loop {
                    if let Ok(lock) = manager.lock(b"one".as_slice(), LEASE).await {
                        break lock;
                    }
                };
                longest = longest.max(before.elapsed());
                let granted = boot_seconds();
                rest(hold).await;
                times.push((granted, boot_seconds()));
                manager.unlock(&lock).await;
                rest(think).await;
            }
        } else {
            let client: Client = leasehold::connect(url).await?;
            let mutex = client.mutex("one")?;
            kit::ready()?;
            start = boot_seconds();
            for _ in 0..sections {
                let before = Instant::now();
                let guard = mutex.lock().await?;
                longest = longest.max(before.elapsed());
                let granted = boot_seconds();
                rest(hold).await;
                times.push((granted, boot_seconds()));
                guard.release().await?;
                rest(think).await;
            }
        }
        let times: Vec<String> = times.iter().map(|(grant, release)| format!("{grant} {release}")).collect();
        println!("{start} {} {}", longest.as_secs_f64(), times.join(" "));
        Ok(())
    })
}

/// Ten thousand leases, kept.
fn keeper(server: &Redis) -> Result<()> {
    const LEASES: usize = 10_000;
    pin(&[1])?;
    let runtime = kit::one_thread()?;
    let url = server.url();
    runtime.block_on(async {
        let client = leasehold::connect(&url).await?;
        let mut guards = Vec::new();
        for number in 0..LEASES {
            guards.push(client.mutex(&format!("kept/{number}"))?.lease(LEASE).lock().await?);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.command(&["CONFIG", "RESETSTAT"]).ok();
        let before = kit::process_time();
        // A period is a third of the lease.
        tokio::time::sleep(LEASE / 3).await;
        let used = kit::process_time() - before;
        let stats = server.command(&["INFO", "commandstats"]).text();
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        let calls: f64 = calls.and_then(|line| line.split(',').next()).unwrap_or("0").parse()?;
        let held = guards.iter().filter(|guard| guard.standing() == leasehold::Standing::Held).count();
        println!("\n{LEASES} leases of {LEASE:?} on one client: {held} held");
        kit::verdict("calls in a period", Goal::AtMost(40.0), calls);
        kit::verdict(
            "percent of a core",
            Goal::AtMost(2.0),
            used.as_secs_f64() / (LEASE / 3).as_secs_f64() * 100.0,
        );
        Ok(())
    })
}
