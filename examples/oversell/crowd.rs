//! One of the processes: buyers who all come at once, and a worker that places their orders.
//!
//! Whatever a buyer is told is written to the pipe in the next moment, a line each: `reserved ID`,
//! `paid ID`, `refused ID`. What was written before a kill is read by the judge.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use leasehold::kit::sale::{Answer, Payment, ReservationId, Sale};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::JoinSet;

use crate::ROUND;
use crate::order_file::OrderFile;
use crate::processes::{Result, random_time};

/// Short, so that what nobody pays for is seen to come back.
pub(crate) const PAY_WITHIN: Duration = Duration::from_millis(400);
/// Whoever got no answer asks again after this.
pub(crate) const AGAIN: Duration = Duration::from_millis(30);

/// Sells as it is told to: `SALE DATABASE NUMBER BUYERS`. At the end it writes the requests and
/// those that were answered, and `done`.
pub(crate) async fn work(url: &str) -> Result<()> {
    let client = leasehold::connect(url).await?;
    say("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let [name, path, number, buyers] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(line.into());
        };
        let sale = client.sale(name)?;
        let database = OrderFile::open(Path::new(path))?.without_stock_check();
        let placing = tokio::spawn({
            let (sale, database) = (sale.clone(), database.clone());
            async move {
                let worker = sale.worker().poll(Duration::from_millis(20)).lease(Duration::from_millis(500));
                worker.run(database).await
            }
        });
        let mut calls = JoinSet::new();
        for buyer in 0..buyers.parse::<u32>()? {
            calls.spawn(buy(sale.clone(), database.clone(), name.to_owned(), format!("{number}/{buyer}")));
        }
        let (mut asked, mut answered) = (0_u64, 0_u64);
        while let Some(call) = calls.join_next().await {
            let one = call??;
            asked += one.asked;
            answered += one.answered;
            if let Some(time) = one.time.filter(|_| answered.is_multiple_of(50)) {
                say(&format!("time {}", time.as_micros()));
            }
        }
        placing.abort();
        say(&format!("asked {asked} {answered}"));
        say("done");
    }
    Ok(())
}

/// A short line is written to a pipe in one piece, or not at all.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).ok();
}

#[derive(Default)]
struct Asked {
    asked: u64,
    answered: u64,
    /// Of the first answer.
    time: Option<Duration>,
}

/// A buyer, whose reservation is the same whenever it asks again.
async fn buy(sale: Sale, database: OrderFile, name: String, buyer: String) -> Result<Asked> {
    let id = reservation_of(&name, &buyer);
    let mut asked = Asked::default();
    let started = Instant::now();
    let mut refusals = 0;
    loop {
        asked.asked += 1;
        let sent = Instant::now();
        match sale.reserve(&buyer, 1, id).await {
            Ok(answer) => {
                asked.answered += 1;
                asked.time.get_or_insert(sent.elapsed());
                match answer {
                    Answer::Reserved(_) => break say(&format!("reserved {id}")),
                    Answer::Ended(_) => return Ok(asked),
                    // What is not paid comes back: one of three looks once more.
                    Answer::SoldOut { .. } if refusals == 0 && id.0.is_multiple_of(3) => {
                        refusals += 1;
                        tokio::time::sleep(PAY_WITHIN + random_time(500)).await;
                    }
                    Answer::SoldOut { .. } => {
                        say(&format!("refused {id}"));
                        return Ok(asked);
                    }
                    Answer::NoSale | Answer::Rebuilding if started.elapsed() < ROUND * 4 => {
                        tokio::time::sleep(AGAIN).await;
                    }
                    other => return Err(format!("{buyer} was told {other:?}").into()),
                }
            }
            Err(error) if error.is_retryable() => tokio::time::sleep(AGAIN + random_time(30)).await,
            Err(error) => return Err(error.into()),
        }
    }
    // Three of eight pay, one changes its mind, and the others forget.
    match id.0 >> 8 & 7 {
        0..3 => pay(&sale, &database, id).await,
        3 => drop(sale.cancel(id).await),
        _ => {}
    }
    Ok(asked)
}

/// Pays as soon as there is an order, if it is not too late by then.
async fn pay(sale: &Sale, database: &OrderFile, id: ReservationId) {
    let started = Instant::now();
    while started.elapsed() < ROUND {
        // The database decides, and the sale is told.
        if database.pay(id).is_ok_and(|paid| paid) {
            say(&format!("paid {id}"));
            // One of four closes the browser at once: nobody tells the sale.
            if id.0 >> 16 & 3 == 0 {
                return;
            }
            // If its time is over here, the worker finds out that it is paid.
            while started.elapsed() < ROUND
                && !matches!(sale.pay(id).await, Ok(answer) if answer != Payment::TooEarly)
            {
                tokio::time::sleep(AGAIN).await;
            }
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The number of the reservation of a buyer: in a shop it is kept with the buyer's basket.
pub(crate) fn reservation_of(name: &str, buyer: &str) -> ReservationId {
    let hash = |seed: u64| {
        format!("{name}/{buyer}")
            .bytes()
            .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(13))
    };
    ReservationId(u128::from(hash(0xcbf2_9ce4_8422_2325)) << 64 | u128::from(hash(17)))
}
