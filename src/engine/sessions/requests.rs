//! Giving back, renewing, changing and looking.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::claims::{How, Ran};
use super::failure::{Attempt, Failure};
use super::found::{ALL, FEW};
use super::held::Held;
use super::names::{Names, now};
use super::record::{FOREVER, Shown, since};
use super::store::{Change, Page, Purpose, RecordChange, Session, Store, Written};
use super::writes::Claimant;
use crate::claim::{Alteration, Answer, Claim, OwnerId, Refused, Released, Seat, State, Step, World};
use crate::engine::table::{Alter, Break, Look, Release, Request, Resize, Waiters, view};
use crate::engine::{Renewal, Renewed, View, refusal};
use crate::error::Result;
use crate::name::{Family, Name};

/// How many names are read at once.
const BATCH: usize = 100;
/// For how long it is relied on what was known of a name when it was handed over.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Renews a claim, and confirms it.
#[derive(Debug)]
struct Confirm {
    owner: OwnerId,
}

impl Request for Confirm {
    type Answer = bool;

    fn apply<Q: Waiters>(
        &self,
        state: &mut State,
        _: &mut Q,
        world: World<'_>,
    ) -> Result<Step<bool>, Q::Error> {
        Ok(Step { answer: state.renew(self.owner, FOREVER, world.now), wakes: Vec::new() })
    }

    fn owner(&self) -> Option<OwnerId> {
        Some(self.owner)
    }
}

impl<S: Store> Names<S> {
    /// Gives a claim back, or leaves the queue.
    pub(crate) async fn release(&self, name: &Name, owner: OwnerId, used: u64) -> Result<Released> {
        let key = self.store.key(name);
        let _passed = self.gates.pass(&key).await;
        let mut held = self.asked.forget(owner);
        let mut released = self.release_noted(name, owner, used, held.as_ref()).await;
        if matches!(released, Err(Failure::Unanswered(_))) {
            if let Some(held) = &mut held {
                // The answer may be all that was lost.
                (held.sole, held.unsure) = (None, true);
            }
            released = self.release_noted(name, owner, used, held.as_ref()).await;
            if matches!(released, Ok(Released::Nothing)) && held.is_some() {
                released = Ok(Released::Claim);
            }
        }
        match (&released, held) {
            (Ok(Released::Nothing), Some(held)) if held.unsure => self.asked.look_again(owner, held, now()),
            // It is tried again, by the caller or when its time is over.
            (Err(_), Some(mut held)) => {
                held.unsure = true;
                self.asked.look_again(owner, held, now());
            }
            _ => {}
        }
        released.map_err(|failure| self.error(failure))
    }

    async fn release_noted(
        &self,
        name: &Name,
        owner: OwnerId,
        used: u64,
        held: Option<&Held>,
    ) -> Attempt<Released> {
        let mut how = How::default();
        if let Some(version) = held.and_then(|held| held.sole) {
            // Nobody has written since: the name says that this owner holds it, and nothing else.
            let change = Change { version, record: RecordChange::Delete, ..Change::default() };
            match self.store.write(name, &change, FEW, None).await? {
                Written::Yes(_) => return Ok(Released::Claim),
                Written::No { read, .. } => how.found = Some(self.found(name, FEW, Some(owner), *read)?),
            }
        } else if self.asked.queued(owner).is_none() && held.is_none_or(|held| held.unsure) {
            // Where it stands is not known, if it stands anywhere.
            how.most = ALL;
        } else if self.asked.queued(owner).is_none() {
            how.found = self.seen.take(name, REMEMBERED, now());
        }
        let ran = self.on_name(name, &Release { owner, used }, how).await?;
        self.asked.unqueue(owner);
        Ok(ran.answer)
    }

    /// Ends a claim of this client whose lease is over.
    pub(crate) async fn end_claim(&self, owner: OwnerId) {
        let Some(held) = self.asked.held(owner).filter(|held| held.ends <= now()) else { return };
        // It may have used any of its tokens.
        if let Err(error) = self.release(&held.name, owner, u64::MAX).await {
            tracing::debug!(target: "leasehold", name = %held.name, %error, "could not end a claim");
        }
    }

