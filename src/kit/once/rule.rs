//! The rule of a submission: a pure step over its record.

use std::time::Duration;

use super::record::{Fingerprint, Record, State};
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::{CellValue, Decision, Rule, Write};

/// What is asked of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// To be the one who runs it.
    Begin {
        fingerprint: Fingerprint,
        lease: Duration,
        /// Also if it is not known whether the last one has had its effect.
        if_unknown: bool,
    },
    /// To go on running it.
    Extend { lease: Duration },
    /// To record the result. Also when the lease is over, if nobody else has begun since.
    Complete { result: Vec<u8> },
    /// To forget it, because it has had no effect.
    Release,
    /// To record what is known from elsewhere of one that is unknown: its result, or that it had no
    /// effect.
    Resolve { result: Option<Vec<u8>> },
}

/// A step of a submission. It can be repeated by the same owner without harm.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) owner: u128,
    pub(super) ask: Ask,
    /// How long the record is kept after its last change.
    pub(super) kept: Duration,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is as was asked. The token is that of whoever runs it.
    Yes { token: u64 },
    /// It was done before.
    Done { token: u64, result: Vec<u8> },
    /// Somebody runs it, for at most this long without a word.
    Running { left: Micros },
    /// Whoever ran it fell silent this long ago.
    Unknown { since: Micros },
    /// The key was used for something else.
    Mismatch,
    /// It is not ours any more.
    Gone,
    /// The cell holds something that is not a record.
    Foreign,
}

impl Step {
    fn put(&self, record: &Record) -> Vec<Write> {
        vec![Write::Put(CellValue { bytes: record.encode(), lives: self.kept })]
    }

    fn decide(&self, found: Option<Record>, now: Micros) -> (Vec<Write>, Answer) {
        let ours = found.as_ref().is_some_and(|record| record.owner == self.owner);
        match (&self.ask, found) {
            (Ask::Begin { fingerprint, lease, if_unknown }, found) => {
                let until = now.saturating_add(micros(*lease));
                let begin = |token| {
                    let (owner, fingerprint) = (self.owner, *fingerprint);
                    let record = Record { owner, token, fingerprint, state: State::Running { until } };
                    (self.put(&record), Answer::Yes { token })
                };
                match found {
                    None => begin(now),
                    Some(record) if record.fingerprint != *fingerprint => (Vec::new(), Answer::Mismatch),
                    Some(Record { token, state: State::Done { result }, .. }) => {
                        (Vec::new(), Answer::Done { token, result })
                    }
                    // An answer got lost.
                    Some(Record { token, .. }) if ours => begin(token),
                    Some(Record { token, state: State::Running { until }, .. }) if until <= now => {
                        if *if_unknown {
                            begin(now.max(token + 1))
                        } else {
                            (Vec::new(), Answer::Unknown { since: now - until })
                        }
                    }
                    Some(Record { state: State::Running { until }, .. }) => {
                        (Vec::new(), Answer::Running { left: until - now })
                    }
                }
            }
            (Ask::Resolve { result }, Some(record)) => match record.state {
                State::Done { result } => (Vec::new(), Answer::Done { token: record.token, result }),
                State::Running { until } if until > now => {
                    (Vec::new(), Answer::Running { left: until - now })
                }
                State::Running { .. } => {
                    let yes = Answer::Yes { token: record.token };
                    match result {
                        None => (vec![Write::Delete], yes),
                        Some(result) => {
                            let state = State::Done { result: result.clone() };
                            // Whoever ran it must not record anything else.
                            (self.put(&Record { owner: self.owner, state, ..record }), yes)
                        }
                    }
                }
            },
            (Ask::Extend { lease }, Some(record @ Record { state: State::Running { .. }, .. })) if ours => {
                let (token, until) = (record.token, now.saturating_add(micros(*lease)));
                (self.put(&Record { state: State::Running { until }, ..record }), Answer::Yes { token })
            }
            // Recorded in a transaction of the caller's.
            (
                Ask::Extend { .. } | Ask::Release,
                Some(Record { token, state: State::Done { result }, .. }),
            ) if ours => (Vec::new(), Answer::Done { token, result }),
            (Ask::Complete { result }, Some(record)) if ours => {
                let token = record.token;
                match &record.state {
                    // Written again: whoever waits was not told of what a transaction has written.
                    State::Done { .. } => (self.put(&record), Answer::Yes { token }),
                    State::Running { .. } => {
                        let state = State::Done { result: result.clone() };
                        (self.put(&Record { state, ..record }), Answer::Yes { token })
                    }
                }
            }
            (Ask::Release, Some(Record { token, state: State::Running { .. }, .. })) if ours => {
                (vec![Write::Delete], Answer::Yes { token })
            }
            _ => (Vec::new(), Answer::Gone),
        }
    }
}

