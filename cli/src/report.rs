//! What is told of a name in use: the JSON documents, and their words for people.

use std::borrow::Cow;

use leasehold::claim::{Claim, Holder, WHOLE};
use leasehold::engine::{HeldClaim, View, Waiting};
use leasehold::{Client, Family, Name};
use serde::Serialize;

use crate::duration::show;
use crate::exit::Failure;
use crate::print::visible;

/// The families whose names are held.
pub(crate) const FAMILIES: [Family; 3] = [Family::Lock, Family::Semaphore, Family::Election];

/// A name in use.
#[derive(Debug, Serialize)]
pub(crate) struct NameReport<'a> {
    family: &'static str,
    name: &'a str,
    /// Of a semaphore: how many slots there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<u32>,
    holders: Vec<HolderReport<'a>>,
    waiting: u32,
    waiters: Vec<WaiterReport<'a>>,
    /// How long it stays closed because a lease ran out.
    closed_for_ms: u128,
}

/// Who holds.
#[derive(Debug, Serialize)]
pub(crate) struct HolderReport<'a> {
    #[serde(flatten)]
    who: WhoReport<'a>,
    #[serde(flatten)]
    share: Share,
    /// What a leader has said of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Cow<'a, str>>,
    token: u64,
    held_for_ms: u128,
    ends_in_ms: u128,
}

/// Who waits.
#[derive(Debug, Serialize)]
pub(crate) struct WaiterReport<'a> {
    #[serde(flatten)]
    who: WhoReport<'a>,
    #[serde(flatten)]
    share: Share,
    waited_ms: u128,
}

/// A process.
#[derive(Debug, Serialize)]
pub(crate) struct WhoReport<'a> {
    label: &'a str,
    pid: u32,
    host: &'a str,
}

impl<'a> WhoReport<'a> {
    pub(crate) fn new(holder: &'a Holder) -> WhoReport<'a> {
        WhoReport { label: &holder.label, pid: holder.pid, host: &holder.host }
    }
}

/// How much of a name.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Share {
    /// Of a lock: with others, or alone.
    Lock { shared: bool },
    /// Of a semaphore.
    Slots { slots: u32 },
    /// Of an election: all of it.
    Whole {},
}

impl Share {
    pub(crate) fn new(family: Family, weight: u32) -> Share {
        match family {
            Family::Lock => Share::Lock { shared: weight != WHOLE },
            Family::Semaphore => Share::Slots { slots: weight },
            _ => Share::Whole {},
        }
    }

    /// A remark, where there is something to remark.
    pub(crate) fn remark(self) -> String {
        match self {
            Share::Lock { shared: true } => ", shared".into(),
            Share::Slots { slots } if slots != 1 => format!(", {slots} slots"),
            _ => String::new(),
        }
    }
}

impl<'a> NameReport<'a> {
    pub(crate) fn new(name: &'a Name, view: &'a View) -> NameReport<'a> {
        let family = name.family();
        NameReport {
            family: family.word(),
            name: name.as_str(),
            slots: (family == Family::Semaphore).then_some(view.capacity),
            holders: view.claims.iter().map(|held| HolderReport::new(family, held)).collect(),
            waiting: view.waiting,
            waiters: view.waiters.iter().map(|waiting| WaiterReport::new(family, waiting)).collect(),
            closed_for_ms: view.closed_for.as_millis(),
        }
    }
}

impl<'a> HolderReport<'a> {
    fn new(family: Family, held: &'a HeldClaim) -> HolderReport<'a> {
        HolderReport {
            who: WhoReport::new(&held.claim.holder),
            share: Share::new(family, held.claim.weight),
            value: value(&held.claim),
            token: held.claim.token,
            held_for_ms: held.held_for.as_millis(),
            ends_in_ms: held.ends_in.as_millis(),
        }
    }
}

impl<'a> WaiterReport<'a> {
    fn new(family: Family, waiting: &'a Waiting) -> WaiterReport<'a> {
        WaiterReport {
            who: WhoReport::new(&waiting.waiter.holder),
            share: Share::new(family, waiting.waiter.weight),
            waited_ms: waiting.waited.as_millis(),
        }
    }
}

/// A claim that was taken away.
#[derive(Debug, Serialize)]
pub(crate) struct BrokenReport<'a> {
    family: &'static str,
    name: &'a str,
    #[serde(flatten)]
    who: WhoReport<'a>,
    #[serde(flatten)]
    share: Share,
    token: u64,
}

impl<'a> BrokenReport<'a> {
    pub(crate) fn new(family: Family, name: &'a str, claim: &'a Claim) -> BrokenReport<'a> {
        BrokenReport {
            family: family.word(),
            name,
            who: WhoReport::new(&claim.holder),
            share: Share::new(family, claim.weight),
            token: claim.token,
        }
    }
}

/// A holder in a few words: `backup (pid 123 on host) for 3s, token 17`.
pub(crate) fn describe(held: &HeldClaim) -> String {
    format!("{} for {}, token {}", who(&held.claim.holder), show(held.held_for), held.claim.token)
}

/// What a leader has said of itself, if it has said something.
pub(crate) fn value(claim: &Claim) -> Option<Cow<'_, str>> {
    (!claim.value.is_empty()).then(|| String::from_utf8_lossy(&claim.value))
}

/// A process in a few words.
pub(crate) fn who(holder: &Holder) -> String {
    visible(&holder.to_string()).into_owned()
}

/// The names in use that start with `prefix`, with those who wait, in the order of family and name.
pub(crate) async fn in_use(client: &Client, prefix: &str) -> Result<Vec<(Name, View)>, Failure> {
    const PAGE: usize = 10_000;
    let mut found = Vec::new();
    for family in FAMILIES {
        let mut after: Option<Name> = None;
        loop {
            let page = client.list(family, after.as_ref().map(Name::as_str), PAGE).await?;
            let whole = page.len() < PAGE;
            after = page.last().map(|(name, _)| name.clone());
            found.extend(page.into_iter().filter(|(name, _)| name.as_str().starts_with(prefix)));
            if whole {
                break;
            }
        }
    }
    for (name, view) in &mut found {
        // A listing only counts those who wait, and counts the dead too until somebody looks.
        if view.waiting > 0 {
            *view = client.look(name.family(), name.as_str()).await?;
        }
    }
    found.retain(|(_, view)| is_in_use(view));
    Ok(found)
}

/// What is known of a name in the families that were asked for, where it is in use.
pub(crate) async fn look(
    client: &Client,
    family: Option<Family>,
    name: &str,
) -> Result<Vec<(Name, View)>, Failure> {
    let mut found = Vec::new();
    for family in FAMILIES.into_iter().filter(|known| family.is_none_or(|family| family == *known)) {
        let view = client.look(family, name).await?;
        if is_in_use(&view) {
            found.push((Name::new(family, name)?, view));
        }
    }
    Ok(found)
}

fn is_in_use(view: &View) -> bool {
    !view.claims.is_empty() || view.waiting > 0 || !view.closed_for.is_zero()
}
