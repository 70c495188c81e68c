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

/// The fields of a row, read one after the other.
struct Fields<'a>(std::slice::Iter<'a, Vec<u8>>);

impl<'a> Fields<'a> {
    fn bytes(&mut self) -> Result<&'a [u8]> {
        self.0.next().map(Vec::as_slice).ok_or_else(|| strange("a row that is too short"))
    }

    fn text(&mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    fn number(&mut self) -> Result<u64> {
        number(self.bytes()?)
    }

    fn small(&mut self) -> Result<u32> {
        u32::try_from(self.number()?).map_err(|_| strange("a number that is too large"))
    }

    fn owner(&mut self) -> Result<OwnerId> {
        owner(self.bytes()?).ok_or_else(|| strange("no owner"))
    }

    /// Process, host and label.
    fn holder(&mut self) -> Result<Arc<Holder>> {
        let pid = self.small()?;
        Ok(Arc::new(Holder { pid, host: self.text()?, label: self.text()? }))
    }
}

pub(super) fn number(text: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| strange("no number"))
}

fn claim(row: &[Vec<u8>]) -> Result<Claim> {
    let mut fields = Fields(row.iter());
    Ok(Claim {
        owner: fields.owner()?,
        seat: fields.number()?,
        weight: fields.small()?,
        token: fields.number()?,
        tokens: fields.small()?,
        lease: fields.number()?,
        expires: fields.number()?,
        lock_delay: fields.number()?,
        since: fields.number()?,
        confirmed: fields.bytes()? == b"1",
        holder: fields.holder()?,
        value: fields.bytes()?.into(),
    })
}

/// What `look.lua` answers.
type Look = (
    Vec<u8>,
    Vec<u8>,
    i64,
    Vec<u8>,
    Vec<u8>,
    Vec<u8>,
    Vec<u8>,
    Vec<Vec<Vec<u8>>>,
    Vec<Vec<Vec<u8>>>,
    Vec<Vec<Vec<u8>>>,
);

pub(super) fn view(look: Look) -> Result<View> {
    let (now, held, left, capacity, closed, waiting, change_count, claims, waiters, changes) = look;
    let now = number(&now)?;
    let since = |then: u64| Duration::from_micros(now.saturating_sub(then));
    let held_claim = |claim: Claim| HeldClaim {
        held_for: since(claim.since),
        ends_in: Duration::from_micros(claim.expires.saturating_sub(now)),
        claim,
    };
    let mut view = View {
        capacity: u32::try_from(number(&capacity)?).unwrap_or(WHOLE),
        claims: Vec::new(),
        waiters: Vec::new(),
        waiting: u32::try_from(number(&waiting)?).unwrap_or(u32::MAX),
        closed_for: Duration::from_micros(number(&closed)?.saturating_sub(now)),
        changes: Vec::new(),
        change_count: number(&change_count)?,
    };
    if !held.is_empty() {
        view.capacity = WHOLE;
        // A stranger's lock may be for ever.
        let left = u64::try_from(left).unwrap_or(u64::from(u32::MAX));
        view.claims.push(held_claim(claim_at_holder(MARK, &held, now + left * 1000, now)));
    }
    for row in &claims {
        view.claims.push(held_claim(claim(row)?));
    }
    view.claims.sort_by_key(|held| held.claim.owner);
    for row in &waiters {
        let mut fields = Fields(row.iter());
        let waiter = Waiter {
            owner: fields.owner()?,
            seat: fields.number()?,
            weight: fields.small()?,
            tokens: fields.small()?,
            lease: fields.number()?,
            lock_delay: fields.number()?,
            since: fields.number()?,
            alive_until: fields.number()?,
            holder: fields.holder()?,
            value: fields.bytes()?.into(),
        };
        view.waiters.push(Waiting { waited: since(waiter.since), waiter });
    }
    for row in &changes {
        let mut fields = Fields(row.iter());
        view.changes.push(Change {
            number: fields.number()?,
            token: fields.number()?,
            holder: fields.holder()?,
            value: fields.bytes()?.into(),
        });
    }
    Ok(view)
}

/// What `break.lua` answers: claims, and what a stranger had left.
pub(super) fn broken((now, rows): (Vec<u8>, Vec<Vec<Vec<u8>>>)) -> Result<Vec<Claim>> {
    let now = number(&now)?;
    let read = |row: &Vec<Vec<u8>>| match row.as_slice() {
        [stranger] => Ok(claim_at_holder(MARK, stranger, now, now)),
        row => claim(row),
    };
    let mut claims = rows.iter().map(read).collect::<Result<Vec<Claim>>>()?;
    claims.sort_by_key(|claim| claim.owner);
    Ok(claims)
}
