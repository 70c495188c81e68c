//! Claims kept in a ZooKeeper ensemble.
//!
//! A name is one node, whose data is read and replaced by compare-and-swap: see `sessions`. What a
//! majority of the servers has agreed on survives the loss of any minority, so there is never a
//! second holder, whichever server is killed, paused or cut off. A claim belongs to the session of
//! its client, which the servers end when they have not heard of it for the session's timeout; no
//! client's clock is trusted.
//!
//! A client has one session for all its claims, whatever their leases are. So the names of a client
//! that died are free when its session has ended, and not before, even if a lease was shorter. And
//! a client that can not reach a majority gives its claims up before its session can have ended,
//! even if a lease is longer.
//!
//! Tokens are numbers of changes (zxids). They rise for ever, unless the servers lose their data.

use std::sync::Arc;

use self::connection::Ensemble;
use self::paths::Paths;
use self::store::Nodes;
use self::url::Place;
use crate::engine::Engine;
use crate::engine::sessions::{Names, SessionsEngine};
use crate::error::Result;

mod connection;
mod contenders;
mod ears;
mod errors;
mod frames;
mod free;
mod link;
mod messages;
mod name_reads;
mod pages;
mod paths;
mod places;
pub(crate) mod promises;
mod proof;
mod raw;
mod raw_ask;
mod raw_engine;
mod raw_nodes;
mod raw_semaphore;
mod raw_view;
mod requests;
mod session;
mod store;
#[cfg(feature = "zookeeper-tls")]
mod tls;
mod url;
mod version;
mod watches;
mod wire;

/// Connects to the ensemble at a URL.
pub(crate) async fn open(url: &str) -> Result<Box<dyn Engine>> {
    let place = Place::parse(url)?;
    if let Some(kind) = place.raw {
        return raw_engine::open(place, kind).await;
    }
    let paths = Paths::new(place.prefix.clone());
    let nodes = Nodes::open(Ensemble::new(place, paths.clone()), paths).await?;
    let names = Names::new(nodes);
    let weak = Arc::downgrade(&names);
    names.store.listen_to(move |heard| {
        if let Some(names) = weak.upgrade() {
            names.hear(heard);
        }
    });
    Ok(Box::new(SessionsEngine::start(names)))
}
