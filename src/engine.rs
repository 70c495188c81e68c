//! The contract between the client and the engine that keeps its claims.
//!
//! An engine keeps two kinds of things: claims (see [`crate::claim`]) and cells (small values that
//! are read and replaced atomically, see [`cell`]). Everything else, the local queue, renewal,
//! guards, locks and the kit, is built on this trait once and for all engines.
//!
//! The ten clauses that an engine signs:
//!
//! 1. **Exclusion.** The weights of the live claims on a name never exceed its capacity. Asking
//!    with another capacity while the name is in use is refused.
//! 2. **Order.** Claims are granted first come, first served. A waiter that died is passed over
//!    within seconds.
//! 3. **Tokens.** A grant's tokens are greater than any given before on that name.
//! 4. **Time.** The engine's clock decides when a lease is over, inside the engine.
//! 5. **Idempotence.** Acquire, renew and release can be repeated with the same owner. A release by
//!    a stale owner frees nobody's claim.
//! 6. **Cancel safety.** A call whose future was dropped has either happened before the drop or
//!    never happens, or is undone by the release that the client sends after it.
//! 7. **Waking.** A release hands the name to the next waiter in the same atomic step where that is
//!    possible, and wakes that waiter alone through [`Hints`]. Hints may be lost; the client asks
//!    again in time.
//! 8. **Loss.** A renewal says definitely *gone* or definitely *renewed*; anything else is an
//!    error.
//! 9. **Refusal.** What the engine can not promise it refuses with `Unsupported`; [`Guarantees`]
//!    says what it can.
//! 10. **Names.** Any string works, case-sensitive.

use std::fmt;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Alteration, Answer, Ask, Change, Claim, OwnerId, Released, Waiter};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::name::{Family, Name};

#[cfg(feature = "_sql")]
pub(crate) mod advisory;
pub mod cell;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(all(feature = "file", target_os = "linux"))]
pub mod file;
#[cfg(any(feature = "_sql", feature = "_sessions"))]
pub(crate) mod gates;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redlock;
#[cfg(feature = "_sessions")]
pub(crate) mod sessions;
#[cfg(feature = "_sql")]
pub(crate) mod shedlock;
pub(crate) mod shown;
#[cfg(feature = "_sql")]
pub(crate) mod sql;
#[cfg(feature = "_server")]
pub(crate) mod supervise;
pub(crate) mod table;
#[cfg(feature = "_tls")]
pub(crate) mod tls;
#[cfg(feature = "_server")]
pub(crate) mod url;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use self::cell::{
    Cell, CellValue, Cells, Decision, MOST_CELLS, Rule, Swap, Swapped, Twin, Write, apply_by_swap,
};
pub use crate::connect::{open, schemes};

