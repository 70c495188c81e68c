//! What a store must be able to do, so that names can be kept in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::failure::Attempt;
use super::mail::Letter;
pub(crate) use super::version::{Value, Version};
use crate::claim::{OwnerId, Seat};
use crate::clock::Moment;
use crate::engine::{Connection, Guarantees, Hint, Hints, Life, Watching};
use crate::error::Result;
use crate::name::{Family, Name};

/// What was read of a name, all at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Read {
    /// A number of a change of the store, not below that of the record. Tokens count from it.
    pub(crate) number: u64,
    /// What the rules are given for the time.
    pub(crate) now: u64,
    pub(crate) record: Value,
    /// The first waiters, in order, by their place.
    pub(crate) rows: Vec<(u64, Vec<u8>)>,
    /// The row at the place that was asked for.
    pub(crate) own: Option<(u64, Vec<u8>)>,
}

/// What is to be written of a name.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// The version that was read.
    pub(crate) version: Version,
    pub(crate) record: RecordChange,
    /// What becomes of waiters, by their place: `None` if they are deleted.
    pub(crate) rows: Vec<(u64, RowWrite)>,
    /// The sessions that must live.
    pub(crate) seats: Vec<Seat>,
    /// What other clients are told.
    pub(crate) letters: BTreeMap<Seat, Vec<Letter>>,
}

/// What becomes of the record of a name.
#[derive(Debug, Default)]
pub(crate) enum RecordChange {
    /// It stays as it is.
    #[default]
    Unchanged,
    Put {
        bytes: Vec<u8>,
        /// The session of the only claim, if it says nothing else.
        #[cfg_attr(not(feature = "etcd"), allow(dead_code, reason = "nodes do not change their owner"))]
        sole: Option<Seat>,
    },
    /// Nobody uses the name any more.
    Delete,
}

/// What becomes of a waiter.
#[derive(Debug)]
pub(crate) enum RowWrite {
    Insert(Vec<u8>),
    Replace(Vec<u8>),
    Delete,
}

impl Change {
    /// True if nothing is to be written.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.record, RecordChange::Unchanged) && self.rows.is_empty()
    }
}

/// What came of a write.
#[derive(Debug)]
pub(crate) enum Written {
    /// It was written, by this version.
    Yes(Version),
    /// Somebody else was faster, or a session has ended: this is how it is now.
    No {
        read: Box<Read>,
        /// Which of the sessions live, in order.
        alive: Vec<bool>,
    },
}

/// Names in order.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) now: u64,
    pub(crate) names: Vec<(Name, Value)>,
    /// The last name that was looked at, if there are others after it.
    pub(crate) more_after: Option<String>,
}

/// A session of this client: as long as it lives, so do its claims.
pub(crate) trait Session: fmt::Debug + Send + Sync {
    fn seat(&self) -> Seat;
    /// True once it is known to be gone.
    fn has_ended(&self) -> bool;
    /// How long it lives for sure, if that may be less than the leases of its claims.
    fn life(&self) -> Life {
        Life::AsLeased
    }
}

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// Places in queues, and grants that were not confirmed yet.
    Waiting,
    /// Claims with leases of that length.
    Claims(Duration),
}

/// How many tokens each change of the store has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) tokens: u64,
    /// As many as a grant can have: less, so that whatever was given by one change is below what is
    /// given by the next.
    pub(crate) most: u32,
}

impl Room {
    /// The first token of a change.
    pub(crate) fn first_of(self, number: u64) -> u64 {
        number.saturating_mul(self.tokens)
    }
}

