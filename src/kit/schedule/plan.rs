//! What becomes of the instants of a task: which one runs now, and which were missed.
//!
//! Pure. It is given the engine's time, inside a rule over the task's record.

use std::collections::VecDeque;
use std::time::Duration;

use super::timing::Timing;
use crate::claim::Micros;

/// No more instants than these are counted one by one.
const MOST_COUNTED: u32 = 1000;

/// What becomes of occurrences that could not start within their grace window: because no node was
/// there, because the engine was away, or because the run before took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfire {
    /// They are recorded as missed.
    Skip,
    /// The newest of them runs, unless a later one is on time; the others are recorded as missed.
    Once,
    /// All of them run, the oldest first, up to so many; older ones are recorded as missed.
    All {
        /// At most this many of the newest.
        at_most: u32,
    },
}

/// How a task treats what is late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// An occurrence that starts within this time is not late.
    pub(super) grace: Micros,
    pub(super) misfire: Misfire,
    /// All instants are due this much later.
    pub(super) offset: Micros,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// What was missed since the last decision.
    pub(super) missed: Option<Missed>,
    /// What runs now.
    pub(super) run: Option<Micros>,
    /// Up to where all is decided after that.
    pub(super) decided: Micros,
    /// When there is something to do again, if nothing runs now.
    pub(super) next: Option<Micros>,
}

/// Occurrences that were missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missed {
    pub(super) first: Micros,
    pub(super) last: Micros,
    /// How many, or this many at least if `more`.
    pub(super) count: u32,
    pub(super) more: bool,
}

/// From what is decided and the time to what is to be done. The caller records it, and asks again.
pub(super) fn plan(timing: &Timing, policy: &Policy, decided: Micros, now: Micros) -> Plan {
    let now = now.saturating_sub(policy.offset);
    // The latest instant that is late.
    let late_until = now.saturating_sub(policy.grace).saturating_sub(1);
    let on_time = timing.next_after(decided.max(late_until)).filter(|instant| *instant <= now);
    let keep = match policy.misfire {
        Misfire::Once if on_time.is_none() => 1,
        Misfire::Skip | Misfire::Once => 0,
        Misfire::All { at_most } => usize::try_from(at_most).unwrap_or(usize::MAX),
    };
    let Late { missed, kept } = late(timing, decided, late_until, keep);
    let run = kept.or(on_time);
    let decided = match (run, &missed) {
        (Some(run), _) => run,
        (None, Some(_)) => late_until,
        (None, None) => decided,
    };
    let next = match run {
        Some(_) => None,
        None => timing.next_after(decided.max(late_until)).map(|next| next.saturating_add(policy.offset)),
    };
    Plan { missed, run, decided, next }
}

#[derive(Debug, Default)]
struct Late {
    missed: Option<Missed>,
    /// The oldest of the newest that are kept.
    kept: Option<Micros>,
}

/// The instants after one time and up to another, without the newest `keep` of them.
fn late(timing: &Timing, after: Micros, until: Micros, keep: usize) -> Late {
    let mut kept = VecDeque::new();
    let mut missed: Option<Missed> = None;
    let (mut time, mut counted) = (after, 0);
    while let Some(instant) = timing.next_after(time).filter(|instant| *instant <= until) {
        if counted == MOST_COUNTED {
            let first = missed.map_or(kept.front().copied().unwrap_or(instant), |missed| missed.first);
            return too_many(timing, first, until, keep);
        }
        (time, counted) = (instant, counted + 1);
        kept.push_back(instant);
        if kept.len() > keep
            && let Some(oldest) = kept.pop_front()
        {
            let before = missed.get_or_insert(Missed { first: oldest, last: oldest, count: 0, more: false });
            (before.last, before.count) = (oldest, before.count + 1);
        }
    }
    Late { missed, kept: kept.front().copied() }
}

/// The same if they are too many to be counted: the newest are found by halving.
fn too_many(timing: &Timing, first: Micros, until: Micros, keep: usize) -> Late {
    let keep = keep.min(MOST_COUNTED as usize / 2);
    let missed = |last| Some(Missed { first, last, count: MOST_COUNTED, more: true });
    if keep == 0 {
        return Late { missed: missed(until), kept: None };
    }
    let enough = |after: Micros| {
        let mut time = after;
        (0..keep).all(|_| {
            let next = timing.next_after(time).filter(|next| *next <= until);
            next.inspect(|next| time = *next).is_some()
        })
    };
    // There are enough after `low`, and not after `high`.
    let (mut low, mut high) = (first, until);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if enough(middle) { low = middle } else { high = middle }
    }
    Late { missed: missed(low), kept: timing.next_after(low) }
}

