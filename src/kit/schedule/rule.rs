//! The rule of a task: a pure step over its record.
//!
//! Occurrences are taken here and nowhere else, one step at a time, so none is taken twice. The
//! lock that a run holds only gives it a lease and a token. Its token also says whether an earlier
//! run is gone: whoever holds the lock of a run with a greater token than the record has knows that
//! the lease of that run is over.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plan::{Misfire, Missed, Policy, micros, plan};
use super::record::{End, PastRecord, Record, RunRecord};
use super::timing::Timing;
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::{CellValue, Decision, Rule, Write};

/// At most this many runs of a task are under way.
pub(super) const MOST_RUNS: usize = 32;
/// How long a record is kept after the last node has looked at it.
pub(super) const KEPT: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// What an occurrence has for a token that was begun and not started: no lock has it.
const UNDONE: u64 = 0;

/// What becomes of an occurrence whose node died, was cut off or was paused for too long half way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfLost {
    /// It is recorded as lost, and does not run again: it may have had its effect.
    Record,
    /// It runs again on whatever node finds it, with a greater token. Only for work that does no
    /// harm if it is done twice, or that checks its token.
    RunAgain {
        /// Not later than this after its instant.
        within: Duration,
        /// At most so many times in all, the first included.
        attempts: u32,
    },
}

/// What all nodes of a task should agree on.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) timing: Timing,
    pub(super) policy: Policy,
    pub(super) if_lost: IfLost,
    /// One that runs is stopped if a later one is due.
    pub(super) replaces: bool,
    /// How much of the past is kept.
    pub(super) history: usize,
    /// Who we are, for people.
    pub(super) node: String,
}

/// What is asked of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// What there is to do. `joins` on the first time.
    Look { joins: bool },
    /// To be the one who runs it, under a lock.
    Begin(Held),
    /// It was begun and not started: it is as if it had not been begun.
    Undo(Held),
    /// To record how it ended.
    End { held: Held, end: End },
}

/// The lock of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) token: u64,
    /// If several run side by side, a lock is that of one instant, and the tokens of two locks may
    /// be alike.
    pub(super) instant: Option<Micros>,
}

impl Held {
    /// Whether this is the lock of a run.
    fn covers(self, run: &RunRecord) -> bool {
        self.instant.is_none_or(|instant| instant == run.instant)
    }

    /// Whether the end of the run that was begun under it is recorded.
    fn has_ended(self, record: &Record) -> bool {
        let ended = |past: &PastRecord| matches!(past.end, End::Done | End::Failed(_) | End::Replaced);
        let ours = |past: &PastRecord| self.instant.is_none_or(|instant| instant == past.instant);
        record.history.iter().any(|past| past.token == self.token && ours(past) && ended(past))
    }

    /// Whether the run that was begun under it goes on.
    pub(super) fn goes_on(self, record: &Record) -> bool {
        self.find(record).is_some_and(|number| !record.runs[number].replaced)
    }

    /// The run that was begun under it.
    fn find(self, record: &Record) -> Option<usize> {
        record.runs.iter().position(|run| self.covers(run) && run.token == self.token)
    }
}

/// A step of a task. It can be repeated without harm.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) setup: Arc<Setup>,
    pub(super) ask: Ask,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// There is this to do.
    Look {
        /// Something is due: this instant.
        due: Option<Micros>,
        /// What runs, or was left by a node that died.
        runs: Vec<Micros>,
        /// When there is something to do, if nothing is due.
        wait: Option<Micros>,
    },
    /// Run it.
    Run { instant: Micros, attempt: u32, now: Micros },
    /// There is nothing to run.
    Nothing,
    /// It is as was asked.
    Yes,
    /// There is no such run.
    Gone,
    /// The cell holds something that is not a task.
    Foreign,
}

impl Step {
    fn decide(&self, found: Option<Record>, now: Micros) -> (Option<Record>, Answer) {
        let setup = &*self.setup;
        let fresh = found.is_none();
        // A task starts with the instants after it is first heard of.
        let mut record = found.unwrap_or_else(|| Record {
            decided: now.saturating_sub(setup.policy.offset),
            ..Record::default()
        });
        let before = record.clone();
        let answer = match &self.ask {
            Ask::Look { joins } => {
                if record.timing != setup.timing.text() && (fresh || *joins) {
                    // Other instants than those that were missed until now.
                    record.decided = record.decided.max(now.saturating_sub(setup.policy.offset));
                    setup.timing.text().clone_into(&mut record.timing);
                }
                self.look(&mut record, now)
            }
            Ask::Begin(held) => self.begin(&mut record, *held, now),
            Ask::Undo(held) => match held.find(&record) {
                // It keeps its place in the record, and whoever finds it there may start it.
                Some(number) => {
                    let run = &mut record.runs[number];
                    (run.token, run.attempt) = (UNDONE, run.attempt - 1);
                    Answer::Yes
                }
                None => Answer::Gone,
            },
            Ask::End { held, end } => match held.find(&record) {
                Some(number) => {
                    record.end(number, end.clone(), now, setup.history);
                    Answer::Yes
                }
                // An answer got lost.
                None if held.has_ended(&record) => Answer::Yes,
                None => Answer::Gone,
            },
        };
        // The record must not be forgotten while somebody looks.
        let old = now.saturating_sub(record.written) > micros(KEPT) / 8;
        let write = fresh || record != before || old;
        if write {
            record.written = now;
        }
        (write.then_some(record), answer)
    }

