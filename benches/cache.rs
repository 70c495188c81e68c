//! Gets per second of a cache on Redis, beside bare `GET` and `SET`, and their round trips.
//!
//! ```text
//! cargo bench -p leasehold --features cache,redis --bench cache
//! ```
//!
//! `--quick` takes a fraction of the time. One caller; values of 100 bytes. A miss of ours looks,
//! takes the right to load, and stores: two round trips. By hand it is `GET` and `SET`, which
//! protects from nothing. It ends with an error if something takes more round trips than promised.

use std::process::ExitCode;
use std::time::Duration;

use kit::{Goal, Result, Runner, verdict};
use leasehold::kit::cache::{Cache, Loaded, Origin};
use servers::{Connection, Redis};
use tokio::runtime::Runtime;

#[path = "kit.rs"]
mod kit;
#[path = "../tests/servers/mod.rs"]
mod servers;

const LIFE: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    match run(&kit::arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cache: {error}");
            ExitCode::FAILURE
        }
    }
}

fn cache(client: &leasehold::Client) -> Result<Cache> {
    let load = |_| async { Ok::<_, std::io::Error>(Loaded::value(vec![b'x'; 100])) };
    Ok(client.cache("bench", LIFE, load)?.deadline(Duration::from_secs(10))?)
}

/// Commands that the server has run for clients, except those of scripts.
fn commands(line: &mut Connection) -> u64 {
    let stats = line.command(&["INFO", "commandstats"]).text();
    let calls = |command: &str| {
        let found = stats.lines().find_map(|text| text.strip_prefix(&format!("cmdstat_{command}:calls=")));
        found.and_then(|rest| rest.split(',').next()).and_then(|calls| calls.parse().ok()).unwrap_or(0)
    };
    ["evalsha", "eval", "subscribe", "unsubscribe", "ssubscribe", "wait"].map(calls).iter().sum()
}

/// The round trips of so many calls, as the server counts them.
fn round_trips(
    runtime: &Runtime,
    line: &mut Connection,
    count: u32,
    mut call: impl AsyncFnMut() -> Result<()>,
) -> Result<f64> {
    let before = commands(line);
    runtime.block_on(async {
        for _ in 0..count {
            call().await?;
        }
        Result::Ok(())
    })?;
    Ok((commands(line) - before) as f64 / f64::from(count))
}

fn run(arguments: &[String]) -> Result<()> {
    if let Some(missing) = Redis::missing() {
        return Err(format!("{missing} is missing").into());
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let (rounds, slice) =
        if quick { (5, Duration::from_millis(200)) } else { (11, Duration::from_millis(1000)) };
    let runtime = kit::one_thread()?;
    let server = Redis::start();
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let shared = cache(&client)?;
    let local = cache(&client)?.local_for(LIFE)?;
    let value = "x".repeat(100);
    let mut line = server.connect();
    line.command(&["SET", "bare", &value]).text();

    // Each of them once, so that scripts are known and the memory listens.
    let get = async |cache: &Cache, name: &str, origin: Origin| -> Result<()> {
        let got = cache.get(name).await?;
        if got.origin() == origin { Ok(()) } else { Err(format!("{:?}", got.origin()).into()) }
    };
    runtime.block_on(async {
        shared.get("k").await?;
        while local.get("k").await?.origin() != Origin::Local {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Result::Ok(())
    })?;
    println!("redis, round trips as the server counts them");
    let count = 1000;
    let mut missed = Vec::new();
    let mut at_most = |what: &'static str, most: f64, trips: f64| {
        verdict(what, Goal::AtMost(most), trips);
        if trips > most {
            missed.push(what);
        }
    };
    let mut names = 0_u64;
    let trips = round_trips(&runtime, &mut line, count, async || get(&local, "k", Origin::Local).await)?;
    at_most("local hit", 0.01, trips);
    let trips = round_trips(&runtime, &mut line, count, async || get(&shared, "k", Origin::Shared).await)?;
    at_most("shared hit", 1.01, trips);
    let trips = round_trips(&runtime, &mut line, count, async || {
        names += 1;
        get(&shared, &format!("trip{names}"), Origin::Loaded).await
    })?;
    at_most("miss", 2.01, trips);
    let trips = round_trips(&runtime, &mut line, count, async || Ok(shared.invalidate("k").await?))?;
    at_most("invalidation, and the news of it in the background", 2.6, trips);
    runtime.block_on(async { shared.get("k").await })?;
    runtime.block_on(async { local.get("k").await })?;

    println!("redis, gets per second of one caller");
    let (mut get_line, mut set_line) = (server.connect(), server.connect());
    let mut misses = 0_u64;
    let runners = vec![
        Runner::new("local hit", |slice| {
            kit::rate(slice, || {
                runtime.block_on(async { local.get("k").await.map(drop) }).map_err(Into::into)
            })
        }),
        Runner::new("shared hit", |slice| {
            kit::rate(slice, || runtime.block_on(get(&shared, "k", Origin::Shared)))
        }),
        Runner::new("bare GET", |slice| {
            kit::rate(slice, || {
                get_line.command(&["GET", "bare"]).text();
                Ok(())
            })
        }),
        Runner::new("miss", |slice| {
            kit::rate(slice, || {
                misses += 1;
                runtime.block_on(get(&shared, &format!("miss{misses}"), Origin::Loaded))
            })
        }),
        Runner::new("bare GET and SET", |slice| {
            let mut number = 0_u64;
            kit::rate(slice, || {
                number += 1;
                let name = format!("bare{number}");
                set_line.command(&["GET", &name]).is_nil();
                set_line.command(&["SET", &name, &value, "PX", "3600000"]).ok();
                Ok(())
            })
        }),
    ];
    let race = kit::race(rounds, slice, runners)?;
    race.print();
    verdict("local hits per bare GET", Goal::AtLeast(5.0), race.ratio(0, 2));
    verdict("shared hits per bare GET", Goal::AtLeast(0.3), race.ratio(1, 2));
    verdict("misses per bare GET and SET", Goal::AtLeast(0.25), race.ratio(3, 4));
    // Rates depend on the machine. These do not.
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("too many round trips: {}", missed.join(", ")).into())
    }
}
