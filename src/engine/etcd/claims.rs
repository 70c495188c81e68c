//! Requests on names: read, run the rule, and write if nobody else has written.
//!
//! A name is one key, written by compare-and-swap on its revision. Its waiters are keys of their
//! own. The rules of `claim` are given the revision of the store in place of the time, and say that
//! a claim ends when its session has ended. Whoever is handed the name is told by the same
//! transaction, through the key of its session.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::errors::{Attempt, Failure, unavailable};
use super::keys::Keys;
use super::mail::{self, Letter};
use super::messages::{Compare, KeyValue, Op};
use super::promises::ENGINE;
use super::record::{Shown, Stored, TOKENS, WaiterRow, tokens_of};
use super::state::Etcd;
use super::store::{Outcome, Txn, delete, delete_all, exists, get, get_all, look_for, put, unchanged};
use crate::claim::{Claim, Grant, OwnerId, Seat, State, World};
use crate::engine::Hint;
use crate::engine::table::Request;
use crate::engine::table::buffered::{self, MoreWaiters, Plan, QueueChange, Rest, RowChange, Snapshot};
use crate::engine::table::row::Record;
use crate::error::{Error, Result};
use crate::name::{LONGEST, Name};
use crate::random;

/// How many waiters are read at first: nearly always enough.
pub(super) const FEW: usize = 3;
/// All of them.
pub(super) const ALL: usize = 0;
/// No name is folded: a key may be longer than the longest name.
pub(super) const LONGEST_KEY: usize = LONGEST + 64;
/// Waiters are believed to live for so many revisions. A row is written again after some of them.
const TOUCH_AFTER: u64 = 1_000_000;
/// For how long it is tried to write before others do.
const TRIED_FOR: Duration = Duration::from_secs(4);
/// After so many conflicts there is a pause.
const AT_ONCE: u32 = 8;
const PAUSE: Duration = Duration::from_millis(2);

/// What was read of a name, all at one moment.
#[derive(Debug)]
pub(super) struct Found {
    revision: u64,
    /// The revision by which the key was written; 0 if it is not there.
    pub(super) version: i64,
    pub(super) stored: Option<Stored>,
    /// The first waiters, in order, by their place.
    pub(super) first: Vec<(u64, WaiterRow)>,
    /// How many were asked for.
    most: usize,
    own: Option<(u64, WaiterRow)>,
}

impl Found {
    fn state(&self) -> Option<&State> {
        self.stored.as_ref().map(|stored| &stored.record.state)
    }

    /// True if there are waiters although the name says that it has none: its key was deleted.
    fn has_orphans(&self) -> bool {
        !self.first.is_empty() && self.state().is_none_or(|state| state.waiting() == 0)
    }

    fn snapshot(&self) -> Snapshot {
        let row = |(place, row): &(u64, WaiterRow)| (*place, row.waiter.clone());
        Snapshot {
            record: self.stored.as_ref().map(|stored| stored.record.clone()),
            floor: 0,
            first: self.first.iter().map(row).collect(),
            rest: if self.most == ALL || self.first.len() < self.most { Rest::None } else { Rest::Unread },
            own: self.own.as_ref().map(row),
        }
    }

    /// The seats that the rule may ask for.
    fn seats(&self) -> Vec<Seat> {
        let claims = self.state().map_or(&[][..], State::kept_claims);
        let claims = claims.iter().map(|claim| claim.seat);
        let mut seats: Vec<Seat> = claims.chain(self.first.iter().map(|(_, row)| row.waiter.seat)).collect();
        seats.sort_unstable();
        seats.dedup();
        seats
    }

    /// What is shown of an owner that holds or waits.
    fn shown(&self, owner: OwnerId) -> Option<Shown> {
        let waiting = || {
            let rows = self.first.iter().chain(&self.own);
            rows.map(|(_, row)| row.shown).find(|shown| shown.owner == owner)
        };
        self.stored.as_ref().and_then(|stored| stored.shown(owner)).or_else(waiting)
    }
}

/// Who asks for a claim, and where it lives once it has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant {
    /// The session of the claim.
    pub(super) seat: Seat,
    pub(super) shown: Shown,
}

/// How a request is carried out.
#[derive(Debug)]
pub(super) struct How {
    /// How many waiters are read at first.
    pub(super) most: usize,
    /// Whose claim is put into which session, if the request grants or confirms one.
    pub(super) claimant: Option<Claimant>,
    /// What was read already.
    pub(super) found: Option<Found>,
    /// For how long it is tried; as long as is usual if it is not said.
    pub(super) within: Option<Duration>,
}

impl Default for How {
    fn default() -> How {
        How { most: FEW, claimant: None, found: None, within: None }
    }
}

/// What a request came to.
#[derive(Debug)]
pub(super) struct Ran<A> {
    pub(super) answer: A,
    /// The revision by which the name says that the claimant holds it and nothing else.
    pub(super) sole: Option<i64>,
    /// What the tokens in the answer count from.
    pub(super) tokens_from: u64,
    /// Where the claimant stands in the queue now, if it has joined it.
    pub(super) joined: Option<u64>,
    /// The name as it was written or found.
    pub(super) stored: Option<Stored>,
}

