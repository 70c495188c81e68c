//! A cache in which one node loads for all, and an invalidation holds.
//!
//! Many processes read a value that is costly to make. [`Cache::get`] gives it from the memory of
//! the process (no round trip), from the shared level in the engine's cells (one round trip), or
//! has it loaded: by one caller of all processes, while the others wait and are woken, or take the
//! value of before.
//!
//! What it promises:
//!
//! * One load of a name at a time, whatever the number of processes, while the engine answers.
//! * After [`Cache::invalidate`] has returned, no value of before comes from the shared level, in
//!   any process: neither one that was stored, nor one whose load began before. The memory of the
//!   process that has invalidated holds none either. The memory of another process may, for at most
//!   [`Cache::local_for`], which is nothing unless it is asked for.
//! * A caller that goes away takes nothing from those who wait.
//!
//! What it does not promise: that a write to the source and the invalidation happen together. For
//! that the invalidation must be part of the transaction that writes: see [`Outbox`]. And while the
//! engine is away, values may have been invalidated ([`Origin::Away`]).

mod claim;
mod compare;
mod core;
mod entry;
mod fetch;
mod figures;
mod filter;
mod filter_build;
mod filter_rule;
mod flight;
mod gate;
mod got;
mod handle;
mod hash;
mod load;
mod loader;
mod local;
mod news;
mod outbox;
mod outbox_meter;
mod rule;
mod settings;
#[cfg(test)]
mod tests;

pub use self::compare::Comparison;
pub use self::figures::Figures;
pub use self::filter::{Filter, MOST_NAMES, TRUSTED};
pub use self::filter_build::Build;
pub use self::got::{Failure, Got, Origin};
pub use self::handle::Cache;
pub use self::loader::Loaded;
pub use self::outbox::{Outbox, OutboxSql, Relayed};
pub use self::rule::{Answer, Ask, Found, Step};
pub use self::settings::{LONGEST_LIFE, LONGEST_VALUE, WhenAway};
