//! What an outbox tells the recorder of metrics.

use std::time::Duration;

/// Counts for one outbox.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    #[cfg(feature = "metrics")]
    labels: [metrics::Label; 2],
}

/// Who has relayed a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    Writer,
    Relay,
}

#[cfg(not(feature = "metrics"))]
#[allow(clippy::unused_self, reason = "metrics")]
impl Meter {
    pub(super) fn new(_: &'static str, _: &str) -> Meter {
        Meter {}
    }

    pub(super) fn relayed(&self, _: By, _: u64) {}

    pub(super) fn lagged(&self, _: Duration) {}

    pub(super) fn waits(&self, _: Duration) {}

    pub(super) fn stuck(&self, _: u64) {}
}

#[cfg(feature = "metrics")]
impl Meter {
    pub(super) fn new(engine: &'static str, outbox: &str) -> Meter {
        use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
        describe_counter!(
            "leasehold_cache_outbox_rows_total",
            "Rows of an outbox that were relayed, by whom: writer, relay."
        );
        describe_histogram!(
            "leasehold_cache_outbox_lag_seconds",
            Unit::Seconds,
            "How old rows were when the relay had relayed them."
        );
        describe_gauge!(
            "leasehold_cache_outbox_waiting_seconds",
            Unit::Seconds,
            "How old the oldest row is that the relay has at hand; 0 when it has got through."
        );
        describe_gauge!("leasehold_cache_outbox_stuck_rows", "Rows that can not be relayed.");
        let engine = metrics::Label::from_static_parts("engine", engine);
        Meter { labels: [engine, metrics::Label::new("outbox", outbox.to_owned())] }
    }

    pub(super) fn relayed(&self, by: By, rows: u64) {
        let word = match by {
            By::Writer => "writer",
            By::Relay => "relay",
        };
        let [engine, outbox] = self.labels.clone();
        let labels = vec![engine, outbox, metrics::Label::from_static_parts("by", word)];
        metrics::counter!("leasehold_cache_outbox_rows_total", labels).increment(rows);
    }

    pub(super) fn lagged(&self, age: Duration) {
        metrics::histogram!("leasehold_cache_outbox_lag_seconds", self.labels.iter()).record(age);
    }

    pub(super) fn waits(&self, age: Duration) {
        let labels = self.labels.iter();
        metrics::gauge!("leasehold_cache_outbox_waiting_seconds", labels).set(age.as_secs_f64());
    }

    pub(super) fn stuck(&self, rows: u64) {
        metrics::gauge!("leasehold_cache_outbox_stuck_rows", self.labels.iter()).set(rows as f64);
    }
}

/// The turn of a relay. What it has seen is not said any more when it is over: another process
/// relays then, and says what it sees.
#[derive(Debug)]
pub(super) struct Turn<'a>(pub(super) &'a Meter);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.waits(Duration::ZERO);
        self.0.stuck(0);
    }
}