/// What a call to an engine gives: a future of its result.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Where claims and cells are kept.
///
/// Users hold [`crate::Client`] and its locks; this trait is for those who write an engine.
/// CONTRIBUTING.md has the checklist.
pub trait Engine: fmt::Debug + Send + Sync + 'static {
    /// What this engine, as it is set up, promises.
    fn guarantees(&self) -> Guarantees;

    /// Takes the sink for hints. Called once, before anything else.
    fn listen(&self, hints: Hints);

    /// Asks for a claim, or asks again for one that is queued or has an unknown outcome.
    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer>;

    /// Which of the engine's servers keeps a name; names with the same number share one.
    ///
    /// The client renews the claims of each server in calls of their own, so that a server that
    /// does not answer costs nobody a lease on another one. Calls for different servers, and for
    /// leases of different lengths, run at the same time; the engine must not make one wait for
    /// another.
    fn shard(&self, _name: &Name) -> u64 {
        0
    }

    /// Renews many claims of one shard at once; one verdict for each, in order.
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>>;

    /// How long a claim of this owner lives for sure, whatever its lease: for engines whose claims
    /// end with a session. A holder asks whenever it wants to know whether it holds, so this waits
    /// for nothing.
    fn life(&self, _owner: OwnerId) -> Life {
        Life::AsLeased
    }

    /// Gives a claim back, or leaves the queue. `used` is the highest token used of the claim's
    /// block.
    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, used: u64) -> Reply<'a, Released>;

    /// Changes a claim that is held.
    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer>;

    /// Changes the capacity of a name that is in use. `declared` is the capacity that its users ask
    /// with.
    fn resize<'a>(&'a self, name: &'a Name, declared: u32, capacity: u32) -> Reply<'a, ()>;

    /// What is known of a name; `seen` is the last change of leadership that the caller knows of.
    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View>;

    /// The names in use, in order, that start with `prefix`, after `after`, at most `limit` of
    /// them.
    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>>;

    /// Takes a name away from all who hold it, and says who they were.
    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>>;

    /// Reads cells at one moment. They are different, and at most [`MOST_CELLS`].
    fn read<'a>(&'a self, names: &'a [Name]) -> Reply<'a, Cells>;

    /// Writes to cells if all of them are still at the versions that were read. Otherwise nothing
    /// is written.
    ///
    /// Every cell that is written gets a version that it has not had before, and as its time of
    /// change the engine's clock or the latest time of change of these cells.
    fn swap(&self, swaps: Vec<Swap>) -> Reply<'_, Swapped>;

    /// Applies a rule to cells, in one atomic step: see [`cell`] for what is promised. The answer
    /// is the rule's.
    ///
    /// The default reads and swaps until it wins. An engine that can run the rule where the cells
    /// are does that.
    fn apply<'a>(&'a self, names: &'a [Name], rule: &'a Arc<dyn Rule>) -> Reply<'a, Vec<u8>> {
        Box::pin(apply_by_swap(self, names, rule))
    }

    /// The cells that there are, in order, whose names start with `prefix`, after `after`, at most
    /// `limit` of them. For people: names that the engine does not store whole are left out.
    fn list_cells<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<Name>>;

    /// Starts ([`Watching::On`]) or ends hints of changes to an election or a cell.
    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()>;

    /// Whether there is a connection over which a request for a name could be sent now.
    ///
    /// An engine without connections is always up.
    fn connection(&self, _name: &Name) -> Connection {
        Connection::Up
    }

    /// A descriptor that keeps this client's claims alive in whatever process has it open, if the
    /// engine can do that: see [`crate::Client::lifeline`].
    ///
    /// # Errors
    ///
    /// Whatever the engine says if it can not be made.
    fn lifeline(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Statements that check in a transaction of the caller's that a claim is current, if the
    /// engine is a database: see [`crate::Guard::verify_sql`].
    fn verify_sql(&self, _name: &Name, _token: u64) -> Option<VerifySql> {
        None
    }

    /// A statement that replaces the value of a cell in a transaction of the caller's, if the
    /// engine is a database: see [`ReplaceSql`].
    fn replace_sql(&self, _cell: &Name) -> Option<ReplaceSql> {
        None
    }

    /// A statement that writes a cell which is not there, in a transaction of the caller's, if the
    /// engine is a database: see [`AddSql`].
    fn add_sql(&self, _cell: &Name) -> Option<AddSql> {
        None
    }

    /// Lets go of what the engine holds outside this process: connections, its seat.
    fn close(&self) -> Reply<'_, ()>;

    /// Why the engine can not be reached at the moment, if it knows: said where a call was not
    /// answered in time.
    fn trouble(&self) -> Option<String> {
        None
    }
}

/// Statements that check, in a transaction of the caller's, that a claim is current.
///
/// Both take two parameters: the key of the name as bytes, and the token as a 64-bit number. They
/// lock the row of the name until the transaction ends, so nobody else can take the name before
/// that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifySql {
    /// Gives one row if the claim is current, and none if it is not.
    pub select: String,
    /// Fails if the claim is not current (division by zero), so that the transaction can not be
    /// committed.
    pub or_fail: String,
    /// The first parameter.
    pub key: Vec<u8>,
    /// The second parameter.
    pub token: i64,
}

/// A statement that replaces, in a transaction of the caller's, the value of a cell if that starts
/// with certain bytes. It changes one row or none.
///
/// Its parameters are the new value, how long it lives in microseconds as a 64-bit number, the key
/// of the cell, and [`ReplaceSql::COMPARED`] bytes that the old value must start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplaceSql {
    /// The statement.
    pub update: String,
    /// The third parameter.
    pub key: Vec<u8>,
}

