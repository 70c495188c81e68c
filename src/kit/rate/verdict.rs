//! What a limiter answers.

use std::sync::Arc;
use std::time::Duration;

use super::algorithm::{Algorithm, Outcome, Receipt, Request};
use super::rule::Decide;
use super::shared::Shared;
use crate::client::Client;
use crate::error::Result;
use crate::name::Name;

/// What a limiter answers.
#[derive(Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// It may go.
    Allowed(Allowed),
    /// It may not go, and nothing was taken.
    #[non_exhaustive]
    Denied {
        /// How long until it may, if nobody else takes anything.
        retry_after: Duration,
        /// How much could be taken.
        left: u32,
        /// The limit that makes it wait the longest: its place in the list that was given.
        limit: usize,
        /// How each limit stands. Empty if that is not known.
        quotas: Vec<Quota>,
        /// What decided.
        by: Mode,
    },
    /// It can never go: it asks for more than there ever is.
    #[non_exhaustive]
    Impossible {
        /// The most that there ever is.
        capacity: u32,
        /// The limit that is too low for it.
        limit: usize,
    },
}

/// How a limit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// How much could be taken.
    pub left: u32,
    /// How long until all of it could be taken again.
    pub reset_after: Duration,
}

/// What produced a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// The engine decided.
    Engine,
    /// It was taken from a batch that this process has: [`Limit::batches`](super::Limit::batches).
    Batch,
    /// The engine has refused before, and that can not have changed yet.
    Remembered,
    /// The engine is away: [`WhenAway::Open`](super::WhenAway::Open).
    Open,
    /// The engine is away: [`WhenAway::Closed`](super::WhenAway::Closed).
    Closed,
    /// The engine is away: [`WhenAway::LocalShare`](super::WhenAway::LocalShare).
    LocalShare,
    /// The engine is away: [`WhenAway::Shed`](super::WhenAway::Shed).
    Shed,
}

impl Verdict {
    /// True if it may go.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Verdict::Allowed(_))
    }

    /// How long until it may go: zero if it may go now, `None` if never.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Verdict::Allowed(allowed) => Some(allowed.delay),
            Verdict::Denied { retry_after, .. } => Some(*retry_after),
            Verdict::Impossible { .. } => None,
        }
    }

    /// What produced it.
    pub fn by(&self) -> Mode {
        match self {
            Verdict::Allowed(allowed) => allowed.by,
            Verdict::Denied { by, .. } => *by,
            Verdict::Impossible { .. } => Mode::Engine,
        }
    }

    /// How each limit stands, in the order in which they were given. Empty if that is not known.
    pub fn quotas(&self) -> &[Quota] {
        match self {
            Verdict::Allowed(Allowed { quotas, .. }) | Verdict::Denied { quotas, .. } => quotas,
            Verdict::Impossible { .. } => &[],
        }
    }

    /// What was allowed, if it was.
    pub fn allowed(self) -> Option<Allowed> {
        match self {
            Verdict::Allowed(allowed) => Some(allowed),
            Verdict::Denied { .. } | Verdict::Impossible { .. } => None,
        }
    }
}

/// That something may go. It can be given back if it does not: [`Allowed::refund`].
#[derive(Debug)]
pub struct Allowed {
    pub(super) left: u32,
    pub(super) delay: Duration,
    pub(super) quotas: Vec<Quota>,
    pub(super) by: Mode,
    pub(super) taken: Taken,
}

/// Where it was taken.
#[derive(Debug)]
pub(super) enum Taken {
    /// From the engine.
    Engine {
        client: Client,
        names: Vec<Name>,
        parts: Vec<(Algorithm, Receipt)>,
        keys: Vec<(Arc<Shared>, Box<str>)>,
    },
    /// From a batch.
    Batch { limiter: Arc<Shared>, key: Box<str>, cost: u32, number: u64 },
    /// From this process's share.
    Share { limiter: Arc<Shared>, key: Box<str>, receipts: Vec<Receipt> },
    /// From nobody.
    Nothing,
}

