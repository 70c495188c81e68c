//! The scripts: constant texts, called by their hash.

use std::sync::LazyLock;

use crate::redis::script::Script;

/// Several files as one script.
macro_rules! script {
    ($($file:literal),+) => {
        LazyLock::new(|| Script::new(concat!($(include_str!($file)),+)))
    };
}

/// What is usual comes first, then what is known of the name, then what was asked.
macro_rules! of_a_name {
    ([$($before:literal),*], $($file:literal),+) => {
        script!($($before,)* "../../redis/clock.lua", "head.lua", "one.lua", $($file),+)
    };
}

pub(super) static VOTE: LazyLock<Script> = of_a_name!(["vote_head.lua"], "vote.lua");
pub(super) static COMMIT: LazyLock<Script> = of_a_name!([], "commit.lua");
pub(super) static RENEW: LazyLock<Script> =
    script!("../../redis/read.lua", "../../redis/clock.lua", "head.lua", "renew.lua");
pub(super) static RELEASE: LazyLock<Script> =
    of_a_name!(["release_head.lua", "../../redis/full_memory.lua"], "release.lua");
pub(super) static DOWNGRADE: LazyLock<Script> = of_a_name!([], "downgrade.lua");
pub(super) static LOOK: LazyLock<Script> =
    of_a_name!(["../../redis/full_memory.lua"], "claims.lua", "look.lua");
pub(super) static BREAK: LazyLock<Script> =
    of_a_name!(["../../redis/full_memory.lua"], "claims.lua", "break.lua");
pub(super) static INSPECT: LazyLock<Script> = script!("../../redis/clock.lua", "inspect.lua");
pub(super) static ADMIT: LazyLock<Script> = script!("../../redis/clock.lua", "admit.lua");
