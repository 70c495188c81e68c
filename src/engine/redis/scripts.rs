//! The scripts of this engine, and the calls that several files make.

use std::sync::{Arc, LazyLock};

use crate::claim::OwnerId;
use crate::clock::{Clock as _, Moment, SystemClock};
use crate::name::{Family, Name};
use crate::redis::keys::NameKeys;
use crate::redis::link::Connected;
use crate::redis::script::{Invocation, Script};
use crate::redis::{holder, micros};

/// Several files as one script.
macro_rules! script {
    ($($file:literal),+) => {
        LazyLock::new(|| Script::new(concat!($(include_str!($file)),+)))
    };
}

/// What is short comes first, then the rules, then what was asked.
macro_rules! by_the_rules {
    ([$($before:literal),*], [$($short:literal),*], $($file:literal),+) => {
        script!(
            $($before,)* "prelude.lua", "holder.lua", $($short,)*
            "state.lua", "claims.lua", "rules.lua", "settle.lua", $($file),+
        )
    };
}

static TAKE: LazyLock<Script> = script!("../../redis/clock.lua", "take.lua");
static GIVE_BACK: LazyLock<Script> = script!("give_back.lua");
pub(super) static ASK: LazyLock<Script> = by_the_rules!([], ["join.lua"], "ask.lua");
static RELEASE: LazyLock<Script> =
    by_the_rules!(["release_head.lua"], ["hand_over.lua", "../../redis/full_memory.lua"], "release.lua");
pub(super) static ALTER: LazyLock<Script> = by_the_rules!([], [], "alter.lua");
pub(super) static RESIZE: LazyLock<Script> = by_the_rules!([], [], "resize.lua");
pub(super) static BREAK: LazyLock<Script> = by_the_rules!(["../../redis/full_memory.lua"], [], "break.lua");
pub(super) static LOOK: LazyLock<Script> =
    by_the_rules!([], ["look_head.lua", "../../redis/full_memory.lua"], "look.lua");
pub(super) static RENEW: LazyLock<Script> =
    script!("../../redis/clock.lua", "../../redis/read.lua", "holder.lua", "renew.lua");
pub(super) static SWAP: LazyLock<Script> = script!("../../redis/clock.lua", "cells.lua", "swap.lua");

/// A lock to be taken if it is free.
pub(super) struct Take {
    pub(super) keys: Arc<NameKeys>,
    pub(super) owner: OwnerId,
    /// In microseconds.
    pub(super) lease: u64,
    /// Seat, process, host and label.
    pub(super) who: String,
    /// When the asker stops waiting for the answer.
    pub(super) until: Moment,
}

/// Takes locks over a connection: the script answers a token for each, or 0 if the rules must
/// decide. It answers nothing if it runs when the first of the askers has stopped waiting.
pub(super) fn take<'a>(
    takes: impl IntoIterator<Item = &'a Take, IntoIter: Clone>,
    connected: &Connected,
) -> Invocation {
    let takes = takes.into_iter();
    let (now, server_now) = (SystemClock.now(), connected.server_now());
    let first = takes.clone().map(|take| take.until).min().unwrap_or(now);
    let not_after = server_now.saturating_add(micros(first.since(now)));
    let keys = takes.clone().flat_map(|Take { keys, .. }| [&*keys.holder, &keys.token, &keys.state]);
    let script = TAKE.on(&keys.collect::<Vec<&str>>()).arg(not_after).arg(connected.since);
    takes.fold(script, |script, Take { owner, lease, who, .. }| {
        let after_token = holder::after_token(*lease, server_now, who);
        script.arg(holder::alone(*owner)).arg(after_token).arg(lease.div_ceil(1000))
    })
}

/// A lock to be given back if all that is known of it stands at its holder's key.
pub(super) struct GiveBack {
    pub(super) keys: Arc<NameKeys>,
    pub(super) owner: OwnerId,
}

/// Gives locks back: the script answers 1 for each that it has, and 0 if the rules must decide.
pub(super) fn give_back<'a>(locks: impl Iterator<Item = &'a GiveBack> + Clone) -> Invocation {
    let holders: Vec<&str> = locks.clone().map(|lock| lock.keys.holder.as_str()).collect();
    locks.fold(GIVE_BACK.on(&holders), |script, lock| script.arg(holder::alone(lock.owner)))
}

/// Gives back a claim or a place in the queue.
pub(super) fn release(name: &Name, keys: &NameKeys, owner: OwnerId, used: u64) -> Invocation {
    let alone = if name.family() == Family::Lock { holder::alone(owner) } else { String::new() };
    RELEASE.on(&keys.all()).arg(name.family().word()).arg(holder::owner_text(owner)).arg(used).arg(alone)
}
