//! What readers got, counted over all processes.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::kit::cache::{Cache, Failure, Got, Origin};

/// What is always printed, also if it is none: what is counted, and what that is.
const LINES: [(&str, &str); 23] = [
    ("gets", "gets"),
    ("local", "  from the memory of the process"),
    ("shared", "  from the shared level, fresh"),
    ("stale", "  from the shared level, stale"),
    ("loaded", "  loaded for them, or for others at the time"),
    ("away", "  remembered while the store was away"),
    ("bypass", "  loaded while the store was away"),
    ("load-failed", "  told that the load failed"),
    ("paused", "  told that loads are paused"),
    ("busy", "  told that too many loads run"),
    ("timed-out", "  told that it took too long"),
    ("engine", "  told that the store does not answer"),
    ("WRONG", "TOO OLD"),
    ("within-bound", "older, and within the bound of memories"),
    ("older-away", "older, and said to be (away)"),
    ("invalidations", "invalidations"),
    ("loads", "loads"),
    ("loads-stored", "  stored"),
    ("loads-discarded", "  discarded: invalidated meanwhile, or late"),
    ("loads-failed", "  failed"),
    ("waits", "times that a process waited for another one's load"),
    ("compared", "values compared with the source"),
    ("different", "  different"),
];

/// What readers got, and how long it took.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) counts: BTreeMap<String, u64>,
    /// In microseconds.
    pub(crate) times: Vec<u64>,
    pub(crate) slowest: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, what: &str, count: u64) {
        *self.counts.entry(what.to_owned()).or_default() += count;
    }

    pub(crate) fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    pub(crate) fn got(&mut self, got: &Result<Got, Failure>, took: Duration) {
        let what = match got {
            Ok(got) => match got.origin() {
                Origin::Local => "local",
                Origin::Shared => "shared",
                Origin::Stale => "stale",
                Origin::Loaded => "loaded",
                Origin::Away => "away",
                Origin::Bypass => "bypass",
                _ => "other",
            },
            Err(Failure::Load(_)) => "load-failed",
            Err(Failure::Paused { .. }) => "paused",
            Err(Failure::Busy) => "busy",
            Err(Failure::TimedOut) => "timed-out",
            Err(_) => "engine",
        };
        self.add(what, 1);
        self.add("gets", 1);
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.slowest = self.slowest.max(took);
        // A sample is enough for percentiles.
        if self.times.len() < 20_000 {
            self.times.push(took);
        }
    }

    /// What the caches of a process have done.
    pub(crate) fn figures<'a>(&mut self, caches: impl IntoIterator<Item = &'a Cache>) {
        for figures in caches.into_iter().map(Cache::figures) {
            self.add("loads", figures.loads);
            self.add("loads-stored", figures.stored);
            self.add("loads-discarded", figures.discarded);
            self.add("loads-failed", figures.load_failures);
            self.add("waits", figures.waited);
            self.add("compared", figures.compared);
            self.add("different", figures.different);
        }
    }

    pub(crate) fn merge(&mut self, other: Tally) {
        other.counts.into_iter().for_each(|(what, count)| self.add(&what, count));
        self.times.extend(other.times);
        self.slowest = self.slowest.max(other.slowest);
    }

    /// One line.
    pub(crate) fn to_line(&self) -> String {
        let counts = self.counts.iter().map(|(what, count)| format!("{what}={count}"));
        let times = self.times.iter().map(|time| format!("t={time}"));
        let slowest = std::iter::once(format!("slowest={}", self.slowest));
        counts.chain(times).chain(slowest).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn from_line(line: &str) -> Tally {
        let mut tally = Tally::default();
        for (what, count) in line.split(' ').filter_map(|word| word.split_once('=')) {
            let count = count.parse().unwrap_or_default();
            match what {
                "t" => tally.times.push(count),
                "slowest" => tally.slowest = count,
                what => tally.add(what, count),
            }
        }
        tally
    }

    pub(crate) fn print(&mut self, title: &str) {
        self.times.sort_unstable();
        let percentile = |part: usize| self.times.get(self.times.len() * part / 1000).copied().unwrap_or(0);
        println!("{title}");
        for (what, text) in LINES {
            println!("  {text:<52} {}", self.count(what));
        }
        for (what, count) in self.counts.iter().filter(|(what, _)| LINES.iter().all(|line| line.0 != **what))
        {
            println!("  {what:<52} {count}");
        }
        println!("  a get takes: median {} µs", percentile(500));
        println!("    99 of 100 at most {} µs, all at most {} µs", percentile(990), self.slowest);
    }
}
