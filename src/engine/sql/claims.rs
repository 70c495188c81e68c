//! Requests on names.

use std::time::Duration;

use super::database::{
    Attempt, Database, Durability, Failure, GiveBack, InsertWaiter, NameWrite, RowWrite, Take,
};
use super::recent::Taken;
use super::row::{self, Columns, LONGEST_KEY, WaiterRow, unreadable};
use super::seen::Seen;
use super::state::Sql;
use super::tries::Tries;
use crate::claim::{Answer, Ask, Grant, MemoryQueue, Micros, OwnerId, Released, World};
use crate::engine::table::buffered::{self, MoreWaiters, Plan, QueueChange, RowChange};
use crate::engine::table::row::Record;
use crate::engine::table::{Release, Request};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::random;

/// How many waiters are read at first: nearly always enough.
pub(super) const FEW: usize = 3;
/// For what shows all waiters.
pub(super) const MANY: usize = 1000;

/// For how long a request is tried.
pub(super) const TRIED_FOR: Duration = Duration::from_secs(4);
/// Who asks for a claim is told that it is busy instead.
const ASKED_FOR: Duration = Duration::from_millis(500);

/// How a request is carried out.
pub(super) struct How<A> {
    /// How many waiters are read at first.
    pub(super) most: usize,
    /// For how long the caller waits, if it must not be carried out later.
    pub(super) within: Option<Duration>,
    pub(super) durability: fn(&A) -> Durability,
    /// Plan with what is remembered of the name, if there is anything. Only for an owner that has
    /// no place in the queue.
    pub(super) from_memory: bool,
    /// How many times the owner has asked for its claim.
    pub(super) round: Option<u32>,
}

impl<A> How<A> {
    pub(super) fn flushed() -> How<A> {
        How::new(|_| Durability::Flushed)
    }

    pub(super) fn new(durability: fn(&A) -> Durability) -> How<A> {
        How { most: FEW, within: None, durability, from_memory: false, round: None }
    }

    fn limit(&self) -> Duration {
        self.within.map_or(TRIED_FOR, |within| within.min(ASKED_FOR))
    }
}

/// A grant is relied on; a place in the queue that is lost with the server is taken again.
pub(super) fn grants_are_flushed(answer: &Answer) -> Durability {
    match answer {
        Answer::Granted(_) => Durability::Flushed,
        Answer::Queued(_) | Answer::Busy(_) | Answer::Refused(_) => Durability::Soon,
    }
}

impl<D: Database> Sql<D> {
    /// A version that nobody else writes.
    pub(super) fn version() -> Result<i64> {
        random::number().map(u64::cast_signed)
    }

    /// Takes a name that nobody uses; `None` if it is in use.
    pub(super) async fn take(&self, name: &Name, key: &[u8], ask: &Ask) -> Result<Option<Grant>> {
        // Decided at time 0 on a name that nobody uses. The statement adds the time, and finds out
        // whether nobody does.
        let mut record = Record::new(name, LONGEST_KEY, 0);
        let world = World::at(0, &|_| true);
        let Ok(step) = record.state.ask(&mut MemoryQueue::default(), ask, self.seat, world);
        let Answer::Granted(grant) = step.answer else { return Ok(None) };
        let columns = Columns::of(&record).map_err(|error| self.unwritable(name, error))?;
        let version = Self::version()?;
        let not_after = self.clock.after(ask.answer_within);
        let take = Take { key, version, columns: &columns, not_after };
        let at = match self.database.take(&take).await {
            Ok(Some(at)) => at,
            Ok(None) | Err(Failure::Conflict(_)) => {
                self.recent.found(key, true);
                return Ok(None);
            }
            Err(failure) => return Err(failure.into_error()),
        };
        self.clock.heard(at);
        let grant = Grant { token: at + grant.token, ..grant };
        record.state.shift(at);
        self.remember(ask.owner, &record, version);
        Ok(Some(grant))
    }

    /// Remembers a row that its owner can give back by one statement.
    pub(super) fn remember(&self, owner: OwnerId, record: &Record, version: i64) {
        if record.state.idle_from().is_none() {
            return;
        }
        if let Some(claim) = record.state.sole_claim().filter(|claim| claim.owner == owner) {
            let last_token = claim.token + u64::from(claim.tokens) - 1;
            self.recent.took(owner, Taken { version, first_token: claim.token, last_token });
        }
    }

