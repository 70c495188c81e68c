//! What one client of a database has: its connections, and what it remembers.

use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;

use super::askings::Askings;
use super::database::Database;
use super::polled::Polled;
use super::recent::Recent;
use super::server_clock::ServerClock;
use super::sweeper::Sweeper;
use crate::claim::{Micros, Seat};
use crate::engine::gates::Gates;
use crate::engine::table::Notice;
use crate::engine::{Hint, Hints};
use crate::error::{Error, Result};
use crate::name::Name;

/// One client of a database.
#[derive(Debug)]
pub(crate) struct Sql<D> {
    pub(super) database: D,
    pub(super) seat: Seat,
    pub(super) gates: Gates,
    pub(super) recent: Recent,
    pub(super) askings: Arc<Askings>,
    pub(super) polled: Polled,
    pub(super) clock: ServerClock,
    pub(super) sweeper: Sweeper,
    pub(super) runtime: Handle,
    pub(super) hints: OnceLock<Hints>,
}

impl<D: Database> Sql<D> {
    /// A client of a database that can be reached. `seat` is a number that nobody else has.
    pub(super) fn new(database: D, seat: Seat, now: Micros) -> Result<Sql<D>> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::invalid("an engine must be opened inside a tokio runtime"))?;
        let clock = ServerClock::default();
        clock.heard(now);
        Ok(Sql {
            database,
            seat,
            gates: Gates::default(),
            recent: Recent::default(),
            askings: Arc::default(),
            polled: Polled::default(),
            clock,
            sweeper: Sweeper::new(seat),
            runtime,
            hints: OnceLock::new(),
        })
    }

    /// The engine's word.
    pub(super) fn word(&self) -> &'static str {
        self.database.guarantees().engine
    }

    pub(super) fn hint(&self, hint: Hint) {
        if let Some(hints) = self.hints.get() {
            hints.give(hint);
        }
    }

    /// Passes on what follows from a request.
    pub(super) fn deliver(&self, mut notices: Vec<Notice>, changed: Vec<Name>) {
        if notices.is_empty() && changed.is_empty() {
            return;
        }
        if let Some(hints) = self.hints.get() {
            let own = notices.extract_if(.., |notice| notice.seat == self.seat);
            own.for_each(|notice| hints.give(notice.hint));
            changed.iter().for_each(|name| hints.give(Hint::Changed(name.clone())));
        }
        if !notices.is_empty() || !changed.is_empty() {
            self.database.notify(notices, changed);
        }
    }
}
