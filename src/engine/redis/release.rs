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
use crate::redis::request::Request;

/// Gives back a claim, or leaves the queue. `used` is the highest token used.
pub(super) async fn release(session: &Session, name: &Name, owner: OwnerId, used: u64) -> Result<Released> {
    let keys = session.keys.of(name)?;
    if let Some(batcher) = &session.batcher
        && keys.plain.load(Ordering::Relaxed)
        && batcher.give_back(GiveBack { keys: Arc::clone(&keys), owner }).await?
    {
        return Ok(Released::Claim);
    }
    let script = scripts::release(name, &keys, owner, used);
    // Where whoever asked last had to wait, somebody is likely to wait now.
    let wakes = keys.crowded.load(Ordering::Relaxed);
    reply::released(match &session.batcher {
        Some(batcher) => batcher.release(script, wakes).await?,
        None => {
            let request = if wakes { Request::Waking(&script) } else { Request::Script(&script) };
            // In a box: the future of a cluster is large.
            Box::pin(session.topology.call(&keys.holder, request)).await?.answer
        }
    })
}
