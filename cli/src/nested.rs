//! Runs inside runs: a run must not wait for a name that is held for it.
//!
//! A run tells its command, in the environment, what it and the runs around it hold, with the
//! tokens. If one of those tokens is still that of a holder where a run inside looks, the holder is
//! around it: tokens do not repeat, so this needs no comparison of URLs, and a name that was given
//! back since, or that is held on another engine, is not mistaken.

use leasehold::{Client, Family};
use serde::{Deserialize, Serialize};

use crate::args::Take;
use crate::exit::Failure;
use crate::print::visible;

/// Where the command finds it: a JSON array.
pub(crate) const VARIABLE: &str = "LEASEHOLD_HELD";

/// A name that a run holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HeldName {
    family: String,
    name: String,
    token: u64,
    /// Together with others that say --shared.
    shared: bool,
}

/// What the runs around this one hold.
pub(crate) fn around_us() -> Vec<HeldName> {
    // What is not ours to read says nothing about us.
    std::env::var(VARIABLE).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// The same for a command that runs under more names.
pub(crate) fn with(mut held: Vec<HeldName>, args: &Take, tokens: Vec<(String, u64)>) -> String {
    held.extend(tokens.into_iter().map(|(name, token)| HeldName {
        family: args.family().word().into(),
        name,
        token,
        shared: args.shared,
    }));
    serde_json::to_string(&held).unwrap_or_default()
}

/// What the runs around this one mean for its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing.
    Free,
    /// It can share the name with them if it gets it at once. One that wants it alone and is before
    /// us waits for them, and they for us.
    AtOnceOrNever,
}

/// Refuses a wait that could never end.
pub(crate) async fn check(client: &Client, args: &Take, held: &[HeldName]) -> Result<Wait, Failure> {
    // One that gives up in time may well be told that the name is taken; or it outlives the run
    // around it, and gets it.
    if held.is_empty() || args.limit().is_some() {
        return Ok(Wait::Free);
    }
    let mut wait = Wait::Free;
    for name in args.names() {
        if check_name(client, args, name, held).await? == Wait::AtOnceOrNever {
            wait = Wait::AtOnceOrNever;
        }
    }
    Ok(wait)
}

async fn check_name(client: &Client, args: &Take, name: &str, held: &[HeldName]) -> Result<Wait, Failure> {
    let family = args.family();
    let mut around: Vec<&HeldName> =
        held.iter().filter(|held| held.family == family.word() && held.name == name).collect();
    if around.is_empty() {
        return Ok(Wait::Free);
    }
    let view = client.look(family, name).await?;
    around.retain(|around| view.claims.iter().any(|held| held.claim.token == around.token));
    let name = visible(name);
    if around.is_empty() {
        Ok(Wait::Free)
    } else if family == Family::Semaphore {
        // Another holder of a slot may end at any time, unless all slots are held for us. A run
        // takes one.
        if around.len() < view.capacity.try_into().unwrap_or(usize::MAX) {
            return Ok(Wait::Free);
        }
        Err(refusal(&format!("all slots of `{name}` are held by runs around this one")))
    } else if args.shared && around.iter().all(|held| held.shared) {
        Ok(Wait::AtOnceOrNever)
    } else {
        Err(refusal(&format!("`{name}` is held by a run around this one")))
    }
}

/// Says that it could share the name with the runs around it, and could not get it at once.
pub(crate) fn not_at_once(args: &Take) -> Failure {
    let name = visible(&args.name);
    refusal(&format!("`{name}` is held by a run around this one, and somebody who wants it alone is next"))
}

fn refusal(why: &str) -> Failure {
    Failure::usage(format!(
        "{why}: this one would wait for itself for ever; use another name, or limit the wait with --wait or --no-wait"
    ))
}
