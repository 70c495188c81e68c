//! The connections of one client.
//!
//! All packets with the same key go over the same connection, so that a release can not overtake
//! the request that it undoes. The first key uses the first connection; others are made when they
//! are needed. A server that gives no more of them has to do with those that there are.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use mysql_async::Error as Driver;

use super::connection::{Connector, send};
use super::errors::{NO_TABLE, code};
use super::packet::{Answer, Packet};
use super::schema;
use super::url::Place;
use crate::claim::Micros;
use crate::engine::sql::{Attempt, Failure, Slot};
use crate::engine::supervise::Supervisor;
use crate::engine::{Connection, Hints};
use crate::error::{Error, Result};

/// Which connection a packet goes over.
#[derive(Clone, Copy, Debug)]
pub(super) enum Over<'a> {
    /// That of a key.
    Key(&'a [u8]),
    /// One for what concerns many names. It waits for no row that somebody has locked.
    Batch,
}

type Supervised = Supervisor<Connector>;

pub(super) struct Pool {
    place: Arc<Place>,
    hints: Arc<OnceLock<Hints>>,
    first: Supervised,
    /// The last one is for batches.
    others: Vec<Slot<Connector>>,
    /// The hash of the first key.
    first_key: OnceLock<u64>,
    closed: AtomicBool,
    pid: u32,
}

impl Pool {
    /// Connects, and makes the tables if there are none. Also gives the time at the server.
    pub(super) async fn open(place: Arc<Place>, hints: Arc<OnceLock<Hints>>) -> Result<(Pool, Micros)> {
        let connector =
            Connector { place: Arc::clone(&place), hints: Arc::clone(&hints), for_batches: false };
        let first = Supervisor::open(connector).await?;
        let now = schema::tables(&first, &place.blame).await?;
        let others = (0..place.connections).map(|_| Slot::new()).collect();
        let (first_key, closed, pid) = (OnceLock::new(), AtomicBool::new(false), std::process::id());
        Ok((Pool { place, hints, first, others, first_key, closed, pid }, now))
    }

    /// The slot of a connection; `None` for the first one.
    fn slot(&self, over: Over<'_>) -> Option<&Slot<Connector>> {
        match over {
            Over::Batch => self.others.last(),
            Over::Key(key) => {
                let mut hasher = DefaultHasher::new();
                key.hash(&mut hasher);
                let hash = hasher.finish();
                let distance = hash.wrapping_sub(*self.first_key.get_or_init(|| hash));
                let number = distance % self.place.connections as u64;
                self.others.get((number as usize).checked_sub(1)?)
            }
        }
    }

    async fn supervisor(&self, over: Over<'_>) -> Result<&Supervised> {
        // The first one refuses a fork; the child must not make others either.
        let Some(slot) = self.slot(over).filter(|_| self.pid == std::process::id()) else {
            return Ok(&self.first);
        };
        if self.is_closed() {
            return Err(Error::closed());
        }
        let connector = || Connector {
            place: Arc::clone(&self.place),
            hints: Arc::clone(&self.hints),
            for_batches: matches!(over, Over::Batch),
        };
        Ok(slot.supervisor(&self.first, connector).await?.unwrap_or(&self.first))
    }

    /// Makes the connection for batches, so that the first renewal does not wait for it.
    pub(super) async fn open_batch(&self) {
        // Who needs it is told why it can not be made.
        self.supervisor(Over::Batch).await.ok();
    }

    /// Sends a packet; what the server said against it is given as the driver's error.
    pub(super) async fn try_send(
        &self,
        over: Over<'_>,
        packet: Packet,
    ) -> Attempt<Result<Vec<Answer>, Driver>> {
        let supervisor = self.supervisor(over).await?;
        match send(supervisor, packet).await? {
            Err(error) if code(&error) == Some(NO_TABLE) && self.place.blame.shedlock.is_none() => {
                // Dropped by somebody. All claims are gone with them; who holds one finds out when
                // it renews.
                schema::tables(supervisor, &self.place.blame).await?;
                Err(Failure::Conflict(self.place.blame.error(error)))
            }
            answer => Ok(answer),
        }
    }

    /// Sends a packet.
    pub(super) async fn send(&self, over: Over<'_>, packet: Packet) -> Attempt<Vec<Answer>> {
        self.try_send(over, packet).await?.map_err(|error| self.place.blame.failed(error))
    }

    fn all(&self) -> impl Iterator<Item = &Supervised> {
        std::iter::once(&self.first).chain(self.others.iter().filter_map(Slot::get))
    }

    /// Whether there is a connection for a key.
    pub(super) fn connection(&self, key: &[u8]) -> Connection {
        match self.slot(Over::Key(key)) {
            None => self.first.connection(),
            Some(slot) => slot.connection(&self.first),
        }
    }

    /// Why a call may have had no answer.
    pub(super) fn trouble(&self) -> String {
        let down = self.all().find(|one| one.connection() != Connection::Up);
        down.unwrap_or(&self.first).trouble()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.all().for_each(Supervisor::close);
    }
}
