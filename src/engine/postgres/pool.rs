//! The connections of a client for its requests.
//!
//! All requests on a name go over the same connection, so that a release can not overtake the
//! request that it undoes. The first name decides which connection is the first one, so a program
//! with one name has one connection. The others are made when they are needed.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::connection::{RequestConnector, Server, Session};
use crate::engine::Connection;
use crate::engine::sql::Slot;
use crate::engine::supervise::{Connected, Supervisor};
use crate::error::{Error, Result};

type Supervised = Supervisor<RequestConnector>;

/// Connections, each kept alive by itself.
pub(super) struct Pool {
    server: Arc<Server>,
    first: Supervised,
    others: Vec<Slot<RequestConnector>>,
    /// The hash of the first key.
    first_key: OnceLock<u64>,
    closed: AtomicBool,
    pid: u32,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Pool {
    /// Makes the first connection.
    pub(super) async fn open(server: Arc<Server>, connections: usize) -> Result<Pool> {
        let first = Supervisor::open(RequestConnector { server: Arc::clone(&server), first: true }).await?;
        let others = (1..connections.max(1)).map(|_| Slot::new()).collect();
        Ok(Pool {
            server,
            first,
            others,
            first_key: OnceLock::new(),
            closed: AtomicBool::new(false),
            pid: std::process::id(),
        })
    }

    fn others(&self) -> impl Iterator<Item = &Supervised> {
        self.others.iter().filter_map(Slot::get)
    }

    /// The number of a key's connection. The first one is also for no key.
    fn slot(&self, key: &[u8]) -> usize {
        if key.is_empty() {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        let first = *self.first_key.get_or_init(|| hash);
        (hash.wrapping_sub(first) % (self.others.len() as u64 + 1)) as usize
    }

    async fn supervisor(&self, slot: usize) -> Result<&Supervised> {
        let Some(other) = slot.checked_sub(1).and_then(|slot| self.others.get(slot)) else {
            return Ok(&self.first);
        };
        if self.pid != std::process::id() {
            // The first one refuses a fork; the child must not make others either.
            return Ok(&self.first);
        }
        if self.is_closed() {
            return Err(Error::closed());
        }
        let connector = || RequestConnector { server: Arc::clone(&self.server), first: false };
        Ok(other.supervisor(&self.first, connector).await?.unwrap_or(&self.first))
    }

    /// The connection for a key. Waits until there is one.
    pub(super) async fn connected(&self, key: &[u8]) -> Result<(&Supervised, Arc<Connected<Session>>)> {
        let supervisor = self.supervisor(self.slot(key)).await?;
        Ok((supervisor, supervisor.connected().await?))
    }

    /// A connection that there is now.
    pub(super) fn connected_now(&self) -> Option<Arc<Connected<Session>>> {
        std::iter::once(&self.first).chain(self.others()).find_map(Supervisor::connected_now)
    }

    pub(super) fn connection(&self, key: &[u8]) -> Connection {
        match self.slot(key).checked_sub(1).and_then(|slot| self.others.get(slot)) {
            None => self.first.connection(),
            Some(other) => other.connection(&self.first),
        }
    }

    pub(super) fn trouble(&self) -> String {
        let mut all = std::iter::once(&self.first).chain(self.others());
        let down = all.find(|supervisor| supervisor.connection() != Connection::Up);
        down.unwrap_or(&self.first).trouble()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.first.close();
        self.others().for_each(Supervisor::close);
    }
}
