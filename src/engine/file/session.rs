//! One client of a store, as its transactions see it.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use heed::{RoTxn, WithoutTls};

use super::dir::Dir;
use super::liveness::Peers;
use super::mailbox::Sender;
use super::rows::{self, Table};
use super::store::Store;
use super::transaction::Transaction;
use crate::claim::Seat;
use crate::engine::Hint;
use crate::engine::table::Notice;
use crate::error::Result;
use crate::name::Name;

/// What a transaction needs to know beside the store. It may run on another thread.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) dir: Arc<Dir>,
    pub(super) store: Arc<Store>,
    pub(super) peers: Peers,
    pub(super) sender: Sender,
    pub(super) seat: Seat,
    /// How many cells were written: see [`Session::sweep_now_and_then`].
    pub(super) cells_written: AtomicUsize,
}

impl Session {
    /// Writes to the store: see [`Store::write`].
    pub(super) async fn write<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        self.store.write(&self.dir, work).await
    }

    /// Reads from the store: see [`Store::read`].
    pub(super) async fn read<T, F>(self: &Arc<Session>, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Session, &RoTxn<'_, WithoutTls>, Table) -> Result<T> + Send + 'static,
    {
        let session = Arc::clone(self);
        self.store.read(&self.dir, move |txn, table| work(&session, txn, table)).await
    }

    /// False only if the client with that seat is known to be dead.
    pub(super) fn alive(&self, seat: Seat) -> bool {
        seat == self.seat || self.peers.alive(&self.dir, seat) || self.moved()
    }

    /// True if the claims of that seat are kept although nobody renews them.
    pub(super) fn kept(&self, seat: Seat) -> bool {
        seat != self.seat && (self.peers.kept(&self.dir, seat) || self.moved())
    }

    /// True if the store was moved since the write began: then nobody's files are found, and
    /// nothing follows from that.
    fn moved(&self) -> bool {
        !self.store.in_place(&self.dir).unwrap_or(false)
    }

    /// Adds notices for those who want to hear of changes to `name`.
    pub(super) fn notify_watchers(
        &self,
        transaction: &mut Transaction<'_>,
        name: &Name,
        notices: &mut Vec<Notice>,
    ) -> Result<()> {
        let prefix = rows::watchers_prefix(name);
        for key in transaction.keys(&prefix)? {
            match rows::number_after(&prefix, &key).filter(|seat| self.alive(*seat)) {
                Some(seat) => notices.push(Notice { seat, hint: Hint::Changed(name.clone()) }),
                None => transaction.delete(&key)?,
            }
        }
        Ok(())
    }
}

/// No forgotten name has given a token above this.
pub(super) fn forgotten_floor(transaction: &Transaction<'_>) -> Result<u64> {
    Ok(transaction.get(rows::FLOOR)?.map_or(0, rows::number))
}

pub(super) fn raise_forgotten_floor(transaction: &mut Transaction<'_>, token: u64) -> Result<()> {
    if token > forgotten_floor(transaction)? {
        transaction.put(rows::FLOOR, &token.to_be_bytes())?;
    }
    Ok(())
}
