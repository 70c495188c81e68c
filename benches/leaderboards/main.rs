//! A leaderboard on Redis beside a bare sorted set, and one of 100 million members.
//!
//! ```text
//! cargo bench -p leasehold --features leaderboards,redis --bench leaderboards
//! cargo bench -p leasehold --features leaderboards,redis --bench leaderboards -- --simulate 100000000
//! ```
//!
//! The first fills both with a million members (`--members N`) and measures one caller, ours and
//! the bare commands in turn, and then several clients that write one board. The second needs no
//! server: see `simulation`. It takes 42 bytes of memory for each member.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kit::Result;
use leasehold::kit::leaderboards::Leaderboard;
use servers::{Connection, Redis};
use tokio::runtime::Runtime;

#[path = "../kit.rs"]
mod kit;
#[path = "../../tests/servers/mod.rs"]
mod servers;
mod simulation;
mod truth;

fn main() -> ExitCode {
    let arguments = kit::arguments();
    let number = |flag: &str| kit::value_after(&arguments, flag).map(str::parse::<u64>).transpose();
    let run = || -> Result<()> {
        match number("--simulate")? {
            Some(members) => simulation::run(members),
            None => redis(number("--members")?.unwrap_or(1_000_000)),
        }
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leaderboards: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Scripts and commands that the server has run for clients, except those inside scripts.
fn round_trips(line: &mut Connection) -> u64 {
    let stats = line.command(&["INFO", "commandstats"]).text();
    let calls = |command: &str| {
        let found = stats.lines().find_map(|text| text.strip_prefix(&format!("cmdstat_{command}:calls=")));
        found.and_then(|rest| rest.split(',').next()).and_then(|calls| calls.parse().ok()).unwrap_or(0)
    };
    ["evalsha", "eval", "zrevrank", "zrevrange", "zadd", "zscore"].map(calls).iter().sum()
}

fn memory(line: &mut Connection) -> u64 {
    let stats = line.command(&["INFO", "memory"]).text();
    let used = stats.lines().find_map(|text| text.strip_prefix("used_memory:"));
    used.and_then(|used| used.trim().parse().ok()).unwrap_or(0)
}

/// What one kind of call took.
struct Measured {
    label: &'static str,
    times: Vec<Duration>,
    calls: u32,
    trips: u64,
}

/// Runs calls for a slice of time.
fn measure(
    into: &mut Measured,
    line: &mut Connection,
    slice: Duration,
    mut call: impl FnMut() -> Result<()>,
) -> Result<()> {
    let before = round_trips(line);
    let begun = Instant::now();
    while begun.elapsed() < slice {
        let called = Instant::now();
        call()?;
        into.times.push(called.elapsed());
        into.calls += 1;
    }
    into.trips += round_trips(line) - before;
    Ok(())
}

fn redis(members: u64) -> Result<()> {
    if let Some(missing) = Redis::missing() {
        return Err(format!("{missing} is missing").into());
    }
    let runtime = kit::one_thread()?;
    let server = Redis::start();
    let mut line = server.connect();
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let board = client.leaderboard("bench")?;

    let (empty, begun) = (memory(&mut line), Instant::now());
    runtime.block_on(board.rebuild(async || Ok::<_, leasehold::Error>(truth::entries(members))))?;
    let (ours, built) = (memory(&mut line), begun.elapsed());
    let begun = Instant::now();
    for first in (0..members).step_by(1000) {
        let mut words = vec!["ZADD".to_owned(), "bare".to_owned()];
        for place in first..(first + 1000).min(members) {
            words.extend([truth::score(place, members).to_string(), truth::member_at(place, members)]);
        }
        line.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let (both, filled) = (memory(&mut line), begun.elapsed());
    let each = |bytes: u64| bytes as f64 / members as f64;
    println!("redis, {members} members with 13 bytes each");
    println!("  leaderboard: {:.0} bytes a member, rebuilt in {built:.1?}", each(ours - empty));
    println!("  bare ZSET:   {:.0} bytes a member, filled in {filled:.1?}", each(both - ours));
    compare(&runtime, &server, &mut line, &board, members)?;
    writers(&server, &mut line, members)
}

/// Clients that write one board at the same time, as so many processes do.
fn writers(server: &Redis, line: &mut Connection, members: u64) -> Result<()> {
    const SLICE: Duration = Duration::from_secs(3);
    let runtime = kit::two_threads()?;
    println!("several clients: sets per second of all, round trips a set");
    for count in [1, 4, 16] {
        let mut boards = Vec::new();
        for _ in 0..count {
            boards.push(runtime.block_on(leasehold::connect(&server.url()))?.leaderboard("bench")?);
        }
        let (boards, drawn) = (Arc::new(boards), Arc::new(AtomicU64::new(1)));
        let (before, begun) = (round_trips(line), Instant::now());
        let rate = kit::rate_of_tasks(&runtime, count, SLICE, move |task| {
            let (boards, drawn) = (Arc::clone(&boards), Arc::clone(&drawn));
            async move {
                let number = drawn.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
                let (member, score) =
                    (truth::member(number % members), truth::score(number / 7 % members, members));
                boards[task].set(&member, score).await?;
                Ok(())
            }
        })?;
        let sets = rate * begun.elapsed().as_secs_f64();
        println!("  {count:2} clients {rate:20.0}/s  {:.2}", (round_trips(line) - before) as f64 / sets);
    }
    Ok(())
}

fn compare(
    runtime: &Runtime,
    server: &Redis,
    line: &mut Connection,
    board: &Leaderboard,
    members: u64,
) -> Result<()> {
    let mut bare = server.connect();
    let labels = ["rank", "rank of a known member", "top 100", "around, 10 each", "set", "get"];
    let hand = ["ZREVRANK", "ZREVRANK", "ZREVRANGE 0 99", "ZREVRANK, ZREVRANGE", "ZADD", "ZSCORE"];
    let new = |label| Measured { label, times: Vec::new(), calls: 0, trips: 0 };
    let (mut ours, mut theirs) = (labels.map(new), hand.map(new));
    let mut number = 1_u64;
    let mut next = || {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (truth::member((number >> 33) % members), truth::score((number >> 20) % members, members))
    };
    let slice = Duration::from_millis(400);
    for _ in 0..7 {
        let (known, _) = next();
        runtime.block_on(board.rank(&known))?;
        for act in 0..labels.len() {
            measure(&mut ours[act], line, slice, || {
                let (other, score) = next();
                let member = if act == 1 { known.clone() } else { other };
                runtime.block_on(async {
                    match act {
                        0 | 1 => drop(board.rank(&member).await?.ok_or("no rank")?),
                        2 => drop(board.top(100).await?),
                        3 => drop(board.around(&member, 10).await?),
                        4 => drop(board.set(&member, score).await?),
                        _ => drop(board.get(&member).await?),
                    }
                    Result::Ok(())
                })
            })?;
            measure(&mut theirs[act], line, slice, || {
                let (member, score) = next();
                match act {
                    0 | 1 => drop(bare.command(&["ZREVRANK", "bare", &member])),
                    2 => drop(bare.command(&["ZREVRANGE", "bare", "0", "99", "WITHSCORES"])),
                    3 => {
                        let place = bare.command(&["ZREVRANK", "bare", &member]).int();
                        let (from, to) = ((place - 10).max(0).to_string(), (place + 10).to_string());
                        bare.command(&["ZREVRANGE", "bare", &from, &to, "WITHSCORES"]);
                    }
                    4 => drop(bare.command(&["ZADD", "bare", &score.to_string(), &member])),
                    _ => drop(bare.command(&["ZSCORE", "bare", &member])),
                }
                Ok(())
            })?;
        }
    }
    println!("one caller: median, calls per second, round trips a call as the server counts them");
    for (ours, theirs) in ours.iter_mut().zip(&mut theirs) {
        for measured in [ours, theirs] {
            measured.times.sort_unstable();
            let (median, all) =
                (measured.times[measured.times.len() / 2], measured.times.iter().sum::<Duration>());
            println!(
                "  {:24} {:7.0} µs  {:7.0}/s  {:.2}",
                measured.label,
                median.as_secs_f64() * 1e6,
                f64::from(measured.calls) / all.as_secs_f64(),
                measured.trips as f64 / f64::from(measured.calls),
            );
        }
    }
    Ok(())
}
