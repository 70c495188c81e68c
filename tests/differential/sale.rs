//! The Lua twin of a reservation against its rule, step by step: answers, what is written, and for
//! how long, byte for byte.
//!
//! The cells are those of real sales in this process, which buyers and a worker change between the
//! steps; now and then a cell is spoiled, or the time is another one.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::engine::{CellValue, Rule as _, Swap, Write};
use leasehold::kit::sale::{Expired, Orders, Part, Placed, Reservation, ReservationId, Reserve, Terms};
use leasehold::{Family, Name};
use libtest_mimic::Failed;

use crate::servers::Redis;
use crate::twins::{Dice, Scripts, Way, run, told};

const STEPS: u64 = 10_000;
/// Steps of one sale.
const SEQUENCE: u64 = 100;

/// The first bytes of answers, all of which must come at least once.
const WORDS: [&str; 10] = [
    "foreign",
    "there",
    "not open",
    "over",
    "limit reached",
    "too few",
    "no sale",
    "rebuilding",
    "elsewhere",
    "mismatch",
];

/// A database that decides by the reservation's number.
struct Database;

impl Orders for Database {
    type Error = String;

    async fn place(&self, reservation: &Reservation) -> Result<Placed, String> {
        match reservation.id.0 % 8 {
            0 => Err("away".into()),
            1 => Ok(Placed::Refused),
            2 => Ok(Placed::NoStock),
            _ => Ok(Placed::Yes),
        }
    }

    async fn expire(&self, reservation: &Reservation) -> Result<Expired, String> {
        Ok(if reservation.id.0 % 8 == 3 { Expired::Paid } else { Expired::Yes })
    }
}

pub(crate) fn the_twin_follows_the_rule() -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(compare())
}

