//! Four processes, each on a name of its own: what they do to each other.

use std::path::Path;
use std::time::{Duration, Instant};

use heed::EnvFlags;

use crate::Plan;
use crate::bare::BareStore;
use crate::kit::{self, Goal, Result};

const PROCESSES: usize = 4;

/// What one process did.
struct Done {
    cycles: f64,
    longest: Duration,
}

/// What all processes did.
struct Round {
    rate: f64,
    spread: f64,
    longest: Duration,
}

pub(crate) fn run(plan: Plan) -> Result<()> {
    let dir = tempfile::tempdir()?;
    // Long, so that the spread is not that of a few turns of the scheduler.
    let slice = plan.slice * 6;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds.div_ceil(3) {
        ours.push(round("file", dir.path(), slice)?);
        bare.push(round("bare", dir.path(), slice)?);
    }
    println!("\nfile, {PROCESSES} processes, a name each, all together");
    for (label, rounds) in [("file:", &ours), ("bare store: LMDB NO_SYNC", &bare)] {
        println!(
            "  {label:<44} {:>11} cycles/s, spread {:.2}, longest cycle {:.1?}",
            kit::thousands(kit::median(rounds.iter().map(|round| round.rate).collect())),
            kit::median(rounds.iter().map(|round| round.spread).collect()),
            rounds.iter().map(|round| round.longest).max().unwrap_or_default(),
        );
    }
    let ratios = ours.iter().zip(&bare).map(|(ours, bare)| ours.rate / bare.rate).collect();
    kit::verdict("file / bare store", Goal::AtLeast(0.5), kit::median(ratios));
    let spreads = ours.iter().map(|round| round.spread).collect();
    kit::verdict("most / fewest cycles of a process", Goal::AtMost(1.3), kit::median(spreads));
    Ok(())
}

fn round(kind: &str, dir: &Path, slice: Duration) -> Result<Round> {
    let dir = dir.join(kind);
    let arguments: Vec<Vec<String>> = (0..PROCESSES)
        .map(|index| {
            let (dir, millis) = (dir.display().to_string(), slice.as_millis().to_string());
            vec!["--child-cycles".into(), kind.into(), dir, format!("stock/{index}"), millis]
        })
        .collect();
    let mut counts = Vec::new();
    let mut longest = Duration::ZERO;
    for lines in kit::together(&arguments)? {
        let line = kit::numbers(lines.first().ok_or("a child said nothing")?)?;
        counts.push(line[0]);
        longest = longest.max(Duration::from_secs_f64(line[1]));
    }
    Ok(Round {
        rate: counts.iter().sum::<f64>() / slice.as_secs_f64(),
        spread: kit::spread(&counts),
        longest,
    })
}

/// One of the processes: `KIND DIR NAME MILLIS`.
pub(crate) fn child(arguments: &[String]) -> Result<()> {
    let [kind, dir, name, millis] = arguments else { return Err("KIND DIR NAME MILLIS".into()) };
    let slice = Duration::from_millis(millis.parse()?);
    let done = if kind == "bare" {
        let store = BareStore::open(Path::new(dir), EnvFlags::NO_SYNC)?;
        kit::ready()?;
        measure(slice, || store.cycle(name.as_bytes()))?
    } else {
        let runtime = kit::one_thread()?;
        runtime.block_on(async {
            let mutex = leasehold::connect(&format!("file:{dir}")).await?.mutex(name)?;
            kit::ready()?;
            let mut done = Done { cycles: 0.0, longest: Duration::ZERO };
            let started = Instant::now();
            let mut before = started;
            while before < started + slice {
                mutex.lock().await?.release().await?;
                done.note(&mut before);
            }
            kit::Result::Ok(done)
        })?
    };
    println!("{} {}", done.cycles, done.longest.as_secs_f64());
    Ok(())
}

fn measure(slice: Duration, mut cycle: impl FnMut() -> Result<()>) -> Result<Done> {
    let mut done = Done { cycles: 0.0, longest: Duration::ZERO };
    let started = Instant::now();
    let mut before = started;
    while before < started + slice {
        cycle()?;
        done.note(&mut before);
    }
    Ok(done)
}

impl Done {
    /// A cycle that started at `before` is over.
    fn note(&mut self, before: &mut Instant) {
        let now = Instant::now();
        self.cycles += 1.0;
        self.longest = self.longest.max(now - *before);
        *before = now;
    }
}
