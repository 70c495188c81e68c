//! One of the processes: buyers who all come at once, and a worker that places their orders.
//!
//! Whatever a buyer is told is written to the pipe in the next moment, a line each: `reserved ID
//! EPOCH MICROSECOND`, `paid ID`, `refused ID`, `early ID`, `limited ID OTHER`. What was written
//! before a kill is read by the judge.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use leasehold::kit::sale::{Answer, Payment, Reservation, ReservationId, Sale};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::JoinSet;

use crate::ROUND;
use crate::order_file::OrderFile;
use crate::processes::{Result, now, random_time};

/// Short, so that what nobody pays for is seen to come back.
pub(crate) const PAY_WITHIN: Duration = Duration::from_millis(400);
/// Whoever got no answer asks again after this.
pub(crate) const AGAIN: Duration = Duration::from_millis(30);
/// One of so many buyers wants two units, in two windows at the same time.
const GREEDY: u32 = 8;

/// Sells as it is told to: `SALE DATABASE NUMBER BUYERS DECIDES`. At the end it writes the requests
/// and those that were answered, and `done`.
pub(crate) async fn work(url: &str) -> Result<()> {
    let client = leasehold::connect(url).await?;
    say("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let [name, path, number, buyers, decides] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(line.into());
        };
        let sale = client.sale(name)?;
        let database = OrderFile::open(Path::new(path))?.which_decides(decides.parse()?);
        let placing = tokio::spawn({
            let (sale, database) = (sale.clone(), database.clone());
            async move {
                let worker = sale.worker().poll(Duration::from_millis(20)).lease(Duration::from_millis(500));
                worker.run(database).await
            }
        });
        // One of them is at the door before the crowd. Whatever the answer is, it asks again.
        let first = format!("{number}/0");
        let id = reservation_of(name, &first);
        match sale.reserve(&first, 1, id).await {
            Ok(Answer::Reserved(told)) => say_reserved(&told),
            Ok(Answer::NotOpen { .. }) => say(&format!("early {id}")),
            _ => {}
        }
        let mut calls = JoinSet::new();
        for buyer in 0..buyers.parse::<u32>()? {
            let name_of = format!("{number}/{buyer}");
            let first = reservation_of(name, &name_of);
            let second = buyer.is_multiple_of(GREEDY).then(|| reservation_of(name, &format!("{name_of}/2")));
            let windows = [Some((first, second)), second.map(|second| (second, Some(first)))];
            for (id, other) in windows.into_iter().flatten() {
                calls.spawn(buy(sale.clone(), database.clone(), name_of.clone(), id, other));
            }
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

fn say_reserved(told: &Reservation) {
    say(&format!("reserved {} {} {}", told.id, told.epoch, now()));
}

#[derive(Default)]
struct Asked {
    asked: u64,
    answered: u64,
    /// Of the first answer.
    time: Option<Duration>,
}

/// A buyer, whose reservation is the same whenever it asks again; and that of its other window.
async fn buy(
    sale: Sale,
    database: OrderFile,
    buyer: String,
    id: ReservationId,
    other: Option<ReservationId>,
) -> Result<Asked> {
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
                    Answer::Reserved(told) => break say_reserved(&told),
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
                    Answer::LimitReached { left: 0 } if other.is_some() => {
                        other.iter().for_each(|other| say(&format!("limited {id} {other}")));
                        return Ok(asked);
                    }
                    Answer::NotOpen { opens_in } if started.elapsed() < ROUND * 4 => {
                        say(&format!("early {id}"));
                        tokio::time::sleep(opens_in).await;
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
