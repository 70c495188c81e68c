//! Reservations per second, beside lock, check and decrement on the same Redis.
//!
//! ```text
//! cargo bench -p leasehold --features redis,sale --bench sale
//! ```
//!
//! `--quick` takes a fraction of the time. All runners sell one item to 64 callers at once:
//!
//! * a reservation of ours: window, limit, stock, reservation and outbox in one step;
//! * lock, check, decrement with our mutex, whose waiters pass it on inside the process;
//! * the same as people write it: `SET NX PX`, asked again every millisecond, `GET`, `DECR`, and a
//!   release that compares. It has no limit per buyer, no reservation and no outbox.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kit::{Goal, Result, Runner, verdict};
use leasehold::kit::sale::{Answer, ReservationId, Terms};
use servers::Redis;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

#[path = "kit.rs"]
mod kit;
#[path = "../tests/servers/mod.rs"]
mod servers;

const CALLERS: u64 = 64;
/// Never used up.
const PLENTY: u32 = 50_000_000;

const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1";

fn main() -> ExitCode {
    match run(&kit::arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sale: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    if let Some(missing) = Redis::missing() {
        return Err(format!("{missing} is missing").into());
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let (rounds, slice) =
        if quick { (3, Duration::from_millis(400)) } else { (9, Duration::from_millis(1000)) };
    let runtime = kit::one_thread()?;
    let server = Redis::start();
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    server.connect().command(&["SET", "stock", &PLENTY.to_string()]).ok();
    println!("redis, units sold per second to {CALLERS} callers");
    let runners = vec![
        Runner::new("reservation", |slice| runtime.block_on(reservations(&client, slice))),
        Runner::new("our mutex", |slice| with_mutex(&runtime, &client, &server, slice)),
        Runner::new("by hand", |slice| Ok(by_hand(&server, slice))),
    ];
    let race = kit::race(rounds, slice, runners)?;
    race.print();
    verdict("reservations per lock, check, decrement by hand", Goal::AtLeast(20.0), race.ratio(0, 2));
    verdict("reservations per lock, check, decrement with our mutex", Goal::AtLeast(1.0), race.ratio(0, 1));
    Ok(())
}

/// Sells to other buyers each time, in a sale of its own: none of it is ever paid.
async fn reservations(client: &leasehold::Client, slice: Duration) -> Result<f64> {
    static SALES: AtomicU64 = AtomicU64::new(0);
    let sale = client.sale(format!("bench-{}", SALES.fetch_add(1, Ordering::Relaxed)))?;
    sale.open(&Terms::new(100_000)).await?;
    let mut callers = JoinSet::new();
    let started = Instant::now();
    for caller in 0..CALLERS {
        let sale = sale.clone();
        callers.spawn(async move {
            let mut sold = 0_u64;
            while started.elapsed() < slice {
                let id = ReservationId(u128::from(caller) << 64 | u128::from(sold) << 17 | 1);
                match sale.reserve(format!("{caller}/{sold}"), 1, id).await {
                    Ok(Answer::Reserved(_)) => sold += 1,
                    other => return Err(format!("{other:?}")),
                }
            }
            Ok(sold)
        });
    }
    let mut sold = 0;
    while let Some(caller) = callers.join_next().await {
        sold += caller??;
    }
    let rate = sold as f64 / started.elapsed().as_secs_f64();
    sale.forget(1).await?;
    Ok(rate)
}

/// Callers of one process, each with a connection of its own for the stock.
fn with_mutex(runtime: &Runtime, client: &leasehold::Client, server: &Redis, slice: Duration) -> Result<f64> {
    let started = Instant::now();
    let sold = runtime.block_on(async {
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let mutex = client.mutex("stock")?;
            let mut line = server.connect();
            callers.spawn(async move {
                let mut sold = 0_u64;
                while started.elapsed() < slice {
                    let Ok(guard) = mutex.lock().await else { break };
                    // Nobody else in the process can go on without the lock anyway.
                    let left = line.command(&["GET", "stock"]).text();
                    if left != "0" {
                        line.command(&["DECR", "stock"]).int();
                        sold += 1;
                    }
                    guard.release().await.ok();
                }
                sold
            });
        }
        Ok::<u64, leasehold::Error>(callers.join_all().await.into_iter().sum())
    })?;
    Ok(sold as f64 / started.elapsed().as_secs_f64())
}

fn by_hand(server: &Redis, slice: Duration) -> f64 {
    let started = Instant::now();
    let sold: u64 = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                scope.spawn(move || {
                    let mut line = server.connect();
                    let owner = caller.to_string();
                    let mut sold = 0;
                    while started.elapsed() < slice {
                        let taken = line.command(&["SET", "lock", &owner, "NX", "PX", "10000"]);
                        if taken.is_nil() {
                            std::thread::sleep(Duration::from_millis(1));
                            continue;
                        }
                        if line.command(&["GET", "stock"]).text() != "0" {
                            line.command(&["DECR", "stock"]).int();
                            sold += 1;
                        }
                        line.command(&["EVAL", RELEASE, "1", "lock", &owner]).int();
                    }
                    sold
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap_or(0)).sum()
    });
    sold as f64 / started.elapsed().as_secs_f64()
}
