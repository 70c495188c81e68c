//! What a server must be able to do whose sessions hold locks.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::claim::{Holder, Micros};
use crate::engine::Guarantees;
use crate::error::Result;
use crate::name::Name;

/// A server whose sessions hold locks, and how it is reached.
pub(crate) trait Locks: fmt::Debug + Send + Sync + 'static {
    /// What the server calls a lock.
    type Key: Clone + fmt::Debug + Send + Sync + 'static;
    type Session: Session<Key = Self::Key>;

    fn guarantees(&self) -> Guarantees;

    /// The server, for errors. Never with a secret.
    fn server(&self) -> &str;

    /// What the server calls the lock of a name.
    fn key(&self, name: &Name) -> Self::Key;

    /// A session that holds nothing.
    fn connect(&self) -> impl Future<Output = Result<Self::Session>> + Send;
}

/// One session. It holds one lock at most, and the server frees that when the session ends.
///
/// After an error, and after a call that was dropped, it is in an unknown state: it must be
/// dropped, which ends it.
pub(crate) trait Session: Send + Sized + 'static {
    type Key;

    /// Sessions that do not notice their end are asked this often whether they still hold.
    const LOOK_EVERY: Option<Duration>;

    /// Takes the lock; `None` if somebody else has it and it must not be waited for. Otherwise the
    /// server's time when it was taken.
    fn take(
        &mut self,
        key: &Self::Key,
        mode: Mode,
        wait: bool,
    ) -> impl Future<Output = Result<Option<Micros>>> + Send;

    /// Gives the lock back; false if it was not held.
    fn give_back(&mut self, key: &Self::Key, mode: Mode) -> impl Future<Output = Result<bool>> + Send;

    /// Whether this is still the session that took the lock.
    fn holds(&mut self, key: &Self::Key) -> impl Future<Output = Result<bool>> + Send;

    /// Turns the whole of the lock into a share of it.
    fn share(&mut self, key: &Self::Key) -> impl Future<Output = Result<bool>> + Send;

    /// Who holds the lock and who waits for it, in order.
    fn look(&mut self, key: &Self::Key) -> impl Future<Output = Result<Vec<Seen>>> + Send;

    /// Ends another session, which was seen to hold the lock.
    fn end_session(&mut self, key: &Self::Key, number: u64) -> impl Future<Output = Result<()>> + Send;

    /// Waits until the session has ended, if that is noticed.
    fn ended(&mut self) -> impl Future<Output = ()> + Send;
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// By one session.
    Whole,
    /// By several sessions.
    Shared,
}

/// A session that holds a lock or waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The server's number of the session.
    pub(crate) number: u64,
    pub(crate) mode: Mode,
    pub(crate) waits: bool,
    /// What the server knows of its client.
    pub(crate) holder: Holder,
}
