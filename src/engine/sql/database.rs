//! What a database must be able to do for an engine on top of it.

use std::fmt;
use std::future::Future;

use crate::claim::{Micros, OwnerId};
use crate::engine::table::Notice;
use crate::engine::table::cell::StoredCell;
use crate::engine::{Connection, Guarantees, Hints};
use crate::error::Error;
use crate::name::Name;

use super::row::{Columns, Found, NameRow, WaiterRow};

/// A database: its statements, and how it is reached.
///
/// Every call is one statement that commits by itself, or as good as one. Nothing is left open in
/// the database between two calls. All calls with the same key go over the same connection, in
/// order. A call that is dropped may still be carried out.
pub(crate) trait Database: fmt::Debug + Send + Sync + 'static {
    /// What an engine on it promises.
    fn guarantees(&self) -> Guarantees;

    /// Writes the row of a name that nobody uses: there is none, or it is idle by the clock of the
    /// database, which must not be beyond `not_after`. Gives the time at which it was written, to
    /// which all columns are relative. It is on disk by then.
    fn take(&self, take: &Take<'_>) -> impl Future<Output = Attempt<Option<Micros>>> + Send;

    /// Makes the row of a name idle if it still has that version; false if not.
    fn give_back(&self, give_back: &GiveBack<'_>) -> impl Future<Output = Attempt<bool>> + Send;

    /// Reads what there is of a name, all at one moment: its row, the first `most` waiters, and the
    /// waiter `own`.
    fn read_name(
        &self,
        key: &[u8],
        own: Option<OwnerId>,
        most: usize,
    ) -> impl Future<Output = Attempt<Found>> + Send;

    /// Replaces the row of a name and changes its queue, all or nothing: false if the row is not at
    /// the version that was read, or the time is over.
    fn write_name(&self, write: &NameWrite) -> impl Future<Output = Attempt<bool>> + Send;

    /// Notes that a waiter lives, if it still waits. Its row may be lost with the server.
    fn touch_waiter(
        &self,
        key: &[u8],
        place: u64,
        alive_until: Micros,
    ) -> impl Future<Output = Attempt<()>> + Send;

    /// Deletes all waiters of a name if its row still has that version, or if there is still none.
    fn delete_waiters(&self, key: &[u8], version: Option<i64>) -> impl Future<Output = Attempt<()>> + Send;

    /// Reads the rows of names, those that are there, and the time.
    fn read_names(&self, keys: &[Vec<u8>]) -> impl Future<Output = Attempt<(Micros, KeyedRows)>> + Send;

    /// Replaces the rows of many names where they are still at the version that was read. Rows that
    /// somebody else has locked are left alone. Gives the keys of those that were replaced.
    fn write_names(&self, writes: &[RowWrite]) -> impl Future<Output = Attempt<Vec<Vec<u8>>>> + Send;

    /// Reads rows of names in the order of their keys, from `from` up to, and without, `to`: those
    /// that are in use or may be.
    fn list_names(
        &self,
        from: &[u8],
        to: &[u8],
        most: usize,
    ) -> impl Future<Output = Attempt<(Micros, KeyedRows)>> + Send;

    /// Looks at up to `most` rows of names from the key `from` on, deletes those that have been
    /// idle for a while and whose tokens are in the past, and gives back the last key that it
    /// looked at (`None` at the end) and the keys of rows that only a rule can judge.
    fn sweep_names(&self, from: &[u8], most: usize) -> impl Future<Output = Attempt<Swept>> + Send;

    /// Looks at up to `most` cells from the key `from` on, deletes those that expired a while ago,
    /// and gives back the last key that it looked at (`None` at the end).
    fn sweep_cells(&self, from: &[u8], most: usize) -> impl Future<Output = Attempt<Option<Vec<u8>>>> + Send;

    /// Reads cells at one moment, in the order of their keys, and the time. Also those that have
    /// expired.
    fn read_cells(
        &self,
        keys: &[Vec<u8>],
    ) -> impl Future<Output = Attempt<(Micros, Vec<Option<StoredCell>>)>> + Send;

    /// The keys of cells that have not expired, in order, from `from` up to, and without, `to`.
    fn list_cells(
        &self,
        from: &[u8],
        to: &[u8],
        most: usize,
    ) -> impl Future<Output = Attempt<Vec<Vec<u8>>>> + Send;

    /// Writes cells if all of them are at the versions that were read, all or none.
    fn write_cells(&self, writes: &[CellWrite]) -> impl Future<Output = Attempt<bool>> + Send;

    /// Delivers hints to other clients, as far as that is possible. They are sent, not awaited.
    fn notify(&self, notices: Vec<Notice>, changed: Vec<Name>);

    /// Starts to hear what other clients say, if that is possible and has not begun yet.
    fn start_listening(&self);

    /// True if a waiter will be called: it is heard what others say.
    fn hears(&self) -> bool;

    /// Starts to hear of changes to a name; false if nobody tells of them.
    fn watch(&self, name: &Name) -> impl Future<Output = bool> + Send;

    /// Ends that.
    fn unwatch(&self, name: &Name);

    /// Takes the sink for what is heard.
    fn listen(&self, hints: Hints);

    /// The statements of [`crate::Guard::verify_sql`]: one that gives a row or none, and one that
    /// fails.
    fn verify_statements(&self) -> (String, String);

    /// The statement of [`crate::engine::ReplaceSql`].
    fn replace_statement(&self) -> String;

    /// The statement of [`crate::engine::AddSql`].
    fn add_statement(&self) -> String;

    /// Whether there is a connection for a key now.
    fn connection(&self, key: &[u8]) -> Connection;

    /// Why a call may have had no answer.
    fn trouble(&self) -> Option<String>;

    /// Ends all connections.
    fn close(&self);

    /// True after that.
    fn is_closed(&self) -> bool;
}

/// What came of a statement.
pub(crate) type Attempt<T> = std::result::Result<T, Failure>;

/// Rows of names, with their keys.
pub(crate) type KeyedRows = Vec<(Vec<u8>, NameRow)>;

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Somebody else was in the way, and nothing has happened: a lock, a deadlock, a transaction
    /// that could not be put in order with others. Done again it may work.
    Conflict(Error),
    /// The row of a name can not be read or written, or one of several. The others are not
    /// concerned.
    Row(Error),
    /// Anything else.
    Failed(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Failed(error)
    }
}

