//! What the clones of a limiter share: its limits, and what this process remembers of keys.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::algorithm::{Algorithm, Outcome, Receipt, Request};
use super::away::WhenAway;
use super::batch::{Batches, Held};
use super::bounded::Bounded;
use super::limit::Limit;
use super::rule::{Decide, Decided};
use super::share::Share;
use super::verdict::{Allowed, Mode, Taken, Verdict, verdict};
use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::kit::breaker::Breaker;
use crate::kit::cells;
use crate::name::{Family, Name};

/// What the clones of a limiter share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) settings: Settings,
    pub(super) breaker: Breaker,
    /// The cost that was refused, and what was left then.
    refusals: Mutex<Bounded<Refusal>>,
    pub(super) batches: Batches,
    share: Mutex<Share>,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    #[cfg_attr(not(feature = "tower"), allow(dead_code, reason = "only HTTP fields name a limiter"))]
    pub(super) name: String,
    pub(super) parts: Vec<Part>,
    pub(super) when_away: WhenAway,
    pub(super) deadline: Duration,
    pub(super) keys: usize,
}

/// One of the limits.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) limit: Limit,
    pub(super) algorithm: Algorithm,
    /// What the names of its cells start with.
    pub(super) prefix: String,
}

#[derive(Clone, Copy, Debug)]
struct Refusal {
    cost: u32,
    left: u32,
    pub(super) limit: usize,
}

impl Shared {
    pub(super) fn new(client: &Client, settings: Settings) -> Shared {
        let nodes = if let WhenAway::LocalShare { nodes } = settings.when_away { nodes } else { 1 };
        let share = Share::new(settings.parts.iter().map(|part| &part.limit), nodes, settings.keys);
        Shared {
            client: client.clone(),
            breaker: Breaker::default(),
            refusals: Mutex::new(Bounded::new(settings.keys)),
            batches: Batches::new(settings.keys),
            share: Mutex::new(share),
            settings,
        }
    }

    fn refusals(&self) -> MutexGuard<'_, Bounded<Refusal>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn share(&self) -> MutexGuard<'_, Share> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Moment {
        self.client.inner.clock.now()
    }

    pub(super) fn forget_refusal(&self, key: &str) {
        self.refusals().remove(key);
    }

    pub(super) fn refund_to_share(&self, key: &str, receipts: &[Receipt]) {
        self.share().refund(key, receipts, self.now());
    }

    pub(super) async fn refund_to_batch(&self, key: &str, cost: u32, number: u64) {
        let held: Option<Held> = self.batches.find(key, self.now());
        if let Some(held) = held {
            let mut tokens = held.lock().await;
            if tokens.number == number {
                tokens.left += cost;
                drop(tokens);
                self.forget_refusal(key);
            }
        }
    }

    /// What can be said without asking.
    pub(super) fn known(&self, key: &str, cost: u32) -> Result<Option<Verdict>> {
        if cost == 0 {
            return Err(Error::invalid("a cost of 0 asks for nothing; use `peek` to look"));
        }
        for (limit, part) in self.settings.parts.iter().enumerate() {
            let capacity = part.algorithm.capacity();
            if cost > capacity {
                return Ok(Some(Verdict::Impossible { capacity, limit }));
            }
        }
        if self.settings.keys == 0 {
            return Ok(None);
        }
        let mut refusals = self.refusals();
        let now = self.now();
        let known = refusals.get(key, now).filter(|(_, refusal)| cost >= refusal.cost);
        Ok(known.map(|(until, Refusal { left, limit, .. })| Verdict::Denied {
            retry_after: until.since(now),
            left: *left,
            limit: *limit,
            quotas: Vec::new(),
            by: Mode::Remembered,
        }))
    }

    /// Remembers a refusal. `before` limits of other limiters come before those of this one.
    pub(super) fn remember_refusal(
        &self,
        key: &str,
        cost: u32,
        refused: &Verdict,
        before: usize,
        sent: Moment,
    ) {
        if let Verdict::Denied { retry_after, left, limit, by: Mode::Engine, .. } = refused
            && self.settings.keys > 0
        {
            let refusal = Refusal { cost, left: *left, limit: limit - before };
            // Counted from before the send: by then it has not changed.
            self.refusals().put(key, refusal, sent, sent + *retry_after);
        }
    }

    pub(super) fn names(&self, key: &str) -> Result<Vec<Name>> {
        let name = |part: &Part| self.client.name(Family::Cell, &cells::cell(&part.prefix, key));
        self.settings.parts.iter().map(name).collect()
    }

    /// Asks the same of all limits, and notes whether there was an answer.
    pub(super) async fn ask(&self, names: &[Name], request: Request) -> Result<Vec<Outcome>> {
        let parts = self.settings.parts.iter().map(|part| (part.algorithm, request)).collect();
        let answer = ask(&self.client, self.settings.deadline, names, parts).await;
        self.note(&answer);
        answer
    }

    pub(super) fn note<T>(&self, answer: &Result<T>) {
        match answer {
            Err(Error::Unavailable { .. }) => self.breaker.failed(self.now()),
            _ => self.breaker.succeeded(),
        }
    }
}

impl Shared {
    pub(super) fn while_away(self: &Arc<Shared>, key: &str, cost: u32, pause: Duration) -> Verdict {
        let denied = |by| Verdict::Denied { retry_after: pause, left: 0, limit: 0, quotas: Vec::new(), by };
        match self.settings.when_away {
            WhenAway::Open => Verdict::Allowed(Allowed {
                left: 0,
                delay: Duration::ZERO,
                quotas: Vec::new(),
                by: Mode::Open,
                taken: Taken::Nothing,
            }),
            WhenAway::Closed => denied(Mode::Closed),
            WhenAway::Shed => denied(Mode::Shed),
            WhenAway::LocalShare { .. } => match self.share().take(key, cost, self.now()) {
                Some(outcomes) => {
                    let receipts = outcomes.iter().filter_map(|outcome| match outcome {
                        Outcome::Allowed { receipt, .. } => Some(*receipt),
                        Outcome::Denied { .. } | Outcome::Impossible { .. } => None,
                    });
                    let receipts = receipts.collect();
                    let taken = Taken::Share { limiter: Arc::clone(self), key: key.into(), receipts };
                    match verdict(&outcomes, Mode::LocalShare, taken) {
                        // Impossible for this part of the limit; not for all of it.
                        Verdict::Impossible { .. } => denied(Mode::LocalShare),
                        verdict => verdict,
                    }
                }
                None => denied(Mode::LocalShare),
            },
        }
    }
}

/// One call to the engine.
pub(super) async fn ask(
    client: &Client,
    deadline: Duration,
    names: &[Name],
    parts: Vec<(Algorithm, Request)>,
) -> Result<Vec<Outcome>> {
    let rule = Arc::new(Decide::new(parts));
    match client.inner.update_within(deadline, names, &rule).await? {
        Decided::Outcomes(outcomes) => Ok(outcomes),
        Decided::Foreign => Err(Error::Engine {
            engine: client.guarantees().engine,
            what: format!(
                "the cell `{}` holds something that is not the state of a limit; choose another name",
                names.first().map_or("", Name::as_str)
            ),
            source: None,
        }),
    }
}
