//! Tasks that run at set times, each occurrence on one node.
//!
//! The unit is the occurrence: a task and one of its instants. Every node of a service asks for the
//! same task; for each occurrence one of them is chosen, and runs it under a lease with a fencing
//! token. A lock on the task's name is not enough for that: a short run is over before a node whose
//! clock is behind asks for the lock, and then the occurrence runs twice.
//!
//! What it promises:
//!
//! * **An occurrence starts once**, whatever the clocks of the nodes say. That it is taken is
//!   recorded in a cell of the engine before it starts, and what is due is decided there, by the
//!   engine's clock. The wall clock of a node is never asked.
//! * **Whoever runs it is stopped before anybody else may**: the work is dropped when its lease can
//!   not be renewed in time.
//! * **Nothing is dropped in silence.** An occurrence runs, or is recorded as missed. One whose
//!   node died half way is recorded as lost, or runs again with a greater token, as the task says
//!   ([`IfLost`]).
//!
//! What it does not promise: that the effect of an occurrence happens exactly once. A node that
//! dies half way may have had the effect or not; see [`crate::kit`] for parts that record effects.

mod node;
mod occurrence;
mod plan;
mod record;
mod rule;
mod status;
mod task;
mod timing;

pub use self::occurrence::{Occurrence, Run};
pub use self::plan::Misfire;
pub use self::rule::IfLost;
pub use self::status::{Outcome, Past, Running, Status};
pub use self::task::{LONGEST_HISTORY, Overlap, Schedule, Task};