impl Failure {
    /// The error for a caller for whom trying again has taken too long.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Failure::Conflict(error) | Failure::Row(error) | Failure::Failed(error) => error,
        }
    }
}

/// Takes a name that nobody uses.
#[derive(Debug)]
pub(crate) struct Take<'a> {
    pub(crate) key: &'a [u8],
    /// The version to write: a number that nobody else writes.
    pub(crate) version: i64,
    /// Relative to when it is written.
    pub(crate) columns: &'a Columns,
    /// In the time of the database.
    pub(crate) not_after: Micros,
}

/// Gives back what [`Take`] took.
#[derive(Debug)]
pub(crate) struct GiveBack<'a> {
    pub(crate) key: &'a [u8],
    /// The version that it must have.
    pub(crate) expected: i64,
    pub(crate) version: i64,
    /// The highest token that was given for the name.
    pub(crate) last: u64,
}

/// Replaces the row of a name, and changes its queue.
#[derive(Debug)]
pub(crate) struct NameWrite {
    pub(crate) row: RowWrite,
    /// In the time of the database, if there is a limit.
    pub(crate) not_after: Option<Micros>,
    pub(crate) insert: Vec<InsertWaiter>,
    /// Places, and until when their waiters are believed to live.
    pub(crate) touch: Vec<(u64, Micros)>,
    pub(crate) delete: Vec<u64>,
    #[cfg_attr(
        not(feature = "postgres"),
        allow(dead_code, reason = "not every server can be asked for less")
    )]
    pub(crate) durability: Durability,
}

/// A waiter to insert.
#[derive(Debug)]
pub(crate) struct InsertWaiter {
    pub(crate) owner: OwnerId,
    pub(crate) row: WaiterRow,
}

/// Whether a write must be on disk before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It must: somebody will rely on it.
    Flushed,
    /// If the server crashes it may be as if it had not been. Everything that builds on it is
    /// written later, and is on disk only together with it.
    Soon,
}

/// A row to write where the one that was read still stands.
#[derive(Clone, Debug)]
pub(crate) struct RowWrite {
    pub(crate) key: Vec<u8>,
    /// The version that was read; `None` if there was no row.
    pub(crate) expected: Option<i64>,
    pub(crate) version: i64,
    pub(crate) columns: Columns,
}

/// What a sweep came to.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    pub(crate) last: Option<Vec<u8>>,
    pub(crate) unclear: Vec<Vec<u8>>,
}

/// A cell to write.
#[derive(Clone, Debug)]
pub(crate) struct CellWrite {
    pub(crate) key: Vec<u8>,
    /// The version of the row that was read; `None` if there was no row.
    pub(crate) expected: Option<u64>,
    /// `None` if it must stay as it is. A cell that is deleted is written as one that has expired,
    /// so that no version is given twice; it is swept later.
    pub(crate) cell: Option<StoredCell>,
}
