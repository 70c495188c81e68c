//! Locks and elections that are shared with Go's `concurrency` package, `etcdctl lock` and `etcdctl
//! elect`.
//!
//! A contender for the name `N` is the key `N/LEASE`, where LEASE is the number of its etcd lease
//! in hexadecimal digits. Whoever has the lowest create revision holds the name. Each claim here
//! has a lease of its own, because two with the same lease would have the same key, and both would
//! hold.
//!
//! What this mode does better than those it shares names with: a waiter looks for its own key
//! before it believes that it holds, a release deletes the key only if it is still the one that was
//! made, and a waiter whose lease has ended queues again.
//!
//! What it can not do: names nest (`a` waits for `a/b`), a mutex and an election of the same name
//! exclude each other, nobody else says who holds, and whatever needs more than one holder or more
//! than a place in a queue is refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connection::Cluster;
use super::contest::Contest;
use super::errors::{Attempt, Failure, error};
use super::keys::Keys;
use super::messages::{KeyValue, Op, RangeRequest};
use super::promises::ENGINE;
use super::store::{Store, Txn, created_by, delete, get, get_all, put, unchanged};
use super::url::Place;
use super::watches::{Heard, Watched, Watches};
use crate::claim::{Answer, Ask, Claim, Grant, Holder, OwnerId, Pause, Refused, Released, WHOLE, Waiter};
use crate::clock::{Clock as _, Moment, SystemClock};
use crate::engine::supervise::Supervisor;
use crate::engine::{HeldClaim, Hint, Hints, Renewal, Renewed, View, Waiting};
use crate::error::{Error, Result};
use crate::name::{Family, Name};

/// A waiter that hears nothing asks again after this long, and so keeps its lease alive.
const ASK_AGAIN: Pause = Pause { at_most: Duration::from_secs(1) };
/// The shortest lease: a waiter must be able to ask again a few times.
const SHORTEST: u64 = 5;

/// One client of a cluster that shares names with others.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) store: Arc<Store>,
    pub(super) watches: Arc<Watches>,
    contenders: Mutex<HashMap<OwnerId, Contender>>,
    /// The elections that are observed.
    contests: Mutex<HashMap<Name, Contest>>,
}

/// A key of ours.
#[derive(Clone, Debug)]
struct Contender {
    name: Name,
    lease: i64,
    /// 0 as long as it is not known that the key is there.
    revision: i64,
    key: Vec<u8>,
}

/// Where the contenders for a name are.
pub(super) fn contenders(name: &Name) -> Vec<u8> {
    [name.as_str().as_bytes(), b"/"].concat()
}

/// The contenders, the first one first.
fn in_order(name: &Name, limit: i64) -> Op {
    // Sorted by their create revisions.
    Op::Range(RangeRequest { limit, sort_order: 1, sort_target: 2, ..get_all(contenders(name), 0) })
}

impl Raw {
    pub(super) async fn open(place: Place) -> Result<Arc<Raw>> {
        let keys = Keys::new(place.prefix.clone());
        let supervisor = Supervisor::open(Cluster::new(place, &keys)?).await?;
        let store = Arc::new(Store { supervisor });
        let watches = Watches::new(Arc::clone(&store), keys);
        let raw = Arc::new(Raw { store, watches, contenders: Mutex::default(), contests: Mutex::default() });
        let weak = Arc::downgrade(&raw);
        raw.watches.start(None, move |heard| {
            if let Some(raw) = weak.upgrade() {
                raw.hear(heard);
            }
        });
        Ok(raw)
    }

    pub(super) fn listen(&self, hints: Hints) {
        // Called once; a second sink would never hear anything.
        self.store.supervisor.connector().hints.set(hints).ok();
    }

    fn hint(&self, hint: Hint) {
        self.store.supervisor.connector().hint(hint);
    }

