//! A crowd of buyers, and a check of what they were sold.
//!
//! Every buyer wants one unit. Some click twice, some hammer, and some never pay. Whoever gets no
//! answer sends the same request again. It ends with an error if the shop has sold more or less
//! than it should have, a buyer was never answered, or one was told of a payment that the books do
//! not have.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::kit::sale::ReservationId;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Result;
use crate::history::View;
use crate::http::{Connection, Response};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// Where the shop is.
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    at: SocketAddr,
    /// How many buyers come.
    #[arg(long, default_value_t = 10_000)]
    buyers: u32,
    /// How many of them at the same time.
    #[arg(long, default_value_t = 100)]
    concurrency: u32,
    /// How many new buyers come in a second [default: as many as get through]
    #[arg(long)]
    per_second: Option<u32>,
    /// How many of 100 who have a reservation pay for it.
    #[arg(long, default_value_t = 70)]
    pay: u64,
    /// How many of 100 click twice.
    #[arg(long, default_value_t = 10)]
    twice: u64,
    /// How many of 100 are programs that send ten requests at once.
    #[arg(long, default_value_t = 2)]
    bots: u64,
    /// How long they think before they pay, at most.
    #[arg(long, default_value = "3s", value_parser = humantime::parse_duration)]
    think: Duration,
}

/// How often a request is sent before its buyer gives up.
const TRIES: usize = 20;

/// What a buyer has seen.
#[derive(Debug, Default)]
struct Seen {
    requests: u64,
    /// Those that got no answer, or were told to come back (503).
    failed: u64,
    /// Buyers who gave up asking.
    unanswered: u64,
    times: Vec<u64>,
    by_status: BTreeMap<u16, u64>,
    replayed: u64,
    reserved: u64,
    paid: u64,
    too_late: u64,
}

/// What the progress bar shows.
#[derive(Debug, Default)]
struct Progress {
    next: AtomicU32,
    done: AtomicU32,
    requests: AtomicU64,
    reserved: AtomicU64,
}

pub(crate) async fn run(settings: &Settings) -> Result<()> {
    let before = state(settings.at).await.map_err(|error| {
        format!("no shop at {}: {error}; start one with `cargo run --release -p flash-sale`", settings.at)
    })?;
    let started = Instant::now();
    let progress = Arc::new(Progress::default());
    let showing = tokio::spawn(show(Arc::clone(&progress), settings.buyers, started));
    let (told, mut seen) = mpsc::unbounded_channel();
    let mut crowd = JoinSet::new();
    for _ in 0..settings.concurrency.clamp(1, settings.buyers.max(1)) {
        crowd.spawn(come(settings.clone(), Arc::clone(&progress), started, told.clone()));
    }
    drop(told);
    let mut all = Seen::default();
    while let Some(one) = seen.recv().await {
        all.add(one);
    }
    while let Some(lane) = crowd.join_next().await {
        lane??;
    }
    let took = started.elapsed();
    showing.await?;
    let after = at_rest(settings.at).await?;
    all.print(took);
    if after.epoch != before.epoch {
        println!(
            "  rebuilt      from epoch {} to {}: what was taken is not compared",
            before.epoch, after.epoch
        );
    }
    let wrong = judge(&before, &after, &all);
    println!("  stock        {} = {}", after.stock, units(&after));
    if wrong.is_empty() {
        println!("  the books are right");
        return Ok(());
    }
    Err(wrong.join("\n").into())
}

