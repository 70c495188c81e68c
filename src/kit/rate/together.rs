//! One request that several limiters decide together: all allow it, or nothing is taken.

use std::sync::Arc;
use std::time::Duration;

use super::algorithm::{Algorithm, Outcome, Receipt, Request};
use super::limiter::Limiter;
use super::shared::ask;
use super::verdict::{Allowed, Mode, Taken, Verdict, after, verdict};
use crate::error::{Error, Result};

/// Lets limiters decide together, in one call.
pub(super) async fn decide(requests: &[(&Limiter, &str)], cost: u32) -> Result<Verdict> {
    let (mut names, mut parts) = (Vec::new(), Vec::new());
    let (mut sent, mut deadline) = (None, Duration::MAX);
    for (limiter, key) in requests {
        let shared = &limiter.shared;
        let now = *sent.get_or_insert_with(|| shared.now());
        if let Some(pause) = limiter.may_not_ask(now) {
            return Ok(away(requests, cost, pause));
        }
        names.append(&mut shared.names(key)?);
        let take = Request::Take { least: cost, most: cost };
        parts.extend(shared.settings.parts.iter().map(|part| (part.algorithm, take)));
        deadline = deadline.min(shared.settings.deadline);
    }
    let client = &requests[0].0.client;
    let algorithms: Vec<Algorithm> = parts.iter().map(|(algorithm, _)| *algorithm).collect();
    let answer = ask(client, deadline, &names, parts).await;
    requests.iter().for_each(|(limiter, _)| limiter.shared.note(&answer));
    let outcomes = match answer {
        Err(Error::Unavailable { .. }) => return Ok(away(requests, cost, deadline)),
        outcomes => outcomes?,
    };
    let receipts = outcomes.iter().map(|outcome| match outcome {
        Outcome::Allowed { receipt, .. } => *receipt,
        Outcome::Denied { .. } | Outcome::Impossible { .. } => Receipt::default(),
    });
    let taken = Taken::Engine {
        client: client.clone(),
        names,
        parts: algorithms.into_iter().zip(receipts).collect(),
        keys: requests.iter().map(|(limiter, key)| (Arc::clone(&limiter.shared), Box::from(*key))).collect(),
    };
    let verdict = verdict(&outcomes, Mode::Engine, taken);
    if let (Verdict::Denied { limit, .. }, Some(sent)) = (&verdict, sent) {
        // It is the limiter with that limit that has refused; the others need not remember it.
        let mut before = 0;
        for (limiter, key) in requests {
            let count = limiter.shared.settings.parts.len();
            if (before..before + count).contains(limit) {
                limiter.shared.remember_refusal(key, cost, &verdict, before, sent);
            }
            before += count;
        }
    }
    Ok(verdict)
}

/// What limiters answer while the engine is away: all or none. `pause` is when to come back.
pub(super) fn away(requests: &[(&Limiter, &str)], cost: u32, pause: Duration) -> Verdict {
    let mut allowed: Vec<Allowed> = Vec::new();
    let mut before = 0;
    for (limiter, key) in requests {
        let verdict = limiter.shared.while_away(key, cost, pause);
        match verdict {
            Verdict::Allowed(one) => allowed.push(one),
            refused => {
                for one in allowed {
                    if let Taken::Share { limiter, key, receipts } = one.taken {
                        limiter.refund_to_share(&key, &receipts);
                    }
                }
                return after(refused, before);
            }
        }
        before += limiter.shared.settings.parts.len();
    }
    // The strictest speaks for all. What was taken of several shares is not given back.
    let one = allowed.len() == 1;
    let strictest = allowed.into_iter().min_by_key(|one| (one.by != Mode::LocalShare, one.left));
    match strictest {
        Some(strictest) if one => Verdict::Allowed(strictest),
        Some(strictest) => Verdict::Allowed(Allowed { taken: Taken::Nothing, ..strictest }),
        None => {
            Verdict::Denied { retry_after: pause, left: 0, limit: 0, quotas: Vec::new(), by: Mode::Closed }
        }
    }
}
