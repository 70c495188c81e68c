//! How a claim is given back: a lock that nobody waits for together with others, everything else by
//! the rules.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::reply;
use super::scripts::{self, GiveBack};
use super::session::Session;
use crate::claim::{OwnerId, Released};
use crate::error::Result;
use crate::name::Name;

/// Gives back a claim, or leaves the queue. `used` is the highest token used.
pub(super) async fn release(session: &Session, name: &Name, owner: OwnerId, used: u64) -> Result<Released> {
    let keys = session.keys.of(name)?;
    if let Some(batcher) = &session.batcher
        && keys.plain.load(Ordering::Relaxed)
        && batcher.give_back(GiveBack { keys: Arc::clone(&keys), owner }).await?
    {
        return Ok(Released::Claim);
    }
    // Where whoever asked last had to wait, somebody is likely to wait now.
    let wakes = keys.crowded.load(Ordering::Relaxed);
    let script = || scripts::release(name, &keys, owner, used).waking(wakes);
    reply::released(match &session.batcher {
        Some(batcher) => batcher.release(script()).await?,
        // In a box: the future of a cluster is large.
        None => Box::pin(session.topology.run(&keys.holder, |_| script())).await?.answer,
    })
}
