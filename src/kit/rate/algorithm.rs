//! What is asked of a limit, and what it answers: a pure step that is given the time.

use super::bucket::Bucket;
use super::fixed_window::FixedWindow;
use super::sliding_log::SlidingLog;
use super::sliding_window::SlidingWindow;
use crate::claim::Micros;

/// A limit whose numbers are known to be in range: what decides.
///
/// It is pure: [`Algorithm::step`] is given the state and the time, and gives the next state and an
/// outcome. Made by [`Limit::algorithm`](super::Limit::algorithm).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm(pub(super) Shape);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    FixedWindow(FixedWindow),
    SlidingLog(SlidingLog),
    SlidingWindow(SlidingWindow),
    Bucket(Bucket),
}

/// What is asked of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// To take at least `least` and at most `most`, or nothing.
    Take {
        /// With less the answer is no.
        least: u32,
        /// More is not wanted.
        most: u32,
    },
    /// What taking this much would be answered with.
    Peek(u32),
    /// To give back what was taken.
    Refund(Receipt),
    /// To forget what was taken.
    Reset,
}

/// What was taken, and when: needed to give it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// When it was taken, by the engine's clock.
    pub at: Micros,
    /// How long after that it goes.
    pub delay: Micros,
    /// How much was taken.
    pub cost: u32,
}

impl Receipt {
    pub(super) fn goes(&self) -> Micros {
        self.at.saturating_add(self.delay)
    }
}

/// What a limit came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It may go.
    Allowed {
        /// What was taken. Nothing, if it was only looked or given back.
        receipt: Receipt,
        /// How much could be taken after that.
        left: u32,
        /// How long until all of it could be taken again.
        reset_after: Micros,
    },
    /// It may not go, and nothing was taken.
    Denied {
        /// How long until it may, if nobody else takes anything: not a microsecond less.
        retry_after: Micros,
        /// How much could be taken.
        left: u32,
        /// How long until all of it could be taken again.
        reset_after: Micros,
    },
    /// It can never go: it asks for more than there ever is.
    Impossible {
        /// The most that there ever is.
        capacity: u32,
    },
}

/// What becomes of the state of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    Keep,
    /// There is another one.
    Put {
        /// The state.
        state: Vec<u8>,
        /// How long it must be kept. After that it says the same as none.
        lives: Micros,
    },
    /// There is none any more.
    Delete,
}

/// A step of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What becomes of the state.
    pub change: Change,
    /// The answer.
    pub outcome: Outcome,
}

/// What was used of a limit at a moment.
pub(super) trait Usage {
    /// The most that can be taken at once.
    fn capacity(&self) -> u32;

    /// The moment: the time that was given, or the last change if that is later.
    fn now(&self) -> Micros;

    /// How much can be taken.
    fn left(&self) -> u32;

    /// How long until `cost`, which is more than is left and not more than the capacity, can be
    /// taken.
    fn retry_after(&self, cost: u32) -> Micros;

    /// How long whoever takes something now must wait before it goes.
    fn delay(&self) -> Micros {
        0
    }

    /// Takes what is known to be left.
    fn take(&mut self, cost: u32);

    /// Gives back what was taken, or less: never so much that the bound of the limit would break.
    fn refund(&mut self, receipt: Receipt);

    /// How long until nothing counts as used; 0 if nothing does.
    fn reset_after(&self) -> Micros;

    /// The state to be kept.
    fn encode(&self) -> Vec<u8>;
}

impl Algorithm {
    /// Decides. `None` if the state is not one of this algorithm.
    ///
    /// A time before the last change counts as the time of that change.
    pub fn step(&self, state: Option<&[u8]>, now: Micros, request: Request) -> Option<Step> {
        Some(match self.0 {
            Shape::FixedWindow(rule) => step(rule.load(state, now)?, request),
            Shape::SlidingLog(rule) => step(rule.load(state, now)?, request),
            Shape::SlidingWindow(rule) => step(rule.load(state, now)?, request),
            Shape::Bucket(rule) => step(rule.load(state, now)?, request),
        })
    }

    /// The word for it in the names of cells: each algorithm has cells of its own.
    pub fn word(&self) -> &'static str {
        match self.0 {
            Shape::FixedWindow(_) => "window",
            Shape::SlidingLog(_) => "log",
            Shape::SlidingWindow(_) => "sliding",
            Shape::Bucket(Bucket { kind, .. }) => kind.word(),
        }
    }

    /// The most that can be taken at once.
    pub fn capacity(&self) -> u32 {
        match self.0 {
            Shape::FixedWindow(rule) => rule.limit,
            Shape::SlidingLog(rule) => rule.limit,
            Shape::SlidingWindow(rule) => rule.limit,
            Shape::Bucket(rule) => rule.burst,
        }
    }
}

fn step(mut usage: impl Usage, request: Request) -> Step {
    let receipt = Receipt { at: usage.now(), delay: usage.delay(), cost: 0 };
    let unchanged = |outcome| Step { change: Change::Keep, outcome };
    match request {
        Request::Take { least, most } => {
            if let Some(refused) = refusal(&usage, least) {
                return unchanged(refused);
            }
            let cost = most.max(least).min(usage.left());
            if cost == 0 {
                return unchanged(allowed(&usage, receipt));
            }
            usage.take(cost);
            changed(&usage, Receipt { cost, ..receipt })
        }
        Request::Peek(cost) => unchanged(refusal(&usage, cost).unwrap_or_else(|| allowed(&usage, receipt))),
        Request::Refund(taken) => {
            // If it was taken in the future, the clock was set back since then.
            if taken.at > usage.now() {
                return unchanged(allowed(&usage, receipt));
            }
            usage.refund(taken);
            changed(&usage, receipt)
        }
        Request::Reset => {
            let outcome = Outcome::Allowed { receipt, left: usage.capacity(), reset_after: 0 };
            Step { change: Change::Delete, outcome }
        }
    }
}

fn refusal(usage: &impl Usage, cost: u32) -> Option<Outcome> {
    let (capacity, left) = (usage.capacity(), usage.left());
    if cost > capacity {
        return Some(Outcome::Impossible { capacity });
    }
    (cost > left).then(|| Outcome::Denied {
        retry_after: usage.retry_after(cost),
        left,
        reset_after: usage.reset_after(),
    })
}

fn allowed(usage: &impl Usage, receipt: Receipt) -> Outcome {
    Outcome::Allowed { receipt, left: usage.left(), reset_after: usage.reset_after() }
}

fn changed(usage: &impl Usage, receipt: Receipt) -> Step {
    let change = match usage.reset_after() {
        0 => Change::Delete,
        lives => Change::Put { state: usage.encode(), lives },
    };
    Step { change, outcome: allowed(usage, receipt) }
}
