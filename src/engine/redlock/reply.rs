//! What the servers answer about a name, and what it comes to together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::errors::REDLOCK;
use super::rules::{Commit, Vote, Whose, majority};
use crate::claim::{Claim, Holder, OwnerId, WHOLE, Waiter};
use crate::engine::{HeldClaim, View, Waiting};
use crate::error::{Error, Result};
use crate::redis::holder::{claim_at_holder, owner as owner_of};
use crate::redis::micros;

/// What a server said to a request for its vote, or why it is none.
pub(super) enum Said {
    /// With the counter that the server has.
    Vote(Vote, u64),
    /// It came too late by the server's clock, which says this.
    Late(u64),
    /// The server may not vote.
    Quarantine,
}

fn strange(what: &str) -> Error {
    REDLOCK.strange(what)
}

fn number(text: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| strange("no number"))
}

pub(super) fn vote(answer: &[Vec<u8>]) -> Result<Said> {
    let word = |at: usize| answer.get(at).map(Vec::as_slice).unwrap_or_default();
    Ok(match word(0) {
        b"granted" => {
            let counter = number(word(1))?;
            Said::Vote(Vote::Granted { counter }, counter)
        }
        b"accepted" => {
            let counter = number(word(1))?;
            Said::Vote(Vote::Accepted { counter }, counter)
        }
        b"taken" => Said::Vote(Vote::Taken { by: whose(word(1))?, left: number(word(2))? }, number(word(3))?),
        b"late" => Said::Late(number(word(1))?),
        b"quarantine" => Said::Quarantine,
        // Undone before it came.
        b"gone" => Said::Vote(Vote::Silent, 0),
        _ => return Err(strange("an unknown vote")),
    })
}

fn whose(by: &[u8]) -> Result<Whose> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    Ok(match by {
        b"shared" => Whose::Readers,
        b"waiting" => Whose::Waiting,
        [b'=', stranger @ ..] => {
            let mut hasher = DefaultHasher::new();
            stranger.hash(&mut hasher);
            Whose::Stranger(hasher.finish())
        }
        owner => Whose::Owner(owner_of(owner).ok_or_else(|| strange("no owner"))?.0),
    })
}

/// `None` if the server may not vote.
pub(super) fn commit(answer: &[Vec<u8>]) -> Result<Option<Commit>> {
    let word = |at: usize| answer.get(at).map(Vec::as_slice).unwrap_or_default();
    Ok(match word(0) {
        b"accepted" => Some(Commit::Accepted),
        b"above" => Some(Commit::Above { counter: number(word(1))? }),
        b"not mine" => Some(Commit::NotMine),
        b"quarantine" => None,
        _ => return Err(strange("an unknown answer to a token")),
    })
}

/// The text of a claim, and what is left of it in milliseconds.
type ClaimRow = (Vec<u8>, i64);
/// What `look.lua` answers: the time, claims, and the owner and the text of each waiter.
pub(super) type Look = (u64, Vec<ClaimRow>, Vec<(Vec<u8>, Vec<u8>)>);
/// What `break.lua` answers.
pub(super) type Broken = (u64, Vec<ClaimRow>);

/// A claim as it stands at one server, under what tells it from others.
fn part(now: u64, (text, left): &ClaimRow) -> (String, HeldClaim) {
    // A stranger's lock may be for ever.
    let left = u64::try_from(*left).unwrap_or(u64::from(u32::MAX));
    // What is kept outlives what is believed: see `life` in head.lua.
    let ends_in = Duration::from_millis(left.saturating_sub(2)).div_f64(1.01);
    let mut claim = claim_at_holder("redlock/1", text, now + micros(ends_in), now);
    // Here stands which asking or renewal it answers.
    claim.lock_delay = 0;
    let key = if claim.owner == OwnerId(0) {
        String::from_utf8_lossy(text).into_owned()
    } else {
        format!("{:?}", claim.owner)
    };
    let held_for = Duration::from_micros(now.saturating_sub(claim.since));
    (key, HeldClaim { claim, held_for, ends_in })
}

/// The claims that a majority of `servers` knows of.
fn held<'a>(servers: usize, answers: impl Iterator<Item = (u64, &'a [ClaimRow])>) -> Vec<HeldClaim> {
    let mut parts: BTreeMap<String, Vec<HeldClaim>> = BTreeMap::new();
    for (key, part) in answers.flat_map(|(now, rows)| rows.iter().map(move |row| part(now, row))) {
        parts.entry(key).or_default().push(part);
    }
    let needed = majority(servers);
    let whole = |mut parts: Vec<HeldClaim>| {
        // Until a majority does not hold it any more.
        parts.sort_by_key(|part| std::cmp::Reverse(part.ends_in));
        let ends_in = parts.get(needed - 1)?.ends_in;
        let held_for = parts.iter().map(|part| part.held_for).max().unwrap_or_default();
        let best = parts.into_iter().max_by_key(|part| part.claim.token)?;
        Some(HeldClaim { claim: best.claim, held_for, ends_in })
    };
    let mut claims: Vec<HeldClaim> = parts.into_values().filter_map(whole).collect();
    claims.sort_by_key(|held| held.claim.owner);
    claims
}