/// What is wrong when all have gone and what they have not paid for has come back.
fn judge(before: &View, after: &View, all: &Seen) -> Vec<String> {
    let mut wrong = Vec::new();
    let (then, now) = (&before.now, &after.now);
    let open = now.reserved + now.ordered + now.ending + now.dead;
    let units = now.available + open + now.paid;
    if units != after.stock {
        wrong.push(format!("{units} units are in the sale, and the stock is {}", after.stock));
    }
    if open > 0 {
        wrong.push(format!("{open} units are neither paid nor back, although their time is over"));
    }
    if !after.agrees {
        wrong.push("the sale and the database do not agree".to_owned());
    }
    if now.paid < then.paid + all.paid || now.paid > after.stock {
        wrong.push(format!(
            "{} of {} units are paid; {} were before, and {} buyers were told so",
            now.paid, after.stock, then.paid, all.paid
        ));
    }
    // Whoever was refused was refused because all was taken. Each epoch counts for itself.
    let sold_out = now.sold_out > then.sold_out;
    let taken = now.reservations.checked_sub(then.reservations).filter(|_| after.epoch == before.epoch);
    if let Some(taken) = taken.filter(|taken| sold_out && *taken < then.available) {
        wrong.push(format!("buyers were refused, and only {taken} of {} units were taken", then.available));
    }
    if all.unanswered > 0 {
        wrong.push(format!("{} buyers were never answered", all.unanswered));
    }
    wrong
}

fn units(view: &View) -> String {
    let now = &view.now;
    format!(
        "{} left + {} reserved + {} ordered + {} paid + {} ending + {} given up",
        now.available, now.reserved, now.ordered, now.paid, now.ending, now.dead
    )
}

async fn state(address: SocketAddr) -> Result<View> {
    let response = Connection::open(address).await?.send("GET", "/state", "", "").await?;
    Ok(serde_json::from_slice(&response.body)?)
}

