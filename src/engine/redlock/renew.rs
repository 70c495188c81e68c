//! Renewing claims: one call to each server for many, and what a majority makes of them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::keys::{MEMBER, OwnerKeys, TOP};
use super::owners::Held;
use super::quorum::Quorum;
use super::release::leave;
use super::rules::{self, Kept, Verdict};
use super::scripts::RENEW;
use crate::claim::OwnerId;
use crate::engine::{Renewal, Renewed};
use crate::error::Result;
use crate::redis::holder::owner_text;
use crate::redis::link::Connected;
use crate::redis::{micros, stragglers};

/// The longest that a server has to answer. What is not decided then is not known.
const LONGEST: Duration = Duration::from_secs(5);

/// Renews claims. Each is decided as soon as a majority has answered for it, and those that are
/// decided do not wait for long for the others; if none is, the caller's limit ends the wait.
pub(super) async fn renew(quorum: &Quorum, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
    quorum.check_process()?;
    let Some(shortest) = renewals.iter().map(|renewal| renewal.lease).min() else {
        return Ok(Vec::new());
    };
    let limit = (shortest / 3).min(LONGEST);
    let round = quorum.next_stamp();
    let mut keys: Vec<Arc<OwnerKeys>> = Vec::with_capacity(renewals.len());
    let mut args: Vec<String> = Vec::with_capacity(renewals.len() * 6);
    for renewal in renewals {
        keys.push(quorum.keys_of(&renewal.name, renewal.owner)?);
        let held = quorum.owners.lock().get_mut(&renewal.owner).and_then(|entry| {
            let held = entry.held.as_mut()?;
            held.renewal = round;
            Some(held.clone())
        });
        let (first, last, shared, who) = match held {
            Some(Held { grant, shared, who, .. }) => {
                (grant.token, grant.token + u64::from(grant.tokens) - 1, shared, who)
            }
            // Nothing is known of it: it is renewed where it is, and not taken again where it is
            // not.
            None => (0, 0, false, String::new()),
        };
        args.extend([owner_text(renewal.owner), first.to_string(), last.to_string()]);
        args.extend([
            if shared { "shared" } else { "all" }.to_owned(),
            micros(renewal.lease).to_string(),
            who,
        ]);
    }
    let (keys, args) = (Arc::new(keys), Arc::new(args));
    let mut answers = quorum.broadcast(|node| {
        let (keys, args) = (Arc::clone(&keys), Arc::clone(&args));
        let script = move |connected: &Connected| {
            let mut all = vec![MEMBER, TOP];
            for OwnerKeys { holder, token, state, ends, gone, .. } in keys.iter().map(|keys| &**keys) {
                all.extend([holder, token, state, ends, gone].map(String::as_str));
            }
            RENEW.on(&all).arg(&connected.facts.run_id).arg(round).arg(&*args)
        };
        async move {
            let answer: Result<Vec<u64>> = Arc::clone(&node).renew(limit, script).await;
            if answer.as_ref().is_ok_and(Vec::is_empty) {
                node.not_a_member();
            }
            answer.unwrap_or_default()
        }
    });
    let known: Vec<Option<Vec<u64>>> = {
        let owners_known = quorum.owners.lock();
        let held = |renewal: &Renewal| owners_known.get(&renewal.owner)?.held.as_ref();
        renewals.iter().map(|renewal| held(renewal).map(|held| held.known.clone())).collect()
    };
    let mut since: Vec<Vec<u64>> = vec![vec![0; quorum.nodes.len()]; renewals.len()];
    let mut seen: Vec<Vec<Option<Kept>>> = vec![vec![None; quorum.nodes.len()]; renewals.len()];
    let mut verdicts = vec![Verdict::Open; renewals.len()];
    let mut late = pin!(tokio::time::sleep(stragglers(shortest)));
    while verdicts.contains(&Verdict::Open) {
        let decided = verdicts.iter().any(|verdict| *verdict != Verdict::Open);
        let next = tokio::select! {
            biased;
            answer = answers.recv() => answer,
            () = &mut late, if decided => None,
        };
        let Some((number, answer)) = next else { break };
        for (at, seen) in seen.iter_mut().enumerate() {
            since[at][number] = answer.get(at).copied().unwrap_or(0);
            seen[number] = Some(match answer.get(at) {
                None => Kept::Silent,
                Some(0) => Kept::Gone,
                Some(since) if known[at].as_ref().is_none_or(|known| known[number] == *since) => Kept::Still,
                Some(_) => Kept::Healed,
            });
            verdicts[at] = rules::renewed(seen);
        }
    }
    for (at, verdict) in verdicts.iter().enumerate() {
        match verdict {
            // What was taken again on the way counts from now on.
            Verdict::Yes => {
                for (number, since) in since[at].iter().enumerate().filter(|(_, since)| **since > 0) {
                    quorum.owners.heard(renewals[at].owner, round, number, *since);
                }
            }
            // What is left of it is in the way of others.
            Verdict::Gone => drop(leave(quorum, &keys[at], renewals[at].owner)),
            Verdict::Unknown | Verdict::Open => {}
        }
    }
    let yes = verdicts.iter().map(|verdict| *verdict == Verdict::Yes);
    let owners: Vec<Option<OwnerId>> =
        yes.zip(renewals).map(|(yes, renewal)| yes.then_some(renewal.owner)).collect();
    let owners_known = Arc::clone(&quorum.owners);
    // The others are heard, too, when they answer: the next time one of these may be gone.
    quorum.runtime.spawn(async move {
        while let Some((number, answer)) = answers.recv().await {
            for (owner, since) in owners.iter().zip(answer) {
                if let (Some(owner), 1..) = (*owner, since) {
                    owners_known.heard(owner, round, number, since);
                }
            }
        }
    });
    let verdict = |verdict: &Verdict| match verdict {
        Verdict::Yes => Renewed::Yes,
        Verdict::Gone => Renewed::Gone,
        Verdict::Unknown | Verdict::Open => Renewed::Unknown,
    };
    Ok(verdicts.iter().map(verdict).collect())
}