/// Where names are kept.
///
/// Reads see whatever was written before they were asked for, by whomever.
pub(crate) trait Store: fmt::Debug + Send + Sync + 'static {
    const ROOM: Room;

    /// What the rules are given for the time of a write. It never falls for a name.
    fn time_of(version: Version) -> u64;

    fn engine(&self) -> &'static str;
    fn guarantees(&self) -> Guarantees;
    fn listen(&self, hints: Hints);
    fn hint(&self, hint: Hint);

    /// The key of a name: equal for equal names.
    fn key(&self, name: &Name) -> Vec<u8>;

    /// Reads a name, `most` of its waiters (all if it is 0), and the one at the place `own`.
    fn read(&self, name: &Name, most: usize, own: Option<u64>) -> impl Future<Output = Attempt<Read>> + Send;

    /// Reads a name of which something was heard, at least as it was then.
    fn read_heard(&self, name: &Name, most: usize) -> impl Future<Output = Attempt<Read>> + Send {
        self.read(name, most, None)
    }

    /// Writes if the name is at the version of the change and all sessions live; reads if not.
    fn write(
        &self,
        name: &Name,
        change: &Change,
        most: usize,
        own: Option<u64>,
    ) -> impl Future<Output = Attempt<Written>> + Send;

    /// The version to write a name over that is believed to be free.
    fn free_version(&self, _name: &Name) -> Version {
        Version::default()
    }

    /// Deletes all waiters of a name, if it is at that version.
    fn clear_waiters(&self, name: &Name, version: Version) -> impl Future<Output = Attempt<()>> + Send;

    /// Which of these sessions live.
    fn look_for(&self, seats: &[Seat]) -> impl Future<Output = Attempt<Vec<bool>>> + Send;

    /// Reads the records of names and finds out which sessions live. A majority of the servers
    /// vouches for it.
    fn verify(
        &self,
        names: &[&Name],
        seats: &[Seat],
    ) -> impl Future<Output = Attempt<(Vec<Value>, Vec<bool>)>> + Send;

    /// Reads names or cells at one moment.
    fn read_values(&self, names: &[Name]) -> impl Future<Output = Attempt<Vec<Value>>> + Send;

    /// Writes those values that are given, if all are at these versions; how they are now if not.
    fn write_values(
        &self,
        values: &[(&Name, Version, Option<ValueWrite>)],
    ) -> impl Future<Output = Attempt<Option<Vec<Value>>>> + Send;

    /// Names in order that start with `prefix`, after `after`; at most `limit` of them. A page may
    /// have fewer although there are more.
    fn page(
        &self,
        family: Family,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Attempt<Page>> + Send;

    /// Names to clear away, in any order; `after` is what the page before it said.
    fn sweep_page(
        &self,
        family: Family,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Attempt<Page>> + Send {
        self.page(family, "", after, limit)
    }

    /// How long a session lives if nobody hears of it any more, if that is known.
    fn lives_for(&self, seat: Seat) -> impl Future<Output = Attempt<Option<Duration>>> + Send;

    /// A session of ours that is good for its purpose from now on, and is kept so until `until`.
    fn session(
        &self,
        purpose: Purpose,
        until: Moment,
    ) -> impl Future<Output = Attempt<Arc<dyn Session>>> + Send;

    /// One of our sessions that has not ended, as far as we know.
    fn own(&self, seat: Seat) -> Option<Arc<dyn Session>>;

    /// Takes note that a session is gone; true if it was one of ours.
    fn session_ended(&self, seat: Seat) -> bool;

    /// True if all claims that were asked for in this session are gone.
    fn ends_with(&self, _session: &dyn Session) -> bool {
        false
    }

    /// True while ends of sessions are heard of.
    fn hears_of_ends(&self) -> bool;

    /// An owner of this client has joined a queue, and wants to hear when its turn comes.
    fn joined(&self, _name: &Name, _owner: OwnerId, _place: u64) {}

    /// Starts or ends hints of changes.
    fn watch(&self, name: &Name, watching: Watching) -> impl Future<Output = Result<()>> + Send;

    /// The elections and cells that are watched.
    fn watched(&self) -> Vec<Name>;

    fn connection(&self) -> Connection;
    fn trouble(&self) -> String;

    /// Ends all sessions of this client, and its connections.
    fn close(&self) -> impl Future<Output = Result<()>> + Send;

    /// The client is gone: nothing is to be heard any more.
    fn end(&self);
}

/// What becomes of a value.
#[derive(Debug)]
pub(crate) enum ValueWrite {
    Put(Vec<u8>),
    Delete,
}
