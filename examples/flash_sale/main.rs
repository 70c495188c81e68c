//! A flash sale: many buyers, few units, and processes that are killed at random.
//!
//! ```text
//! cargo run --release -p leasehold --features sale --example flash_sale
//! cargo run --release -p leasehold --features redis,sale --example flash_sale -- --on redis://127.0.0.1/
//! ```
//!
//! In each round all processes sell the same stock to their buyers at the same time and place the
//! orders, and one or two of them are killed with `kill -9` at a random moment: between any two
//! steps. Buyers of a process that was killed ask again, with the same reservations. Some pay, some
//! cancel, and most forget: their units come back and are sold to others. The database is a file of
//! lines, which decides by the id of a reservation.
//!
//! After each round: never was more sold than there is; what was taken is sold or came back; every
//! order that a buyer was told of is there once; and nothing is left while somebody asks.
//! Otherwise the program ends with an error.
//!
//! `--rounds 5`, `--processes 8`, `--buyers 1000` (of all processes together), `--stock 100`,
//! `--shards 1`, and `--restart 'COMMAND'`, which restarts the server of `--on` at a random moment
//! of each round; the sale is then rebuilt from the database if the server has lost it.

#[path = "../processes/mod.rs"]
mod processes;

mod database;

use std::path::Path;
use std::time::{Duration, Instant};

use database::{Database, Order};
use leasehold::kit::sale::{Answer, Begun, Payment, Rebuild, ReservationId, Sale, Terms};
use processes::{Arguments, Result, Worker, random, random_time};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::JoinSet;

/// Short, so that what nobody pays for is seen to come back.
const PAY_WITHIN: Duration = Duration::from_millis(800);
/// A buyer who is told that it is sold out asks again after this.
const AGAIN: Duration = Duration::from_millis(50);
/// How long buyers go on asking.
const PATIENCE: Duration = Duration::from_secs(3);