impl ReplaceSql {
    /// How many bytes of the old value are compared.
    pub const COMPARED: usize = 25;
}

/// A statement that writes, in a transaction of the caller's, a cell that is not there. If it is,
/// that is an error of the database.
///
/// Its parameters are the key of the cell, how long it lives in microseconds as a 64-bit number,
/// and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddSql {
    /// The statement.
    pub insert: String,
    /// The first parameter.
    pub key: Vec<u8>,
}

/// Whether there is a connection to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// There is one.
    Up,
    /// There is none. The number counts the connections that there were: while it stays the same,
    /// nothing was sent.
    Down(u64),
}

/// How long a claim lives for sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// As long as its lease.
    AsLeased,
    /// No longer than that, even if its lease is longer.
    Until(Moment),
    /// It was ended.
    Over,
}

/// A claim to renew.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// What is held.
    pub name: Name,
    /// By whom.
    pub owner: OwnerId,
    /// For how long from now.
    pub lease: Duration,
}

/// The verdict on a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease counts from now.
    Yes,
    /// The claim is not there any more.
    Gone,
    /// Its server did not answer in time; others did.
    Unknown,
}

/// What is known of a name.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Its capacity; 0 if it is not in use.
    pub capacity: u32,
    /// Who holds it.
    pub claims: Vec<HeldClaim>,
    /// Who waits, in order. Empty in listings.
    pub waiters: Vec<Waiting>,
    /// How many wait.
    pub waiting: u32,
    /// How long it stays closed after an expiry.
    pub closed_for: Duration,
    /// Changes of leadership that the caller had not seen, oldest first.
    pub changes: Vec<Change>,
    /// The number of the last change of leadership.
    pub change_count: u64,
}

/// A claim, as `show` shows it.
#[derive(Clone, Debug)]
pub struct HeldClaim {
    /// The claim.
    pub claim: Claim,
    /// How long it has been held.
    pub held_for: Duration,
    /// How long until it ends unless renewed.
    pub ends_in: Duration,
}

/// A waiter, as `show` shows it.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The waiter.
    pub waiter: Waiter,
    /// How long it has waited.
    pub waited: Duration,
}

/// Whether changes are to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watching {
    /// Tell of changes from now on.
    On,
    /// Tell no more.
    Off,
}

/// What an engine, as it is set up, promises. Docs, CLI and tests read it from here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarantees {
    /// The engine's word: feature, URL scheme, and label in errors.
    pub engine: &'static str,
    /// Who can share a name.
    pub reach: Reach,
    /// When exclusion holds.
    pub exclusion: &'static str,
    /// Over what tokens keep rising.
    pub tokens: &'static str,
    /// How waiters learn that it is their turn.
    pub wakes: &'static str,
    /// When the claims of a process that died are free.
    pub after_death: AfterDeath,
    /// Claims are granted in the order in which they were asked for.
    pub fair: bool,
    /// Weights other than one and all: semaphores.
    pub counts: bool,
    /// A reader can become the writer.
    pub upgrades: bool,
    /// Elections, whose every change can be observed.
    pub elects: bool,
    /// Cells: latches.
    pub cells: bool,
    /// A name can stay closed for a while after an expiry: lock delays.
    pub delays: bool,
    /// A name can be held by several readers: read-write locks.
    pub shares: bool,
    /// Tokens that a resource can check ([`crate::Fence`]). Where this is false a token tells the
    /// holders of one client apart, and nothing else.
    pub fences: bool,
}

/// Who can share a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// The tasks and threads of one process.
    Process,
    /// The processes of one machine.
    Machine,
    /// Every machine that reaches the servers.
    Network,
}

/// When the claims of a process that died are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterDeath {
    /// At once.
    AtOnce,
    /// When the lease is over.
    AfterLease,
    /// When its session is over, whatever the lease.
    AfterSession,
}

/// Where an engine puts what it hears: hints, which may be lost or come twice.
#[derive(Clone)]
pub struct Hints(Arc<dyn Fn(Hint) + Send + Sync>);