/// How the shop stands when no reservation is open any more.
async fn at_rest(address: SocketAddr) -> Result<View> {
    let started = Instant::now();
    loop {
        let view = state(address).await?;
        let limit = Duration::from_millis(view.pay_within_ms) + Duration::from_secs(30);
        let open = view.now.reserved + view.now.ordered + view.now.ending + view.now.dead;
        if open == 0 && view.agrees || started.elapsed() > limit {
            return Ok(view);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// One place in the crowd: one buyer after the other.
async fn come(
    settings: Settings,
    progress: Arc<Progress>,
    started: Instant,
    told: mpsc::UnboundedSender<Seen>,
) -> Result<()> {
    let mut connection = Connection::open(settings.at).await?;
    let mut payments = JoinSet::new();
    loop {
        let number = progress.next.fetch_add(1, Ordering::Relaxed);
        if number >= settings.buyers {
            break;
        }
        if let Some(rate) = settings.per_second {
            let turn = started + Duration::from_secs_f64(f64::from(number) / f64::from(rate.max(1)));
            tokio::time::sleep_until(turn.into()).await;
        }
        let id = ReservationId::random()?;
        let dice = |shift: u32| u64::try_from((id.0 >> shift) % 100).unwrap_or(0);
        let clicks = match () {
            () if dice(7) < settings.bots => 10,
            () if dice(14) < settings.twice => 2,
            () => 1,
        };
        let mut seen = Seen::default();
        // The name tells buyers of several runs apart, and the id is the same for each click.
        let fields = format!("X-Buyer: {}\r\nIdempotency-Key: {id}\r\n", &id.to_string()[..16]);
        let mut mine = false;
        for _ in 0..clicks {
            let answer = seen.ask(&mut connection, settings.at, "/orders", &fields).await?;
            mine |= answer.is_some_and(|answer| answer.status == 201);
            progress.requests.fetch_add(1, Ordering::Relaxed);
        }
        if mine {
            seen.reserved += 1;
            progress.reserved.fetch_add(1, Ordering::Relaxed);
            if dice(21) < settings.pay {
                // Others buy while this one looks for its card.
                let think = settings.think * u32::try_from(dice(28)).unwrap_or(0) / 100;
                payments.spawn(pay_later(settings.at, id, think));
            }
        }
        progress.done.fetch_add(1, Ordering::Relaxed);
        told.send(seen)?;
    }
    while let Some(paid) = payments.join_next().await {
        told.send(paid??)?;
    }
    Ok(())
}

async fn pay_later(address: SocketAddr, id: ReservationId, think: Duration) -> Result<Seen> {
    tokio::time::sleep(think).await;
    let mut seen = Seen::default();
    let mut connection = Connection::open(address).await?;
    let answer = seen.ask(&mut connection, address, &format!("/orders/{id}/pay"), "").await?;
    match answer.map(|answer| answer.status) {
        Some(200) => seen.paid += 1,
        Some(410) => seen.too_late += 1,
        _ => {}
    }
    Ok(seen)
}

impl Seen {
    /// Sends a request until it is answered, which does no harm: the key is the same. `None` if it
    /// never was.
    async fn ask(
        &mut self,
        connection: &mut Connection,
        address: SocketAddr,
        path: &str,
        fields: &str,
    ) -> Result<Option<Response>> {
        for _ in 0..TRIES {
            let sent = Instant::now();
            let answer = connection.send("POST", path, fields, "").await;
            self.requests += 1;
            self.times.push(u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX));
            match answer {
                Ok(response) if response.status < 500 => {
                    *self.by_status.entry(response.status).or_default() += 1;
                    self.replayed += u64::from(response.replayed);
                    return Ok(Some(response));
                }
                Ok(_) => {}
                Err(_) => *connection = Connection::open(address).await?,
            }
            self.failed += 1;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        self.unanswered += 1;
        Ok(None)
    }

    fn add(&mut self, mut other: Seen) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.unanswered += other.unanswered;
        self.times.append(&mut other.times);
        for (status, times) in other.by_status {
            *self.by_status.entry(status).or_default() += times;
        }
        self.replayed += other.replayed;
        self.reserved += other.reserved;
        self.paid += other.paid;
        self.too_late += other.too_late;
    }

    fn print(&mut self, took: Duration) {
        self.times.sort_unstable();
        let percentile = |part: usize| self.times.get(self.times.len() * part / 100).copied().unwrap_or(0);
        let of = |status| self.by_status.get(&status).copied().unwrap_or(0);
        let success = 100.0 * (1.0 - self.failed as f64 / self.requests.max(1) as f64);
        let rate = self.requests as f64 / took.as_secs_f64();
        println!(
            "  requests     {} in {:.1} s ({rate:.0}/s), {success:.2} % answered at once",
            self.requests,
            took.as_secs_f64()
        );
        println!(
            "  p50, p99     {:.1} ms, {:.1} ms",
            percentile(50) as f64 / 1e3,
            percentile(99) as f64 / 1e3
        );
        println!("  reserved     {}; {} answers were given again", self.reserved, self.replayed);
        println!("  refused      {} sold out, {} rate limit", of(409), of(429));
        println!("  paid         {}; {} came too late", self.paid, self.too_late);
    }
}

/// A progress bar, if somebody looks.
async fn show(progress: Arc<Progress>, buyers: u32, started: Instant) {
    const WIDTH: usize = 32;
    let terminal = std::io::stdout().is_terminal();
    let mut shown = usize::MAX;
    loop {
        let done = progress.done.load(Ordering::Relaxed);
        let part = f64::from(done) / f64::from(buyers.max(1));
        let full = (part * WIDTH as f64) as usize;
        let rate = progress.requests.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
        let reserved = progress.reserved.load(Ordering::Relaxed);
        let bar = format!("{}{}", "█".repeat(full), "░".repeat(WIDTH - full));
        if terminal {
            print!(
                "\r{bar} {:3.0} %  {done}/{buyers} buyers  {rate:.0} req/s  {reserved} reserved ",
                part * 100.0
            );
            std::io::stdout().flush().ok();
        } else if full != shown && (full.is_multiple_of(8) || done == buyers) {
            println!("{bar} {:3.0} %  {rate:.0} req/s", part * 100.0);
        }
        shown = full;
        if done >= buyers {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    if terminal {
        println!();
    }
}
