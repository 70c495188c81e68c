//! What is written of what a rule came to, and whom it tells.

use std::collections::BTreeMap;
use std::time::Duration;

use super::found::{Found, Known};
use super::mail::Letter;
use super::names::Names;
use super::record::{Shown, Stored, WaiterRow};
use super::store::{Change, RecordChange, RowWrite, Store};
use crate::claim::{Claim, Grant, Seat, State};
use crate::engine::Hint;
use crate::engine::table::buffered::{Plan, QueueChange, RowChange};
use crate::engine::table::row::Record;
use crate::error::Result;
use crate::name::{LONGEST, Name};

/// No name is folded: a key may be longer than the longest name.
pub(crate) const LONGEST_KEY: usize = LONGEST + 64;
/// Waiters are believed to live for so long, as the rules count. A row is written again after some
/// of that.
const TOUCH_AFTER: u64 = 1_000_000;

/// Who asks for a claim, and where it lives once it has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant {
    /// The session of the claim.
    pub(crate) seat: Seat,
    pub(crate) shown: Shown,
}

/// What is written, and what follows from it.
#[derive(Debug, Default)]
pub(crate) struct Write {
    pub(crate) change: Change,
    /// What owners of this client are told once it is written.
    pub(crate) own_letters: BTreeMap<Seat, Vec<Letter>>,
    pub(crate) stored: Option<Stored>,
    /// What is known of a name that somebody waits for, once this is written.
    pub(crate) known: Option<Known>,
    /// The name says that the claimant holds it, and nothing else.
    pub(crate) sole: bool,
    pub(crate) joined: Option<u64>,
}

impl<S: Store> Names<S> {
    /// What is to be written of what a rule came to.
    pub(crate) fn write_of<A>(
        &self,
        name: &Name,
        found: &Found,
        plan: &mut Plan<A>,
        claimant: Option<Claimant>,
    ) -> Result<Write> {
        let unwritable = |error| self.unwritable(name, error);
        let mut write = Write::default();
        let change = &mut write.change;
        change.version = found.version;
        let Known { mut first, whole, .. } = found.known.clone();
        let mut record = None;
        match std::mem::replace(&mut plan.row, RowChange::Unchanged) {
            RowChange::Unchanged => {}
            RowChange::Put(put) => record = Some(*put),
            // Tokens of this change may be left: another name-to-be must not give them again.
            RowChange::Delete { floor: Some(floor) } if floor >= S::ROOM.first_of(found.number + 1) => {
                record = Some(Record { state: State::new(floor), ..Record::new(name, LONGEST_KEY, floor) });
            }
            RowChange::Delete { .. } if found.known.stored.is_some() => change.record = RecordChange::Delete,
            RowChange::Delete { .. } => {}
        }
        for (place, queued) in std::mem::take(&mut plan.queue) {
            match queued {
                QueueChange::Insert(waiter) => {
                    let shown = claimant.map(|claimant| claimant.shown);
                    let shown = shown.unwrap_or_else(|| Shown::now(waiter.owner, Duration::ZERO));
                    write.joined = Some(place);
                    change.seats.push(waiter.seat);
                    let row = WaiterRow { waiter, shown };
                    change.rows.push((place, RowWrite::Insert(row.encode().map_err(unwritable)?)));
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
                        change.rows.push((place, RowWrite::Replace(row.encode().map_err(unwritable)?)));
                    }
                }
                QueueChange::Delete { .. } => {
                    change.rows.push((place, RowWrite::Delete));
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
            let stored = match &found.known.stored {
                None => Stored::relative(record.clone(), shown),
                Some(_) => Stored::new(record.clone(), shown),
            };
            let sole = sole_claim(&record.state);
            change.seats.extend(sole.map(|claim| claim.seat));
            if let (Some(sole), Some(claimant)) = (sole, claimant) {
                write.sole = sole.owner == claimant.shown.owner;
            }
            if let Some(claimant) = claimant
                && claims.iter().any(|claim| claim.owner == claimant.shown.owner)
            {
                change.seats.push(claimant.seat);
            }
            let bytes = stored.encode().map_err(unwritable)?;
            change.record = RecordChange::Put { bytes, sole: sole.map(|claim| claim.seat) };
            write.stored = Some(stored);
        }
        if change.is_empty() {
            return Ok(Write { stored: found.known.stored.clone(), ..Write::default() });
        }
        // Whoever is handed the name is told what it needs to know to hand it on.
        if let Some(stored) = &write.stored
            && stored.record.state.waiting() > 0
            && found.known.stored.is_some()
        {
            write.known = Some(Known { stored: Some(stored.clone()), first, whole });
        }
        self.add_letters(name, plan, &mut write);
        write.change.seats.sort_unstable();
        write.change.seats.dedup();
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
            if self.is_alive(notice.seat) == Some(false) {
                continue;
            }
            // A claim that is broken may belong to a session that has just ended.
            write.change.seats.push(notice.seat);
            let letters = match self.store.own(notice.seat) {
                Some(_) => &mut write.own_letters,
                None => &mut write.change.letters,
            };
            letters.entry(notice.seat).or_default().push(letter);
        }
    }
}

/// The claim of a name that says nothing else: nobody waits, and nothing is to be remembered.
fn sole_claim(state: &State) -> Option<&Claim> {
    match state.kept_claims() {
        [claim] if state.idle_from().is_some() && claim.confirmed => Some(claim),
        _ => None,
    }
}
