//! The scripts of the Redis engine against the rules that they restate, step by step.
//!
//! Generated sequences of requests run on a real server whose clock is in our hands, and on
//! [`leasehold::claim`]. After every request the answers must be the same, and whom it woke, and
//! what is seen of the name. See [`pair`] for what is allowed to differ.
//!
//! `LEASEHOLD_DIFFERENTIAL=STEPS[:SEED]` makes more steps, or others. Sequence number N of a seed
//! is the first of seed + N.

mod bench;
mod book;
#[cfg(feature = "cache")]
mod cache;
mod pair;
#[cfg(feature = "sale")]
mod sale;
mod sequence;
#[path = "../servers/mod.rs"]
mod servers;
mod twins;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::Bench;
use libtest_mimic::{Arguments, Failed, Trial};
use pair::{Difference, Tally};
use sequence::Sequence;
use servers::{Clock, Redis};

/// What the suite does.
const STEPS: u64 = 10_000;
const SEED: u64 = 1;

/// How long a difference is made smaller before it is told.
const SHRINK_LIMIT: Duration = Duration::from_secs(60);

/// What must happen at least once in the steps of the suite, or they prove nothing.
const SEEN: [&str; 27] = [
    "granted",
    "taken by the short script",
    "queued",
    "busy",
    "refused for the capacity",
    "refused for the weight",
    "refused for an upgrade",
    "refused as not held",
    "woken with a grant",
    "woken to ask",
    "renewed",
    "gone",
    "a claim released",
    "a place released",
    "nothing released",
    "asked to downgrade",
    "tried to upgrade",
    "asked to upgrade",
    "asked to change the value",
    "resized",
    "not resized",
    "broken",
    "leaders changed",
    "the clock was set back",
    "stepped over the moment",
    "ended tidily",
    "ended in silence",
];

fn main() -> ExitCode {
    let missing = Redis::missing().or_else(Clock::missing);
    if let Some(missing) = &missing {
        eprintln!("differential: {missing} is missing; `./test.sh` installs it");
    }
    let ignored = missing.is_some() && std::env::var_os("CI").is_none();
    let trial = Trial::test("the_scripts_follow_the_rules", the_scripts_follow_the_rules);
    let twins = Trial::test("the_twins_follow_the_rules", twins::the_twins_follow_the_rules);
    let trials = vec![
        trial,
        twins,
        #[cfg(feature = "cache")]
        Trial::test("the_twin_of_an_entry_follows_its_rule", cache::the_twin_follows_the_rule),
        #[cfg(feature = "sale")]
        Trial::test("the_twin_of_a_reservation_follows_its_rule", sale::the_twin_follows_the_rule),
    ];
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(ignored)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn the_scripts_follow_the_rules() -> Result<(), Failed> {
    let (steps, seed) = match std::env::var("LEASEHOLD_DIFFERENTIAL") {
        Err(_) => (STEPS, SEED),
        Ok(text) => {
            let (steps, seed) = text.split_once(':').unwrap_or((&text, "1"));
            let number = |text: &str| text.parse().map_err(|_| "LEASEHOLD_DIFFERENTIAL is STEPS[:SEED]");
            (number(steps)?, number(seed)?)
        }
    };
    let started = Instant::now();
    let run = Run { steps, seed, ..Run::default() };
    let threads = thread::available_parallelism().map_or(2, |threads| threads.get().max(2));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| run.work());
        }
    });
    if let Some(failure) = run.failure.into_inner().expect("no panic") {
        return Err(failure.into());
    }
    let tally = run.tally.into_inner().expect("no panic");
    let made = run.made.into_inner();
    eprintln!("{made} steps from seed {seed} in {:.1} s: {tally:?}", started.elapsed().as_secs_f64());
    if steps >= STEPS {
        let unseen: Vec<_> = SEEN.iter().filter(|what| !tally.contains_key(*what)).collect();
        assert!(unseen.is_empty(), "never happened: {unseen:?}");
    }
    Ok(())
}

/// Sequences that are being run, by some threads.
#[derive(Default)]
struct Run {
    steps: u64,
    seed: u64,
    next: AtomicU64,
    made: AtomicU64,
    over: AtomicBool,
    failure: Mutex<Option<String>>,
    tally: Mutex<Tally>,
}

impl Run {
    fn work(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        let mut tally = Tally::new();
        runtime.block_on(async {
            let mut bench = Bench::new().await;
            while self.made.load(Ordering::Relaxed) < self.steps && !self.over.load(Ordering::Relaxed) {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                let sequence = Sequence::generate(self.seed.wrapping_add(number));
                self.made.fetch_add(sequence.steps.len() as u64, Ordering::Relaxed);
                let Err(difference) = pair::run(&mut bench, &sequence, &mut tally).await else {
                    *tally
                        .entry(if sequence.tidy { "ended tidily" } else { "ended in silence" })
                        .or_default() += 1;
                    continue;
                };
                if !self.over.swap(true, Ordering::Relaxed) {
                    let text = shrunk(&mut bench, sequence, difference).await;
                    *self.failure.lock().expect("no panic") = Some(text);
                }
            }
        });
        let mut sum = self.tally.lock().expect("no panic");
        for (what, times) in tally {
            *sum.entry(what).or_default() += times;
        }
    }
}

/// Leaves out whatever is not needed for a difference, and tells it.
async fn shrunk(bench: &mut Bench, mut sequence: Sequence, mut difference: Difference) -> String {
    // Something else may go wrong in what is left, and is another story.
    let kind = |what: &str| what.lines().next().map(str::to_owned);
    let first = difference.what.clone();
    let limit = Instant::now() + SHRINK_LIMIT;
    sequence.steps.truncate(difference.step + 1);
    let mut length = sequence.steps.len().div_ceil(2);
    while length > 0 {
        let mut at = 0;
        while at < sequence.steps.len() && Instant::now() < limit {
            let mut shorter = sequence.clone();
            shorter.steps.drain(at..(at + length).min(sequence.steps.len()));
            match pair::run(bench, &shorter, &mut Tally::new()).await {
                Err(found) if kind(&found.what) == kind(&first) => {
                    shorter.steps.truncate(found.step + 1);
                    (sequence, difference) = (shorter, found);
                }
                _ => at += length,
            }
        }
        length /= 2;
    }
    format!(
        "LEASEHOLD_DIFFERENTIAL=1:{} differs: {first}\n\nthe least of it:\n{sequence}\nat step {}: {}",
        sequence.seed, difference.step, difference.what
    )
}