async fn compare() -> Result<(), Failed> {
    let server = Redis::start();
    let mut raw = server.connect();
    let mut scripts = Scripts::new();
    let mut tally: BTreeMap<&str, u64> = BTreeMap::new();
    let mut dice = Dice(1);
    for number in 0..STEPS / SEQUENCE {
        // A store of its own for each sale.
        let options = leasehold::Options::new().clock(leasehold::TokioClock::new());
        let url = format!("memory:sale-twin-{number}");
        let engine = leasehold::engine::open(&url, &options).await.expect("an engine");
        let client = leasehold::connect_with(&url, options).await.expect("an engine");
        let sale = client.sale("x").expect("a name");
        let shards = [1, 2, 16][dice.roll(3) as usize];
        let stock = [0, 3, 40, 1000][dice.roll(4) as usize];
        let terms = Terms::new(stock)
            .shards(shards)
            .limit(1 + dice.roll(5) as u32)
            .opens_in(Duration::from_millis(dice.roll(300)))
            .open_for(Duration::from_secs(5))
            .pay_within(Duration::from_millis(700));
        if dice.roll(20) > 0 {
            sale.open(&terms).await.expect("an answer");
        }
        let buckets = u16::try_from((stock / u32::from(shards)).div_ceil(16).max(1)).expect("few");
        let mut ids: Vec<(ReservationId, u64, u32)> = Vec::new();
        for _ in 0..SEQUENCE {
            tokio::time::advance(Duration::from_millis(dice.roll(100))).await;
            let again = !ids.is_empty() && dice.roll(4) == 0;
            let (id, buyer, quantity) = if again {
                ids[dice.roll(ids.len() as u64) as usize]
            } else {
                let id = u128::from(dice.roll(1 << 31)) << 80 | u128::from(dice.roll(1 << 31));
                (ReservationId(id), dice.roll(20), 1 + dice.roll(3) as u32)
            };
            let quantity = if dice.roll(12) == 0 { 1 + dice.roll(9) as u32 } else { quantity };
            let name = if buyer == 7 { "é".repeat(100) } else { format!("buyer{buyer}") };
            let epoch = if dice.roll(30) == 0 { 2 } else { 1 };
            let mut rule = Reserve::new(epoch, (shards, buckets));
            assert!(rule.add(id, &name, quantity), "there is room for one");
            let shard = rule.shard_of(id);
            // Others go along, until there is no room for another.
            for _ in 0..[0, 1, 4, 30][dice.roll(4) as usize] {
                let (other, buyer, quantity) = (dice.roll(1 << 31), dice.roll(20), 1 + dice.roll(3) as u32);
                let known = ids.get(other as usize % 64).filter(|_| dice.roll(4) == 0);
                let (id, buyer, quantity) =
                    known.copied().unwrap_or((ReservationId(other.into()), buyer, quantity));
                if rule.shard_of(id) == shard && !rule.add(id, &format!("buyer{buyer}"), quantity) {
                    *tally.entry("full").or_default() += 1;
                    break;
                }
            }
            let cell = |part: String| Name::new(Family::Cell, format!("sale/{{x}}/{part}")).expect("a name");
            let cells: Vec<Name> = std::iter::once(cell(format!("head/{shard}")))
                .chain(rule.parts().iter().map(|part| match part {
                    Part::Buyer(name) => cell(format!("buyer/{name}")),
                    Part::Bucket(bucket) => cell(format!("bucket/{shard}/{bucket}")),
                }))
                .collect();
            let found = engine.read(&cells).await.expect("an answer");
            let mut values: Vec<Option<Vec<u8>>> = found.cells.into_iter().map(|cell| cell.value).collect();
            if dice.roll(10) == 0 {
                let spoiled = dice.roll(values.len() as u64) as usize;
                values[spoiled] = Some(dice.garbage(values[spoiled].as_deref()));
            }
            if dice.roll(60) == 0
                && let Some(head) = &mut values[0]
            {
                // It is being rebuilt, or was forgotten.
                head[1] = 1 + dice.roll(2) as u8;
            }
            let now = match dice.roll(12) {
                0 => found.now.saturating_sub(dice.roll(10_000_000)),
                1 => found.now + dice.roll(10_000_000),
                // When all has ended, or just not.
                2 => found.now + 86_400_000_000 + dice.roll(12_000_000),
                _ => found.now,
            };
            let given: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
            let decision = rule.step(&given, now);
            let expected = told(&decision, values.len());
            let (_, answered) = run(&mut raw, &mut scripts, &rule, &given, now, Way::Script);
            if answered != expected {
                return Err(format!(
                    "{rule:?} at {now} on {given:?}\n\nthe rule:\n{expected}\n\nthe script:\n{answered}"
                )
                .into());
            }
            for answer in decision.answer.chunks(14) {
                *tally.entry(WORDS[usize::from(answer[0])]).or_default() += 1;
            }
            if !decision.writes.is_empty() {
                *tally.entry("written").or_default() += 1;
            }
            match dice.roll(10) {
                0..6 => {
                    let answered = sale.reserve(&name, quantity, id).await.is_ok();
                    ids.extend((answered && !again).then_some((id, buyer, quantity)));
                }
                6 => drop(sale.pay(id).await),
                7 => drop(sale.cancel(id).await),
                8 => drop(sale.worker().attempts(2).run_once(Database).await),
                _ if dice.roll(20) == 0 => {
                    // A bucket that an earlier epoch has left.
                    let write = Write::Put(CellValue {
                        bytes: vec![0x83, 0, 0, 0, 0, 7],
                        lives: Duration::from_secs(60),
                    });
                    let version = engine.read(&cells[2..3]).await.expect("an answer").cells[0].version;
                    if version == 0 {
                        let swap = Swap { name: cells[2].clone(), version, write };
                        engine.swap(vec![swap]).await.expect("an answer");
                    }
                }
                _ => {}
            }
        }
    }
    eprintln!("{STEPS} steps of reservations: {tally:?}");
    let unseen: Vec<_> = WORDS.iter().chain(&["full"]).filter(|what| !tally.contains_key(*what)).collect();
    assert!(unseen.is_empty(), "never happened: {unseen:?}");
    Ok(())
}