    /// Gives a claim back, or leaves the queue.
    pub(super) async fn give_back(&self, name: &Name, owner: OwnerId, used: u64) -> Result<Released> {
        let key = row::key_of(name);
        if let Some(Taken { version, first_token, last_token }) = self.recent.forget(owner) {
            // What the rule says of a release: tokens that were reserved and not used are free
            // again.
            let last = used.clamp(first_token, last_token);
            let give_back = GiveBack { key: &key, expected: version, version: Self::version()?, last };
            match self.database.give_back(&give_back).await {
                Ok(true) => {
                    self.recent.found(&key, false);
                    return Ok(Released::Claim);
                }
                // Somebody has joined the queue.
                Ok(false) | Err(Failure::Conflict(_)) => drop(self.recent.recall(&key)),
                Err(failure) => return Err(failure.into_error()),
            }
        }
        self.askings.forget(owner);
        // Whoever holds the name has no place in the queue. For others what is remembered is of no
        // use: a plan without a write is not trusted.
        let how = How { from_memory: true, ..How::new(|_: &Released| Durability::Soon) };
        self.on_name(name, &Release { owner, used }, how).await
    }

    /// Runs one request on a name, by the rules.
    pub(super) async fn on_name<R: Request>(
        &self,
        name: &Name,
        request: &R,
        how: How<R::Answer>,
    ) -> Result<R::Answer> {
        self.attempt_on_name(name, request, how).await.map_err(Failure::into_error)
    }

    /// The same; a conflict if others were in the way for too long, and then nothing has happened.
    pub(super) async fn attempt_on_name<R: Request>(
        &self,
        name: &Name,
        request: &R,
        how: How<R::Answer>,
    ) -> Attempt<R::Answer> {
        let key = row::key_of(name);
        let _passed = self.gates.pass(&key).await;
        let mut tries = Tries::new(how.limit());
        let mut most = how.most;
        // It is gone from the memory until it was written: an outcome may remain unknown.
        let mut remembered = self
            .recent
            .recall(&key)
            .filter(|seen| how.from_memory && seen.holds_until(self.clock.after(Duration::ZERO)));
        loop {
            // Counted from before it is asked what time it is.
            let left = how.within.map(|within| within.saturating_sub(tries.started.elapsed()));
            let is_fresh = remembered.is_none();
            let seen = match remembered.take() {
                Some(seen) => seen,
                None => match self.read(name, &key, request.owner(), most, &mut tries).await? {
                    Some(seen) => seen,
                    None => continue,
                },
            };
            let world = World::at(seen.now, &|_| true);
            let mut plan = match buffered::plan(name, LONGEST_KEY, &seen.snapshot, world, request) {
                Ok(plan) => plan,
                Err(MoreWaiters) => {
                    most *= if is_fresh { 8 } else { 1 };
                    continue;
                }
            };
            let mut durability = (how.durability)(&plan.answer);
            let is_grant = durability == Durability::Flushed;
            // Nobody would hear of it where nobody hears.
            if self.database.hears() && seen.tell_grants(&mut plan) {
                durability = Durability::Flushed;
            }
            let not_after = left.map(|left| seen.now + micros(left));
            let write = self.write_of(name, &key, &seen, &plan, durability, not_after)?;
            // That what is remembered still holds is known if it is written, and a grant counts
            // from a time that was read after it was asked for.
            if !is_fresh && (is_grant || !matches!(write, Write::Name(_))) {
                continue;
            }
            self.recent.found(&key, matches!(plan.row, RowChange::Unchanged | RowChange::Put(_)));
            self.note_asking(request.owner(), how.round, &plan);
            let written = match &write {
                Write::Nothing => true,
                Write::Touch { place, alive_until } => {
                    let touch = self.database.touch_waiter(&key, *place, *alive_until);
                    self.or_again(&mut tries, name, touch).await?.is_some()
                }
                Write::Name(write) => {
                    self.or_again(&mut tries, name, self.database.write_name(write)).await?.unwrap_or(false)
                }
            };
            if !written {
                if is_fresh {
                    tries.again(|| self.crowded(name)).await?;
                }
                continue;
            }
            if let (Write::Name(write), RowChange::Put(record), Some(owner)) =
                (&write, &plan.row, request.owner())
            {
                self.remember(owner, record, write.row.version);
            }
            let notices = std::mem::take(&mut plan.notices);
            self.deliver(notices, if plan.changed { vec![name.clone()] } else { Vec::new() });
            if let Write::Name(write) = &write {
                self.recent.saw(&key, seen.after(&plan, write.row.version));
            }
            return Ok(plan.answer);
        }
    }

