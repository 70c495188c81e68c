//! Rate limits: what a decision costs, beside redis_rate (Go) and Redisson's RRateLimiter on Redis,
//! and beside governor in the process.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::kit::rate::{Limit, Limiter, WhenAway};
use tokio::runtime::Runtime;

use crate::kit::{self, Result, Runner};
use crate::pin;
use crate::servers::{Connection, Redis};
use crate::shared::Redisson;

/// So many in a second: never used up.
const PLENTY: u32 = 1_000_000;
const ROUNDS: usize = 7;
const SLICE: Duration = Duration::from_millis(1000);
/// A JVM compiles what it has run often enough.
const WARM_UP: Duration = Duration::from_secs(5);

/// redis_rate in a process of its own. Dropped, it ends.
struct RedisRate {
    child: Child,
    told: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl RedisRate {
    /// Builds and starts it; `None` where there is no Go.
    fn start(port: u16) -> Result<Option<RedisRate>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("redis_rate");
        let program = folder.join("target/redis_rate");
        let mut build = Command::new("go");
        build.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".").current_dir(&folder);
        let built = match build.status() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("\nno `go` here: redis_rate is left out");
                return Ok(None);
            }
            built => built?,
        };
        if !built.success() {
            return Err("go build failed in benches/peers/redis_rate".into());
        }
        let mut child = Command::new(program)
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let told = child.stdin.take().ok_or("no input")?;
        let says = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut started = RedisRate { child, told, says };
        if started.line()? != "ready" {
            return Err("redis_rate did not start".into());
        }
        Ok(Some(started))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// The decisions of a while.
    fn run(&mut self, slice: Duration) -> Result<f64> {
        writeln!(self.told, "{}", slice.as_millis())?;
        Ok(self.line()?.parse()?)
    }
}

impl Drop for RedisRate {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Asks again and again; the decisions.
fn ask(runtime: &Runtime, limiter: &Limiter, slice: Duration) -> Result<f64> {
    runtime.block_on(async {
        let start = Instant::now();
        let mut count = 0.0;
        while start.elapsed() < slice {
            for _ in 0..16 {
                if !limiter.check("user7").await?.is_allowed() {
                    return Err("used up".into());
                }
            }
            count += 16.0;
        }
        Ok(count)
    })
}

/// One task, or thread, that asks on Redis: decisions per second, and what each costs the server.
pub(crate) fn on_redis(server: &Redis) -> Result<()> {
    println!("\na rate limit on Redis, one caller");
    pin(&[0, 1])?;
    let (mut redisson, mut redis_rate) = (Redisson::start(server.port())?, RedisRate::start(server.port())?);
    if let Some(redisson) = &mut redisson {
        redisson.run("limiter", 1, WARM_UP)?;
    }
    let runtime = kit::one_thread()?;
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let limit = || Limit::per_second(PLENTY);
    let limiter = |name: &str, limit| -> Result<Limiter> {
        Ok(client.limiter(name, limit, WhenAway::Closed)?.deadline(Duration::from_secs(10)))
    };
    let ours = limiter("bench", limit())?;
    let batched = limiter("batched", limit().batches(50, Duration::from_millis(100)))?;
    let mut line = server.connect();
    let mut figures: Vec<(&str, Vec<f64>, Vec<f64>)> =
        ["leasehold", "in batches of 50", "redis_rate", "RRateLimiter"]
            .map(|label| (label, Vec::new(), Vec::new()))
            .into();
    for _ in 0..ROUNDS {
        for (label, rates, costs) in &mut figures {
            let before = scripts(&mut line)?;
            let decisions = match (*label, &mut redis_rate, &mut redisson) {
                ("leasehold", ..) => ask(&runtime, &ours, SLICE)?,
                ("in batches of 50", ..) => ask(&runtime, &batched, SLICE)?,
                ("redis_rate", Some(redis_rate), _) => redis_rate.run(SLICE)?,
                ("RRateLimiter", _, Some(redisson)) => {
                    redisson.run("limiter", 1, SLICE)?.rate * SLICE.as_secs_f64()
                }
                _ => continue,
            };
            rates.push(decisions / SLICE.as_secs_f64());
            costs.push((scripts(&mut line)? - before) / decisions);
        }
    }
    for (label, rates, costs) in figures.into_iter().filter(|(_, rates, _)| !rates.is_empty()) {
        println!(
            "  {label:<26} {:>9} decisions/s, {:>6.2} µs of the server each",
            kit::thousands(kit::median(rates)),
            kit::median(costs),
        );
    }
    Ok(())
}

/// The microseconds that a server has spent on scripts.
fn scripts(line: &mut Connection) -> Result<f64> {
    let stats = line.command(&["INFO", "commandstats"]).text();
    let mut spent = 0.0;
    for stat in stats.lines().filter(|stat| stat.starts_with("cmdstat_eval")) {
        let micros = stat.split([':', ',']).find_map(|part| part.strip_prefix("usec="));
        spent += micros.ok_or("no time in the statistics")?.parse::<f64>()?;
    }
    Ok(spent)
}

/// Decisions in the process: governor knows no other processes, no refund and no engine.
pub(crate) fn in_the_process() -> Result<()> {
    println!("\na rate limit in the process, one caller");
    pin(&[1])?;
    let runtime = kit::one_thread()?;
    let client = runtime.block_on(leasehold::connect("memory:"))?;
    let limiter = client.limiter("bench", Limit::per_second(u32::MAX / 4), WhenAway::Closed)?;
    let quota = governor::Quota::per_second(NonZeroU32::new(u32::MAX / 4).ok_or("zero")?);
    let governor = governor::RateLimiter::keyed(quota);
    let ours = |slice: Duration| Ok(ask(&runtime, &limiter, slice)? / slice.as_secs_f64());
    let theirs = |slice| kit::rate(slice, || governor.check_key(&"user7").map_err(|_| "used up".into()));
    let race = kit::race(
        ROUNDS,
        SLICE,
        vec![Runner::new("leasehold, memory:", ours), Runner::new("governor, keyed", theirs)],
    )?;
    race.print();
    println!("  leasehold / governor                     {:.2}", race.ratio(0, 1));
    Ok(())
}