/// Something that an engine heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// It may be this owner's turn.
    Wake(OwnerId),
    /// It is this owner's turn, and this is its grant. It is good for as long as
    /// [`crate::claim::CONFIRM`] after the owner last asked, provided that it has not asked again
    /// since.
    Granted {
        /// Whose turn it is.
        owner: OwnerId,
        /// What it was granted.
        grant: crate::claim::Grant,
        /// Which time of asking was answered.
        round: u32,
    },
    /// Something happened that may concern anybody who waits: all ask again.
    WakeAll,
    /// Something happened that may have cost claims: all holders make sure.
    Verify,
    /// This owner's claim may be gone.
    Broken(OwnerId),
    /// This election or cell has changed.
    Changed(Name),
    /// The connection to a server was lost. For people: a client is told by its calls.
    Disconnected {
        /// Which server, as the URL names it.
        server: String,
        /// Why.
        why: String,
    },
    /// There is a connection to a server again. For people, too: what a client must do then is said
    /// by the other hints.
    Reconnected {
        /// Which server.
        server: String,
    },
}

impl Hints {
    /// A sink that calls `sink` for every hint.
    pub fn new(sink: impl Fn(Hint) + Send + Sync + 'static) -> Hints {
        Hints(Arc::new(sink))
    }

    /// Passes a hint on.
    pub fn give(&self, hint: Hint) {
        (self.0)(hint);
    }
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hints")
    }
}

/// The error for a refusal that means that the call is wrong.
pub(crate) fn refusal(name: &Name, refused: crate::claim::Refused) -> Error {
    use crate::claim::Refused;
    Error::invalid(match refused {
        Refused::Capacity { has, asked } => format!(
            "`{name}` is in use with capacity {has}, not {asked}; all users of a name must give the same"
        ),
        Refused::Weight { capacity, weight } => {
            format!("`{name}` has {capacity} in all; {weight} at once can never be granted")
        }
        Refused::Upgrading => format!(
            "another reader of `{name}` already waits to become the writer; release this guard, then \
             ask to write"
        ),
        Refused::NotHeld => format!("`{name}` is not held by this guard any more"),
    })
}

#[cfg(all(test, feature = "file", target_os = "linux"))]
mod tests {
    use super::*;

    fn reach(guarantees: &Guarantees) -> &'static str {
        match guarantees.reach {
            Reach::Process => "one process",
            Reach::Machine => "one machine",
            Reach::Network => "all who reach it",
        }
    }

    /// The row of docs/engines.md that follows from what an engine promises.
    fn row(url: &str, guarantees: &Guarantees) -> String {
        let death = match guarantees.after_death {
            AfterDeath::AtOnce => "at once",
            AfterDeath::AfterLease => "after the lease",
            AfterDeath::AfterSession => "after the session",
        };
        let Guarantees { engine, exclusion, tokens, wakes, .. } = guarantees;
        let reach = reach(guarantees);
        format!("| [`{url}`]({engine}.md) | {reach} | {exclusion} | {tokens} | {wakes} | {death} |\n")
    }

    #[test]
    fn the_tables_promise_what_the_engines_promise() {
        let (page, readme) = (include_str!("../docs/engines.md"), include_str!("../README.md"));
        let engines = [
            ("memory:", memory::GUARANTEES),
            ("file:DIR", file::GUARANTEES),
            #[cfg(feature = "redis")]
            ("redis://", redis::GUARANTEES),
            #[cfg(feature = "redis")]
            ("redlock://", redlock::GUARANTEES),
            #[cfg(feature = "etcd")]
            ("etcd://", etcd::promises::GUARANTEES),
            #[cfg(feature = "zookeeper")]
            ("zookeeper://", zookeeper::promises::GUARANTEES),
            #[cfg(feature = "postgres")]
            ("postgres://", postgres::promises::GUARANTEES),
            #[cfg(feature = "mysql")]
            ("mysql://", mysql::promises::GUARANTEES),
        ];
        for (url, guarantees) in engines {
            let row = row(url, &guarantees);
            assert!(page.contains(&row), "docs/engines.md has no row `{row}`");
            let row = format!("| [`{url}`](docs/{}.md) | {} | ", guarantees.engine, reach(&guarantees));
            assert!(readme.contains(&row), "README has no row `{row}`");
        }
    }
}