    fn look(&self, record: &mut Record, now: Micros) -> Answer {
        let runs = record.runs.iter().map(|run| run.instant).collect();
        if record.paused.is_some() {
            return Answer::Look { due: None, runs: Vec::new(), wait: None };
        }
        let plan = plan(&self.setup.timing, &self.setup.policy, record.decided, now);
        if plan.run.is_none() {
            self.record_missed(record, plan.missed, now);
            record.decided = plan.decided;
        }
        let full = record.runs.len() >= MOST_RUNS;
        let due = plan.run.filter(|_| !full);
        if due.is_some() && self.setup.replaces {
            record.runs.iter_mut().for_each(|run| run.replaced = true);
        }
        Answer::Look { due, runs, wait: plan.next.map(|next| next.saturating_sub(now)) }
    }

    fn begin(&self, record: &mut Record, held: Held, now: Micros) -> Answer {
        let setup = &*self.setup;
        if let Some(number) = held.find(record) {
            // An answer got lost.
            let RunRecord { instant, attempt, .. } = record.runs[number];
            return Answer::Run { instant, attempt, now };
        }
        let alone = held.instant.is_none();
        let later = record.runs.iter().any(|run| held.covers(run) && run.token > held.token);
        if later || alone && held.token < record.highest {
            // Somebody has begun since our lease was over: we were paused, or this was delayed.
            return Answer::Nothing;
        }
        if record.paused.is_some() {
            return Answer::Nothing;
        }
        // We hold the lock, so whoever ran these does not any more.
        while let Some(number) = record.runs.iter().position(|run| held.covers(run)) {
            let RunRecord { instant, token: gone, attempt, .. } = record.runs[number];
            let again = if gone == UNDONE {
                let in_time = instant.saturating_add(setup.policy.offset).saturating_add(setup.policy.grace);
                record.runs.remove(number);
                let runs = now <= in_time || setup.policy.misfire != Misfire::Skip;
                let missed = Missed { first: instant, last: instant, count: 1, more: false };
                self.record_missed(record, (!runs).then_some(missed), now);
                runs
            } else {
                record.end(number, End::Lost, now, setup.history);
                match setup.if_lost {
                    IfLost::Record => false,
                    IfLost::RunAgain { within, attempts } => {
                        attempt < attempts && now <= instant.saturating_add(micros(within))
                    }
                }
            };
            if again {
                return self.run(record, instant, held, attempt + 1, now);
            }
        }
        if record.runs.len() >= MOST_RUNS {
            return Answer::Nothing;
        }
        let plan = plan(&setup.timing, &setup.policy, record.decided, now);
        if !alone && plan.run.is_some() && plan.run != held.instant {
            // Our lock is that of another instant, which somebody else has taken.
            return Answer::Nothing;
        }
        self.record_missed(record, plan.missed, now);
        record.decided = plan.decided;
        match plan.run {
            Some(instant) => self.run(record, instant, held, 1, now),
            None => Answer::Nothing,
        }
    }

    fn run(&self, record: &mut Record, instant: Micros, held: Held, attempt: u32, now: Micros) -> Answer {
        if held.instant.is_none() {
            record.highest = record.highest.max(held.token);
        }
        let node = self.setup.node.clone();
        let (token, replaced) = (held.token, false);
        record.runs.push(RunRecord { instant, token, attempt, started: now, replaced, node });
        Answer::Run { instant, attempt, now }
    }

    fn record_missed(&self, record: &mut Record, missed: Option<Missed>, now: Micros) {
        let Some(Missed { first, last, count, more }) = missed else { return };
        let end = End::Missed { count, more };
        let (node, ended) = (String::new(), now);
        let past = PastRecord { instant: first, last, token: 0, attempt: 0, started: now, ended, node, end };
        record.remember(past, self.setup.history);
    }
}

/// A step from one record to another, where the cell holds one.
pub(super) fn step_with(
    values: &[Option<&[u8]>],
    decide: impl FnOnce(Option<Record>) -> (Option<Record>, Answer),
) -> Decision {
    let found = match values.first().copied().flatten().map(Record::decode) {
        None => None,
        Some(Some(record)) => Some(record),
        Some(None) => return Decision { writes: Vec::new(), answer: encode(&Answer::Foreign) },
    };
    let (record, answer) = decide(found);
    let put = |record: Record| Write::Put(CellValue { bytes: record.encode(), lives: KEPT });
    Decision { writes: record.map(put).into_iter().collect(), answer: encode(&answer) }
}

pub(super) fn encode(answer: &Answer) -> Vec<u8> {
    // Nothing in an answer can not be written.
    postcard::to_stdvec(answer).unwrap_or_default()
}

impl Rule for Step {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        step_with(values, |found| self.decide(found, now))
    }
}

impl TypedRule for Step {
    type Answer = Answer;

    fn read(&self, answer: &[u8]) -> Option<Answer> {
        postcard::from_bytes(answer).ok()
    }
}

#[cfg(test)]
mod tests;
