//! What readers got, counted over all processes.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::kit::cache::{Failure, Got, Origin};

/// What readers got, and how long it took.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) counts: BTreeMap<String, u64>,
    /// In microseconds.
    pub(crate) times: Vec<u64>,
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
        // A sample is enough for percentiles.
        if self.times.len() < 20_000 {
            self.times.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn merge(&mut self, other: Tally) {
        other.counts.into_iter().for_each(|(what, count)| self.add(&what, count));
        self.times.extend(other.times);
    }

    /// One line.
    pub(crate) fn to_line(&self) -> String {
        let counts = self.counts.iter().map(|(what, count)| format!("{what}={count}"));
        let times = self.times.iter().map(|time| format!("t={time}"));
        counts.chain(times).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn from_line(line: &str) -> Tally {
        let mut tally = Tally::default();
        for (what, count) in line.split(' ').filter_map(|word| word.split_once('=')) {
            let count = count.parse().unwrap_or_default();
            if what == "t" { tally.times.push(count) } else { tally.add(what, count) }
        }
        tally
    }

    pub(crate) fn print(&mut self, title: &str) {
        self.times.sort_unstable();
        let percentile = |part: usize| self.times.get(self.times.len() * part / 1000).copied().unwrap_or(0);
        println!("{title}");
        for (what, count) in &self.counts {
            println!("  {what:<22} {count}");
        }
        println!(
            "  a get takes            p50 {} µs, p99 {} µs, at most {} µs",
            percentile(500),
            percentile(990),
            self.times.last().copied().unwrap_or(0)
        );
    }
}
