//! What each mode of a rate limit does while its Redis is slow, is gone and comes back.
//!
//! `cargo run -p leasehold --example limiter_outage --features redis` (needs `redis-server`)
//!
//! Four limiters of 100 a second, one for each [`WhenAway`], are asked 200 times a second. The
//! program prints what passed, who decided and how long the slowest answer took, and ends with an
//! error if a mode did anything else than what it promises, or if callers waited for an engine that
//! is known to be away.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::kit::rate::{Limit, Limiter, Mode, WhenAway};
use rustix::process::{Pid, Signal, kill_process};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const PHASE: Duration = Duration::from_secs(2);
const TURN: Duration = Duration::from_millis(5);
const MODES: [WhenAway; 4] =
    [WhenAway::Open, WhenAway::Closed, WhenAway::LocalShare { nodes: 2 }, WhenAway::Shed];

/// What one limiter did in one phase.
#[derive(Debug, Default)]
struct Seen {
    asked: u32,
    passed: u32,
    /// How many verdicts each mode has made.
    by: BTreeMap<String, u32>,
    /// What passed while the engine was away.
    passed_away: u32,
    times: Vec<Duration>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut server = Server::start()?;
    let client = server.connect().await?;
    let limit = Limit::per_second(100).burst(10);
    let limiters: Vec<Limiter> = MODES
        .iter()
        .map(|mode| client.limiter(format!("{mode:?}"), limit.clone(), *mode))
        .collect::<leasehold::Result<_>>()?;
    let mut wrong = Vec::new();
    println!(
        "{:<6} {:<26} {:>5} {:>6} {:>11} {:>11}  decided by",
        "", "mode", "asked", "passed", "median", "slowest"
    );
    for phase in ["up", "slow", "down", "back"] {
        match phase {
            "down" => server.stop()?,
            "back" => {
                server.run()?;
                // The longest pause of a breaker is five seconds.
                tokio::time::sleep(Duration::from_secs(6)).await;
            }
            _ => {}
        }
        let slow = (phase == "slow").then(|| tokio::spawn(slow_down(server.pid())));
        let asking: Vec<_> = limiters.iter().map(|limiter| tokio::spawn(ask(limiter.clone()))).collect();
        for (mode, asking) in MODES.iter().zip(asking) {
            let mut seen = asking.await??;
            seen.times.sort_unstable();
            let (median, slowest) = (seen.times[seen.times.len() / 2], seen.times[seen.times.len() - 1]);
            let by: Vec<String> = seen.by.iter().map(|(mode, count)| format!("{mode} {count}")).collect();
            let shown = format!("{mode:?}");
            println!(
                "{phase:<6} {shown:<26} {:>5} {:>6} {median:>11.1?} {slowest:>11.1?}  {}",
                seen.asked,
                seen.passed,
                by.join(", ")
            );
            if let Some(reason) = judge(phase, *mode, &seen, median) {
                wrong.push(format!("{phase}, {mode:?}: {reason}"));
            }
        }
        if let Some(slow) = slow {
            slow.await??;
        }
    }
    client.close().await.ok();
    server.stop()?;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

/// What a mode did that it must not do.
fn judge(phase: &str, mode: WhenAway, seen: &Seen, median: Duration) -> Option<&'static str> {
    // 100 a second and a burst of 10; its half, where two processes share it. A phase may take
    // longer than it should on a slow machine.
    let took = seen.times.iter().sum::<Duration>() + TURN * seen.asked;
    let bound = f64::from(10) + 100.0 * (took + PHASE).as_secs_f64();
    let away = f64::from(seen.passed_away);
    match (phase, mode) {
        ("down", WhenAway::Open) if seen.passed < seen.asked => Some("something was refused"),
        ("down", WhenAway::Closed | WhenAway::Shed) if seen.passed > 0 => Some("something passed"),
        (_, WhenAway::LocalShare { .. }) if away > bound / 2.0 => Some("more than its share has passed"),
        ("down", WhenAway::LocalShare { .. }) if seen.passed == 0 => Some("its share has not passed"),
        ("down", _) if seen.by.contains_key("Engine") => Some("an engine that is gone has decided"),
        ("down", _) if median > Duration::from_millis(5) => Some("callers waited for an engine that is away"),
        ("up" | "back", _) if !seen.by.contains_key("Engine") => Some("the engine was not asked"),
        ("up" | "back", _) if f64::from(seen.passed) - away > bound => Some("more than the limit has passed"),
        _ => None,
    }
}

/// Asks for as long as a phase lasts.
async fn ask(limiter: Limiter) -> Result<Seen> {
    let (mut seen, end) = (Seen::default(), Instant::now() + PHASE);
    let mut turns = tokio::time::interval(TURN);
    while Instant::now() < end {
        turns.tick().await;
        let asked = Instant::now();
        let verdict = limiter.check("user7").await?;
        seen.times.push(asked.elapsed());
        seen.asked += 1;
        seen.passed += u32::from(verdict.is_allowed());
        let away = matches!(verdict.by(), Mode::Open | Mode::Closed | Mode::LocalShare | Mode::Shed);
        seen.passed_away += u32::from(away && verdict.is_allowed());
        *seen.by.entry(format!("{:?}", verdict.by())).or_default() += 1;
    }
    Ok(seen)
}

/// Lets a server stand still for 200 milliseconds and run for 100, again and again.
async fn slow_down(server: Option<u32>) -> Result<()> {
    let pid = server.and_then(|pid| Pid::from_raw(pid.cast_signed())).ok_or("no server")?;
    let end = Instant::now() + PHASE;
    while Instant::now() < end {
        kill_process(pid, Signal::STOP)?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        kill_process(pid, Signal::CONT)?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// A Redis of our own.
struct Server {
    port: u16,
    dir: tempfile::TempDir,
    process: Option<Child>,
}

impl Server {
    fn start() -> Result<Server> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut server = Server { port, dir: tempfile::tempdir()?, process: None };
        server.run()?;
        Ok(server)
    }

    fn run(&mut self) -> Result<()> {
        let port = self.port.to_string();
        let mut redis = Command::new("redis-server");
        redis.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
        redis.arg("--dir").arg(self.dir.path()).stdout(Stdio::null());
        self.process = Some(redis.spawn()?);
        Ok(())
    }

    fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    fn stop(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Connects as soon as it answers.
    async fn connect(&self) -> Result<leasehold::Client> {
        let url = format!("redis://127.0.0.1:{}/", self.port);
        for _ in 0..100 {
            match leasehold::connect(&url).await {
                Err(error) if error.is_retryable() => tokio::time::sleep(Duration::from_millis(50)).await,
                answer => return Ok(answer?),
            }
        }
        Err("redis-server does not answer".into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop().ok();
    }
}