impl Allowed {
    /// How much could be taken after this: of the limit with the least. 0 if it is not known,
    /// because the engine is away.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// How long to wait before it goes. Zero unless the limit is a leaky bucket.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// What decided.
    pub fn by(&self) -> Mode {
        self.by
    }

    /// Gives back what was taken, because it did not go.
    ///
    /// What comes back is never so much that the bound of the limit would break: less than was
    /// taken if some of it has come back by itself meanwhile, and nothing from a leaky bucket if
    /// somebody has queued up behind. If the engine's clock was set back meanwhile, up to what was
    /// taken may come back too much.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) if the engine does not answer: then it was given
    /// back or not. Do not count on it.
    ///
    /// # Cancel safety
    ///
    /// It is given back or not.
    pub async fn refund(self) -> Result<()> {
        match self.taken {
            Taken::Engine { client, names, parts, keys } => {
                for (limiter, key) in &keys {
                    limiter.forget_refusal(key);
                }
                let part =
                    |(algorithm, receipt): &(Algorithm, Receipt)| (*algorithm, Request::Refund(*receipt));
                let rule = Arc::new(Decide::new(parts.iter().map(part).collect()));
                client.inner.update(&names, &rule).await.map(|_| ())
            }
            Taken::Batch { limiter, key, cost, number } => {
                limiter.refund_to_batch(&key, cost, number).await;
                Ok(())
            }
            Taken::Share { limiter, key, receipts } => {
                limiter.refund_to_share(&key, &receipts);
                Ok(())
            }
            Taken::Nothing => Ok(()),
        }
    }
}

pub(super) fn quotas(outcomes: &[Outcome]) -> Vec<Quota> {
    let quota = |outcome: &Outcome| match *outcome {
        Outcome::Allowed { left, reset_after, .. } | Outcome::Denied { left, reset_after, .. } => {
            Quota { left, reset_after: Duration::from_micros(reset_after) }
        }
        Outcome::Impossible { .. } => Quota { left: 0, reset_after: Duration::ZERO },
    };
    outcomes.iter().map(quota).collect()
}

/// What several limits come to: all must allow it.
pub(super) fn verdict(outcomes: &[Outcome], by: Mode, taken: Taken) -> Verdict {
    let (mut least, mut longest_delay) = (u32::MAX, 0);
    let mut denied: Option<(usize, u64)> = None;
    for (limit, outcome) in outcomes.iter().enumerate() {
        match *outcome {
            Outcome::Impossible { capacity } => return Verdict::Impossible { capacity, limit },
            Outcome::Denied { retry_after, left, .. } => {
                least = least.min(left);
                if denied.is_none_or(|(_, longest)| retry_after > longest) {
                    denied = Some((limit, retry_after));
                }
            }
            Outcome::Allowed { left, receipt, .. } => {
                least = least.min(left);
                longest_delay = longest_delay.max(receipt.delay);
            }
        }
    }
    let quotas = quotas(outcomes);
    match denied {
        Some((limit, retry_after)) => {
            let retry_after = Duration::from_micros(retry_after);
            Verdict::Denied { retry_after, left: least, limit, quotas, by }
        }
        None => {
            let delay = Duration::from_micros(longest_delay);
            Verdict::Allowed(Allowed { left: least, delay, quotas, by, taken })
        }
    }
}

/// The same verdict, with the place of the limit counted behind those of other limiters.
pub(super) fn after(verdict: Verdict, before: usize) -> Verdict {
    match verdict {
        Verdict::Denied { retry_after, left, limit, quotas, by } => {
            Verdict::Denied { retry_after, left, limit: limit + before, quotas, by }
        }
        Verdict::Impossible { capacity, limit } => Verdict::Impossible { capacity, limit: limit + before },
        allowed @ Verdict::Allowed(_) => allowed,
    }
}
