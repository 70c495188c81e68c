//! A flash sale while everything goes wrong: eight processes sell to ten thousand buyers and are
//! killed at random, and so is the server.
//!
//! ```text
//! cargo run --release -p leasehold --features sale --example oversell
//! cargo run --release -p leasehold --features redis,sale --example oversell -- --redis --rounds 200
//! ```
//!
//! In each round all processes sell the same stock to their buyers at the same time and place the
//! orders. Some of them are killed with `kill -9` at a random moment: between any two steps. Their
//! buyers ask again, with the same reservations. Some buyers pay, some cancel, and most forget:
//! what they had is sold to others.
//!
//! With `--redis` the program starts a Redis server (`--redis PROGRAM`) and kills that, too, once a
//! round. Half of the time the server comes back with its data; otherwise it has forgotten all, and
//! the sale is rebuilt from the database. `--on URL` takes another engine.
//!
//! The database is a file that does not look at the stock: it would hide what the sale does wrong.
//! After each round [`judge`] compares what it has written, line by line, with what the sale says
//! and with what buyers were told, also by processes that were killed right after. If something is
//! wrong, the program ends with an error.
//!
//! `--rounds 5`, `--processes 8`, `--buyers 10000` (of all processes together), `--stock 100`,
//! `--shards 1`.

#[path = "../order_file/mod.rs"]
mod order_file;
#[path = "../processes/mod.rs"]
mod processes;

mod crowd;
mod judge;
mod server;

use std::time::{Duration, Instant};

use crowd::{AGAIN, PAY_WITHIN, reservation_of};
use judge::Told;
use leasehold::kit::sale::{Answer, Begun, Figures, Rebuild, ReservationId, Sale, Terms};
use order_file::{OrderFile, State};
use processes::{Arguments, Result, Worker, random, random_time};
use server::RedisServer;

/// How long a round takes, apart from what it waits for.
const ROUND: Duration = Duration::from_millis(900);

fn terms(stock: u32, shards: u32) -> Result<Terms> {
    Ok(Terms::new(stock).shards(u8::try_from(shards)?).pay_within(PAY_WITHIN))
}

/// What all rounds have come to.
#[derive(Default)]
struct Sum {
    killed: usize,
    restarted: u32,
    rebuilt: u32,
    asked: u64,
    answered: u64,
    reserved: usize,
    refused: u64,
    paid: usize,
    times: Vec<u64>,
    wrong: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::read();
    if let Some([url]) = arguments.of_worker() {
        return crowd::work(url).await;
    }
    let dir = tempfile::tempdir()?;
    let mut server = match arguments.has("--redis") {
        true => {
            Some(RedisServer::start(arguments.text("--redis").unwrap_or("redis-server"), dir.path()).await?)
        }
        false => None,
    };
    let url = server.as_ref().map_or_else(|| arguments.url(&dir), RedisServer::url);
    let rounds = arguments.number("--rounds", 5)?;
    let count = arguments.number("--processes", 8)?.max(1);
    let each = arguments.number("--buyers", 10_000)?.div_ceil(count);
    let (stock, shards) = (arguments.number("--stock", 100)?, arguments.number("--shards", 1)?);
    let client = leasehold::connect(&url).await?;
    let mut workers = Vec::new();
    for _ in 0..count {
        workers.push(Worker::start(&[&url]).await?);
    }
    let (scope, started) = (random(u64::MAX), Instant::now());
    let mut sum = Sum::default();
    for round in 0..rounds {
        let name = format!("oversell-{scope}-{round}");
        let path = dir.path().join(format!("orders-{round}"));
        let database = OrderFile::create(&path, stock)?.without_stock_check();
        let sale = client.sale(&name)?;
        patiently(|| async { sale.open(&terms(stock, shards)?).await.map_err(Into::into) }).await?;
        let command = |number: u32| format!("{name} {} {number} {each}", path.display());
        let begun = Instant::now();
        for (number, worker) in (0..).zip(&mut workers) {
            worker.say(&command(number)).await?;
        }
        // What a process has said before it was killed counts.
        let mut lines: Vec<String> = Vec::new();
        let restart_at = random_time(700);
        let mut kills: Vec<Duration> = (0..=random(2)).map(|_| random_time(800)).collect();
        kills.sort_unstable();
        let mut lost = false;
        let mut restart = server.as_mut();
        for moment in kills {
            if moment > restart_at
                && let Some(server) = restart.take()
            {
                lost = restart_redis(server, begun, restart_at, &sale, &database, (stock, shards), &mut sum)
                    .await?;
            }
            tokio::time::sleep_until((begun + moment).into()).await;
            let victim = u32::try_from(random(count.into()))?;
            let worker = &mut workers[victim as usize];
            lines.extend(worker.kill_and_hear().await?);
            *worker = Worker::start(&[&url]).await?;
            // The same buyers, with the same reservations.
            worker.say(&command(victim)).await?;
            sum.killed += 1;
        }
        if let Some(server) = restart.take() {
            lost =
                restart_redis(server, begun, restart_at, &sale, &database, (stock, shards), &mut sum).await?;
        }
        for worker in &mut workers {
            loop {
                let line = worker.line().await?.ok_or("a worker ended that was not killed")?;
                if line == "done" {
                    break;
                }
                lines.push(line);
            }
        }
        let told = Told::read(&lines, &mut sum)?;
        let now = come_to_rest(&sale, &database).await?;
        let mut wrong = judge::judge(&database.history()?, &now, stock, &told, lost);
        wrong.extend(sell_the_rest(&sale, &database, stock, &told, now.available).await?);
        sum.wrong.extend(wrong.into_iter().map(|what| format!("round {round}: {what}")));
        patiently(|| async { sale.forget(now.epoch).await.map_err(Into::into) }).await?;
        std::fs::remove_file(&path)?;
    }
    client.close().await.ok();
    sum.times.sort_unstable();
    let percentile = |part: usize| sum.times.get(sum.times.len() * part / 100).copied().unwrap_or_default();
    let took = started.elapsed().as_secs_f64();
    println!(
        "{rounds} sales of {stock} units to {} buyers of {count} processes in {took:.0} s",
        each * count
    );
    println!("  processes killed     {}", sum.killed);
    println!("  servers killed       {}, of which {} came back empty", sum.restarted, sum.rebuilt);
    let share = 100.0 * sum.answered as f64 / sum.asked.max(1) as f64;
    println!("  requests             {}, of which {share:.2} % were answered at once", sum.asked);
    println!("  p50, p99             {} µs, {} µs", percentile(50), percentile(99));
    println!("  told: reserved       {}", sum.reserved);
    println!("  told: paid           {}", sum.paid);
    println!("  told: sold out       {}", sum.refused);
    println!("  wrong                {}", sum.wrong.len());
    if sum.wrong.is_empty() { Ok(()) } else { Err(sum.wrong.join("\n").into()) }
}

