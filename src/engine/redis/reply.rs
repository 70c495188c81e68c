//! What scripts answer, and what they are told.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::claim::{Answer, Change, Claim, Grant, Holder, OwnerId, Pause, Refused, Released, WHOLE, Waiter};
use crate::engine::{HeldClaim, View, Waiting};
use crate::error::Result;
use crate::redis::errors::{read, strange};
use crate::redis::holder::{claim_at_holder, owner};

/// What the holder's key starts with, if the holder is one of ours; then a letter that says where
/// the rest is.
const MARK: &str = "leasehold/1";

/// What asking by the rules came to. `None` if the request came too late.
pub(super) fn asked(said: &Value) -> Result<Option<Answer>> {
    match said {
        // What is said most often: see join.lua.
        Value::Int(pause) => Ok(Some(Answer::Queued(lasting(*pause)))),
        said => answer(&read::<Vec<i64>>(said.clone())?),
    }
}

fn lasting(pause: i64) -> Pause {
    Pause { at_most: Duration::from_micros(pause.unsigned_abs()) }
}

/// `None` if the request came too late.
pub(super) fn answer(answer: &[i64]) -> Result<Option<Answer>> {
    let number = |at: usize| answer.get(at).copied().unwrap_or_default();
    let small = |at: usize| u32::try_from(number(at)).unwrap_or(u32::MAX);
    let pause = || lasting(number(1));
    Ok(Some(match number(0) {
        1 => Answer::Granted(Grant { token: number(1).unsigned_abs(), tokens: small(2) }),
        2 => Answer::Queued(pause()),
        3 => Answer::Busy(pause()),
        4 => Answer::Refused(match number(1) {
            1 => Refused::Capacity { has: small(2), asked: small(3) },
            2 => Refused::Weight { capacity: small(2), weight: small(3) },
            3 => Refused::Upgrading,
            4 => Refused::NotHeld,
            _ => return Err(strange("an unknown refusal")),
        }),
        5 => return Ok(None),
        _ => return Err(strange("an unknown answer")),
    }))
}

pub(super) fn released(answer: i64) -> Result<Released> {
    match answer {
        0 => Ok(Released::Nothing),
        1 => Ok(Released::Claim),
        2 => Ok(Released::Place),
        _ => Err(strange("an unknown release")),
    }
}

/// Process, host and label.
type HolderRow = (u32, Vec<u8>, Vec<u8>);

fn holder((pid, host, label): HolderRow) -> Arc<Holder> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Arc::new(Holder { pid, host: text(host), label: text(label) })
}

fn owner_of(text: &[u8]) -> Result<OwnerId> {
    owner(text).ok_or_else(|| strange("no owner"))
}

/// What `row_of` of `claims.lua` gives.
type ClaimRow = (Vec<u8>, u64, u32, u64, u32, u64, u64, u64, u64, bool, HolderRow, Vec<u8>);

fn claim(row: ClaimRow) -> Result<Claim> {
    let (owner, seat, weight, token, tokens, lease, expires, lock_delay, since, confirmed, who, value) = row;
    let (owner, holder, value) = (owner_of(&owner)?, holder(who), value.into());
    Ok(Claim {
        owner,
        seat,
        weight,
        token,
        tokens,
        lease,
        expires,
        lock_delay,
        since,
        confirmed,
        holder,
        value,
    })
}

type WaiterRow = (Vec<u8>, u64, u32, u32, u64, u64, u64, u64, HolderRow, Vec<u8>);

fn waiter(row: WaiterRow) -> Result<Waiter> {
    let (owner, seat, weight, tokens, lease, lock_delay, since, alive_until, who, value) = row;
    let (owner, holder, value) = (owner_of(&owner)?, holder(who), value.into());
    Ok(Waiter { owner, seat, weight, tokens, lease, lock_delay, since, alive_until, holder, value })
}

type ChangeRow = (u64, u64, HolderRow, Vec<u8>);

fn change((number, token, who, value): ChangeRow) -> Change {
    Change { number, token, holder: holder(who), value: value.into() }
}

/// What `look.lua` answers.
type Look = (u64, Vec<u8>, i64, u32, u64, u32, u64, Vec<ClaimRow>, Vec<WaiterRow>, Vec<ChangeRow>);

pub(super) fn view(look: Look) -> Result<View> {
    let (now, held, left, mut capacity, closed, waiting, change_count, claims, waiters, changes) = look;
    let since = |then: u64| Duration::from_micros(now.saturating_sub(then));
    let until = |then: u64| Duration::from_micros(then.saturating_sub(now));
    let mut claims = claims.into_iter().map(claim).collect::<Result<Vec<Claim>>>()?;
    if !held.is_empty() {
        capacity = WHOLE;
        // A stranger's lock may be for ever.
        let left = u64::try_from(left).unwrap_or(u64::from(u32::MAX));
        claims.push(claim_at_holder(MARK, &held, now + left * 1000, now));
    }
    claims.sort_by_key(|claim| claim.owner);
    let held =
        |claim: Claim| HeldClaim { held_for: since(claim.since), ends_in: until(claim.expires), claim };
    let waits = |waiter: Waiter| Waiting { waited: since(waiter.since), waiter };
    Ok(View {
        capacity,
        claims: claims.into_iter().map(held).collect(),
        waiters: waiters.into_iter().map(|row| waiter(row).map(waits)).collect::<Result<_>>()?,
        waiting,
        closed_for: until(closed),
        changes: changes.into_iter().map(change).collect(),
        change_count,
    })
}

/// What `break.lua` answers: the time, claims, and what a stranger had left at the holder's key.
pub(super) fn broken((now, rows, stranger): (u64, Vec<ClaimRow>, Vec<u8>)) -> Result<Vec<Claim>> {
    let mut claims = rows.into_iter().map(claim).collect::<Result<Vec<Claim>>>()?;
    if !stranger.is_empty() {
        claims.push(claim_at_holder(MARK, &stranger, now, now));
    }
    claims.sort_by_key(|claim| claim.owner);
    Ok(claims)
}
