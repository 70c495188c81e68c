//! The scripts: constant texts, called by their hash.

use std::sync::LazyLock;

use redis::Script;

/// Every script that this engine runs.
pub(super) struct Scripts {
    pub(super) ask: Script,
    pub(super) release: Script,
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
    ask: by_the_rules!("ask_head.lua", "rules.lua", "ask.lua"),
    release: by_the_rules!("release_head.lua", "rules.lua", "release.lua"),
    alter: by_the_rules!("rules.lua", "alter.lua"),
    resize: by_the_rules!("rules.lua", "resize.lua"),
    break_claims: by_the_rules!("rules.lua", "break.lua"),
    look: by_the_rules!("look_head.lua", "rules.lua", "look.lua"),
    renew: Script::new(include_str!("renew.lua")),
    mend: Script::new(include_str!("mend.lua")),
    note: Script::new(include_str!("note.lua")),
    swap: Script::new(include_str!("swap.lua")),
});
