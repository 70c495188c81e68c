//! What the engine promises, and its label.

use crate::engine::{AfterDeath, Guarantees, Reach};

/// The engine's label.
pub(super) const ENGINE: &str = "mysql";

/// What the engine promises.
pub(crate) const GUARANTEES: Guarantees = Guarantees {
    engine: ENGINE,
    reach: Reach::Network,
    exclusion: "unless a promoted replica lacks the last grants",
    tokens: "over restarts; over promotions as the clock moves on",
    wakes: "polling; at once inside a process",
    after_death: AfterDeath::AfterLease,
    fair: true,
    counts: true,
    upgrades: true,
    elects: true,
    cells: true,
    delays: true,
};