impl Rule for Step {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        let found = match values.first().copied().flatten().map(Record::decode) {
            None => None,
            Some(Some(record)) => Some(record),
            Some(None) => return Decision { writes: Vec::new(), answer: encode(&Answer::Foreign) },
        };
        let (writes, answer) = self.decide(found, now);
        Decision { writes, answer: encode(&answer) }
    }
}

impl TypedRule for Step {
    type Answer = Answer;

    fn read(&self, answer: &[u8]) -> Option<Answer> {
        let (word, rest) = answer.split_first()?;
        let (number, result) = rest.split_first_chunk::<8>()?;
        let number = u64::from_be_bytes(*number);
        Some(match *word {
            0 => Answer::Foreign,
            1 => Answer::Yes { token: number },
            2 => Answer::Done { token: number, result: result.to_vec() },
            3 => Answer::Running { left: number },
            4 => Answer::Unknown { since: number },
            5 => Answer::Mismatch,
            6 => Answer::Gone,
            _ => return None,
        })
    }
}

fn encode(answer: &Answer) -> Vec<u8> {
    let (word, number, result): (u8, u64, &[u8]) = match answer {
        Answer::Foreign => (0, 0, &[]),
        Answer::Yes { token } => (1, *token, &[]),
        Answer::Done { token, result } => (2, *token, result),
        Answer::Running { left } => (3, *left, &[]),
        Answer::Unknown { since } => (4, *since, &[]),
        Answer::Mismatch => (5, 0, &[]),
        Answer::Gone => (6, 0, &[]),
    };
    [&[word], number.to_be_bytes().as_slice(), result].concat()
}

fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEPT: Duration = Duration::from_secs(1);

    fn ask() -> impl Strategy<Value = Ask> {
        let lease = (1..50u64).prop_map(Duration::from_micros);
        let result = proptest::collection::vec(any::<u8>(), 0..3);
        prop_oneof![
            4 => (lease.clone(), any::<bool>(), 0..2u8).prop_map(|(lease, if_unknown, print)| Ask::Begin {
                fingerprint: [print; 16],
                lease,
                if_unknown,
            }),
            2 => lease.prop_map(|lease| Ask::Extend { lease }),
            2 => result.clone().prop_map(|result| Ask::Complete { result }),
            1 => Just(Ask::Release),
            1 => proptest::option::of(result).prop_map(|result| Ask::Resolve { result }),
        ]
    }

    proptest! {
        /// Whoever was told to run is the only one until its lease is over; what was recorded
        /// stays.
        #[test]
        fn one_runs_at_a_time_and_a_result_stays(
            steps in proptest::collection::vec((0..4u128, ask(), 0..40u64), 1..200)
        ) {
            let mut value: Option<Vec<u8>> = None;
            let (mut now, mut last_token) = (1_000_000, 0);
            let mut running: Option<(u128, Micros)> = None;
            for (owner, ask, passes) in steps {
                now += passes;
                let step = Step { owner, ask: ask.clone(), kept: KEPT };
                let before = value.as_deref().map(|value| Record::decode(value).expect("a record"));
                let decision = step.step(&[value.as_deref()], now);
                let answer = step.read(&decision.answer).expect("an answer");
                // A repeated request is answered alike, unless it has ended what it asks of.
                match decision.writes.first() {
                    Some(Write::Put(put)) => value = Some(put.bytes.clone()),
                    Some(Write::Delete) => value = None,
                    _ => prop_assert_eq!(&before, &value.as_deref().and_then(Record::decode)),
                }
                let after = value.as_deref().map(|value| Record::decode(value).expect("a record"));
                if let (Ask::Begin { lease, .. }, Answer::Yes { token }) = (&ask, &answer) {
                    let others = running.filter(|(other, until)| *other != owner && *until > now);
                    prop_assert!(others.is_none(), "{owner} runs beside {others:?}");
                    let again = before.as_ref().is_some_and(|record| record.owner == owner);
                    prop_assert!(*token > last_token || again && *token == last_token || before.is_none());
                    last_token = *token;
                    running = Some((owner, now + micros(*lease)));
                }
                match (&ask, &answer) {
                    (Ask::Extend { lease }, Answer::Yes { .. }) => running = Some((owner, now + micros(*lease))),
                    (Ask::Release | Ask::Complete { .. } | Ask::Resolve { .. }, Answer::Yes { .. }) => running = None,
                    _ => {}
                }
                if let Some(Record { state: State::Done { .. }, .. }) = &before {
                    prop_assert_eq!(&before, &after);
                }
            }
        }

        #[test]
        fn bytes_of_something_else_are_no_record(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let step = Step { owner: 1, ask: Ask::Release, kept: KEPT };
            let decision = step.step(&[Some(&bytes)], 5);
            if Record::decode(&bytes).is_none() {
                prop_assert_eq!(step.read(&decision.answer), Some(Answer::Foreign));
            } else {
                prop_assert_eq!(Record::decode(&bytes).expect("a record").encode(), bytes);
            }
        }
    }
}
