//! The scripts: constant texts, called by their hash.

use std::sync::LazyLock;

use crate::redis::script::Script;

/// Every script that this engine runs.
pub(super) struct Scripts {
    pub(super) vote: Script,
    pub(super) commit: Script,
    pub(super) renew: Script,
    pub(super) release: Script,
    pub(super) downgrade: Script,
    pub(super) look: Script,
    pub(super) break_claims: Script,
    pub(super) inspect: Script,
    pub(super) admit: Script,
}

/// A script of several files: what is usual, what all scripts of a name begin with, and what is
/// asked.
macro_rules! script {
    ($($file:literal),+) => {
        Script::new(concat!($(include_str!($file)),+))
    };
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    vote: script!("vote_head.lua", "head.lua", "vote.lua"),
    commit: script!("head.lua", "commit.lua"),
    renew: script!("../../redis/read.lua", "renew.lua"),
    release: script!("release_head.lua", "../../redis/full_memory.lua", "head.lua", "release.lua"),
    downgrade: script!("head.lua", "downgrade.lua"),
    look: script!("../../redis/full_memory.lua", "head.lua", "claims.lua", "look.lua"),
    break_claims: script!("../../redis/full_memory.lua", "head.lua", "claims.lua", "break.lua"),
    inspect: script!("inspect.lua"),
    admit: script!("admit.lua"),
});