fn terms(stock: u32, shards: u32) -> Result<Terms> {
    Ok(Terms::new(stock).shards(u8::try_from(shards)?).pay_within(PAY_WITHIN))
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::read();
    if let Some([url]) = arguments.of_worker() {
        return work(url).await;
    }
    let dir = tempfile::tempdir()?;
    let url = arguments.url(&dir);
    let rounds = arguments.number("--rounds", 5)?;
    let count = arguments.number("--processes", 8)?.max(1);
    let each = arguments.number("--buyers", 1000)?.div_ceil(count);
    let (stock, shards) = (arguments.number("--stock", 100)?, arguments.number("--shards", 1)?);
    let client = leasehold::connect(&url).await?;
    let mut workers = Vec::new();
    for _ in 0..count {
        workers.push(Worker::start(&[&url]).await?);
    }
    let scope = random(u64::MAX);
    let (mut wrong, mut killed, mut rebuilt) = (Vec::new(), 0, 0);
    let (mut asked, mut answered, mut times) = (0, 0, Vec::new());
    for round in 0..rounds {
        let name = format!("flash-sale-{scope}-{round}");
        let database = Database::create(&dir.path().join(format!("orders-{round}")), stock)?;
        let sale = client.sale(&name)?;
        sale.open(&terms(stock, shards)?).await?;
        let command = |number: usize| format!("{name} {} {number} {each}", database.path().display());
        for (number, worker) in workers.iter_mut().enumerate() {
            worker.say(&command(number)).await?;
        }
        tokio::time::sleep(random_time(1500)).await;
        let mut victims: Vec<usize> = Vec::new();
        for _ in 0..=random(2) {
            let victim = usize::try_from(random(count.into()))?;
            workers[victim].kill().await?;
            workers[victim] = Worker::start(&[&url]).await?;
            // The same buyers, with the same reservations.
            workers[victim].say(&command(victim)).await?;
            victims.push(victim);
            tokio::time::sleep(random_time(300)).await;
        }
        killed += victims.len();
        if let Some(restart) = arguments.text("--restart") {
            let restarted = tokio::process::Command::new("sh").args(["-c", restart]).status().await?;
            if !restarted.success() {
                return Err(format!("`{restart}` has failed").into());
            }
            rebuilt += u32::from(rebuild_if_lost(&sale, &database, stock, shards).await?);
        }
        let mut told = Vec::new();
        for worker in &mut workers {
            let line = worker.line().await?.ok_or("a worker ended that was not killed")?;
            let mut words = line.split(' ');
            let mut next = || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or("no number");
            (asked, answered) = (asked + next()?, answered + next()?);
            for word in words {
                match word.strip_prefix('t') {
                    Some(time) => times.push(time.parse::<u64>()?),
                    None => told.push(word.parse::<ReservationId>()?),
                }
            }
        }
        wrong.extend(
            judge(&sale, &database, stock, &told)
                .await?
                .into_iter()
                .map(|what| format!("round {round}: {what}")),
        );
        sale.forget(sale.figures().await?.map_or(1, |now| now.epoch)).await?;
    }
    client.close().await.ok();
    times.sort_unstable();
    let percentile = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
    println!("{rounds} sales of {stock} units to {} buyers of {count} processes", each * count);
    println!("  processes killed     {killed}");
    println!("  sales rebuilt        {rebuilt}");
    let share = if asked == 0 { 0.0 } else { 100.0 * answered as f64 / asked as f64 };
    println!("  requests             {asked}, of which {share:.2} % were answered");
    println!("  p50                  {} µs", percentile(50));
    println!("  p99                  {} µs", percentile(99));
    println!("  wrong                {}", wrong.len());
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

/// Begins another epoch from the database if the server came back without the sale.
async fn rebuild_if_lost(sale: &Sale, database: &Database, stock: u32, shards: u32) -> Result<bool> {
    let found = patiently(|| sale.figures()).await?;
    if found.is_some() {
        return Ok(false);
    }
    let (epoch, orders) = database.next_epoch()?;
    let (mut left, mut unpaid, mut bought) = (stock, Vec::new(), Vec::new());
    for (id, order, buyer) in orders {
        match order {
            Order::Expired => {}
            Order::Unpaid => unpaid.push((id, buyer)),
            Order::Paid => bought.push(buyer),
        }
        left -= u32::from(order != Order::Expired);
    }
    let mut from = Rebuild::new(terms(left, shards)?.epoch(epoch));
    for (id, buyer) in unpaid {
        from = from.unpaid(id, buyer, 1, PAY_WITHIN);
    }
    for buyer in bought {
        from = from.bought(buyer, 1);
    }
    match sale.rebuild(&from).await? {
        Begun::Now => Ok(true),
        Begun::Before { epoch } => Err(format!("somebody else has begun epoch {epoch}").into()),
    }
}

/// Asks until the engine answers, for as long as a server takes to come back.
async fn patiently<T, F>(mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = leasehold::Result<T>>,
{
    let started = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_retryable() && started.elapsed() < Duration::from_secs(30) => {
                tokio::time::sleep(AGAIN).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Lets the sale come to rest, and says what is wrong then.
async fn judge(sale: &Sale, database: &Database, stock: u32, told: &[ReservationId]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let worker = sale.worker();
    let started = Instant::now();
    let now = loop {
        worker.run_once(database).await?;
        let now = sale.figures().await?.ok_or("the sale is gone")?;
        if now.reserved + now.ordered + now.ending == 0 {
            break now;
        }
        if started.elapsed() > Duration::from_secs(30) {
            return Err(format!("it does not come to rest: {now:?}").into());
        }
        tokio::time::sleep(AGAIN).await;
    };
    let orders = database.orders()?;
    let paid = orders.iter().filter(|(_, order, _)| *order == Order::Paid).count() as u64;
    let most = database.most_at_once()?;
    if most > stock {
        wrong.push(format!("{most} of {stock} units were ordered at the same time"));
    }
    if now.paid != paid || now.dead != 0 {
        wrong.push(format!("the database has {paid} paid orders, the sale says {now:?}"));
    }
    if now.taken != now.paid + now.returned || now.stock != u64::from(stock) {
        wrong.push(format!("units were made or lost: {now:?}"));
    }
    for id in told {
        let found = orders.iter().filter(|(order, state, _)| order == id && *state == Order::Paid).count();
        if found != 1 {
            wrong.push(format!("a buyer was told that {id} is paid, and the database has it {found} times"));
        }
    }
    // Whatever is left can be bought, to the last unit.
    for number in 0..now.available {
        let id = ReservationId::random()?;
        let answer = sale.reserve(format!("last/{number}"), 1, id).await?;
        if !matches!(answer, Answer::Reserved(_)) {
            wrong.push(format!("{} are left, and one who asks is told {answer:?}", now.available - number));
        }
    }
    let answer = sale.reserve("nobody", 1, ReservationId::random()?).await?;
    if answer != (Answer::SoldOut { left: 0 }) {
        wrong.push(format!("all is sold, and one who asks is told {answer:?}"));
    }
    Ok(wrong)
}

/// Sells as it is told to: `SALE DATABASE NUMBER BUYERS`. Answers with the requests, those that
/// were answered, the reservations that were paid, and some of the response times.
async fn work(url: &str) -> Result<()> {
    let client = leasehold::connect(url).await?;
    println!("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let [name, path, number, buyers] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(line.into());
        };
        let sale = client.sale(name)?;
        let database = Database::open(Path::new(path));
        let placing = tokio::spawn({
            let (sale, database) = (sale.clone(), database.clone());
            async move {
                let worker = sale.worker().poll(Duration::from_millis(20)).lease(Duration::from_secs(1));
                worker.run(database).await
            }
        });
        let mut calls = JoinSet::new();
        for buyer in 0..buyers.parse::<u32>()? {
            calls.spawn(buy(sale.clone(), database.clone(), name.to_owned(), format!("{number}/{buyer}")));
        }
        let (mut asked, mut answered, mut rest) = (0, 0, String::new());
        while let Some(call) = calls.join_next().await {
            let bought = call??;
            asked += bought.asked;
            answered += bought.answered;
            if let Some(id) = bought.paid {
                rest.push_str(&format!(" {id}"));
            }
            if let Some(time) = bought.time {
                rest.push_str(&format!(" t{}", time.as_micros()));
            }
        }
        placing.abort();
        println!("{asked} {answered}{rest}");
    }
    Ok(())
}

#[derive(Default)]
struct Bought {
    asked: u64,
    answered: u64,
    /// The buyer was told that it is paid.
    paid: Option<ReservationId>,
    /// Of the first answer.
    time: Option<Duration>,
}

/// A buyer, whose reservation is the same whenever it asks again.
async fn buy(sale: Sale, database: Database, name: String, buyer: String) -> Result<Bought> {
    let id = number_of(&name, &buyer);
    let mut bought = Bought::default();
    let started = Instant::now();
    let mut has = false;
    while started.elapsed() < PATIENCE {
        bought.asked += 1;
        let sent = Instant::now();
        match sale.reserve(&buyer, 1, id).await {
            Ok(answer) => {
                bought.answered += 1;
                bought.time.get_or_insert(sent.elapsed());
                match answer {
                    Answer::Reserved(_) => {
                        has = true;
                        break;
                    }
                    Answer::Ended(_) | Answer::Over => return Ok(bought),
                    // What is not paid comes back.
                    _ => tokio::time::sleep(AGAIN + random_time(50)).await,
                }
            }
            Err(error) if error.is_retryable() => tokio::time::sleep(AGAIN).await,
            Err(error) => return Err(error.into()),
        }
    }
    // One of four pays, one of eight changes its mind, and the others forget.
    if !has || id.0 % 8 > 2 {
        return Ok(bought);
    }
    if id.0 % 8 == 2 {
        sale.cancel(id).await.ok();
        return Ok(bought);
    }
    while started.elapsed() < PATIENCE {
        // The database decides, and the sale is told.
        if database.pay(id)? {
            bought.paid = Some(id);
            while started.elapsed() < PATIENCE * 2 {
                match sale.pay(id).await {
                    Ok(Payment::TooEarly) | Err(_) => tokio::time::sleep(AGAIN).await,
                    // If its time is over here, the worker finds out that it is paid.
                    Ok(_) => break,
                }
            }
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(bought)
}

/// The number of the reservation of a buyer: in a shop it is kept with the buyer's basket.
fn number_of(name: &str, buyer: &str) -> ReservationId {
    let hash = |seed: u64| {
        format!("{name}/{buyer}")
            .bytes()
            .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(13))
    };
    ReservationId(u128::from(hash(0xcbf2_9ce4_8422_2325)) << 64 | u128::from(hash(17)))
}
