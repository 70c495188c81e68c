//! What the benchmark programs share: rounds, medians, children and the printing of goals.
//!
//! Figures move by factors from machine to machine and from hour to hour. So what is compared runs
//! in turns, in slices of one run, and what is printed is the median over the rounds of the ratio
//! inside each round.

#![allow(dead_code, reason = "each program uses a part")]

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The arguments of this program, without those that cargo adds.
pub(crate) fn arguments() -> Vec<String> {
    std::env::args().skip(1).filter(|argument| argument != "--bench").collect()
}

/// The value after `flag`.
pub(crate) fn value_after<'a>(arguments: &'a [String], flag: &str) -> Option<&'a str> {
    let at = arguments.iter().position(|argument| argument == flag)?;
    arguments.get(at + 1).map(String::as_str)
}

/// A runtime that runs everything on this thread.
pub(crate) fn one_thread() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// A runtime with two workers, so that tasks really run at the same time.
pub(crate) fn two_threads() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

pub(crate) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Calls `cycle` again and again for `slice`; the calls per second.
pub(crate) fn rate(slice: Duration, mut cycle: impl FnMut() -> Result<()>) -> Result<f64> {
    // The clock is read once in so many cycles, so that reading it is not what is measured.
    const BETWEEN_LOOKS: u32 = 64;
    let started = Instant::now();
    let mut count = 0;
    loop {
        for _ in 0..BETWEEN_LOOKS {
            cycle()?;
        }
        count += BETWEEN_LOOKS;
        let elapsed = started.elapsed();
        if elapsed >= slice {
            return Ok(f64::from(count) / elapsed.as_secs_f64());
        }
    }
}

/// Runs `cycle` in so many tasks for a while; the cycles per second of all of them.
pub(crate) fn rate_of_tasks<F>(
    runtime: &Runtime,
    tasks: usize,
    slice: Duration,
    cycle: impl Fn(usize) -> F + Clone + Send + 'static,
) -> Result<f64>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    runtime.block_on(async {
        let started = Instant::now();
        let mut running = JoinSet::new();
        for task in 0..tasks {
            let cycle = cycle.clone();
            running.spawn(async move {
                let mut count = 0u32;
                while started.elapsed() < slice {
                    cycle(task).await?;
                    count += 1;
                }
                Result::Ok(count)
            });
        }
        let mut sum = 0.0;
        while let Some(count) = running.join_next().await {
            sum += f64::from(count??);
        }
        Ok(sum / started.elapsed().as_secs_f64())
    })
}

/// What this thread has used of a processor. Where nothing waits for anybody else, it tells the
/// cost of a thing better than the time of day on a machine that is busy.
pub(crate) fn thread_time() -> Duration {
    used(ClockId::ThreadCPUTime)
}

/// What this process has used of the processors.
pub(crate) fn process_time() -> Duration {
    used(ClockId::ProcessCPUTime)
}

fn used(clock: ClockId) -> Duration {
    let used = clock_gettime(clock);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or(0))
}

/// Something to measure: it runs for the given time and says how many cycles it did in a second.
pub(crate) struct Runner<'a> {
    pub(crate) label: &'static str,
    pub(crate) run: Box<dyn FnMut(Duration) -> Result<f64> + 'a>,
}

impl<'a> Runner<'a> {
    pub(crate) fn new(label: &'static str, run: impl FnMut(Duration) -> Result<f64> + 'a) -> Runner<'a> {
        Runner { label, run: Box::new(run) }
    }
}

/// What came of a race: for each runner its figures, by round.
pub(crate) struct Race {
    labels: Vec<&'static str>,
    samples: Vec<Vec<f64>>,
}

/// Lets the runners run in turns.
pub(crate) fn race(rounds: usize, slice: Duration, mut runners: Vec<Runner<'_>>) -> Result<Race> {
    let mut samples = vec![Vec::new(); runners.len()];
    // One turn each that does not count.
    for runner in &mut runners {
        (runner.run)(slice / 4)?;
    }
    for _ in 0..rounds {
        for (runner, samples) in runners.iter_mut().zip(&mut samples) {
            samples.push((runner.run)(slice)?);
        }
    }
    Ok(Race { labels: runners.iter().map(|runner| runner.label).collect(), samples })
}

