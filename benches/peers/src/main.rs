//! Leasehold beside its peers on one Redis server, in one run.
//!
//! ```text
//! cd benches/peers && cargo run --release                 # all
//! cargo run --release -- --free                           # or: --tasks, --processes, --keeper
//! ```
//!
//! What is compared runs in turns on the same server. One task runs on the server's own core, where a round trip is short and
//! always the same; many tasks have the other core.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use kit::{Goal, Result, Runner};
use leasehold::{Client, Options};
use servers::Redis;

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
    if let [word, url, who, sections] = arguments
        && word == "--child"
    {
        return child(url, who, sections.parse()?);
    }
    let wanted = |part: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == part);
    // The server stays on the core that it is started on.
    pin(0)?;
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
    if wanted("--keeper") {
        keeper(&server)?;
    }
    Ok(())
}

fn pin(core: usize) -> Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &cores)?)
}

const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

fn free(server: &Redis, tasks: usize) -> Result<()> {
    pin(if tasks == 1 { 0 } else { 1 })?;
    let url = server.url();
    let bare = |slice: Duration| {
        let client = redis::Client::open(url.as_str())?;
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
                    while Instant::now() < end {
                        let mut set = redis::cmd("SET");
                        set.arg(&key).arg("01234567890123456789").arg("NX").arg("PX").arg(30_000);
                        set.query_async::<()>(&mut connection).await?;
                        script.key(&key).arg("01234567890123456789").invoke_async::<()>(&mut connection).await?;
                        cycles += 1;
                    }
                    Result::<u64>::Ok(cycles)
                })
            };
            sum((0..tasks).map(task).collect()).await
        })?;
        Ok(cycles as f64 / before.elapsed().as_secs_f64())
    };
    let rslock = |slice: Duration| {
        let manager = rslock::LockManager::new(vec![url.as_str()]);
        let runtime = kit::one_thread()?;
        let before = Instant::now();
        let cycles = runtime.block_on(async {
            let end = Instant::now() + slice;
            let task = |number: usize| {
                let manager = manager.clone();
                tokio::spawn(async move {
                    let (key, mut cycles) = (format!("rslock:{number}"), 0_u64);
                    while Instant::now() < end {
                        let lock = manager.lock(key.as_bytes(), LEASE).await.map_err(|error| error.to_string())?;
                        manager.unlock(&lock).await;
                        cycles += 1;
                    }
                    Result::<u64>::Ok(cycles)
                })
            };
            sum((0..tasks).map(task).collect()).await
        })?;
        Ok(cycles as f64 / before.elapsed().as_secs_f64())
    };
    let ours = |slice: Duration| {
        let runtime = kit::one_thread()?;
        runtime.block_on(async {
            let client = leasehold::connect(&url).await?;
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
            Result::<f64>::Ok(cycles as f64 / before.elapsed().as_secs_f64())
        })
    };
    println!("\nfree names, {tasks} tasks");
    let runners = vec![
        Runner::new("redis-rs alone (no token, no lease kept)", bare),
        Runner::new("rslock", rslock),
        Runner::new("leasehold", ours),
    ];
    let race = kit::race(ROUNDS, SLICE, runners)?;
    race.print();
    kit::verdict("leasehold / rslock", Goal::AtLeast(1.0), race.ratio(2, 1));
    if tasks == 1000 {
        kit::verdict("leasehold / redis-rs alone", Goal::AtLeast(1.0), race.ratio(2, 0));
    } else {
        println!("  leasehold / redis-rs alone {:>18.2}", race.ratio(2, 0));
    }
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
    pin(1)?;
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

/// 16 processes on one name, beside a token that is popped from a list: no lease, no fence, no order kept over a death.
fn processes(server: &Redis) -> Result<()> {
    const PROCESSES: usize = 16;
    let url = server.url();
    let sections = 2000_usize;
    let mut rates = [Vec::new(), Vec::new()];
    println!("\none name, {PROCESSES} processes");
    for _ in 0..3 {
        for (at, who) in ["blpop", "leasehold"].into_iter().enumerate() {
            server.command(&["FLUSHALL"]).ok();
            server.command(&["RPUSH", "bound", "token"]).int();
            server.command(&["CONFIG", "RESETSTAT"]).ok();
            let each = (sections / PROCESSES).to_string();
            let child: Vec<String> = ["--child", &url, who, &each].map(str::to_owned).to_vec();
            let before = Instant::now();
            let answers = kit::together(&vec![child; PROCESSES])?;
            let lines: Vec<Vec<f64>> = answers.iter().map(|lines| kit::numbers(&lines[0])).collect::<Result<_>>()?;
            let _ = before;
            // From the first start to the last end, on the clock that all share.
            let start = lines.iter().map(|line| line[0]).fold(f64::INFINITY, f64::min);
            let end = lines.iter().map(|line| line[1]).fold(0.0, f64::max);
            let longest = lines.iter().map(|line| line[2]).fold(0.0, f64::max);
            let half: Vec<f64> = lines.iter().map(|line| line[3]).collect();
            let rate = sections as f64 / (end - start);
            let stats = server.command(&["INFO", "stats"]).text();
            let commands = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
            let commands: f64 = commands.unwrap_or("0").trim().parse()?;
            rates[at].push(rate);
            println!(
                "  {who:<12} {:>9} cycles/s, longest wait {longest:>6.1} ms, {:.1} commands a cycle, done half of its work \
                 {:.2} apart",
                kit::thousands(rate),
                commands / sections as f64,
                kit::spread(&half),
            );
        }
    }
    let ratio = kit::median(rates[1].iter().zip(&rates[0]).map(|(ours, bound)| ours / bound).collect());
    kit::verdict("leasehold / BLPOP", Goal::AtLeast(0.7), ratio);
    Ok(())
}

fn boot_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn child(url: &str, who: &str, sections: usize) -> Result<()> {
    let runtime = kit::one_thread()?;
    runtime.block_on(async {
        let mut longest = Duration::ZERO;
        let mut half = 0.0;
        let start;
        if who == "blpop" {
            let client = redis::Client::open(url)?;
            let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
            let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            kit::ready()?;
            start = boot_seconds();
            for section in 0..sections {
                let before = Instant::now();
                let mut pop = redis::cmd("BLPOP");
                pop.arg("bound").arg(0).query_async::<()>(&mut connection).await?;
                longest = longest.max(before.elapsed());
                redis::cmd("RPUSH").arg("bound").arg("token").query_async::<()>(&mut connection).await?;
                if section == sections / 2 {
                    half = boot_seconds() - start;
                }
            }
        } else {
            let client: Client = leasehold::connect_with(url, Options::new()).await?;
            let mutex = client.mutex("one")?;
            kit::ready()?;
            start = boot_seconds();
            for section in 0..sections {
                let before = Instant::now();
                let guard = mutex.lock().await?;
                longest = longest.max(before.elapsed());
                guard.release().await?;
                if section == sections / 2 {
                    half = boot_seconds() - start;
                }
            }
        }
        println!("{start} {} {} {half}", boot_seconds(), longest.as_secs_f64() * 1e3);
        Ok(())
    })
}

/// Ten thousand leases, kept.
fn keeper(server: &Redis) -> Result<()> {
    const LEASES: usize = 10_000;
    pin(1)?;
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
        kit::verdict("percent of a core", Goal::AtMost(2.0), used.as_secs_f64() / (LEASE / 3).as_secs_f64() * 100.0);
        Ok(())
    })
}
