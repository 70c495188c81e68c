//! What a database must be able to do that has a table of ShedLock.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use super::row::LockRow;
use crate::claim::Micros;
use crate::engine::sql::Attempt;
use crate::engine::{Connection, Guarantees, Hints};

/// A table of ShedLock, and how it is reached.
///
/// Every call is one statement that commits by itself, or as good as one. All calls with the same
/// name go over the same connection, in order. `owner` is how the text in `locked_by` starts.
pub(crate) trait LockTable: fmt::Debug + Send + Sync + 'static {
    fn guarantees(&self) -> Guarantees;

    /// How many characters of a name have room.
    fn longest_name(&self) -> usize;

    /// Takes a name that is free, or that this owner has, and says when that was.
    fn take(&self, take: &Take<'_>) -> impl Future<Output = Attempt<Option<Micros>>> + Send;

    /// Extends the lease of an owner from now; false if it is over.
    fn extend(&self, name: &str, owner: &str, lease: Duration) -> impl Future<Output = Attempt<bool>> + Send;

    /// Gives a name back, which stays closed until it was held for `at_least`; false if the owner
    /// does not hold it.
    fn give_back(
        &self,
        name: &str,
        owner: &str,
        at_least: Duration,
    ) -> impl Future<Output = Attempt<bool>> + Send;

    /// What is known of a name.
    fn read(&self, name: &str) -> impl Future<Output = Attempt<Seen>> + Send;

    /// The names that are held, in order of their bytes, and the time.
    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Attempt<(Micros, Vec<LockRow>)>> + Send;

    /// Ends the lease of whoever is known by this text; false if that is over.
    fn end(&self, name: &str, locked_by: &str) -> impl Future<Output = Attempt<bool>> + Send;

    fn listen(&self, hints: Hints);

    /// Whether there is a connection for a name now.
    fn connection(&self, name: &str) -> Connection;

    /// Why a call may have had no answer.
    fn trouble(&self) -> String;

    fn close(&self);
}

/// Takes a name.
#[derive(Debug)]
pub(crate) struct Take<'a> {
    pub(crate) name: &'a str,
    pub(crate) owner: &'a str,
    /// Starts with the owner.
    pub(crate) locked_by: &'a str,
    pub(crate) lease: Duration,
    /// In the server's time.
    pub(crate) not_after: Micros,
}

/// What is known of a name, and when.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) now: Micros,
    pub(crate) row: Option<LockRow>,
}