/// What the servers know together.
pub(super) fn view(servers: usize, looks: &[Look]) -> View {
    let mut claims = held(servers, looks.iter().map(|(now, rows, _)| (*now, rows.as_slice())));
    // A reader's mark says nothing of how much it takes; two at once are readers.
    if claims.len() > 1 {
        claims.iter_mut().for_each(|held| held.claim.weight = 1);
    }
    let mut waiters: BTreeMap<OwnerId, Waiting> = BTreeMap::new();
    for (now, _, rows) in looks {
        for (owner, text) in rows {
            let Some(waiting) = owner_of(owner).and_then(|owner| waiting(owner, text, *now)) else {
                continue;
            };
            let known = waiters.entry(waiting.waiter.owner).or_insert_with(|| waiting.clone());
            if known.waited < waiting.waited {
                *known = waiting;
            }
        }
    }
    let mut waiters: Vec<Waiting> = waiters.into_values().collect();
    // The holder of a majority may stand in a queue that did not hear of its grant.
    waiters.retain(|waiting| claims.iter().all(|held| held.claim.owner != waiting.waiter.owner));
    waiters.sort_by_key(|waiting| std::cmp::Reverse(waiting.waited));
    let in_use = !claims.is_empty() || !waiters.is_empty();
    View {
        capacity: if in_use { WHOLE } else { 0 },
        claims,
        waiting: u32::try_from(waiters.len()).unwrap_or(u32::MAX),
        waiters,
        ..View::default()
    }
}

fn waiting(owner: OwnerId, text: &[u8], now: u64) -> Option<Waiting> {
    let text = String::from_utf8_lossy(text);
    let mut words = text.splitn(8, ' ');
    let weight = if words.next()? == "shared" { 1 } else { WHOLE };
    let mut number = || words.next()?.parse::<u64>().ok();
    let (since, lease, tokens, seat, pid) = (number()?, number()?, number()?, number()?, number()?);
    let (host, label) = (words.next()?, words.next()?);
    let waiter = Waiter {
        owner,
        seat,
        weight,
        tokens: u32::try_from(tokens).ok()?,
        lease,
        lock_delay: 0,
        since,
        alive_until: now,
        holder: Arc::new(Holder {
            host: host.to_owned(),
            pid: u32::try_from(pid).ok()?,
            label: label.to_owned(),
        }),
        value: Arc::default(),
    };
    Some(Waiting { waiter, waited: Duration::from_micros(now.saturating_sub(since)) })
}

/// The claims that a majority of `servers` had.
pub(super) fn broken(servers: usize, answers: &[Broken]) -> Vec<Claim> {
    let rows = answers.iter().map(|(now, rows)| (*now, rows.as_slice()));
    held(servers, rows).into_iter().map(|held| held.claim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str, left: i64) -> ClaimRow {
        (text.as_bytes().to_vec(), left)
    }

    #[test]
    fn what_a_majority_holds_is_held() {
        let claim = |token: u64| format!("redlock/1 {:032x} 1 {token} 30000000 0 50 7 42 host a label", 0xab);
        let look = |rows: Vec<ClaimRow>| (100, rows, Vec::new());
        let looks =
            [look(vec![row(&claim(9), 1012)]), look(vec![row(&claim(0), 2022)]), look(vec![row("else", 5)])];
        let view = view(3, &looks);
        assert_eq!(view.claims.len(), 1, "{view:?}");
        let held = &view.claims[0];
        assert_eq!((held.claim.token, held.claim.owner), (9, OwnerId(0xab)));
        assert_eq!((held.claim.holder.label.as_str(), held.claim.holder.pid), ("a label", 42));
        assert_eq!(held.ends_in, Duration::from_secs(1));
        let free = super::view(3, &looks[1..2]);
        assert_eq!((free.capacity, free.claims.len()), (0, 0));
    }

    #[test]
    fn answers_are_understood() {
        let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let taken = vote(&words(&["taken", "shared", "70", "9"])).expect("a vote");
        assert!(matches!(taken, Said::Vote(Vote::Taken { by: Whose::Readers, left: 70 }, 9)));
        let stranger = |text| match vote(&words(&["taken", text, "70", "9"])) {
            Ok(Said::Vote(Vote::Taken { by, .. }, _)) => by,
            _ => panic!("taken"),
        };
        assert_eq!(stranger("=uuid"), stranger("=uuid"));
        assert_ne!(stranger("=uuid"), stranger("=other"));
        assert_eq!(stranger("ab"), Whose::Owner(0xab));
        assert!(vote(&words(&["perhaps"])).is_err());
    }
}
