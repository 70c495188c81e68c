//! The record of a task, kept in one cell.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::claim::Micros;

/// The first bytes of a record: what it is, and its format.
const MARK: [u8; 3] = [b't', b'k', 1];

/// The longest text about a node or a failure that is kept, in bytes.
const LONGEST_NOTE: usize = 200;

/// A text that is not longer than what is kept.
pub(super) fn note(text: &str) -> String {
    let end = (0..=text.len().min(LONGEST_NOTE)).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].to_owned()
}

/// What is known of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// When it is due, for people.
    pub(super) timing: String,
    /// All instants up to here are decided.
    pub(super) decided: Micros,
    /// When the record was written last.
    pub(super) written: Micros,
    /// The greatest token of a run. Whoever comes with a lower one comes too late.
    pub(super) highest: u64,
    /// Since when nothing is started.
    pub(super) paused: Option<Micros>,
    /// What runs, or ran when its node was last heard of.
    pub(super) runs: Vec<RunRecord>,
    /// What happened last, oldest first.
    pub(super) history: VecDeque<PastRecord>,
    pub(super) counts: Counts,
}

/// An occurrence that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunRecord {
    pub(super) instant: Micros,
    pub(super) token: u64,
    /// 1, or more if it was lost before.
    pub(super) attempt: u32,
    pub(super) started: Micros,
    /// A later occurrence is due, and waits for this one to stop.
    pub(super) replaced: bool,
    pub(super) node: String,
}

/// What became of an occurrence, or of several that were missed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PastRecord {
    pub(super) instant: Micros,
    /// The last one, if there are several.
    pub(super) last: Micros,
    /// Under which token it ran; 0 if it did not.
    pub(super) token: u64,
    pub(super) attempt: u32,
    pub(super) started: Micros,
    pub(super) ended: Micros,
    pub(super) node: String,
    pub(super) end: End,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum End {
    Done,
    Failed(String),
    /// Its node fell silent; it has had its effect or not.
    Lost,
    /// So many were missed, or more.
    Missed {
        count: u32,
        more: bool,
    },
    /// The task was paused.
    Paused,
    /// It was stopped because a later one was due.
    Replaced,
}

/// How many occurrences came to which end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) lost: u64,
    pub(super) missed: u64,
    pub(super) replaced: u64,
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        // Nothing in a record can not be written.
        let rest = postcard::to_stdvec(self).unwrap_or_default();
        [&MARK, rest.as_slice()].concat()
    }

    /// `None` if the bytes are not a record.
    pub(super) fn decode(bytes: &[u8]) -> Option<Record> {
        let (record, rest) = postcard::take_from_bytes(bytes.strip_prefix(&MARK)?).ok()?;
        rest.is_empty().then_some(record)
    }

    /// Adds to the history, of which `most` are kept.
    pub(super) fn remember(&mut self, past: PastRecord, most: usize) {
        let counts = &mut self.counts;
        match past.end {
            End::Done => counts.done += 1,
            End::Failed(_) => counts.failed += 1,
            End::Lost => counts.lost += 1,
            End::Missed { count, .. } => counts.missed += u64::from(count),
            End::Replaced => counts.replaced += 1,
            End::Paused => {}
        }
        self.history.push_back(past);
        while self.history.len() > most {
            self.history.pop_front();
        }
    }

    /// Ends a run.
    pub(super) fn end(&mut self, number: usize, end: End, now: Micros, most: usize) {
        let RunRecord { instant, token, attempt, started, node, .. } = self.runs.remove(number);
        let past = PastRecord { instant, last: instant, token, attempt, started, ended: now, node, end };
        self.remember(past, most);
    }
}
