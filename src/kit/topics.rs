//! Topics: what is published is kept for a while, in order, and everybody who subscribes reads it.
//!
//! What it promises:
//!
//! * Messages of a topic have one order, and every subscriber sees them in it.
//! * A subscriber that was away, or whose process died, goes on from its [`Cursor`] and gets what
//!   was published meanwhile, as long as that is kept ([`Topic::keep_for`], [`Topic::keep`]).
//! * What it can not get any more is told as [`Delivery::Gap`], with how much that is where it is
//!   known. Nothing is left out without a word.
//!
//! What it does not promise: that a message is handled once. Whoever handles a message and dies
//! before it has noted the cursor gets the message again. And a publisher that got no answer does
//! not know whether its message is there.

mod log;
mod rule;
mod subscribe;
#[cfg(test)]
mod tests;
mod topic;

pub use self::log::Cursor;
pub use self::subscribe::{Delivery, From, Message, Subscriber};
pub use self::topic::{LONGEST_MESSAGE, Topic};
