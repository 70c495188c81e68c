//! What a decision of a rate limit costs.
//!
//! ```text
//! cargo bench -p leasehold --features redis --bench rate
//! ```
//!
//! In the process and on one machine it is decisions per second. On Redis it is the time that the
//! server itself spends on a decision (`INFO commandstats`), beside a token bucket script that does
//! nothing else, and the decisions per round trip with batches. `--quick` takes a fraction of the
//! time.

use std::process::ExitCode;
use std::time::Duration;

use kit::{Goal, Result, Runner, verdict};
use leasehold::Client;
use leasehold::kit::rate::{Limit, Limiter, WhenAway};
use servers::{Connection, Redis};
use tokio::runtime::Runtime;

#[path = "kit.rs"]
mod kit;
#[path = "../tests/servers/mod.rs"]
mod servers;

const HOUR: Duration = Duration::from_secs(60 * 60);
/// Never used up.
const PLENTY: u32 = 1_000_000_000;
const CALLS: u32 = 20_000;

/// A token bucket as people write it: one key, the server's time, whole microseconds.
const BY_HAND: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local full = tonumber(redis.call('GET', KEYS[1])) or now
if full < now then full = now end
local after = full + interval
local wait = after - burst - now
if wait > 0 then return {0, wait} end
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000))
return {1, 0}";

fn main() -> ExitCode {
    match run(&kit::arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let (rounds, slice) =
        if quick { (3, Duration::from_millis(150)) } else { (9, Duration::from_millis(400)) };
    let runtime = kit::one_thread()?;
    println!("memory, one task");
    let memory = runtime.block_on(leasehold::connect("memory:"))?;
    let race = kit::race(rounds, slice, vec![decisions("token bucket", &runtime, &memory)?])?;
    race.print();
    verdict("memory, decisions/s", Goal::AtLeast(1_000_000.0), race.median(0));

    println!("\nfile, one task");
    let dir = tempfile::tempdir()?;
    let file = runtime.block_on(leasehold::connect(&format!("file:{}", dir.path().display())))?;
    let mutex = file.mutex("stock/42")?;
    let cycles =
        |slice| kit::rate(slice, || Ok(runtime.block_on(async { mutex.lock().await?.release().await })?));
    let runners = vec![decisions("token bucket", &runtime, &file)?, Runner::new("its lock", cycles)];
    let race = kit::race(rounds, slice, runners)?;
    race.print();
    verdict("file, decisions per lock cycle", Goal::AtLeast(0.5), race.ratio(0, 1));
    redis(&runtime, rounds)
}

fn limiter(client: &Client, limit: Limit) -> Result<Limiter> {
    Ok(client.limiter("bench", limit, WhenAway::Closed)?.deadline(Duration::from_secs(10)))
}

/// Asks again and again.
fn decisions<'a>(label: &'static str, runtime: &'a Runtime, client: &Client) -> Result<Runner<'a>> {
    let limiter = limiter(client, Limit::token_bucket(PLENTY, HOUR))?;
    let run = move |slice: Duration| {
        runtime.block_on(async {
            let started = tokio::time::Instant::now();
            let mut count = 0;
            while started.elapsed() < slice {
                for _ in 0..64 {
                    if !limiter.check("user7").await?.is_allowed() {
                        return Err("used up".into());
                    }
                }
                count += 64;
            }
            Ok(f64::from(count) / started.elapsed().as_secs_f64())
        })
    };
    Ok(Runner::new(label, run))
}

fn redis(runtime: &Runtime, rounds: usize) -> Result<()> {
    if let Some(missing) = Redis::missing() {
        return Err(format!("{missing} is missing").into());
    }
    println!("\nredis, the time of the server for one decision");
    let server = Redis::start();
    let mut line = server.connect();
    let sha = line.command(&["SCRIPT", "LOAD", BY_HAND]).text();
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let limit = Limit::token_bucket(PLENTY, HOUR);
    let ours = limiter(&client, limit.clone())?;
    let mut ratios = Vec::new();
    let (mut all_ours, mut all_by_hand) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (calls, time) = scripts(&mut line, |_| ask(runtime, &ours, CALLS))?;
        if calls != f64::from(CALLS) {
            println!("  {calls} scripts for {CALLS} decisions");
        }
        let per_decision = time / f64::from(CALLS);
        let (_, time) = scripts(&mut line, |line| {
            for _ in 0..CALLS {
                line.command(&["EVALSHA", &sha, "1", "by-hand", "4", "1000000"]).array();
            }
            Ok(())
        })?;
        let by_hand = time / f64::from(CALLS);
        ratios.push(per_decision / by_hand);
        all_ours.push(per_decision);
        all_by_hand.push(by_hand);
    }
    println!("  ours {:.2} µs, by hand {:.2} µs", kit::median(all_ours), kit::median(all_by_hand));
    verdict("redis, server time against a script by hand", Goal::AtMost(1.2), kit::median(ratios));

    let batched = limiter(&client, limit.batches(50, Duration::from_millis(100)))?;
    let (calls, _) = scripts(&mut line, |_| ask(runtime, &batched, CALLS))?;
    verdict("redis, decisions per round trip with batches", Goal::AtLeast(20.0), f64::from(CALLS) / calls);
    Ok(())
}

fn ask(runtime: &Runtime, limiter: &Limiter, count: u32) -> Result<()> {
    runtime.block_on(async {
        for _ in 0..count {
            if !limiter.check("user7").await?.is_allowed() {
                return Err("used up".into());
            }
        }
        Ok(())
    })
}

/// How many scripts a server has run during some work, and for how many microseconds.
fn scripts(line: &mut Connection, work: impl FnOnce(&mut Connection) -> Result<()>) -> Result<(f64, f64)> {
    line.command(&["CONFIG", "RESETSTAT"]).ok();
    work(line)?;
    let stats = line.command(&["INFO", "commandstats"]).text();
    let (mut calls, mut time) = (0.0, 0.0);
    for stat in stats
        .lines()
        .filter(|stat| ["eval", "fcall"].iter().any(|word| stat.starts_with(&format!("cmdstat_{word}"))))
    {
        for part in stat.split([':', ',']) {
            match part.split_once('=') {
                Some(("calls", number)) => calls += number.parse::<f64>()?,
                Some(("usec", number)) => time += number.parse::<f64>()?,
                _ => {}
            }
        }
    }
    Ok((calls, time))
}
