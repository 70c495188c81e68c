//! Requests on names.

use std::collections::BTreeMap;
use std::time::Duration;

use super::database::{
    Attempt, Database, Durability, Failure, GiveBack, InsertWaiter, NameWrite, RowWrite, Take,
};
use super::recent::Taken;
use super::row::{self, Columns, Found, LONGEST_KEY, WaiterRow, keys_with, name_of, unreadable};
use super::state::Sql;
use super::tries::Tries;
use crate::claim::{Answer, Ask, Grant, MemoryQueue, Micros, OwnerId, Released, World};
use crate::engine::table::buffered::{self, MoreWaiters, Plan, QueueChange, RowChange};
use crate::engine::table::row::Record;
use crate::engine::table::{Release, Request, view};
use crate::engine::{Renewal, Renewed, View};
use crate::error::{Error, Result};
use crate::name::{Family, Name};
use crate::random;

/// How many waiters are read at first: nearly always enough.
pub(super) const FEW: usize = 3;
/// For what shows all waiters.
pub(super) const MANY: usize = 1000;

/// For how long a request is tried.
const TRIED_FOR: Duration = Duration::from_secs(4);
/// Who asks for a claim is told that it is busy instead.
const ASKED_FOR: Duration = Duration::from_millis(500);

/// How a request is carried out.
pub(super) struct How<A> {
    /// How many waiters are read at first.
    pub(super) most: usize,
    /// For how long the caller waits, if it must not be carried out later.
    pub(super) within: Option<Duration>,
    pub(super) durability: fn(&A) -> Durability,
}

