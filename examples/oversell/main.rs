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
//! buyers ask again, with the same reservations. Some buyers come before the sale opens, some want
//! two units where one is the limit. Some pay, some cancel, and most forget: what they had is sold
//! to others.
//!
//! With `--redis` the program starts a Redis server (`--redis PROGRAM`) and kills that, too, once a
//! round. It comes back with its data, or has forgotten all, or the last moment, as after a
//! fail-over; it sells from that for a while, and then the sale is rebuilt from the database. `--on
//! URL` takes another engine.
//!
//! The database is a file that does not look at the stock: it would hide what the sale does wrong.
//! Only where the server forgets a moment it does, because then it must decide.
//! While it sells, [`audit`] looks whether what the sale says is true in the database. After each
//! round [`judge`] compares what the database has written, line by line, with what the sale says
//! and with what buyers were told, also by processes that were killed right after. Then [`rest`]
//! sells the last units, begins the sale again from the database, and closes it. If something is
//! wrong, the program says what, and ends with an error.
//!
//! `--rounds 5`, `--processes 8`, `--buyers 10000` (of all processes together), `--stock 100`,
//! `--shards 1`.

#[path = "../order_file/mod.rs"]
mod order_file;
#[path = "../processes/mod.rs"]
mod processes;

mod audit;
mod crowd;
mod judge;
mod rest;
mod server;
mod shop;

use std::time::{Duration, Instant};

use judge::Told;
use order_file::OrderFile;
use processes::{Arguments, Result, Worker, random, random_time};
use server::{Data, RedisServer};
use shop::{Shop, patiently};
use tokio::sync::oneshot;

/// How long a round takes, apart from what it waits for.
const ROUND: Duration = Duration::from_millis(900);

/// What all rounds have come to.
#[derive(Default)]
struct Sum {
    killed: usize,
    restarted: u32,
    emptied: u32,
    set_back: u32,
    asked: u64,
    answered: u64,
    reserved: usize,
    refused: u64,
    early: u64,
    limited: usize,
    paid: usize,
    times: Vec<u64>,
    wrong: usize,
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
        let data = match server {
            Some(_) => [Data::Kept, Data::Lost, Data::Older][usize::try_from(random(3))?],
            None => Data::Kept,
        };
        let database = OrderFile::create(&path, stock)?.which_decides(data == Data::Older);
        let shop = Shop::open(client.sale(&name)?, database, stock, shards).await?;
        let (stop, stopped) = oneshot::channel();
        let auditing = tokio::spawn(audit::audit(shop.clone(), round, stopped));
        let command =
            |number: u32| format!("{name} {} {number} {each} {}", path.display(), data == Data::Older);
        let begun = Instant::now();
        for (number, worker) in (0..).zip(&mut workers) {
            worker.say(&command(number)).await?;
        }
        // What a process has said before it was killed counts.
        let mut lines: Vec<String> = Vec::new();
        let restart_at = random_time(700);
        let mut kills: Vec<Duration> = (0..=random(2)).map(|_| random_time(800)).collect();
        kills.sort_unstable();
        let mut restart = server.as_mut();
        for moment in kills {
            if moment > restart_at
                && let Some(server) = restart.take()
            {
                restart_redis(server, begun + restart_at, data, &shop, &mut sum).await?;
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
            restart_redis(server, begun + restart_at, data, &shop, &mut sum).await?;
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
        let now = rest::come_to_rest(&shop).await?;
        stop.send(()).ok();
        sum.wrong += auditing.await??;
        // A store that forgets a moment forgets what a buyer has.
        let limit = (data != Data::Older).then_some(1);
        let mut wrong = judge::judge(&shop.database.history()?, &now, stock, limit, &told, shop.opens_at);
        wrong.extend(rest::sell_the_rest(&shop, &told, now.available).await?);
        wrong.extend(rest::begin_again(&shop).await?);
        wrong.extend(rest::close(&shop).await?);
        wrong.iter().for_each(|what| eprintln!("round {round}: {what}"));
        sum.wrong += wrong.len();
        let epoch = shop.database.epoch()?;
        if !patiently(|| async { Ok(shop.sale.forget(epoch).await?) }).await? {
            return Err(format!("the sale does not have epoch {epoch}").into());
        }
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
    println!(
        "  servers killed       {}, of which {} came back empty and {} with what was a moment before",
        sum.restarted, sum.emptied, sum.set_back
    );
    let share = 100.0 * sum.answered as f64 / sum.asked.max(1) as f64;
    println!("  requests             {}, of which {share:.2} % were answered at once", sum.asked);
    println!("  p50, p99             {} µs, {} µs", percentile(50), percentile(99));
    println!("  told: reserved       {}", sum.reserved);
    println!("  told: paid           {}", sum.paid);
    println!("  told: sold out       {}", sum.refused);
    println!("  told: not open yet   {}", sum.early);
    println!("  told: one is enough  {}", sum.limited);
    println!("  wrong                {}", sum.wrong);
    if sum.wrong == 0 { Ok(()) } else { Err("the sale has gone wrong".into()) }
}

/// Kills the server at its moment. If it comes back without the sale or without the last of it, the
/// sale is rebuilt.
async fn restart_redis(
    server: &mut RedisServer,
    moment: Instant,
    data: Data,
    shop: &Shop,
    sum: &mut Sum,
) -> Result<()> {
    tokio::time::sleep_until(moment.into()).await;
    server.kill_and_restart(data, random_time(100)).await?;
    sum.restarted += 1;
    let found = patiently(|| async { Ok(shop.sale.figures().await?) }).await?;
    match data {
        Data::Kept => return found.map(drop).ok_or_else(|| "the server was to keep its data".into()),
        Data::Lost => sum.emptied += 1,
        Data::Older => {
            found.ok_or("the server was to keep its older data")?;
            sum.set_back += 1;
            // Until somebody sees that, it sells what is sold.
            tokio::time::sleep(random_time(200)).await;
        }
    }
    shop.rebuild(|terms| terms).await
}
