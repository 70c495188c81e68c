//! Claims kept in an etcd cluster.
//!
//! A name is one key, which is read and replaced by compare-and-swap: see `sessions`. What a
//! majority of the members has agreed on survives the loss of any minority, so there is never a
//! second holder, whichever member is killed, paused or cut off. A claim belongs to a session,
//! which is an etcd lease; the cluster's own clock ends it, and no client's clock is trusted.
//!
//! Tokens are revisions of the store. They rise for ever, unless the cluster is restored from a
//! backup without `--bump-revision`.
//!
//! etcd's Lock API is not used: it grants a lock to whoever has waited for it, even if its lease
//! has ended meanwhile.

use std::sync::Arc;

use self::records::Records;
use self::url::Place;
use crate::engine::Engine;
use crate::engine::sessions::{Names, SessionsEngine};
use crate::error::Result;

mod connection;
mod contest;
mod errors;
mod keys;
mod messages;
pub(crate) mod promises;
mod raw;
mod raw_engine;
mod records;
mod session;
mod store;
#[cfg(feature = "etcd-tls")]
mod tls;
mod url;
mod version;
mod watches;

/// Connects to the cluster at a URL.
pub(crate) async fn open(url: &str) -> Result<Box<dyn Engine>> {
    let place = Place::parse(url)?;
    if place.raw {
        return raw_engine::open(place).await;
    }
    let names = Names::new(Records::open(place).await?);
    let weak = Arc::downgrade(&names);
    names.store.listen_to(move |heard| {
        if let Some(names) = weak.upgrade() {
            names.hear(heard);
        }
    });
    Ok(Box::new(SessionsEngine::start(names)))
}
