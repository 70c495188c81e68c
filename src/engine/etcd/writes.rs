//! The transaction that writes what a rule came to, and whom it tells.

use std::collections::BTreeMap;
use std::time::Duration;

use super::found::{Found, Known};
use super::mail::{self, Letter};
use super::messages::{Compare, Op};
use super::promises::ENGINE;
use super::record::{Shown, Stored, TOKENS, WaiterRow};
use super::state::Etcd;
use super::store::{Txn, delete, exists, look_for, put, unchanged};
use crate::claim::{Claim, Grant, Seat, State};
use crate::engine::Hint;
use crate::engine::table::buffered::{Plan, QueueChange, RowChange};
use crate::engine::table::row::Record;
use crate::error::{Error, Result};
use crate::name::{LONGEST, Name};

/// No name is folded: a key may be longer than the longest name.
pub(super) const LONGEST_KEY: usize = LONGEST + 64;
/// Waiters are believed to live for so many revisions. A row is written again after some of them.
const TOUCH_AFTER: u64 = 1_000_000;

/// Who asks for a claim, and where it lives once it has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant {
    /// The session of the claim.
    pub(super) seat: Seat,
    pub(super) shown: Shown,
}

impl Etcd {
    /// The transaction that writes what a rule came to.
    pub(super) fn write_of<A>(
        &self,
        name: &Name,
        found: &Found,
        plan: &mut Plan<A>,
        claimant: Option<Claimant>,
    ) -> Result<Write> {
        let key = self.keys.name(name);
        let unwritable = |error| unwritable(name, error);
        let mut write = Write::default();
        let mut then: Vec<Op> = Vec::new();
        let Known { mut first, whole, .. } = found.known.clone();
        let mut record = None;
        match std::mem::replace(&mut plan.row, RowChange::Unchanged) {
            RowChange::Unchanged => {}
            RowChange::Put(put) => record = Some(*put),
            // Tokens of this revision may be left: another name-to-be must not give them again.
            RowChange::Delete { floor: Some(floor) } if floor >= (found.revision + 1) * TOKENS => {
                record = Some(Record { state: State::new(floor), ..Record::new(name, LONGEST_KEY, floor) });
            }
            RowChange::Delete { .. } if found.version != 0 => then.push(delete(key.clone())),
            RowChange::Delete { .. } => {}
        }
        for (place, change) in std::mem::take(&mut plan.queue) {
            let key = self.keys.waiter(name, place);
            match change {
                QueueChange::Insert(waiter) => {
                    let shown = claimant.map(|claimant| claimant.shown);
                    let shown = shown.unwrap_or_else(|| Shown::now(waiter.owner, Duration::ZERO));
                    write.joined = Some(place);
                    write.seats.push(waiter.seat);
                    let row = WaiterRow { waiter, shown };
                    then.push(put(key, row.encode().map_err(unwritable)?, 0));
                    if whole {
                        first.push((place, row));
                    }
                }
                QueueChange::Touch { alive_until, .. } => {
                    if let Some(row) = found.row(place)
                        && row.waiter.alive_until + TOUCH_AFTER < alive_until
                    {
                        let mut row = row.clone();
                        row.waiter.alive_until = alive_until;
                        then.push(put(key, row.encode().map_err(unwritable)?, 0));
                    }
                }
                QueueChange::Delete { .. } => {
                    then.push(delete(key));
                    first.retain(|(other, _)| *other != place);
                }
            }
        }
        if let Some(record) = record {
            let claims = record.state.kept_claims();
            let shown = claims.iter().filter_map(|claim| {
                let asked =
                    claimant.map(|claimant| claimant.shown).filter(|shown| shown.owner == claim.owner);
                found.shown(claim.owner).or(asked)
            });
            let shown = shown.collect();
            let stored = match found.version {
                0 => Stored::relative(record.clone(), shown),
                _ => Stored::new(record.clone(), shown),
            };
            let sole = sole_claim(&record.state);
            // A name that says no more than who holds it goes with its holder.
            let lease = sole.map_or(0, |claim| claim.seat.cast_signed());
            write.seats.extend(sole.map(|claim| claim.seat));
            if let (Some(sole), Some(claimant)) = (sole, claimant) {
                write.sole = sole.owner == claimant.shown.owner;
            }
            if let Some(claimant) = claimant
                && claims.iter().any(|claim| claim.owner == claimant.shown.owner)
            {
                write.seats.push(claimant.seat);
            }
            then.push(put(key.clone(), stored.encode().map_err(unwritable)?, lease));
            write.stored = Some(stored);
        }
        if then.is_empty() {
            return Ok(Write { stored: found.known.stored.clone(), ..Write::default() });
        }
        // Whoever is handed the name is told what it needs to know to hand it on.
        if let Some(stored) = &write.stored
            && stored.record.state.waiting() > 0
            && found.version != 0
        {
            write.known = Some(Known { stored: Some(stored.clone()), first, whole });
        }
        self.add_letters(name, plan, &mut write);
        for (seat, letters) in &write.letters {
            if self.sessions.own(*seat).is_none() {
                let letters = mail::write(letters).map_err(unwritable)?;
                then.push(put(self.keys.session(*seat), letters, seat.cast_signed()));
            }
            // A claim that is broken may belong to a session that has just ended.
            write.seats.push(*seat);
        }
        write.seats.sort_unstable();
        write.seats.dedup();
        let mut conditions: Vec<Compare> = vec![unchanged(key, found.version)];
        conditions.extend(write.seats.iter().map(|seat| exists(self.keys.session(*seat))));
        let own = found.own.as_ref().map(|(place, _)| *place);
        let mut otherwise = self.reads(name, found.most, own);
        if own.is_none() {
            // So that the sessions are at the end, at a place that is known.
            otherwise.push(look_for(self.keys.sessions()));
        }
        otherwise.extend(write.seats.iter().map(|seat| look_for(self.keys.session(*seat))));
        write.txn = Some(Txn { conditions, then, otherwise });
        Ok(write)
    }