    fn hear(&self, heard: Heard) {
        match heard {
            Heard::Left(name) => {
                let owners: Vec<OwnerId> = {
                    let table = self.table();
                    table.iter().filter(|(_, own)| own.name == name).map(|(owner, _)| *owner).collect()
                };
                owners.into_iter().for_each(|owner| self.hint(Hint::Wake(owner)));
            }
            Heard::Event { name, kv, deleted } => {
                let new = self.contests().get_mut(&name).is_some_and(|contest| contest.event(&kv, deleted));
                if new {
                    self.hint(Hint::Changed(name));
                }
            }
            Heard::Deaf => self.contests().values_mut().for_each(Contest::miss),
            Heard::Missed => {
                let observed: Vec<Name> = {
                    let mut contests = self.contests();
                    contests.values_mut().for_each(Contest::miss);
                    contests.keys().cloned().collect()
                };
                observed.into_iter().for_each(|name| self.hint(Hint::Changed(name)));
                self.hint(Hint::WakeAll);
                self.hint(Hint::Verify);
            }
            Heard::Ended(_) | Heard::Mail(..) | Heard::Changed(_) => {}
        }
    }

    fn contests(&self) -> MutexGuard<'_, HashMap<Name, Contest>> {
        self.contests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self) -> MutexGuard<'_, HashMap<OwnerId, Contender>> {
        self.contenders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contender(&self, owner: OwnerId) -> Option<Contender> {
        self.table().get(&owner).cloned()
    }

    /// Asks for a claim, or asks again.
    pub(super) async fn acquire(self: Arc<Self>, name: Name, ask: Ask) -> Result<Answer> {
        if !is_shared(&name) || ask.weight != ask.capacity || !ask.lock_delay.is_zero() {
            return Err(unsupported("shares mutexes and elections, without lock delays, in raw mode"));
        }
        if name.as_str().is_empty() {
            return Err(Error::invalid("a raw name must not be empty: all keys would be contenders"));
        }
        let watched = Watched::Contenders(name.clone());
        loop {
            let hears = self.watches.is_open(&watched);
            match self.acquire_once(&name, &ask).await {
                // The key went with its lease: it queues again, under another one.
                Err(Failure::SessionEnded) => {
                    self.table().remove(&ask.owner);
                }
                // Whoever it waits for may have gone before the watch was open. One that starts in
                // the past would be slow.
                Ok(Answer::Queued(_)) if !hears => self.watches.watch(watched.clone()).await?,
                answer => return answer.map_err(error),
            }
        }
    }

    async fn acquire_once(&self, name: &Name, ask: &Ask) -> Attempt<Answer> {
        let own = match self.contender(ask.owner) {
            Some(own) => {
                // A grant is good for a lease from when it was asked for.
                self.store.keep_alive(own.lease).await?;
                own
            }
            None => {
                let seconds = ask.lease.as_secs() + u64::from(ask.lease.subsec_nanos() > 0);
                let (lease, _) = self.store.grant(seconds.max(SHORTEST).cast_signed()).await?;
                let key = [contenders(name), format!("{lease:x}").into_bytes()].concat();
                let own = Contender { name: name.clone(), lease, revision: 0, key };
                self.table().insert(ask.owner, own.clone());
                own
            }
        };
        let then = match own.revision {
            0 => put(own.key.clone(), ask.value.to_vec(), own.lease),
            _ => get(own.key.clone()),
        };
        let txn = Txn {
            conditions: vec![unchanged(own.key.clone(), own.revision)],
            then: vec![then, in_order(name, 1)],
            otherwise: vec![get(own.key.clone()), in_order(name, 1)],
        };
        let outcome = self.store.txn(txn).await?;
        let mut found = outcome.found.into_iter();
        let (mine, first) = (found.next().unwrap_or_default(), found.next().unwrap_or_default());
        let revision = match (own.revision, outcome.succeeded) {
            (0, true) => outcome.revision.cast_signed(),
            // An answer was lost, or the key was deleted.
            _ => mine.first().map_or(0, |kv| kv.create_revision),
        };
        if revision == 0 {
            return Err(Failure::SessionEnded);
        }
        if let Some(own) = self.table().get_mut(&ask.owner) {
            own.revision = revision;
        }
        if first.first().is_some_and(|first| first.create_revision == revision) {
            return Ok(Answer::Granted(Grant { token: revision.cast_unsigned(), tokens: 1 }));
        }
        if ask.wait {
            return Ok(Answer::Queued(ASK_AGAIN));
        }
        self.leave(ask.owner).await?;
        Ok(Answer::Busy(ASK_AGAIN))
    }

    /// Gives a claim back, or leaves the queue.
    pub(super) async fn release(self: Arc<Self>, owner: OwnerId) -> Result<Released> {
        self.leave(owner).await.map_err(error)
    }

    async fn leave(&self, owner: OwnerId) -> Attempt<Released> {
        let Some(own) = self.contender(owner) else { return Ok(Released::Nothing) };
        let mut released = Released::Nothing;
        if own.revision != 0 {
            let txn = Txn {
                // Not a later key of the same name.
                conditions: vec![created_by(own.key.clone(), own.revision)],
                then: vec![delete(own.key)],
                ..Txn::default()
            };
            if self.store.txn(txn).await?.succeeded {
                released = Released::Claim;
            }
        }
        // With whatever a request may still make of it.
        match self.store.revoke(own.lease).await {
            Ok(()) | Err(Failure::SessionEnded) => {}
            Err(error) => return Err(error),
        }
        let mut table = self.table();
        table.remove(&owner);
        if !table.values().any(|other| other.name == own.name) {
            self.watches.unwatch(&Watched::Contenders(own.name));
        }
        Ok(released)
    }

    /// Changes what a leader says.
    pub(super) async fn proclaim(self: Arc<Self>, owner: OwnerId, value: Arc<[u8]>) -> Result<Answer> {
        let Some(own) = self.contender(owner) else { return Ok(Answer::Refused(Refused::NotHeld)) };
        let txn = Txn {
            conditions: vec![created_by(own.key.clone(), own.revision)],
            then: vec![put(own.key, value.to_vec(), own.lease)],
            ..Txn::default()
        };
        let proclaimed = self.store.txn(txn).await.map_err(error)?.succeeded;
        Ok(match proclaimed {
            true => Answer::Granted(Grant { token: own.revision.cast_unsigned(), tokens: 1 }),
            false => Answer::Refused(Refused::NotHeld),
        })
    }

    /// Begins to write a log of who leads.
    pub(super) async fn observe(&self, name: &Name) -> Result<()> {
        self.contests().entry(name.clone()).or_default();
        self.watches.watch(Watched::Contest(name.clone())).await?;
        self.look(name, 0).await.map(|_| ())
    }

    pub(super) fn ignore(&self, name: &Name) {
        self.watches.unwatch(&Watched::Contest(name.clone()));
        self.contests().remove(name);
    }

    /// Renews one claim.
    pub(super) async fn renew(&self, renewal: &Renewal) -> Renewed {
        let Some(own) = self.contender(renewal.owner) else { return Renewed::Gone };
        let kept = self.store.keep_alive(own.lease).await;
        let looked = self
            .store
            .txn(Txn { conditions: vec![created_by(own.key.clone(), own.revision)], ..Txn::default() });
        match (kept, looked.await) {
            (Err(Failure::SessionEnded), _) => Renewed::Gone,
            (Ok(_), Ok(outcome)) => {
                if outcome.succeeded {
                    Renewed::Yes
                } else {
                    Renewed::Gone
                }
            }
            _ => Renewed::Unknown,
        }
    }

    /// All contenders in order, and the revision of the store. Keys do not tell whether they stand
    /// for a mutex or an election: they are both.
    async fn read(&self, name: &Name) -> Result<(Vec<KeyValue>, i64)> {
        if !is_shared(name) {
            return Ok((Vec::new(), 0));
        }
        let txn = Txn { then: vec![in_order(name, 0)], ..Txn::default() };
        let outcome = self.store.txn(txn).await.map_err(error)?;
        Ok((outcome.found.into_iter().next().unwrap_or_default(), outcome.revision.cast_signed()))
    }

    /// Who contends for a name, as far as the keys tell.
    pub(super) async fn look(&self, name: &Name, seen: u64) -> Result<View> {
        let (found, revision) = self.read(name).await?;
        let claims: Vec<Claim> = found.iter().map(|kv| self.claim_of(kv)).collect();
        let mut view = View { capacity: if found.is_empty() { 0 } else { WHOLE }, ..View::default() };
        if let Some(contest) = self.contests().get_mut(name) {
            if contest.is_stale() {
                contest.read(&found, revision);
            }
            (view.changes, view.change_count) = contest.changes(seen);
        }
        for (number, claim) in claims.into_iter().enumerate() {
            if number == 0 {
                let left = self.store.time_to_live(claim.seat.cast_signed()).await;
                let ends_in = left.map_err(error)?;
                view.claims.push(HeldClaim { claim, held_for: Duration::ZERO, ends_in });
            } else {
                view.waiting += 1;
                view.waiters.push(Waiting { waiter: waiter_of(claim), waited: Duration::ZERO });
            }
        }
        Ok(view)
    }

    fn claim_of(&self, kv: &KeyValue) -> Claim {
        let own = self.table().iter().find(|(_, own)| own.key == kv.key).map(|(owner, _)| *owner);
        let label = String::from_utf8_lossy(&kv.key).into_owned();
        Claim {
            owner: own.unwrap_or(OwnerId(u128::from(kv.create_revision.cast_unsigned()))),
            seat: kv.lease.cast_unsigned(),
            weight: WHOLE,
            token: kv.create_revision.cast_unsigned(),
            tokens: 1,
            lease: 0,
            expires: 0,
            lock_delay: 0,
            since: 0,
            confirmed: true,
            // The key is all that is known of strangers.
            holder: Arc::new(Holder { label, ..Holder::default() }),
            value: kv.value.clone().into(),
        }
    }

    /// Takes a name away from whoever holds it.
    pub(super) async fn break_claims(&self, name: &Name) -> Result<Vec<Claim>> {
        let Some(first) = self.read(name).await?.0.into_iter().next() else { return Ok(Vec::new()) };
        let claim = self.claim_of(&first);
        let txn = Txn {
            conditions: vec![created_by(first.key.clone(), first.create_revision)],
            then: vec![delete(first.key)],
            ..Txn::default()
        };
        let broken = self.store.txn(txn).await.map_err(error)?.succeeded;
        if broken {
            self.hint(Hint::Broken(claim.owner));
        }
        Ok(if broken { vec![claim] } else { Vec::new() })
    }

    /// Ends all leases, and with them all claims of this client.
    pub(super) async fn close(&self) {
        let leases: Vec<i64> = self.table().drain().map(|(_, own)| own.lease).collect();
        let limit: Moment = SystemClock.now() + Duration::from_secs(3);
        for lease in leases {
            let left = limit.since(SystemClock.now());
            // What can not be ended now ends by itself.
            tokio::time::timeout(left, self.store.revoke(lease)).await.ok();
        }
    }
}

/// Whether others have such names, too.
fn is_shared(name: &Name) -> bool {
    matches!(name.family(), Family::Lock | Family::Election)
}

fn waiter_of(claim: Claim) -> Waiter {
    Waiter {
        owner: claim.owner,
        seat: claim.seat,
        weight: claim.weight,
        tokens: claim.tokens,
        lease: 0,
        lock_delay: 0,
        since: 0,
        alive_until: 0,
        holder: claim.holder,
        value: claim.value,
    }
}

pub(super) fn unsupported(what: &str) -> Error {
    Error::Unsupported { engine: ENGINE, what: what.to_owned() }
}
