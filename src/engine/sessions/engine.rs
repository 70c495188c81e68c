//! The engine that users get.

use std::sync::Arc;

use tokio::task::AbortHandle;

use super::names::Names;
use super::store::Store;
use super::{expiry, sweep};
use crate::claim::{Alteration, Answer, Ask, Claim, OwnerId, Released};
use crate::engine::{
    Cells, Connection, Engine, Guarantees, Hints, Life, Renewal, Renewed, Reply, Rule, Swap, Swapped, View,
    Watching,
};
use crate::error::{Error, Result};
use crate::name::{Family, Name};

/// An engine whose names are kept in a store.
#[derive(Debug)]
pub(crate) struct SessionsEngine<S: Store> {
    names: Arc<Names<S>>,
    tasks: [AbortHandle; 2],
}

impl<S: Store> Drop for SessionsEngine<S> {
    fn drop(&mut self) {
        self.end_tasks();
    }
}

impl<S: Store> SessionsEngine<S> {
    /// Starts what runs in the background.
    pub(crate) fn start(names: Arc<Names<S>>) -> SessionsEngine<S> {
        let tasks = [
            tokio::spawn(expiry::run(Arc::downgrade(&names))).abort_handle(),
            tokio::spawn(sweep::run(Arc::downgrade(&names))).abort_handle(),
        ];
        SessionsEngine { names, tasks }
    }

    fn end_tasks(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.names.store.end();
    }

    /// Runs a request to its end, even if nobody waits for the answer any more.
    ///
    /// A request that is dropped half way may still take effect, after requests that were sent
    /// later. This one keeps the gate of its name until it is known what came of it.
    fn to_the_end<'a, T: Send + 'static>(
        &'a self,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Reply<'a, T> {
        let task = self.names.runtime.spawn(request);
        Box::pin(async move { task.await.unwrap_or_else(|_| Err(Error::closed())) })
    }
}

impl<S: Store> Engine for SessionsEngine<S> {
    fn guarantees(&self) -> Guarantees {
        self.names.store.guarantees()
    }

    fn listen(&self, hints: Hints) {
        self.names.store.listen(hints);
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        self.to_the_end(Arc::clone(&self.names).acquire(name.clone(), ask.clone()))
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        Box::pin(self.names.renew(renewals))
    }

    fn life(&self, owner: OwnerId) -> Life {
        self.names.asked.session(owner).map_or(Life::AsLeased, |session| session.life())
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, used: u64) -> Reply<'a, Released> {
        Box::pin(self.names.release(name, owner, used))
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        self.to_the_end(Arc::clone(&self.names).alter(name.clone(), owner, alteration))
    }

    fn resize<'a>(&'a self, name: &'a Name, declared: u32, capacity: u32) -> Reply<'a, ()> {
        Box::pin(self.names.resize(name, declared, capacity))
    }

    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View> {
        Box::pin(self.names.look(name, seen))
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        Box::pin(self.names.list(family, prefix, after, limit))
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(self.names.break_claims(name))
    }

    fn read<'a>(&'a self, names: &'a [Name]) -> Reply<'a, Cells> {
        Box::pin(self.names.read_cells(names))
    }

    fn swap(&self, swaps: Vec<Swap>) -> Reply<'_, Swapped> {
        self.to_the_end(Arc::clone(&self.names).swap_cells(swaps))
    }

    fn apply<'a>(&'a self, names: &'a [Name], rule: &'a Arc<dyn Rule>) -> Reply<'a, Vec<u8>> {
        self.to_the_end(Arc::clone(&self.names).apply_rule(names.to_vec(), Arc::clone(rule)))
    }

    fn list_cells<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<Name>> {
        Box::pin(self.names.list_cells(prefix, after, limit))
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        Box::pin(self.names.store.watch(name, watching))
    }

    fn connection(&self, _: &Name) -> Connection {
        self.names.store.connection()
    }

    fn close(&self) -> Reply<'_, ()> {
        Box::pin(async move {
            self.names.store.close().await?;
            self.end_tasks();
            Ok(())
        })
    }

    fn trouble(&self) -> Option<String> {
        Some(self.names.store.trouble())
    }
}
