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
    shares: true,
    fences: true,
};

/// What it promises in a table of ShedLock.
pub(crate) const SHEDLOCK: Guarantees = Guarantees {
    engine: ENGINE,
    reach: Reach::Network,
    exclusion: "while the lease lasts, unless a promoted replica lacks the last grants",
    tokens: "none",
    wakes: "polling",
    after_death: AfterDeath::AfterLease,
    fair: false,
    counts: false,
    upgrades: false,
    elects: false,
    cells: false,
    delays: false,
    shares: false,
    fences: false,
};

/// What it promises where sessions hold the locks.
pub(crate) const ADVISORY: Guarantees = Guarantees {
    engine: ENGINE,
    reach: Reach::Network,
    exclusion: "while the session lives; its end frees the name before the holder hears of it",
    tokens: "none",
    wakes: "the server's own queue",
    after_death: AfterDeath::AtOnce,
    fair: true,
    counts: false,
    upgrades: false,
    elects: false,
    cells: false,
    delays: false,
    shares: false,
    fences: false,
};
