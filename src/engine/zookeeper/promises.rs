//! What the engine promises, and its label.

use crate::engine::{AfterDeath, Guarantees, Reach};

/// The engine's label.
pub(super) const ENGINE: &str = "zookeeper";

/// What the engine promises.
pub(crate) const GUARANTEES: Guarantees = Guarantees {
    engine: ENGINE,
    reach: Reach::Network,
    exclusion: "over the loss of any minority of the servers",
    tokens: "for ever, as long as the servers keep their data",
    wakes: "by a watch on its own place in the queue",
    after_death: AfterDeath::AfterSession,
    fair: true,
    counts: true,
    upgrades: true,
    elects: true,
    cells: true,
    // A session ends all its claims at one moment.
    delays: false,
    shares: true,
    fences: true,
};

/// What it promises where names are shared with other programs.
pub(super) const RAW: Guarantees = Guarantees {
    exclusion: "as far as those who share the name keep to the recipe",
    wakes: "by a watch on the one before it",
    counts: false,
    upgrades: false,
    elects: false,
    cells: false,
    shares: false,
    ..GUARANTEES
};

/// The same where they are read-write locks.
pub(super) const RAW_RWLOCK: Guarantees = Guarantees { shares: true, ..RAW };

/// The same where they are semaphores.
pub(super) const RAW_SEMAPHORE: Guarantees =
    Guarantees { counts: true, wakes: "by a watch on the one before it, and on the permits", ..RAW };

/// The same where they are elections.
pub(super) const RAW_ELECTION: Guarantees = Guarantees { elects: true, ..RAW };
