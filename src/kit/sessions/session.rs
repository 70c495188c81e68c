//! A session as its user sees it.

use std::time::Duration;

use super::id::{Handle, SessionId};
use super::record::{Entry, Record};
use crate::claim::Micros;

/// A session, as it was when it was created, loaded or saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub(super) id: SessionId,
    pub(super) record: Record,
    pub(super) now: Micros,
}

impl Session {
    /// What a cookie carries.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Whose it is, if it is anybody's.
    pub fn user(&self) -> Option<&str> {
        self.record.user.as_deref()
    }

    /// What was saved last.
    pub fn data(&self) -> &[u8] {
        &self.record.data
    }

    /// How long ago it was created.
    pub fn age(&self) -> Duration {
        since(self.record.born, self.now)
    }

    /// When it ends unless it is used.
    pub fn ends_in(&self) -> Duration {
        since(self.now, self.record.until)
    }
}

/// What became of data that was to be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// It is saved. This is the session to go on with.
    Yes(Session),
    /// Somebody else has saved something meanwhile, and this is it: nothing was written.
    Changed(Session),
    /// The session was ended, or is over: nothing was written.
    Ended,
}

/// A session in the list of a user's. It has no id: the store does not know it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedSession {
    /// What tells it from the user's other sessions, for [`Sessions::end_listed`]. It is of no use
    /// to anybody who wants to use the session.
    ///
    /// [`Sessions::end_listed`]: super::Sessions::end_listed
    pub handle: String,
    /// How long ago it was created.
    pub age: Duration,
    /// How long ago it was used, give or take a tenth of its lifetime.
    pub idle: Duration,
    /// When it ends unless it is used.
    pub ends_in: Duration,
}

impl ListedSession {
    pub(super) fn new(entry: &Entry, now: Micros) -> ListedSession {
        ListedSession {
            handle: format!("{:032x}", entry.handle.0),
            age: since(entry.born, now),
            idle: since(entry.seen, now),
            ends_in: since(now, entry.until),
        }
    }
}

/// The handle that a [`ListedSession`] shows.
pub(super) fn parse_handle(text: &str) -> Option<Handle> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| digits).map(Handle)
}

fn since(before: Micros, now: Micros) -> Duration {
    Duration::from_micros(now.saturating_sub(before))
}
