//! What the engine promises, and its label.

use crate::engine::{AfterDeath, Guarantees, Reach};

/// The engine's label.
pub(super) const ENGINE: &str = "postgres";

/// What the engine promises.
pub(crate) const GUARANTEES: Guarantees = Guarantees {
    engine: ENGINE,
    reach: Reach::Network,
    exclusion: "unless a promoted standby lacks the last grants",
    tokens: "over restarts; over promotions as the clock moves on",
    wakes: "by NOTIFY to the next waiter, or polling",
    after_death: AfterDeath::AfterLease,
    fair: true,
    counts: true,
    upgrades: true,
    elects: true,
    cells: true,
    delays: true,
};