impl Etcd {
    /// What is read of a name. The place of the asker in its queue is read if it is known.
    pub(super) fn reads(&self, name: &Name, most: usize, own: Option<u64>) -> Vec<Op> {
        let mut reads = vec![get(self.keys.name(name)), Op::Range(get_all(self.keys.waiters(name), most))];
        reads.extend(own.map(|place| get(self.keys.waiter(name, place))));
        reads
    }

    /// What was found by [`Etcd::reads`].
    pub(super) fn found(
        &self,
        name: &Name,
        most: usize,
        owner: Option<OwnerId>,
        outcome: &mut Outcome,
    ) -> Result<Found> {
        let revision = outcome.revision;
        self.heard(revision);
        let mut answers = outcome.found.drain(..);
        let unreadable = |error| unreadable(name, error);
        let record = answers.next().and_then(|mut kvs| kvs.pop());
        let row = |kv: KeyValue| {
            let place = Keys::place_of(&kv.key).unwrap_or_default();
            Ok((place, WaiterRow::decode(&kv.value)?))
        };
        let rows = answers.next().unwrap_or_default();
        let first: Vec<_> = rows.into_iter().map(row).collect::<Result<_, _>>().map_err(unreadable)?;
        let own = answers.next().and_then(|mut kvs| kvs.pop()).map(row).transpose().map_err(unreadable)?;
        let is_own = |row: &WaiterRow| Some(row.waiter.owner) == owner;
        let own = own.filter(|(_, row)| is_own(row));
        let own = own.or_else(|| first.iter().find(|(_, row)| is_own(row)).cloned());
        let version = record.as_ref().map_or(0, |kv| kv.mod_revision);
        let stored = record.map(|kv| Stored::decode(&kv.value, kv.mod_revision)).transpose();
        Ok(Found { revision, version, stored: stored.map_err(unreadable)?, first, most, own })
    }

    /// Reads a name.
    pub(super) async fn read_name(&self, name: &Name, most: usize, owner: Option<OwnerId>) -> Attempt<Found> {
        let own = owner.and_then(|owner| self.asked.queued(owner)).map(|queued| queued.place);
        let txn = Txn { then: self.reads(name, most, own), ..Txn::default() };
        let mut outcome = self.store.txn(txn).await?;
        Ok(self.found(name, most, owner, &mut outcome)?)
    }

    /// Finds out which of these sessions live, where that is not known.
    pub(super) async fn look_at_seats(&self, seats: &[Seat]) -> Attempt<()> {
        // As many operations as a transaction can have.
        const MOST: usize = 100;
        let unknown: Vec<Seat> =
            seats.iter().copied().filter(|seat| self.is_alive(*seat).is_none()).collect();
        for seats in unknown.chunks(MOST) {
            let then = seats.iter().map(|seat| look_for(self.keys.session(*seat))).collect();
            let outcome = self.store.txn(Txn { then, ..Txn::default() }).await?;
            self.note_seats(seats, &outcome.found);
        }
        Ok(())
    }

    fn note_seats(&self, seats: &[Seat], found: &[Vec<KeyValue>]) {
        for (seat, found) in seats.iter().zip(found) {
            self.seats.seen(*seat, !found.is_empty());
            if found.is_empty() {
                self.sessions.ended(*seat);
            }
        }
    }

