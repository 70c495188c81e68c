//! Claims kept in an etcd cluster.
//!
//! A name is one key, which is read and replaced by compare-and-swap: see `claims`. What a majority
//! of the members has agreed on survives the loss of any minority, so there is never a second
//! holder, whichever member is killed, paused or cut off. A claim belongs to a session, which is an
//! etcd lease; the cluster's own clock ends it, and no client's clock is trusted.
//!
//! Tokens are revisions of the store. They rise for ever, unless the cluster is restored from a
//! backup without `--bump-revision`.
//!
//! etcd's Lock API is not used: it grants a lock to whoever has waited for it, even if its lease
//! has ended meanwhile.

use std::sync::Arc;

use tokio::task::AbortHandle;

use self::session::Sessions;
use self::state::Etcd;
use self::url::Place;
use self::watches::Watched;
use crate::claim::{Alteration, Answer, Ask, Claim, OwnerId, Released};
use crate::engine::{
    Cells, Connection, Engine, Guarantees, Hints, Renewal, Renewed, Reply, Rule, Swap, Swapped, View,
    Watching,
};
use crate::error::{Error, Result};
use crate::name::{Family, Name};

mod acquire;
mod cells;
mod claims;
mod connection;
mod contest;
mod errors;
mod expiry;
mod found;
mod held;
mod keys;
mod mail;
mod messages;
pub(crate) mod promises;
mod raw;
mod raw_engine;
mod reads;
mod record;
mod requests;
mod seats;
mod seen;
mod session;
mod state;
mod store;
mod sweep;
#[cfg(feature = "etcd-tls")]
mod tls;
mod url;
mod version;
mod watches;
mod writes;

/// Connects to the cluster at a URL.
pub(crate) async fn open(url: &str) -> Result<Box<dyn Engine>> {
    let place = Place::parse(url)?;
    if place.raw {
        return raw_engine::open(place).await;
    }
    let etcd = Etcd::open(place).await?;
    let tasks = [
        tokio::spawn(expiry::run(Arc::downgrade(&etcd))).abort_handle(),
        tokio::spawn(sweep::run(Arc::downgrade(&etcd))).abort_handle(),
    ];
    Ok(Box::new(EtcdEngine { etcd, tasks }))
}

/// The engine that users get.
#[derive(Debug)]
struct EtcdEngine {
    etcd: Arc<Etcd>,
    tasks: [AbortHandle; 2],
}

impl Drop for EtcdEngine {
    fn drop(&mut self) {
        self.end_tasks();
    }
}

impl EtcdEngine {
    fn end_tasks(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.etcd.watches.close();
    }

    /// Runs a request to its end, even if nobody waits for the answer any more.
    ///
    /// A request that is dropped half way may still take effect, after requests that were sent
    /// later. This one keeps the gate of its name until it is known what came of it.
    fn to_the_end<'a, T: Send + 'static>(
        &'a self,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Reply<'a, T> {
        let task = self.etcd.runtime.spawn(request);
        Box::pin(async move { task.await.unwrap_or_else(|_| Err(Error::closed())) })
    }
}

impl Engine for EtcdEngine {
    fn guarantees(&self) -> Guarantees {
        promises::GUARANTEES
    }

    fn listen(&self, hints: Hints) {
        self.etcd.listen(hints);
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        self.to_the_end(Arc::clone(&self.etcd).acquire(name.clone(), ask.clone()))
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        Box::pin(self.etcd.renew(renewals))
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, used: u64) -> Reply<'a, Released> {
        Box::pin(self.etcd.release(name, owner, used))
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        self.to_the_end(Arc::clone(&self.etcd).alter(name.clone(), owner, alteration))
    }

    fn resize<'a>(&'a self, name: &'a Name, declared: u32, capacity: u32) -> Reply<'a, ()> {
        Box::pin(self.etcd.resize(name, declared, capacity))
    }

    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View> {
        Box::pin(self.etcd.look(name, seen))
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        Box::pin(self.etcd.list(family, prefix, after, limit))
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(self.etcd.break_claims(name))
    }

    fn read<'a>(&'a self, names: &'a [Name]) -> Reply<'a, Cells> {
        Box::pin(self.etcd.read_cells(names))
    }

    fn swap(&self, swaps: Vec<Swap>) -> Reply<'_, Swapped> {
        self.to_the_end(Arc::clone(&self.etcd).swap_cells(swaps))
    }

    fn apply<'a>(&'a self, names: &'a [Name], rule: &'a Arc<dyn Rule>) -> Reply<'a, Vec<u8>> {
        self.to_the_end(Arc::clone(&self.etcd).apply_rule(names.to_vec(), Arc::clone(rule)))
    }

    fn list_cells<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<Name>> {
        Box::pin(self.etcd.list_cells(prefix, after, limit))
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        let watched = Watched::Name(name.clone());
        Box::pin(async move {
            match watching {
                Watching::On => self.etcd.watches.watch(watched).await,
                Watching::Off => {
                    self.etcd.watches.unwatch(&watched);
                    Ok(())
                }
            }
        })
    }

    fn connection(&self, _: &Name) -> Connection {
        self.etcd.store.supervisor.connection()
    }

    fn close(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            let sessions: &Sessions = &self.etcd.sessions;
            sessions.close().await?;
            self.end_tasks();
            self.etcd.store.supervisor.close();
            Ok(())
        })
    }

    fn trouble(&self) -> Option<String> {
        Some(self.etcd.store.supervisor.trouble())
    }
}
