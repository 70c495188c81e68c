//! What a cache has done: for the program itself, and as metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::got::{Failure, Origin, Outcome};

/// What a cache has done in this process since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Hits in the memory of this process.
    pub local: u64,
    /// Values of the shared level.
    pub shared: u64,
    /// Values of the shared level that were being loaded again.
    pub stale: u64,
    /// Callers that got what was loaded for them, or for others of this process at the same time.
    pub loaded: u64,
    /// Names that the filter refused.
    pub filtered: u64,
    /// Values of this process's memory while the engine was away.
    pub away: u64,
    /// Values of the source while the engine was away.
    pub bypassed: u64,
    /// Callers that got nothing.
    pub failed: u64,
    /// Times that somebody waited for the load of another process.
    pub waited: u64,
    /// Loads that were begun.
    pub loads: u64,
    /// Loads whose result was stored.
    pub stored: u64,
    /// Results that came too late: the lease was lost, or the name was invalidated meanwhile.
    pub discarded: u64,
    /// Results that were older than what was invalidated.
    pub behind: u64,
    /// Loads that failed.
    pub load_failures: u64,
    /// Invalidations that were acknowledged.
    pub invalidations: u64,
    /// Values that were compared with the source.
    pub compared: u64,
    /// Those that were different.
    pub different: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Local,
    Shared,
    Stale,
    Loaded,
    Filtered,
    Away,
    Bypassed,
    Failed,
    Waited,
    Loads,
    Stored,
    Discarded,
    Behind,
    LoadFailures,
    Invalidations,
    Compared,
    Different,
}

const COUNTS: usize = Count::Different as usize + 1;

#[derive(Debug)]
pub(super) struct Counters {
    counts: [AtomicU64; COUNTS],
    #[cfg(feature = "metrics")]
    labels: [metrics::Label; 2],
}

impl Counters {
    #[cfg_attr(not(feature = "metrics"), allow(unused_variables, reason = "labels of metrics"))]
    pub(super) fn new(engine: &'static str, cache: &str) -> Counters {
        #[cfg(feature = "metrics")]
        describe();
        Counters {
            counts: Default::default(),
            #[cfg(feature = "metrics")]
            labels: [
                metrics::Label::from_static_parts("engine", engine),
                metrics::Label::new("cache", cache.to_owned()),
            ],
        }
    }

    pub(super) fn add(&self, count: Count) {
        self.counts[count as usize].fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        self.record(count);
    }

    /// What a caller got.
    pub(super) fn got(&self, outcome: &Outcome) {
        self.add(match &outcome.got {
            Ok(got) => match got.origin {
                Origin::Local => Count::Local,
                Origin::Shared => Count::Shared,
                Origin::Stale => Count::Stale,
                Origin::Loaded => Count::Loaded,
                Origin::Filter => Count::Filtered,
                Origin::Away => Count::Away,
                Origin::Bypass => Count::Bypassed,
            },
            Err(Failure::Load(_) | Failure::Paused { .. } | Failure::Busy | Failure::Behind { .. })
            | Err(Failure::TimedOut | Failure::Engine(_)) => Count::Failed,
        });
    }

    #[cfg_attr(not(feature = "metrics"), allow(clippy::unused_self, unused_variables, reason = "metrics"))]
    pub(super) fn load_took(&self, time: Duration) {
        #[cfg(feature = "metrics")]
        metrics::histogram!("leasehold_cache_load_seconds", self.labels.iter()).record(time);
    }

    #[cfg_attr(not(feature = "metrics"), allow(clippy::unused_self, unused_variables, reason = "metrics"))]
    pub(super) fn wait_took(&self, time: Duration) {
        #[cfg(feature = "metrics")]
        metrics::histogram!("leasehold_cache_wait_seconds", self.labels.iter()).record(time);
    }

    pub(super) fn figures(&self) -> Figures {
        let count = |count: Count| self.counts[count as usize].load(Ordering::Relaxed);
        Figures {
            local: count(Count::Local),
            shared: count(Count::Shared),
            stale: count(Count::Stale),
            loaded: count(Count::Loaded),
            filtered: count(Count::Filtered),
            away: count(Count::Away),
            bypassed: count(Count::Bypassed),
            failed: count(Count::Failed),
            waited: count(Count::Waited),
            loads: count(Count::Loads),
            stored: count(Count::Stored),
            discarded: count(Count::Discarded),
            behind: count(Count::Behind),
            load_failures: count(Count::LoadFailures),
            invalidations: count(Count::Invalidations),
            compared: count(Count::Compared),
            different: count(Count::Different),
        }
    }

    #[cfg(feature = "metrics")]
    fn record(&self, count: Count) {
        use metrics::{Label, counter};
        let add = |name: &'static str, label: Option<(&'static str, &'static str)>| {
            let more = label.map(|(key, value)| Label::from_static_parts(key, value));
            let labels: Vec<Label> = self.labels.iter().cloned().chain(more).collect();
            counter!(name, labels).increment(1);
        };
        let got = |origin| add("leasehold_cache_gets_total", Some(("origin", origin)));
        let loaded = |outcome| add("leasehold_cache_loads_total", Some(("outcome", outcome)));
        let compared = |outcome| add("leasehold_cache_comparisons_total", Some(("outcome", outcome)));
        match count {
            Count::Local => got("local"),
            Count::Shared => got("shared"),
            Count::Stale => got("stale"),
            Count::Loaded => got("loaded"),
            Count::Filtered => got("filter"),
            Count::Away => got("away"),
            Count::Bypassed => got("bypass"),
            Count::Failed => got("failed"),
            Count::Waited => add("leasehold_cache_waits_total", None),
            Count::Loads => add("leasehold_cache_loads_begun_total", None),
            Count::Stored => loaded("stored"),
            Count::Discarded => loaded("discarded"),
            Count::Behind => loaded("behind"),
            Count::LoadFailures => loaded("failed"),
            Count::Invalidations => add("leasehold_cache_invalidations_total", None),
            Count::Compared => compared("compared"),
            Count::Different => compared("different"),
        }
    }
}

/// The texts that a recorder shows with the figures.
#[cfg(feature = "metrics")]
fn describe() {
    use metrics::{Unit, describe_counter, describe_histogram};
    describe_counter!(
        "leasehold_cache_gets_total",
        "Callers of a cache, by what they got: local, shared, stale, loaded, filter, away, bypass, failed."
    );
    describe_counter!("leasehold_cache_waits_total", "Times that a process waited for the load of another.");
    describe_counter!("leasehold_cache_loads_begun_total", "Loads that were begun.");
    describe_counter!(
        "leasehold_cache_loads_total",
        "Loads that ended, by what came of them: stored, discarded, behind, failed."
    );
    describe_counter!("leasehold_cache_invalidations_total", "Invalidations that were acknowledged.");
    describe_counter!(
        "leasehold_cache_comparisons_total",
        "Values that were compared with the source, and those of them that were different."
    );
    describe_histogram!("leasehold_cache_load_seconds", Unit::Seconds, "How long loads took.");
    describe_histogram!(
        "leasehold_cache_wait_seconds",
        Unit::Seconds,
        "How long a process waited for the load of another."
    );
}