    /// Who is to be told what.
    fn add_letters<A>(&self, name: &Name, plan: &Plan<A>, write: &mut Write) {
        let claims = write.stored.as_ref().map_or(&[][..], |stored| stored.record.state.kept_claims());
        // To one only: that is what happens all the time.
        let known = write.known.as_ref().filter(|_| plan.notices.len() == 1);
        for notice in &plan.notices {
            let letter = match notice.hint {
                Hint::Wake(owner) => {
                    let granted = claims.iter().find(|claim| claim.owner == owner && !claim.confirmed);
                    match granted {
                        Some(Claim { token, tokens, .. }) => {
                            let grant = Grant { token: *token, tokens: *tokens };
                            Letter::granted(owner, grant, name, known.cloned())
                        }
                        None => Letter::Wake(owner),
                    }
                }
                Hint::Broken(owner) => Letter::Broken(owner),
                _ => continue,
            };
            // One that has ended can not be told, and need not be.
            if self.is_alive(notice.seat) != Some(false) {
                write.letters.entry(notice.seat).or_default().push(letter);
            }
        }
    }
}

/// What is written, and what follows from it.
#[derive(Debug, Default)]
pub(super) struct Write {
    /// `None` if nothing is.
    pub(super) txn: Option<Txn>,
    /// The sessions that must not have ended.
    pub(super) seats: Vec<Seat>,
    pub(super) letters: BTreeMap<Seat, Vec<Letter>>,
    pub(super) stored: Option<Stored>,
    /// What is known of a name that somebody waits for, once this is written.
    pub(super) known: Option<Known>,
    pub(super) sole: bool,
    pub(super) joined: Option<u64>,
}

/// The claim of a name that says nothing else: nobody waits, and nothing is to be remembered.
fn sole_claim(state: &State) -> Option<&Claim> {
    match state.kept_claims() {
        [claim] if state.idle_from().is_some() && claim.confirmed => Some(claim),
        _ => None,
    }
}

pub(super) fn unwritable(name: &Name, error: postcard::Error) -> Error {
    Error::Engine {
        engine: ENGINE,
        what: format!("what is to be stored of `{name}` can not be written: {error}"),
        source: Some(Box::new(error)),
    }
}