impl Race {
    pub(crate) fn median(&self, runner: usize) -> f64 {
        median(self.samples[runner].clone())
    }

    /// How much faster `runner` is than `other`, inside the same round.
    pub(crate) fn ratio(&self, runner: usize, other: usize) -> f64 {
        let pairs = self.samples[runner].iter().zip(&self.samples[other]);
        median(pairs.map(|(runner, other)| runner / other).collect())
    }

    pub(crate) fn print(&self) {
        for (index, label) in self.labels.iter().enumerate() {
            println!("  {label:<44} {:>11} cycles/s", thousands(self.median(index)));
        }
    }
}

/// What is to be reached.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::AtLeast(least) => write!(f, "goal ≥ {}", figure(*least)),
            Goal::AtMost(most) => write!(f, "goal ≤ {}", figure(*most)),
        }
    }
}

/// Prints a figure beside its goal.
pub(crate) fn verdict(what: &str, goal: Goal, value: f64) {
    let reached = match goal {
        Goal::AtLeast(least) => value >= least,
        Goal::AtMost(most) => value <= most,
    };
    let word = if reached { "ok" } else { "missed" };
    println!("  {what:<44} {goal}: {} {word}", figure(value));
}

fn figure(value: f64) -> String {
    match value {
        1000.0.. => thousands(value),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A whole number with commas.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// This program again, with other arguments. It says when it is ready, is told to go, and answers
/// with lines.
pub(crate) struct Again {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Again {
    pub(crate) fn start(arguments: &[&str]) -> Result<Again> {
        Again::start_program(std::env::current_exe()?, arguments)
    }

    /// Another program that behaves in the same way.
    pub(crate) fn start_program(program: impl AsRef<OsStr>, arguments: &[&str]) -> Result<Again> {
        let mut child =
            Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let lines = child.stdout.take().ok_or("a child has its output")?;
        Ok(Again { child, lines: BufReader::new(lines) })
    }

    pub(crate) fn until_ready(&mut self) -> Result<()> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        if line == "ready\n" { Ok(()) } else { Err("a child did not get ready".into()) }
    }

    pub(crate) fn go(&mut self) -> Result<()> {
        Ok(self.child.stdin.as_mut().ok_or("a child has its input")?.write_all(b"go\n")?)
    }

    /// What it has to say, once it is over.
    pub(crate) fn answer(mut self) -> Result<Vec<String>> {
        let lines: Vec<String> = self.lines.by_ref().lines().collect::<std::io::Result<_>>()?;
        let status = self.child.wait()?;
        if status.success() { Ok(lines) } else { Err(format!("a child ended with {status}").into()) }
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        // Nothing to do for one that has ended, which is the rule.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// In a child: says that it is ready, and waits for the word.
pub(crate) fn ready() -> Result<()> {
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Starts children with these arguments, lets them go together, and collects what they say.
pub(crate) fn together(children: &[Vec<String>]) -> Result<Vec<Vec<String>>> {
    let mut started = Vec::new();
    for arguments in children {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        started.push(Again::start(&arguments)?);
    }
    started.iter_mut().try_for_each(Again::until_ready)?;
    started.iter_mut().try_for_each(Again::go)?;
    started.into_iter().map(Again::answer).collect()
}

/// The numbers in a line.
pub(crate) fn numbers(line: &str) -> Result<Vec<f64>> {
    Ok(line.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?)
}

/// Largest over smallest.
pub(crate) fn spread(counts: &[f64]) -> f64 {
    let most = counts.iter().copied().fold(0.0, f64::max);
    let least = counts.iter().copied().fold(f64::INFINITY, f64::min);
    most / least
}

/// Smallest and largest, for humans.
pub(crate) fn range(counts: &[f64]) -> String {
    let most = counts.iter().copied().fold(0.0, f64::max);
    let least = counts.iter().copied().fold(f64::INFINITY, f64::min);
    format!("{}–{}", thousands(least), thousands(most))
}