    /// What there is of a name; `None`, after a pause, if somebody else was in the way.
    async fn read(
        &self,
        name: &Name,
        key: &[u8],
        owner: Option<OwnerId>,
        most: usize,
        tries: &mut Tries,
    ) -> Attempt<Option<Seen>> {
        let read = self.database.read_name(key, owner, most);
        let Some(found) = self.or_again(tries, name, read).await? else { return Ok(None) };
        self.clock.heard(found.now);
        let unreadable = |error| unreadable(self.word(), name, error);
        if found.has_orphans().map_err(unreadable)? {
            let version = found.row.as_ref().map(|row| row.version);
            self.or_again(tries, name, self.database.delete_waiters(key, version)).await?;
            tries.again(|| self.crowded(name)).await?;
            return Ok(None);
        }
        Ok(Some(Seen::read(&found, most).map_err(unreadable)?))
    }

    /// Notes which asking the row of a waiter will tell of.
    fn note_asking<T>(&self, owner: Option<OwnerId>, round: Option<u32>, plan: &Plan<T>) {
        let (Some(owner), Some(round)) = (owner, round) else { return };
        let until = plan.queue.values().find_map(|change| match change {
            QueueChange::Insert(waiter) if waiter.owner == owner => Some(waiter.alive_until),
            QueueChange::Touch { owner: touched, alive_until } if *touched == owner => Some(*alive_until),
            _ => None,
        });
        if let Some(until) = until {
            self.askings.note(owner, until, round);
        }
    }

    /// The result of a statement; `None`, after a pause, if somebody else was in the way.
    async fn or_again<T>(
        &self,
        tries: &mut Tries,
        name: &Name,
        statement: impl Future<Output = Attempt<T>>,
    ) -> Attempt<Option<T>> {
        match statement.await {
            Ok(done) => Ok(Some(done)),
            Err(Failure::Conflict(error)) => {
                tracing::trace!(target: "leasehold", %name, %error, "again");
                tries.again(|| error).await?;
                Ok(None)
            }
            failed => failed.map(Some),
        }
    }

    /// What a plan writes.
    fn write_of<T>(
        &self,
        name: &Name,
        key: &[u8],
        seen: &Seen,
        plan: &Plan<T>,
        durability: Durability,
        not_after: Option<Micros>,
    ) -> Result<Write> {
        let unwritable = |error| self.unwritable(name, error);
        let columns = match &plan.row {
            RowChange::Unchanged => match plan.queue.iter().next() {
                None => return Ok(Write::Nothing),
                // The state of the name is what it was, and says how many wait: so the waiters are
                // who they were.
                Some((place, QueueChange::Touch { alive_until, .. })) if plan.queue.len() == 1 => {
                    return Ok(Write::Touch { place: *place, alive_until: *alive_until });
                }
                // A write that changes the queue only.
                Some(_) => match &seen.snapshot.record {
                    Some(record) => Columns::of(record).map_err(unwritable)?,
                    None => Columns::idle(seen.now),
                },
            },
            RowChange::Put(record) => Columns::of(record).map_err(unwritable)?,
            RowChange::Delete { .. } if seen.snapshot.record.is_none() => return Ok(Write::Nothing),
            // A name that nobody uses keeps its row until it is swept: it knows the last token.
            RowChange::Delete { floor } => Columns::idle(floor.unwrap_or(seen.now)),
        };
        let mut write = NameWrite {
            row: RowWrite { key: key.to_vec(), expected: seen.version, version: Self::version()?, columns },
            not_after,
            insert: Vec::new(),
            touch: Vec::new(),
            delete: Vec::new(),
            durability,
        };
        for (place, change) in &plan.queue {
            match change {
                QueueChange::Insert(waiter) => {
                    let row = WaiterRow::new(*place, waiter).map_err(unwritable)?;
                    write.insert.push(InsertWaiter { owner: waiter.owner, row });
                }
                QueueChange::Touch { alive_until, .. } => write.touch.push((*place, *alive_until)),
                QueueChange::Delete { .. } => write.delete.push(*place),
            }
        }
        Ok(Write::Name(Box::new(write)))
    }

    pub(super) fn unwritable(&self, name: &Name, error: postcard::Error) -> Error {
        Error::Engine {
            engine: self.word(),
            what: format!("the row of `{name}` can not be written: {error}"),
            source: Some(Box::new(error)),
        }
    }

    /// The error for a name that others change faster than this client can.
    fn crowded(&self, name: &Name) -> Error {
        Error::Unavailable {
            engine: self.word(),
            what: format!(
                "could not change the row of `{name}` in time: others change it all the time, or a \
                 transaction has it locked"
            ),
            source: None,
        }
    }
}

/// What follows from a plan.
enum Write {
    Nothing,
    Touch { place: u64, alive_until: Micros },
    Name(Box<NameWrite>),
}

fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX / 4)
}
