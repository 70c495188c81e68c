//! The engine of raw names.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::task::AbortHandle;

use super::connection::Ensemble;
use super::paths::Paths;
use super::promises::{RAW, RAW_ELECTION, RAW_RWLOCK, RAW_SEMAPHORE};
use super::raw::{Raw, unsupported};
use super::requests::Requests;
use super::url::{Place, RawKind};
use crate::claim::{Alteration, Answer, Ask, Claim, OwnerId, Released};
use crate::engine::supervise::Supervisor;
use crate::engine::{
    Cells, Connection, Engine, Guarantees, Hints, Life, Renewal, Renewed, Reply, Swap, Swapped, View,
    Watching,
};
use crate::error::Result;
use crate::name::{Family, Name};

const NO_CELLS: &str = "has no cells in raw mode; leave out `raw`";
const NO_NAMES: &str = "can not list names in raw mode: any node may be one";
const NO_LOG: &str = "has no observers in raw mode: nobody writes down who led, and a watch does not tell \
                      what a leader has said, so an observer would miss some; ask who leads";
const NO_CHANGE: &str = "can not change a claim in raw mode; leave out `raw`";

/// Connects to the ensemble.
pub(super) async fn open(place: Place, kind: RawKind) -> Result<Box<dyn Engine>> {
    let paths = Paths::new(place.prefix.clone());
    let supervisor = Supervisor::open(Ensemble::new(place, paths.clone())).await?;
    let raw = Raw::new(Arc::new(Requests { supervisor, paths }), kind);
    let expires = tokio::spawn(Raw::expire(Arc::downgrade(&raw))).abort_handle();
    Ok(Box::new(RawEngine { raw, kind, expires }))
}

#[derive(Debug)]
struct RawEngine {
    raw: Arc<Raw>,
    kind: RawKind,
    expires: AbortHandle,
}

impl Drop for RawEngine {
    fn drop(&mut self) {
        self.expires.abort();
    }
}

fn refused<'a, T: Send + 'a>(what: &str) -> Reply<'a, T> {
    Box::pin(std::future::ready(Err(unsupported(what))))
}

impl Engine for RawEngine {
    fn guarantees(&self) -> Guarantees {
        match self.kind {
            RawKind::Mutex => RAW,
            RawKind::ReadWrite => RAW_RWLOCK,
            RawKind::Semaphore => RAW_SEMAPHORE,
            RawKind::Latch | RawKind::Kazoo => RAW_ELECTION,
        }
    }

    fn listen(&self, hints: Hints) {
        // Called once; a second sink would never hear anything.
        self.raw.requests.supervisor.connector().ears.hints.set(hints).ok();
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        Box::pin(Arc::clone(&self.raw).acquire(name.clone(), ask.clone()))
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        Box::pin(async move { Ok(join_all(renewals.iter().map(|one| self.raw.renew(one))).await) })
    }

    fn life(&self, owner: OwnerId) -> Life {
        self.raw.life(owner)
    }

    fn release<'a>(&'a self, _: &'a Name, owner: OwnerId, _: u64) -> Reply<'a, Released> {
        Box::pin(Arc::clone(&self.raw).release(owner))
    }

    fn alter<'a>(&'a self, _: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        match alteration {
            Alteration::Value(value) => Box::pin(Arc::clone(&self.raw).proclaim(owner, value)),
            Alteration::Downgrade { token, .. } => Box::pin(Arc::clone(&self.raw).downgrade(owner, token)),
            _ => refused(NO_CHANGE),
        }
    }

    fn resize<'a>(&'a self, _: &'a Name, _: u32, _: u32) -> Reply<'a, ()> {
        refused(NO_CHANGE)
    }

    fn look<'a>(&'a self, name: &'a Name, _: u64) -> Reply<'a, View> {
        Box::pin(self.raw.look(name))
    }

    fn list<'a>(
        &'a self,
        _: Family,
        _: &'a str,
        _: Option<&'a str>,
        _: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        refused(NO_NAMES)
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(self.raw.break_claims(name))
    }

    fn read<'a>(&'a self, _: &'a [Name]) -> Reply<'a, Cells> {
        refused(NO_CELLS)
    }

    fn swap(&self, _: Vec<Swap>) -> Reply<'_, Swapped> {
        refused(NO_CELLS)
    }

    fn list_cells<'a>(&'a self, _: &'a str, _: Option<&'a str>, _: usize) -> Reply<'a, Vec<Name>> {
        refused(NO_CELLS)
    }

    fn watch<'a>(&'a self, name: &'a Name, _: Watching) -> Reply<'a, ()> {
        refused(if name.family() == Family::Election { NO_LOG } else { NO_CELLS })
    }

    fn connection(&self, _: &Name) -> Connection {
        self.raw.requests.connection()
    }

    fn close(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            self.raw.requests.supervisor.connector().ears.close();
            self.raw.close().await;
            self.expires.abort();
            self.raw.requests.supervisor.close();
            Ok(())
        })
    }

    fn trouble(&self) -> Option<String> {
        Some(self.raw.requests.trouble())
    }
}