pub(super) fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Micros = 1_000_000;

    fn every(seconds: u64) -> Timing {
        Timing::every(Duration::from_secs(seconds)).expect("a timing")
    }

    fn policy(grace: u64, misfire: Misfire) -> Policy {
        Policy { grace: grace * SECOND, misfire, offset: 0 }
    }

    /// Plans at a time, in seconds; what runs and how many were missed.
    fn at(policy: &Policy, decided: u64, now: u64) -> (Option<u64>, u32, Plan) {
        let plan = plan(&every(10), policy, decided * SECOND, now * SECOND);
        (plan.run.map(|run| run / SECOND), plan.missed.map_or(0, |missed| missed.count), plan)
    }

    #[test]
    fn what_is_on_time_runs_whatever_the_policy() {
        for misfire in [Misfire::Skip, Misfire::Once, Misfire::All { at_most: 0 }] {
            let policy = policy(5, misfire);
            assert_eq!(at(&policy, 100, 110).0, Some(110));
            assert_eq!(at(&policy, 100, 115).0, Some(110));
            let (run, missed, plan) = at(&policy, 110, 112);
            assert_eq!((run, missed, plan.next), (None, 0, Some(120 * SECOND)));
        }
    }

    #[test]
    fn what_is_late_is_skipped_or_runs_once_or_all() {
        // Due at 110, 120, 130 and 140; it is 146, so all of them are late.
        let (run, missed, plan) = at(&policy(5, Misfire::Skip), 100, 146);
        assert_eq!((run, missed, plan.next), (None, 4, Some(150 * SECOND)));
        let (run, missed, plan) = at(&policy(5, Misfire::Once), 100, 146);
        assert_eq!((run, missed, plan.decided), (Some(140), 3, 140 * SECOND));
        // The one of 140 is on time: it stands for those before.
        assert_eq!(at(&policy(5, Misfire::Once), 100, 143).0, Some(140));
        let (run, missed, plan) = at(&policy(5, Misfire::All { at_most: 3 }), 100, 146);
        assert_eq!((run, missed, plan.decided), (Some(120), 1, 120 * SECOND));
        assert_eq!(at(&policy(5, Misfire::All { at_most: 3 }), 120, 146).0, Some(130));
    }

    #[test]
    fn a_year_of_seconds_costs_no_year_of_counting() {
        let timing = Timing::cron("* * * * * *", "UTC").expect("a timing");
        let (start, now) = (1_700_000_000 * SECOND, 1_731_536_000 * SECOND);
        for (misfire, run) in [
            (Misfire::Skip, None),
            (Misfire::Once, Some(now - 3 * SECOND)),
            (Misfire::All { at_most: 5 }, Some(now - 7 * SECOND)),
        ] {
            let policy = Policy { grace: 2 * SECOND, misfire, offset: 0 };
            let mut plan = plan(&timing, &policy, start, now);
            if run.is_none() || misfire == Misfire::Once {
                // Those within their grace window run all the same.
                assert_eq!(plan.run, Some(now - 2 * SECOND));
                plan.run = run;
            }
            assert_eq!(plan.run, run);
            let missed = plan.missed.expect("missed");
            assert!(missed.more && missed.first == start + SECOND && missed.last < now);
        }
    }

    #[test]
    fn an_offset_moves_all_instants() {
        let policy = Policy { offset: 3 * SECOND, ..policy(5, Misfire::Skip) };
        let (run, _, plan) = at(&policy, 100, 112);
        assert_eq!((run, plan.next), (None, Some(113 * SECOND)));
        assert_eq!(at(&policy, 100, 113).0, Some(110));
        assert_eq!(at(&policy, 100, 118).0, Some(110));
        assert_eq!(at(&policy, 100, 119).0, None);
    }

    fn misfire() -> impl Strategy<Value = Misfire> {
        prop_oneof![
            Just(Misfire::Skip),
            Just(Misfire::Once),
            (0..5u32).prop_map(|at_most| Misfire::All { at_most }),
        ]
    }

    proptest! {
        /// Whenever it is asked, each instant is decided once: it runs or is missed, in order.
        #[test]
        fn each_instant_runs_once_or_is_missed(
            misfire in misfire(),
            grace in 0..40u64,
            steps in proptest::collection::vec(1..60u64, 1..40),
        ) {
            let (timing, policy) = (every(10), policy(grace, misfire));
            let start = 1000;
            let (mut now, mut decided, mut decisions) = (start, start * SECOND, Vec::new());
            for step in steps {
                now += step;
                let plan = plan(&timing, &policy, decided, now * SECOND);
                prop_assert!(plan.decided >= decided);
                if let Some(missed) = plan.missed {
                    for number in 0..missed.count {
                        decisions.push(missed.first / SECOND + u64::from(number) * 10);
                    }
                    prop_assert_eq!(decisions.last().copied(), Some(missed.last / SECOND));
                    prop_assert!(missed.last + policy.grace < now * SECOND, "only what is late is missed");
                }
                if let Some(run) = plan.run {
                    decisions.push(run / SECOND);
                    prop_assert!(run <= now * SECOND && plan.decided == run);
                    let late = run + policy.grace < now * SECOND;
                    prop_assert!(!late || misfire != Misfire::Skip);
                } else {
                    prop_assert!(plan.next > Some(now * SECOND));
                }
                decided = plan.decided;
            }
            let expected: Vec<u64> = (1..).map(|number| start + number * 10).take(decisions.len()).collect();
            prop_assert_eq!(decisions, expected);
        }
    }
}