    /// Runs one request on a name, by the rules. The caller has passed the gate of the name.
    pub(super) async fn on_name<R: Request>(
        &self,
        name: &Name,
        request: &R,
        how: How,
    ) -> Attempt<Ran<R::Answer>> {
        let started = Instant::now();
        let mut conflicts = 0;
        let mut most = how.most;
        let owner = request.owner();
        let mut found = match how.found {
            Some(found) => found,
            None => self.read_name(name, most, owner).await?,
        };
        loop {
            if found.has_orphans() {
                let conditions = vec![unchanged(self.keys.name(name), found.version)];
                let then = vec![delete_all(self.keys.waiters(name))];
                self.store.txn(Txn { conditions, then, ..Txn::default() }).await?;
                found = self.read_name(name, most, owner).await?;
                continue;
            }
            self.look_at_seats(&found.seats()).await?;
            let world = World {
                now: found.revision,
                // A name that is not there may be there, and be gone again, before this is written:
                // tokens count from the revision of the write then.
                tokens_from: if found.version == 0 { 0 } else { tokens_of(found.revision.cast_signed()) },
                // What could not be found out is as good as alive: its end will be heard of.
                alive: &|seat| self.is_alive(seat).unwrap_or(true),
            };
            let mut plan = match buffered::plan(name, LONGEST_KEY, &found.snapshot(), world, request) {
                Ok(plan) => plan,
                Err(MoreWaiters) => {
                    most = if most > 512 { ALL } else { most * 8 };
                    found = self.read_name(name, most, owner).await?;
                    continue;
                }
            };
            if let (RowChange::Put(record), Some(claimant)) = (&mut plan.row, how.claimant) {
                record.state.reseat(claimant.shown.owner, claimant.seat);
            }
            let mut write = self.write_of(name, &found, &mut plan, how.claimant)?;
            let Some(txn) = write.txn.take() else {
                return Ok(Ran {
                    answer: plan.answer,
                    sole: None,
                    tokens_from: 0,
                    joined: None,
                    stored: found.stored,
                });
            };
            let mut outcome = self.store.txn(txn).await?;
            if outcome.succeeded {
                self.heard(outcome.revision);
                self.deliver(write.letters);
                let revision = outcome.revision.cast_signed();
                return Ok(Ran {
                    answer: plan.answer,
                    sole: write.sole.then_some(revision),
                    tokens_from: if found.version == 0 { tokens_of(revision) } else { 0 },
                    joined: write.joined,
                    stored: write.stored.map(|stored| stored.written_by(revision)),
                });
            }
            // Somebody else was faster, or a session has ended: this is how it is now.
            let seats = outcome.found.split_off(outcome.found.len() - write.seats.len());
            self.note_seats(&write.seats, &seats);
            if how.claimant.is_some_and(|claimant| self.is_alive(claimant.seat) == Some(false)) {
                return Err(Failure::LeaseGone);
            }
            found = self.found(name, found.most, owner, &mut outcome)?;
            if started.elapsed() > how.within.unwrap_or(TRIED_FOR) {
                return Err(unavailable(format!(
                    "could not write `{name}` in time: others write it all the time"
                ))
                .into());
            }
            // At once, while nobody has written since: whoever pauses here loses again. A crowd
            // spreads out, and reads anew.
            conflicts += 1;
            if conflicts % AT_ONCE == 0 {
                sleep(jitter(PAUSE)).await;
                found = self.read_name(name, most, owner).await?;
            }
        }
    }

    /// The transaction that writes what a rule came to.
    fn write_of<A>(
        &self,
        name: &Name,
        found: &Found,
        plan: &mut Plan<A>,
        claimant: Option<Claimant>,
    ) -> Result<Write> {
        let key = self.keys.name(name);
        let unwritable = |error| unwritable(name, error);
        let mut write = Write::default();
        let mut then = Vec::new();
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
                    then.push(put(key, WaiterRow { waiter, shown }.encode().map_err(unwritable)?, 0));
                }
                QueueChange::Touch { alive_until, .. } => {
                    let rows = found.first.iter().chain(&found.own);
                    let row = rows.into_iter().find(|(other, _)| *other == place);
                    if let Some((_, row)) = row
                        && row.waiter.alive_until + TOUCH_AFTER < alive_until
                    {
                        let mut row = row.clone();
                        row.waiter.alive_until = alive_until;
                        then.push(put(key, row.encode().map_err(unwritable)?, 0));
                    }
                }
                QueueChange::Delete { .. } => then.push(delete(key)),
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
            return Ok(Write { stored: found.stored.clone(), ..Write::default() });
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
        for notice in &plan.notices {
            let letter = match notice.hint {
                Hint::Wake(owner) => {
                    let granted = claims.iter().find(|claim| claim.owner == owner && !claim.confirmed);
                    match granted {
                        Some(Claim { token, tokens, .. }) => {
                            Letter::granted(owner, Grant { token: *token, tokens: *tokens }, name)
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

    /// Passes on what concerns owners of this client. The others get mail.
    fn deliver(&self, letters: BTreeMap<Seat, Vec<Letter>>) {
        for (seat, letters) in letters {
            if self.sessions.own(seat).is_some() {
                letters.into_iter().for_each(|letter| self.take_letter(letter));
            }
        }
    }
}

/// What is written, and what follows from it.
#[derive(Debug, Default)]
struct Write {
    /// `None` if nothing is.
    txn: Option<Txn>,
    /// The sessions that must not have ended.
    seats: Vec<Seat>,
    letters: BTreeMap<Seat, Vec<Letter>>,
    stored: Option<Stored>,
    sole: bool,
    joined: Option<u64>,
}

/// The claim of a name that says nothing else: nobody waits, and nothing is to be remembered.
pub(super) fn sole_claim(state: &State) -> Option<&Claim> {
    match state.kept_claims() {
        [claim] if state.idle_from().is_some() && claim.confirmed => Some(claim),
        _ => None,
    }
}

/// Up to half as long again.
fn jitter(pause: Duration) -> Duration {
    const STEPS: u64 = 1024;
    let share = random::number().unwrap_or(0) % STEPS;
    pause + pause.mul_f64(share as f64 / (2 * STEPS) as f64)
}

pub(super) fn unreadable(name: &Name, error: postcard::Error) -> Error {
    Error::Engine {
        engine: ENGINE,
        what: format!(
            "the key of `{name}` can not be read ({error}): it is not ours, is damaged, or was written by a \
             newer version; delete it if nobody holds the name"
        ),
        source: Some(Box::new(error)),
    }
}

pub(super) fn unwritable(name: &Name, error: postcard::Error) -> Error {
    Error::Engine {
        engine: ENGINE,
        what: format!("what is to be stored of `{name}` can not be written: {error}"),
        source: Some(Box::new(error)),
    }
}