    /// Renews claims.
    pub(crate) async fn renew(self: &Arc<Self>, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        let started = now();
        let mut sessions: HashMap<Duration, Arc<dyn Session>> = HashMap::new();
        let mut verdicts = vec![Renewed::Gone; renewals.len()];
        let mut known = Vec::new();
        for (number, renewal) in renewals.iter().enumerate() {
            let lock_delay = match self.asked.held(renewal.owner) {
                Some(held)
                    if held.session.as_ref().is_some_and(|session| self.store.ends_with(&**session)) =>
                {
                    continue;
                }
                Some(held) => held.lock_delay,
                None => {
                    // Asked for by another client of the same owner; from now on we keep it.
                    let held = Held::new(&renewal.name, None, renewal.lease, Duration::ZERO, started);
                    self.asked.note(renewal.owner, held);
                    Duration::ZERO
                }
            };
            let lives = renewal.lease + lock_delay;
            let session = match sessions.get(&lives) {
                Some(session) => Arc::clone(session),
                None => {
                    let session = self.store.session(Purpose::Claims(lives), started + 2 * lives).await;
                    let session = session.map_err(|failure| self.error(failure))?;
                    sessions.insert(lives, Arc::clone(&session));
                    session
                }
            };
            // Not ended while it is being renewed.
            self.asked.update(renewal.owner, |held| {
                held.lease = renewal.lease;
                held.counts_from(started);
            });
            known.push((number, session));
        }
        let mut moved = Vec::new();
        for batch in known.chunks(BATCH) {
            let mut seats: Vec<Seat> = batch.iter().map(|(_, session)| session.seat()).collect();
            seats.sort_unstable();
            seats.dedup();
            let names: Vec<&Name> = batch.iter().map(|(number, _)| &renewals[*number].name).collect();
            let verified = self.store.verify(&names, &seats).await;
            let (found, seen) = verified.map_err(|failure| self.error(failure))?;
            let alive = |seat: Seat| {
                let number = seats.iter().position(|other| *other == seat);
                number.and_then(|number| seen.get(number)).is_some_and(|alive| *alive)
            };
            for ((number, session), value) in batch.iter().zip(&found) {
                let renewal = &renewals[*number];
                let Some(stored) = self.decode(&renewal.name, value)? else { continue };
                let claims = stored.record.state.kept_claims();
                let Some(claim) = claims.iter().find(|claim| claim.owner == renewal.owner) else { continue };
                if claim.seat == session.seat() && claim.confirmed {
                    verdicts[*number] = if alive(session.seat()) { Renewed::Yes } else { Renewed::Gone };
                } else {
                    moved.push((*number, Arc::clone(session)));
                }
            }
        }
        for (number, session) in moved {
            let renewal = &renewals[number];
            verdicts[number] = match self.confirm(renewal, &session).await {
                Ok(true) => Renewed::Yes,
                Ok(false) => Renewed::Gone,
                Err(Failure::SessionEnded) => Renewed::Unknown,
                Err(Failure::Unanswered(error) | Failure::Failed(error)) => return Err(error),
            };
        }
        for (renewal, verdict) in renewals.iter().zip(&verdicts) {
            if *verdict == Renewed::Gone {
                self.asked.forget(renewal.owner);
            }
        }
        Ok(verdicts)
    }

    /// Confirms a claim that was handed over, or puts it into another session.
    async fn confirm(&self, renewal: &Renewal, session: &Arc<dyn Session>) -> Attempt<bool> {
        let key = self.store.key(&renewal.name);
        let _passed = self.gates.pass(&key).await;
        let owner = renewal.owner;
        let shown = Shown::now(owner, renewal.lease);
        let claimant = Some(Claimant { seat: session.seat(), shown });
        let how = How { claimant, ..How::default() };
        let Ran { answer, sole, .. } = self.on_name(&renewal.name, &Confirm { owner }, how).await?;
        self.asked.update(owner, |held| {
            held.session = Some(Arc::clone(session));
            held.sole = sole;
        });
        Ok(answer)
    }

    /// Changes a claim that is held.
    pub(crate) async fn alter(
        self: Arc<Self>,
        name: Name,
        owner: OwnerId,
        alteration: Alteration,
    ) -> Result<Answer> {
        let name = &name;
        let key = self.store.key(name);
        let _passed = self.gates.pass(&key).await;
        // It is written anew, and may say more than who holds it.
        self.asked.update(owner, |held| held.sole = None);
        let ran = self.on_name(name, &Alter { owner, alteration }, How::default()).await;
        Ok(match ran.map_err(|failure| self.error(failure))?.answer {
            Answer::Queued(_) => Answer::Queued(crate::claim::Pause { at_most: Duration::from_secs(5) }),
            answer => answer,
        })
    }

