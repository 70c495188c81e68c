//! The rule over the cells of several limits: all or none.

use std::time::Duration;

use super::algorithm::{Algorithm, Change, Outcome, Receipt, Request, Shape, Step};
use super::bucket::{Bucket, Kind};
use crate::claim::Micros;
use crate::client::cell::TypedRule;
use crate::engine::{CellValue, Decision, Rule, Twin, Write};

/// Lets several limits decide over one request, each over its own cell. Either all of them allow
/// it, or nothing is taken from any.
#[derive(Clone, Debug)]
pub struct Decide {
    parts: Vec<(Algorithm, Request)>,
}

impl Decide {
    /// What is asked of each limit, in the order of their cells.
    pub fn new(parts: Vec<(Algorithm, Request)>) -> Decide {
        Decide { parts }
    }
}

impl Rule for Decide {
    fn step(&self, values: &[Option<&[u8]>], now: Micros) -> Decision {
        let mut steps = Vec::with_capacity(self.parts.len());
        for (number, (algorithm, request)) in self.parts.iter().enumerate() {
            let state = values.get(number).copied().flatten();
            match algorithm.step(state, now, *request) {
                Some(step) => steps.push(step),
                // Not a state of this algorithm: somebody else uses the cell.
                None => return Decision { writes: Vec::new(), answer: vec![FOREIGN] },
            }
        }
        let all = steps.iter().all(|step| matches!(step.outcome, Outcome::Allowed { .. }));
        if !all {
            // Those that would have allowed it tell how things stand without it.
            for (number, (step, (algorithm, _))) in steps.iter_mut().zip(&self.parts).enumerate() {
                if matches!(step.outcome, Outcome::Allowed { .. })
                    && let Some(peeked) =
                        algorithm.step(values.get(number).copied().flatten(), now, Request::Peek(0))
                {
                    *step = peeked;
                }
            }
        }
        let answer = encode(steps.iter().map(|step| step.outcome));
        let writes = if all && steps.iter().any(|step| step.change != Change::Keep) {
            steps.into_iter().map(write).collect()
        } else {
            Vec::new()
        };
        Decision { writes, answer }
    }

    fn twin(&self) -> Option<Twin> {
        let mut arguments = Vec::with_capacity(self.parts.len() * 7);
        let mut push = |number: u64| arguments.push(number.to_string().into_bytes());
        for (algorithm, request) in &self.parts {
            match algorithm.0 {
                Shape::Bucket(Bucket { refill, cost, burst, kind: Kind::Token }) => {
                    push(0);
                    push(u64::from(burst));
                    push(cost);
                    push(refill);
                }
                Shape::FixedWindow(rule) => {
                    push(1);
                    push(u64::from(rule.limit));
                    push(rule.period);
                    push(0);
                }
                // These are run by reading and swapping.
                Shape::Bucket(Bucket { kind: Kind::Leaky, .. })
                | Shape::SlidingLog(_)
                | Shape::SlidingWindow(_) => return None,
            }
            let (word, first, second) = match *request {
                Request::Take { least, most } => (0, u64::from(least), u64::from(most)),
                Request::Peek(cost) => (1, u64::from(cost), 0),
                Request::Refund(Receipt { at, cost, .. }) => (2, u64::from(cost), at),
                Request::Reset => (3, 0, 0),
            };
            push(word);
            push(first);
            push(second);
        }
        let shortcut = Some(include_str!("take_tokens.lua"));
        Some(Twin { script: include_str!("decide.lua"), shortcut, arguments })
    }
}

fn write(step: Step) -> Write {
    match step.change {
        Change::Keep => Write::Keep,
        Change::Delete => Write::Delete,
        Change::Put { state, lives } => {
            Write::Put(CellValue { bytes: state, lives: Duration::from_micros(lives) })
        }
    }
}

const FOREIGN: u8 = 0;
const ALLOWED: u8 = 1;
const DENIED: u8 = 2;
const IMPOSSIBLE: u8 = 3;

/// Bytes of an outcome in an answer.
const LENGTH: usize = 1 + 4 * 8;

/// An answer: for each limit a word and four numbers.
fn encode(outcomes: impl ExactSizeIterator<Item = Outcome>) -> Vec<u8> {
    let mut answer = Vec::with_capacity(outcomes.len() * LENGTH);
    for outcome in outcomes {
        let (word, numbers) = match outcome {
            Outcome::Allowed { receipt: Receipt { at, delay, cost }, left, reset_after } => {
                // What was taken and what is left are below 2^32, and so fit into one number.
                (ALLOWED, [u64::from(cost) << 32 | u64::from(left), reset_after, at, delay])
            }
            Outcome::Denied { retry_after, left, reset_after } => {
                (DENIED, [u64::from(left), reset_after, retry_after, 0])
            }
            Outcome::Impossible { capacity } => (IMPOSSIBLE, [u64::from(capacity), 0, 0, 0]),
        };
        answer.push(word);
        numbers.iter().for_each(|number| answer.extend_from_slice(&number.to_be_bytes()));
    }
    answer
}

fn decode(answer: &[u8]) -> Option<Outcome> {
    let (word, numbers) = answer.split_first()?;
    let mut numbers = numbers
        .chunks_exact(8)
        .map(|number| number.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte)));
    let (first, second, third, fourth) = (numbers.next()?, numbers.next()?, numbers.next()?, numbers.next()?);
    let low = u32::try_from(first & u64::from(u32::MAX)).ok()?;
    Some(match *word {
        ALLOWED => {
            let receipt = Receipt { cost: u32::try_from(first >> 32).ok()?, at: third, delay: fourth };
            Outcome::Allowed { receipt, left: low, reset_after: second }
        }
        DENIED => Outcome::Denied { left: low, reset_after: second, retry_after: third },
        IMPOSSIBLE => Outcome::Impossible { capacity: low },
        _ => return None,
    })
}

/// What several limits have decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// One outcome for each limit. Unless all of them are allowed, nothing was taken.
    Outcomes(Vec<Outcome>),
    /// A cell holds something that is not a state of its limit.
    Foreign,
}

impl TypedRule for Decide {
    type Answer = Decided;

    fn read(&self, answer: &[u8]) -> Option<Decided> {
        if answer == [FOREIGN] {
            return Some(Decided::Foreign);
        }
        if answer.len() != self.parts.len() * LENGTH {
            return None;
        }
        answer.chunks_exact(LENGTH).map(decode).collect::<Option<_>>().map(Decided::Outcomes)
    }
}