/// Kills the server at its moment. True if it came back without the sale, which was then rebuilt.
async fn restart_redis(
    server: &mut RedisServer,
    begun: Instant,
    moment: Duration,
    sale: &Sale,
    database: &OrderFile,
    (stock, shards): (u32, u32),
    sum: &mut Sum,
) -> Result<bool> {
    tokio::time::sleep_until((begun + moment).into()).await;
    let keeps = random(2) == 0;
    server.kill_and_restart(keeps).await?;
    sum.restarted += 1;
    let found = patiently(|| async { Ok(sale.figures().await?) }).await?;
    if keeps {
        return match found {
            Some(_) => Ok(false),
            None => Err("the server was to keep its data".into()),
        };
    }
    rebuild(sale, database, stock, shards).await?;
    sum.rebuilt += 1;
    Ok(true)
}

/// Begins another epoch from the database, as a shop does whose store came back without the sale.
async fn rebuild(sale: &Sale, database: &OrderFile, stock: u32, shards: u32) -> Result<()> {
    patiently(|| async {
        let (epoch, left, orders) = database.next_epoch()?;
        if left > stock {
            return Err(format!("{left} of {stock} are left").into());
        }
        let mut from = Rebuild::new(terms(left, shards)?.epoch(epoch));
        for order in orders {
            from = match order.state {
                State::Unpaid => from.unpaid(order.id, order.buyer, order.quantity, PAY_WITHIN),
                State::Paid => from.paid(order.id, order.buyer, order.quantity),
                State::Expired => from,
            };
        }
        match sale.rebuild(&from).await? {
            Begun::Now => Ok(()),
            Begun::Before { epoch } => Err(format!("somebody else has begun epoch {epoch}").into()),
        }
    })
    .await
}

/// Asks until the engine answers, for as long as a server takes to come back.
async fn patiently<T, F>(mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let started = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if may_be_repeated(&*error) && started.elapsed() < Duration::from_secs(30) => {
                tokio::time::sleep(AGAIN).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn may_be_repeated(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<leasehold::Error>().is_some_and(leasehold::Error::is_retryable)
}

/// Works until nothing is reserved or ordered any more: it was paid, or has come back.
async fn come_to_rest(sale: &Sale, database: &OrderFile) -> Result<Figures> {
    let (worker, started) = (sale.worker(), Instant::now());
    loop {
        patiently(|| async { Ok(worker.run_once(database).await?) }).await?;
        let now = patiently(|| async { Ok(sale.figures().await?) }).await?.ok_or("the sale is gone")?;
        if now.reserved + now.ordered + now.ending == 0 {
            return Ok(now);
        }
        if started.elapsed() > Duration::from_secs(30) {
            return Err(format!("it does not come to rest: {now:?}").into());
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Those who were refused come back. They get whatever is left, to the last unit and no further,
/// and each of them has an order then.
async fn sell_the_rest(
    sale: &Sale,
    database: &OrderFile,
    stock: u32,
    told: &Told,
    left: u64,
) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mut late = told.refused.iter().map(|id| ReservationId(!id.0));
    for sold in 0..left {
        let Some(id) = late.next() else { return Ok(wrong) };
        let answer = sale.reserve(format!("late/{sold}"), 1, id).await?;
        if !matches!(answer, Answer::Reserved(_)) {
            wrong.push(format!("{} are left, and one who was refused is told {answer:?}", left - sold));
        }
    }
    let answer = sale.reserve("nobody", 1, reservation_of("nobody", "nobody")).await?;
    if answer != (Answer::SoldOut { left: 0 }) {
        wrong.push(format!("all is sold, and one who asks is told {answer:?}"));
    }
    sale.worker().run_once(database).await?;
    let live = database.orders()?.iter().filter(|order| order.state != State::Expired).count();
    if live != stock as usize {
        wrong.push(format!("all {stock} are sold, and the database has {live} orders"));
    }
    Ok(wrong)
}
