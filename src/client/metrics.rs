//! Metrics of a client, for the recorder of the crate `metrics` that the program has installed.
//!
//! Names and meanings are in docs/metrics.md. Labels are the engine and the family, and the name
//! only if [`crate::Options::metrics_by_name`] asks for it: names can be many. Without the cargo
//! feature `metrics` all of this is empty.

#[cfg(feature = "metrics")]
pub(crate) use recording::Meter;
#[cfg(not(feature = "metrics"))]
pub(crate) use silent::Meter;

/// How a caller's wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted,
    /// It did not want to wait, and the name was taken.
    Busy,
    TimedOut,
    Failed,
}

#[cfg(feature = "metrics")]
mod recording {
    use std::sync::Arc;
    use std::time::Duration;

    use metrics::{
        Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
        histogram,
    };

    use super::Outcome;
    use crate::client::Options;
    use crate::clock::{Clock, Moment};
    use crate::engine::Renewed;
    use crate::error::Loss;
    use crate::name::Name;

    /// Where a client's metrics go.
    #[derive(Clone, Debug)]
    pub(crate) struct Meter {
        engine: &'static str,
        by_name: bool,
        clock: Arc<dyn Clock>,
    }

    impl Meter {
        pub(crate) fn new(engine: &'static str, options: &Options) -> Meter {
            describe();
            Meter { engine, by_name: options.metrics_by_name, clock: Arc::clone(&options.clock) }
        }

        fn labels(&self, name: &Name, more: Option<(&'static str, &'static str)>) -> Vec<Label> {
            let mut labels = Vec::with_capacity(4);
            labels.push(Label::from_static_parts("engine", self.engine));
            labels.push(Label::from_static_parts("family", name.family().word()));
            if let Some((key, value)) = more {
                labels.push(Label::from_static_parts(key, value));
            }
            if self.by_name {
                labels.push(Label::new("name", SharedString::from_shared(name.shared_text())));
            }
            labels
        }

        pub(crate) fn granted(&self, name: &Name) {
            counter!("leasehold_grants_total", self.labels(name, None)).increment(1);
        }

        pub(crate) fn in_doubt(&self, name: &Name) {
            counter!("leasehold_doubts_total", self.labels(name, None)).increment(1);
        }

        pub(crate) fn recovered(&self, name: &Name) {
            counter!("leasehold_recoveries_total", self.labels(name, None)).increment(1);
        }

        pub(crate) fn lost(&self, name: &Name, why: Loss, held: Duration) {
            let why = match why {
                Loss::Deadline => "deadline",
                Loss::Gone => "gone",
                Loss::Closed => "closed",
            };
            counter!("leasehold_losses_total", self.labels(name, Some(("why", why)))).increment(1);
            self.held(name, "lost", held);
        }

        pub(crate) fn released(&self, name: &Name, held: impl Fn() -> Duration) {
            self.held(name, "released", held());
        }

        fn held(&self, name: &Name, end: &'static str, held: Duration) {
            histogram!("leasehold_hold_seconds", self.labels(name, Some(("end", end)))).record(held);
        }

        pub(crate) fn not_released(&self, name: &Name) {
            counter!("leasehold_releases_unheard_total", self.labels(name, None)).increment(1);
        }

        pub(crate) fn renewal(&self, name: &Name, verdict: Option<Renewed>) {
            let outcome = match verdict {
                Some(Renewed::Yes) => "renewed",
                Some(Renewed::Gone) => "gone",
                Some(Renewed::Unknown) | None => "failed",
            };
            counter!("leasehold_renewals_total", self.labels(name, Some(("outcome", outcome)))).increment(1);
        }

        /// What a part of the kit came to.
        #[cfg(any(feature = "leaderboards", feature = "sessions", feature = "topics"))]
        pub(crate) fn kit(&self, figure: &'static str, outcome: &'static str) {
            counter!(figure, "engine" => self.engine, "outcome" => outcome).increment(1);
        }

        pub(crate) fn disconnected(&self) {
            counter!("leasehold_disconnects_total", "engine" => self.engine).increment(1);
        }

        pub(crate) fn reconnected(&self) {
            counter!("leasehold_reconnects_total", "engine" => self.engine).increment(1);
        }

        /// A caller begins to wait.
        pub(crate) fn wait(&self, name: &Name) -> Wait {
            let began = self.clock.now();
            gauge!("leasehold_waiting", self.labels(name, None)).increment(1);
            Wait { meter: self.clone(), name: name.clone(), began, outcome: None }
        }
    }