impl<A> How<A> {
    pub(super) fn flushed() -> How<A> {
        How { most: FEW, within: None, durability: |_| Durability::Flushed }
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
        let world = World { now: 0, alive: &|_| true };
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
            Err(Failure::Failed(error)) => return Err(error),
        };
        self.clock.heard(at);
        let grant = Grant { token: at + grant.token, ..grant };
        record.state.shift(at);
        self.remember(ask.owner, &record, version);
        Ok(Some(grant))
    }

    /// Remembers a row that its owner can give back by one statement.
    fn remember(&self, owner: OwnerId, record: &Record, version: i64) {
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
                Ok(false) | Err(Failure::Conflict(_)) => {}
                Err(Failure::Failed(error)) => return Err(error),
            }
        }
        let how = How { most: FEW, within: None, durability: |_: &Released| Durability::Soon };
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
        loop {
            // Counted from before it is asked what time it is.
            let left = how.within.map(|within| within.saturating_sub(tries.started.elapsed()));
            let Some(found) =
                self.or_again(&mut tries, name, self.database.read_name(&key, request.owner(), most)).await?
            else {
                continue;
            };
            self.clock.heard(found.now);
            let unreadable = |error| unreadable(self.word(), name, error);
            if found.has_orphans().map_err(unreadable)? {
                let version = found.row.as_ref().map(|row| row.version);
                self.or_again(&mut tries, name, self.database.delete_waiters(&key, version)).await?;
                tries.again(|| self.crowded(name)).await?;
                continue;
            }
            let snapshot = found.snapshot(most).map_err(unreadable)?;
            let world = World { now: found.now, alive: &|_| true };
            let plan = match buffered::plan(name, LONGEST_KEY, &snapshot, world, request) {
                Ok(plan) => plan,
                Err(MoreWaiters) => {
                    most *= 8;
                    continue;
                }
            };
            self.recent.found(&key, matches!(plan.row, RowChange::Unchanged | RowChange::Put(_)));
            let not_after = left.map(|left| found.now + micros(left));
            let durability = (how.durability)(&plan.answer);
            let write = self.write_of(name, &key, &found, &plan, durability, not_after)?;
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
                tries.again(|| self.crowded(name)).await?;
                continue;
            }
            if let (Write::Name(write), RowChange::Put(record), Some(owner)) =
                (&write, &plan.row, request.owner())
            {
                self.remember(owner, record, write.row.version);
            }
            self.deliver(plan.notices, if plan.changed { vec![name.clone()] } else { Vec::new() });
            return Ok(plan.answer);
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
        found: &Found,
        plan: &Plan<T>,
        durability: Durability,
        not_after: Option<Micros>,
    ) -> Result<Write> {
        let expected = found.row.as_ref().map(|row| row.version);
        let unwritable = |error| self.unwritable(name, error);
        let columns = match &plan.row {
            RowChange::Unchanged => match plan.queue.iter().next() {
                None => return Ok(Write::Nothing),
                // The state of the name is what it was, and says how many wait: so the waiters are
                // who they were.
                Some((place, QueueChange::Touch { alive_until, .. })) if plan.queue.len() == 1 => {
                    return Ok(Write::Touch { place: *place, alive_until: *alive_until });
                }
                Some(_) => self.columns_as_found(name, found)?,
            },
            RowChange::Put(record) => Columns::of(record).map_err(unwritable)?,
            RowChange::Delete { .. } if found.row.as_ref().is_none_or(|row| row.record.is_none()) => {
                return Ok(Write::Nothing);
            }
            // A name that nobody uses keeps its row until it is swept: it knows the last token.
            RowChange::Delete { floor } => Columns::idle(floor.unwrap_or(found.now)),
        };
        let mut write = NameWrite {
            row: RowWrite { key: key.to_vec(), expected, version: Self::version()?, columns },
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

    /// The row as it was read, for a write that changes the queue only.
    fn columns_as_found(&self, name: &Name, found: &Found) -> Result<Columns> {
        let record = found.row.as_ref().map(row::NameRow::record).transpose();
        let record = record.map_err(|error| unreadable(self.word(), name, error))?.flatten();
        match record {
            Some(record) => Columns::of(&record).map_err(|error| self.unwritable(name, error)),
            None => Ok(Columns::idle(found.now)),
        }
    }

    fn unwritable(&self, name: &Name, error: postcard::Error) -> Error {
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

    /// Renews many claims.
    pub(super) async fn renew_all(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        // A row that another transaction has locked is tried again by the client, soon.
        const TRIES: u32 = 4;
        let mut verdicts = vec![Renewed::Unknown; renewals.len()];
        let mut pending: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
        for (number, renewal) in renewals.iter().enumerate() {
            pending.entry(row::key_of(&renewal.name)).or_default().push(number);
        }
        let mut tries = Tries::new(TRIED_FOR);
        for _ in 0..TRIES {
            match self.renew_pending(renewals, &mut pending, &mut verdicts).await {
                Ok(()) | Err(Failure::Conflict(_)) => {}
                Err(Failure::Failed(error)) => return Err(error),
            }
            if pending.is_empty() {
                break;
            }
            if tries.again(Error::closed).await.is_err() {
                break;
            }
        }
        Ok(verdicts)
    }

    /// Renews the claims that are still to be renewed, as far as nobody is in the way.
    async fn renew_pending(
        &self,
        renewals: &[Renewal],
        pending: &mut BTreeMap<Vec<u8>, Vec<usize>>,
        verdicts: &mut [Renewed],
    ) -> Attempt<()> {
        let keys: Vec<Vec<u8>> = pending.keys().cloned().collect();
        let (now, rows) = self.database.read_names(&keys).await?;
        self.clock.heard(now);
        let rows: BTreeMap<Vec<u8>, row::NameRow> = rows.into_iter().collect();
        let mut writes = Vec::new();
        let mut records = BTreeMap::new();
        for key in keys {
            let numbers = &pending[&key];
            let name = &renewals[numbers[0]].name;
            let row = rows.get(&key);
            let record = row.map(row::NameRow::record).transpose();
            let record = record.map_err(|error| unreadable(self.word(), name, error))?.flatten();
            let (Some(row), Some(mut record)) = (row, record) else {
                numbers.iter().for_each(|number| verdicts[*number] = Renewed::Gone);
                pending.remove(&key);
                continue;
            };
            let mut renewed = Vec::new();
            let mut gone = Vec::new();
            for number in numbers {
                let Renewal { owner, lease, .. } = &renewals[*number];
                let held = record.state.renew(*owner, *lease, now);
                if held { &mut renewed } else { &mut gone }.push(*number);
            }
            // It was not there when the row was read, and so it never comes back.
            gone.iter().for_each(|number| verdicts[*number] = Renewed::Gone);
            if renewed.is_empty() {
                pending.remove(&key);
                continue;
            }
            let columns = Columns::of(&record).map_err(|error| self.unwritable(name, error))?;
            let version = Self::version()?;
            pending.insert(key.clone(), renewed);
            records.insert(key.clone(), (record, version));
            writes.push(RowWrite { key, expected: Some(row.version), version, columns });
        }
        if writes.is_empty() {
            return Ok(());
        }
        for key in self.database.write_names(&writes).await? {
            let Some(numbers) = pending.remove(&key) else { continue };
            for number in numbers {
                verdicts[number] = Renewed::Yes;
                if let Some((record, version)) = records.get(&key) {
                    self.remember(renewals[number].owner, record, *version);
                }
            }
        }
        Ok(())
    }

    /// The names in use.
    pub(super) async fn list_names(
        &self,
        family: Family,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Name, View)>> {
        const PAGE: usize = 1000;
        let (mut from, to) = keys_with(family, prefix);
        if let Some(after) = after {
            from = from.max(keys_with(family, after).0);
        }
        let mut shown: Vec<(Name, View)> = Vec::new();
        loop {
            let page = self.database.list_names(&from, &to, PAGE).await;
            let (now, rows) = page.map_err(Failure::into_error)?;
            for (key, row) in &rows {
                let Ok(Some(record)) = row.record() else { continue };
                let Some(name) = name_of(key, &record) else { continue };
                let text = name.as_str();
                if !text.starts_with(prefix) || after.is_some_and(|after| text <= after) {
                    continue;
                }
                let view = view(&record.state, Vec::new(), u64::MAX, now);
                if !view.claims.is_empty() || view.waiting > 0 {
                    shown.push((name, view));
                }
            }
            // Folded names are not stored in the order of what they stand for, but their first part
            // is.
            shown.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            let last = rows.last().filter(|_| rows.len() == PAGE);
            let Some((last, _)) = last else { break };
            let enough = shown.get(limit.saturating_sub(1)).is_some_and(|(name, _)| {
                let (_, end) = keys_with(family, name.as_str());
                *last >= end
            });
            if enough {
                break;
            }
            from.clone_from(last);
            from.push(0);
        }
        shown.truncate(limit);
        Ok(shown)
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
