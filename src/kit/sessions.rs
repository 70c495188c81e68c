//! Sessions of users: found by an id that nobody can guess, kept while they are used, and all
//! sessions of a user ended at one moment.
//!
//! What it promises:
//!
//! * A session that was ended does not come back. Whoever saves or uses it at that moment is told
//!   that it is gone.
//! * [`Sessions::end_all`] ends every session of a user in one atomic step: one that is created at
//!   the same moment is ended with the others or is created after them, and is listed.
//! * Nothing is lost when two requests save one session: the second is told that it has changed.
//! * Ids have 128 random bits, and the store has only their hashes: whoever reads the store can not
//!   use the sessions in it.
//!
//! What it does not promise: that a server which loses data (a fail-over of Redis) remembers the
//! sessions, or that they were ended.

mod id;
mod record;
mod rule;
mod session;
mod store;
#[cfg(test)]
mod tests;
#[cfg(feature = "tower-sessions")]
mod tower_store;

pub use self::id::SessionId;
pub use self::session::{ListedSession, Saved, Session};
pub use self::store::{LONGEST_DATA, MOST_PER_USER, Sessions};
#[cfg(feature = "tower-sessions")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower-sessions")))]
pub use self::tower_store::TowerStore;