    pub(crate) async fn resize(&self, name: &Name, declared: u32, capacity: u32) -> Result<()> {
        let key = self.store.key(name);
        let _passed = self.gates.pass(&key).await;
        let ran = self.on_name(name, &Resize { declared, capacity }, How::default()).await;
        let resized: Result<(), Refused> = ran.map_err(|failure| self.error(failure))?.answer;
        resized.map_err(|refused| refusal(name, refused))
    }

    pub(crate) async fn break_claims(&self, name: &Name) -> Result<Vec<Claim>> {
        let key = self.store.key(name);
        let _passed = self.gates.pass(&key).await;
        let found = self.read_name(name, FEW, None).await.map_err(|failure| self.error(failure))?;
        let stored = found.known.stored.clone();
        let how = How { found: Some(found), ..How::default() };
        let mut broken = self.on_name(name, &Break, how).await.map_err(|failure| self.error(failure))?.answer;
        for claim in &mut broken {
            if let Some(shown) = stored.as_ref().and_then(|stored| stored.shown(claim.owner)) {
                shown.put_in(claim);
            }
        }
        Ok(broken)
    }

    /// What is known of a name.
    pub(crate) async fn look(&self, name: &Name, seen: u64) -> Result<View> {
        let key = self.store.key(name);
        let _passed = self.gates.pass(&key).await;
        let found = self.read_name(name, ALL, None).await.map_err(|failure| self.error(failure))?;
        let rows: HashMap<OwnerId, Shown> =
            found.known.first.iter().map(|(_, row)| (row.waiter.owner, row.shown)).collect();
        let how = How { most: ALL, found: Some(found), ..How::default() };
        let Ran { answer: mut view, stored, .. } =
            self.on_name(name, &Look { seen }, how).await.map_err(|failure| self.error(failure))?;
        if let Some(stored) = stored {
            stored.show(&mut view);
        }
        for waiting in &mut view.waiters {
            if let Some(shown) = rows.get(&waiting.waiter.owner) {
                waiting.waiter.lease = shown.lease;
                waiting.waited = since(shown.since);
            }
        }
        let mut lives: HashMap<Seat, Option<Duration>> = HashMap::new();
        for held in &mut view.claims {
            let seat = held.claim.seat;
            let left = match lives.get(&seat) {
                Some(left) => *left,
                None => self.store.lives_for(seat).await.map_err(|failure| self.error(failure))?,
            };
            lives.insert(seat, left);
            if let Some(left) = left {
                held.ends_in = held.ends_in.min(left);
            }
        }
        Ok(view)
    }

    /// The names of a family that are in use.
    pub(crate) async fn list(
        &self,
        family: Family,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Name, View)>> {
        let mut listed = Vec::new();
        let mut after = after.map(str::to_owned);
        while listed.len() < limit {
            let most = (limit - listed.len()).clamp(1, 1000);
            let page = self.store.page(family, prefix, after.as_deref(), most).await;
            let Page { now, names, more_after } = page.map_err(|failure| self.error(failure))?;
            let mut records = Vec::new();
            for (name, value) in names {
                if let Some(stored) = self.decode(&name, &value)? {
                    records.push((name, stored));
                }
            }
            let claims = records.iter().flat_map(|(_, stored)| stored.record.state.kept_claims());
            let mut seats: Vec<Seat> = claims.map(|claim| claim.seat).collect();
            seats.sort_unstable();
            seats.dedup();
            self.look_at_seats(&seats).await.map_err(|failure| self.error(failure))?;
            for (name, stored) in records {
                let mut view = view(&stored.record.state, Vec::new(), u64::MAX, now);
                view.claims.retain(|held| self.is_alive(held.claim.seat) != Some(false));
                stored.show(&mut view);
                if !view.claims.is_empty() || view.waiting > 0 {
                    listed.push((name, view));
                }
            }
            after = more_after;
            if after.is_none() {
                break;
            }
        }
        Ok(listed)
    }
}
