//! Leaderboards: members with scores, in one order, and the exact place of each.
//!
//! What it promises:
//!
//! * Places are exact at every moment. A change of a score is one atomic step over the member, the
//!   place that it leaves, the place that it enters, and the counts above them.
//! * One order on every engine: the better score first; of equal scores the one that was reached
//!   first, by the engine's clock; then the bytes of the member.
//! * Scores are whole numbers of 64 bits, and none is rounded. One that would not fit is refused.
//! * [`Leaderboard::increment_once`] recognises a repeated event.
//! * [`Leaderboard::rebuild`] replaces the board in one step. Readers see the old board or the new
//!   one, and no change of a score is lost between the two.
//!
//! What it does not promise: that a server which loses data (a fail-over of Redis) still has the
//! last scores. The source of truth is elsewhere; build the board again from it.
//!
//! A board is a tree over cells (a counted B+ tree): sorted *leaves* with up to 128 members, and
//! *nodes* that say how many members are below each child. So a rank costs a few cells, whatever
//! the engine and however many members there are.

mod board;
mod builder;
mod change;
mod epoch;
mod hints;
mod key;
mod ranked;
mod read;
mod rebuild;
mod reshape;
mod rule;
mod seen;
#[cfg(test)]
mod tests;
mod tree;
mod write;

pub use self::board::Leaderboard;
pub use self::ranked::{Incremented, LONGEST_EVENT, LONGEST_MEMBER, MOST_EVENTS, Rank, Ranked, RebuildEntry};
