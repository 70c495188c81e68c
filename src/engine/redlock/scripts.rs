//! The scripts: constant texts, called by their hash.

use std::sync::LazyLock;

use super::super::scripts::Script;

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

/// A script about one name, perhaps with something before it that does what is usual.
macro_rules! of_a_name {
    ($($usual:literal,)? => $file:literal) => {
        Script::new(concat!($(include_str!($usual),)? include_str!("head.lua"), include_str!($file)))
    };
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    vote: of_a_name!("vote_head.lua", => "vote.lua"),
    commit: of_a_name!(=> "commit.lua"),
    renew: Script::new(include_str!("renew.lua")),
    release: of_a_name!("release_head.lua", => "release.lua"),
    downgrade: of_a_name!(=> "downgrade.lua"),
    look: of_a_name!(=> "look.lua"),
    break_claims: of_a_name!(=> "break.lua"),
    inspect: Script::new(include_str!("inspect.lua")),
    admit: Script::new(include_str!("admit.lua")),
});