    /// A caller that waits for a name. Dropped before its end, it was cancelled.
    #[derive(Debug)]
    pub(crate) struct Wait {
        meter: Meter,
        name: Name,
        began: Moment,
        outcome: Option<Outcome>,
    }

    impl Wait {
        pub(crate) fn end(mut self, outcome: Outcome) {
            self.outcome = Some(outcome);
        }
    }

    impl Drop for Wait {
        fn drop(&mut self) {
            let Wait { meter, name, began, outcome } = self;
            gauge!("leasehold_waiting", meter.labels(name, None)).decrement(1);
            let outcome = match outcome {
                Some(Outcome::Granted) => "granted",
                Some(Outcome::Busy) => "busy",
                Some(Outcome::TimedOut) => "timed_out",
                Some(Outcome::Failed) => "failed",
                None => "cancelled",
            };
            let waited = meter.clock.now().since(*began);
            histogram!("leasehold_wait_seconds", meter.labels(name, Some(("outcome", outcome))))
                .record(waited);
        }
    }

    /// The texts that a recorder shows with the figures. A recorder that is installed later has
    /// none.
    fn describe() {
        describe_counter!("leasehold_grants_total", "Names that callers were given.");
        describe_histogram!(
            "leasehold_wait_seconds",
            Unit::Seconds,
            "How long callers waited, by how it ended: granted, busy, timed_out, failed, cancelled."
        );
        describe_gauge!("leasehold_waiting", "Callers that wait for a name at the moment.");
        describe_histogram!(
            "leasehold_hold_seconds",
            Unit::Seconds,
            "How long names were held, by how it ended: released, lost."
        );
        describe_counter!("leasehold_losses_total", "Names that were lost, by why: deadline, gone, closed.");
        describe_counter!("leasehold_doubts_total", "Holders whose renewal failed.");
        describe_counter!("leasehold_recoveries_total", "Holders in doubt whose next renewal succeeded.");
        describe_counter!(
            "leasehold_renewals_total",
            "Renewals of leases, by outcome: renewed, gone, failed."
        );
        describe_counter!(
            "leasehold_releases_unheard_total",
            "Names that the engine did not hear to be given back; they end with their leases."
        );
        #[cfg(feature = "leaderboards")]
        describe_counter!(
            "leasehold_leaderboards_total",
            "Steps of leaderboards, by outcome: changed, unchanged, repeated, ranked, listed, astray, split, \
             merged, rebuilt, deleted."
        );
        #[cfg(feature = "topics")]
        describe_counter!(
            "leasehold_topics_total",
            "Messages and gaps, by outcome: published, delivered, gap."
        );
        #[cfg(feature = "sessions")]
        describe_counter!(
            "leasehold_sessions_total",
            "Steps of sessions, by outcome: created, loaded, put_off, saved, conflict, not_found, ended, \
             all_ended."
        );
        describe_counter!("leasehold_disconnects_total", "Connections to servers that were lost.");
        describe_counter!("leasehold_reconnects_total", "Connections to servers that were made again.");
    }
}

#[cfg(not(feature = "metrics"))]
mod silent {
    use std::time::Duration;

    use super::Outcome;
    use crate::client::Options;
    use crate::engine::Renewed;
    use crate::error::Loss;
    use crate::name::Name;

    #[derive(Debug)]
    pub(crate) struct Meter;

    #[expect(clippy::unused_self, reason = "the same calls as with the feature")]
    impl Meter {
        pub(crate) fn new(_: &'static str, _: &Options) -> Meter {
            Meter
        }

        pub(crate) fn granted(&self, _: &Name) {}
        pub(crate) fn in_doubt(&self, _: &Name) {}
        pub(crate) fn recovered(&self, _: &Name) {}
        pub(crate) fn lost(&self, _: &Name, _: Loss, _: Duration) {}
        pub(crate) fn released(&self, _: &Name, _: impl Fn() -> Duration) {}
        pub(crate) fn not_released(&self, _: &Name) {}
        pub(crate) fn renewal(&self, _: &Name, _: Option<Renewed>) {}
        #[cfg(any(feature = "leaderboards", feature = "sessions", feature = "topics"))]
        pub(crate) fn kit(&self, _: &'static str, _: &'static str) {}
        pub(crate) fn disconnected(&self) {}
        pub(crate) fn reconnected(&self) {}
        pub(crate) fn wait(&self, _: &Name) -> Wait {
            Wait
        }
    }

    #[derive(Debug)]
    pub(crate) struct Wait;

    #[expect(clippy::unused_self, reason = "the same calls as with the feature")]
    impl Wait {
        pub(crate) fn end(self, _: Outcome) {}
    }
}
