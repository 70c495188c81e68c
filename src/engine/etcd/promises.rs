//! What the engine promises, and its label.

use crate::engine::{AfterDeath, Guarantees, Reach};

/// The engine's label.
pub(super) const ENGINE: &str = "etcd";

/// What the engine promises.
pub(crate) const GUARANTEES: Guarantees = Guarantees {
    engine: ENGINE,
    reach: Reach::Network,
    exclusion: "over the loss of any minority of the members",
    tokens: "for ever; a restored backup needs `--bump-revision`",
    wakes: "by a watch that the next waiter has open",
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

/// What it promises where names are shared with other programs.
pub(super) const RAW: Guarantees = Guarantees {
    exclusion: "as far as those who share the name keep to the recipe",
    wakes: "by a watch on all who contend for the name",
    counts: false,
    upgrades: false,
    cells: false,
    delays: false,
    shares: false,
    ..GUARANTEES
};
