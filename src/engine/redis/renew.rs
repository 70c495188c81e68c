//! Renewing claims: those on one server in one call.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::scripts::RENEW;
use super::session::Session;
use crate::engine::{Renewal, Renewed};
use crate::error::Result;
use crate::redis::keys::NameKeys;
use crate::redis::script::Invocation;
use crate::redis::slots::slot_of;
use crate::redis::topology::Topology;
use crate::redis::{holder, micros, stragglers};

/// Renews claims; a verdict for each.
pub(super) async fn renew(session: &Session, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
    match session.topology {
        Topology::One(_) => in_one_call(session, &renewals.iter().collect::<Vec<_>>()).await,
        Topology::Cluster(_) => in_a_cluster(session, renewals).await,
    }
}

/// Renews claims that are on one server.
async fn in_one_call(session: &Session, renewals: &[&Renewal]) -> Result<Vec<Renewed>> {
    let names = renewals.iter().map(|renewal| session.keys.of(&renewal.name));
    let names: Vec<Arc<NameKeys>> = names.collect::<Result<_>>()?;
    let Some(first) = names.first() else { return Ok(Vec::new()) };
    let mut keys = Vec::with_capacity(names.len() * 5);
    for NameKeys { holder, state, ends, queue, log, .. } in names.iter().map(|keys| &**keys) {
        keys.extend([holder, state, ends, queue, log].map(String::as_str));
    }
    let with_renewal = |script: Invocation, Renewal { name, owner, lease, .. }: &&Renewal| {
        script.arg(name.family().word()).arg(holder::owner_text(*owner)).arg(micros(*lease))
    };
    let script = |_: &_| renewals.iter().fold(RENEW.on(&keys), with_renewal);
    let verdicts: Vec<u8> = session.run_confirmed(&first.holder, script).await?;
    let verdict = |verdict: &u8| if *verdict == 1 { Renewed::Yes } else { Renewed::Gone };
    Ok(verdicts.iter().map(verdict).collect())
}

/// Renews claims of a cluster: those of one slot in one call, all calls at the same time. Calls
/// that are answered do not wait for long for the others; if none is, the caller's limit ends the
/// wait.
async fn in_a_cluster(session: &Session, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
    let mut slots: HashMap<u16, Vec<usize>> = HashMap::new();
    for (at, renewal) in renewals.iter().enumerate() {
        slots.entry(slot_of(&session.keys.of(&renewal.name)?.holder)).or_default().push(at);
    }
    let calls = slots.into_values().map(|places| async move {
        let here: Vec<&Renewal> = places.iter().map(|at| &renewals[*at]).collect();
        (places, in_one_call(session, &here).await)
    });
    let mut calls: FuturesUnordered<_> = calls.collect();
    let shortest = renewals.iter().map(|renewal| renewal.lease).min().unwrap_or_default();
    let mut late = pin!(tokio::time::sleep(stragglers(shortest)));
    let mut all = vec![Renewed::Unknown; renewals.len()];
    let (mut answered, mut failure) = (false, None);
    loop {
        let (places, verdicts) = tokio::select! {
            biased;
            next = calls.next() => match next {
                Some(call) => call,
                None => break,
            },
            () = &mut late, if answered => break,
        };
        match verdicts {
            Ok(verdicts) => {
                answered = true;
                places.into_iter().zip(verdicts).for_each(|(at, verdict)| all[at] = verdict);
            }
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if !answered => Err(error),
        _ => Ok(all),
    }
}
