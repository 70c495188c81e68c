//! The scripts of this engine.

use std::sync::LazyLock;

use crate::redis::script::Script;

/// Every script that this engine runs.
pub(super) struct Scripts {
    pub(super) take: Script,
    pub(super) give_back: Script,
    pub(super) give_back_one: Script,
    pub(super) ask: Script,
    pub(super) release: Script,
    /// The same, for a lock that has had a queue: that there is one more is likely.
    pub(super) release_to_next: Script,
    pub(super) alter: Script,
    pub(super) resize: Script,
    pub(super) break_claims: Script,
    pub(super) look: Script,
    pub(super) renew: Script,
    pub(super) mend: Script,
    pub(super) note: Script,
    pub(super) swap: Script,
}

/// A script that changes a name: what is usual, then the rules, then what was asked.
macro_rules! by_the_rules {
    ($($file:literal),+) => {
        Script::new(concat!($(include_str!($file)),+))
    };
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    take: Script::new(include_str!("take.lua")),
    give_back: Script::new(include_str!("give_back.lua")),
    give_back_one: Script::new(include_str!("give_back_one.lua")),
    ask: by_the_rules!(
        "words.lua",
        "ask_head.lua",
        "join.lua",
        "tell.lua",
        "asker.lua",
        "rules.lua",
        "ask.lua"
    ),
    release: by_the_rules!(
        "release_head.lua",
        "words.lua",
        "tell.lua",
        "hand_over.lua",
        "full_memory.lua",
        "family.lua",
        "rules.lua",
        "release.lua"
    ),
    release_to_next: by_the_rules!(
        "words.lua",
        "tell.lua",
        "hand_over.lua",
        "full_memory.lua",
        "family.lua",
        "rules.lua",
        "release.lua"
    ),
    alter: by_the_rules!("words.lua", "tell.lua", "family.lua", "rules.lua", "alter.lua"),
    resize: by_the_rules!("words.lua", "tell.lua", "family.lua", "rules.lua", "resize.lua"),
    break_claims: by_the_rules!(
        "full_memory.lua",
        "words.lua",
        "tell.lua",
        "family.lua",
        "rules.lua",
        "row.lua",
        "break.lua"
    ),
    look: by_the_rules!(
        "look_head.lua",
        "full_memory.lua",
        "words.lua",
        "tell.lua",
        "family.lua",
        "rules.lua",
        "row.lua",
        "look.lua"
    ),
    renew: Script::new(concat!(include_str!("read.lua"), include_str!("renew.lua"))),
    mend: Script::new(include_str!("mend.lua")),
    note: Script::new(include_str!("note.lua")),
    swap: Script::new(concat!(include_str!("cells.lua"), include_str!("swap.lua"))),
});
