//! How a cache behaves.

use std::time::Duration;

use super::hash::mix;
use crate::error::{Error, Result};

/// The longest value that is kept, in bytes.
pub const LONGEST_VALUE: usize = 256 * 1024;
/// The longest time that a value can be kept.
pub const LONGEST_LIFE: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// What a cache does while its engine does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenAway {
    /// Callers are told.
    Fail,
    /// Callers get what this process remembers and has not heard to be invalidated, until the end
    /// of its life. If it remembers nothing they are told.
    Remember,
    /// The same, and if it remembers nothing it is loaded for this process alone, by one at a time
    /// and behind the limits of loads.
    Load,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) name: String,
    /// What the names of its cells start with.
    pub(super) prefix: String,
    pub(super) fresh: Duration,
    pub(super) stale: Duration,
    pub(super) none: Duration,
    /// By how many hundredths lifetimes differ.
    pub(super) jitter: u32,
    /// How early a value is loaded again, in thousandths.
    pub(super) early: u32,
    pub(super) local: Duration,
    pub(super) local_bytes: u64,
    pub(super) lease: Duration,
    pub(super) load_limit: Duration,
    pub(super) wait_limit: Duration,
    pub(super) deadline: Duration,
    pub(super) loads_at_once: usize,
    pub(super) pause: Duration,
    pub(super) version_kept: Duration,
    pub(super) when_away: WhenAway,
}

impl Settings {
    pub(super) fn new(name: &str, prefix: String, fresh: Duration) -> Settings {
        Settings {
            name: name.to_owned(),
            prefix,
            fresh,
            stale: fresh,
            none: fresh.min(Duration::from_secs(10)),
            jitter: 10,
            early: 1000,
            local: Duration::ZERO,
            local_bytes: 64 * 1024 * 1024,
            lease: Duration::from_secs(5),
            load_limit: Duration::from_secs(30),
            wait_limit: Duration::from_secs(10),
            deadline: Duration::from_secs(1),
            loads_at_once: 64,
            pause: Duration::from_millis(250),
            version_kept: Duration::from_secs(600),
            when_away: WhenAway::Load,
        }
    }

    /// Refuses what is out of range.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |what: &str, time: Duration| {
            Err(Error::invalid(format!(
                "the cache `{}` has {what} of {time:?}, which is out of range; up to {LONGEST_LIFE:?} is not",
                self.name
            )))
        };
        let times = [
            ("a lifetime", self.fresh),
            ("a lifetime of stale values", self.stale),
            ("a lifetime of what is not there", self.none),
            ("a memory of versions", self.version_kept),
            ("a lease", self.lease),
            ("a pause", self.pause),
        ];
        for (what, time) in times {
            if time > LONGEST_LIFE {
                return refuse(what, time);
            }
        }
        if self.fresh < Duration::from_millis(1) || self.lease < Duration::from_millis(30) {
            return Err(Error::invalid(format!(
                "the cache `{}` has a lifetime of {:?} and a lease of {:?}; at least 1 ms and 30 ms are needed",
                self.name, self.fresh, self.lease
            )));
        }
        if self.jitter > 90 {
            return Err(Error::invalid(format!(
                "lifetimes of the cache `{}` can not differ by {} %; up to 90 % can be",
                self.name, self.jitter
            )));
        }
        Ok(())
    }

    /// A lifetime, longer or shorter by chance, so that what was stored together does not end
    /// together.
    pub(super) fn jittered(&self, time: Duration, chance: u64) -> Duration {
        // From 0 to 2000.
        let spread = u32::try_from(chance % 2001).unwrap_or(0);
        let parts = 100_000 + spread * self.jitter - 1000 * self.jitter;
        (time * parts / 100_000).max(Duration::from_micros(1))
    }

    /// How early this caller would load a value again, in thousandths of its cost: most callers not
    /// at all, a few a little, and the nearer the end the more (`XFetch`).
    pub(super) fn earliness(&self, chance: u64) -> u32 {
        if self.early == 0 {
            return 0;
        }
        // Above 0, at most 1.
        let share = ((chance >> 11) + 1) as f64 / (1u64 << 53) as f64;
        // Below 37, so nothing is cut off.
        (-share.ln() * f64::from(self.early)) as u32
    }
}

/// Numbers by chance, for lifetimes and not for secrets.
#[derive(Debug)]
pub(super) struct Dice(std::sync::atomic::AtomicU64);

impl Dice {
    pub(super) fn new() -> Result<Dice> {
        Ok(Dice(crate::random::number()?.into()))
    }

    pub(super) fn roll(&self) -> u64 {
        mix(self.0.fetch_add(0x9e37_79b9_7f4a_7c15, std::sync::atomic::Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_differ_as_much_as_they_may() {
        let settings = Settings::new("x", String::new(), Duration::from_secs(100));
        let lives: Vec<f64> = (0..2001)
            .map(|chance| settings.jittered(Duration::from_secs(100), chance).as_secs_f64())
            .collect();
        assert_eq!((lives[0], lives[1000], lives[2000]), (90.0, 100.0, 110.0));
        assert!(lives.is_sorted());
    }

    /// The expected lead of `XFetch` is the cost of a load.
    #[test]
    fn values_are_loaded_early_by_what_a_load_costs() {
        let settings = Settings::new("x", String::new(), Duration::from_secs(100));
        let dice = Dice::new().expect("random numbers");
        let all: Vec<u32> = (0..100_000).map(|_| settings.earliness(dice.roll())).collect();
        let mean = all.iter().map(|lead| f64::from(*lead)).sum::<f64>() / all.len() as f64;
        assert!((950.0..1050.0).contains(&mean), "{mean}");
        assert!(all.iter().any(|lead| *lead < 100) && all.iter().any(|lead| *lead > 4000));
        let never = Settings { early: 0, ..settings };
        assert_eq!(never.earliness(dice.roll()), 0);
    }
}
