//! The scripts: constant texts, called by their hash.

use std::sync::LazyLock;

use crate::redis::script::Script;

/// A script of several files: what is usual, what all scripts of a name begin with, and what is
/// asked.
macro_rules! script {
    ($($file:literal),+) => {
        LazyLock::new(|| Script::new(concat!($(include_str!($file)),+)))
    };
}

pub(super) static VOTE: LazyLock<Script> = script!("vote_head.lua", "head.lua", "vote.lua");
pub(super) static COMMIT: LazyLock<Script> = script!("head.lua", "commit.lua");
pub(super) static RENEW: LazyLock<Script> = script!("../../redis/read.lua", "renew.lua");
pub(super) static RELEASE: LazyLock<Script> =
    script!("release_head.lua", "../../redis/full_memory.lua", "head.lua", "release.lua");
pub(super) static DOWNGRADE: LazyLock<Script> = script!("head.lua", "downgrade.lua");
pub(super) static LOOK: LazyLock<Script> =
    script!("../../redis/full_memory.lua", "head.lua", "claims.lua", "look.lua");
pub(super) static BREAK: LazyLock<Script> =
    script!("../../redis/full_memory.lua", "head.lua", "claims.lua", "break.lua");
pub(super) static INSPECT: LazyLock<Script> = script!("inspect.lua");
pub(super) static ADMIT: LazyLock<Script> = script!("admit.lua");
