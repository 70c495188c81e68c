//! Giving claims back, and what a majority makes of that.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::acquire::limit_of;
use super::keys::OwnerKeys;
use super::node::insist;
use super::quorum::{LIMIT, Quorum};
use super::rules::{self, Left, Verdict};
use super::scripts::RELEASE;
use crate::claim::{OwnerId, Released};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::redis::holder::owner_text;
use crate::redis::link::Connected;

/// Sends a release to every server, and goes on where it was not heard and matters.
pub(super) fn leave(
    quorum: &Quorum,
    keys: &Arc<OwnerKeys>,
    owner: OwnerId,
) -> mpsc::UnboundedReceiver<(usize, Result<i64>)> {
    let stamp = quorum.next_stamp();
    let (touched, lease) = match quorum.owners.lock().get(&owner) {
        Some(entry) => (entry.touched, entry.lease),
        None => (0, quorum.max_lease),
    };
    let limit = limit_of(lease, 4 * LIMIT);
    let until = Instant::now() + lease.mul_f64(1.01) + limit;
    quorum.broadcast(|node| {
        let (keys, runtime) = (Arc::clone(keys), quorum.runtime.clone());
        let releasing = quorum.releasing.subscribe();
        let script =
            move |_: &Connected| RELEASE.on(&keys.all()).arg(owner_text(owner)).arg(stamp).arg("all");
        async move {
            let answer = node.run_within(limit, &script).await;
            if touched & 1 << node.number != 0 && answer.as_ref().is_err_and(Error::is_retryable) {
                runtime.spawn(insist(Arc::downgrade(&node), until, limit, script));
            }
            drop(releasing);
            answer
        }
    })
}

/// Gives a claim back, or a place among those who wait.
pub(super) async fn release(quorum: &Quorum, name: &Name, owner: OwnerId) -> Result<Released> {
    quorum.check_process()?;
    let keys = quorum.keys_of(name, owner)?;
    let mut answers = leave(quorum, &keys, owner);
    let before = quorum.owners.lock().get(&owner).map_or(0, |entry| entry.removed);
    let mut failures = Vec::new();
    // Given back already, when the same was asked before.
    let removed_before = |number: usize| before & 1 << number != 0;
    let servers = quorum.nodes.len();
    let mut seen: Vec<Option<Left>> =
        (0..servers).map(|number| removed_before(number).then_some(Left::Claim)).collect();
    let verdict = loop {
        let verdict = rules::released(&seen);
        // Whoever waits for the answer wants the name to be free for the next one.
        if !matches!(verdict, Verdict::Open | Verdict::Gone) {
            break verdict;
        }
        let Some((number, answer)) = answers.recv().await else { break verdict };
        if removed_before(number) {
            continue;
        }
        seen[number] = Some(match answer {
            Ok(1) => Left::Claim,
            Ok(2) => Left::Place,
            Ok(_) => Left::Nothing,
            Err(error) => {
                failures.push((number, error));
                Left::Silent
            }
        });
    };
    if matches!(verdict, Verdict::Unknown | Verdict::Open) {
        let mut owners = quorum.owners.lock();
        let mut held = false;
        if let Some(entry) = owners.get_mut(&owner) {
            held = entry.held.is_some();
            for (number, left) in seen.iter().enumerate() {
                entry.removed |= u32::from(*left == Some(Left::Claim)) << number;
            }
        }
        // Somebody who only waited, or never got further than to ask, has left when a majority has
        // heard.
        if held || servers - failures.len() < quorum.majority() {
            return Err(quorum.no_majority(failures));
        }
    }
    quorum.owners.forget(owner, 2 * quorum.max_lease);
    Ok(match verdict {
        Verdict::Yes => Released::Claim,
        _ if seen.contains(&Some(Left::Place)) => Released::Place,
        _ => Released::Nothing,
    })
}
