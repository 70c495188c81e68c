//! The keeper: renews every lease of a client, in batches.
//!
//! One task per client. A lease is due at a third of its length; what is due about now goes
//! together, in few calls. A batch holds leases of one server and of about one length, and has a
//! time limit of its own. Batches run side by side, at most one per server and length at a time, so
//! neither a server that does not answer nor a lease that is about to end costs another lease its
//! renewal.
//!
//! The keeper also notices when a deadline passes, so that a loss is an event even if nobody asks
//! the guard; the guard itself judges by the clock and does not need the keeper.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::claim::{OwnerId, OwnerMap};
use crate::client::Inner;
use crate::client::hold::Lease;
use crate::clock::{Moment, sleep_until};
use crate::engine::{Engine, Renewal, Renewed};
use crate::error::Loss;

/// At most this many renewals go in one call.
const BATCH: usize = 1000;

/// The leases of a client, and when the keeper means to look at them next.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    leases: Mutex<OwnerMap<Arc<Lease>>>,
    next_look: AtomicU64,
    /// The kinds of leases for which a call is in flight.
    calling: Mutex<HashSet<Kind>>,
    wake: Notify,
}

/// What can be renewed by one call: leases that one server keeps and whose lengths differ by less
/// than a factor of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    shard: u64,
    length: u32,
}

impl Kind {
    fn of(lease: &Lease, engine: &dyn Engine) -> Kind {
        Kind { shard: engine.shard(&lease.name), length: lease.good_for().as_micros().max(1).ilog2() }
    }
}

impl Keeper {
    pub(crate) fn new() -> Keeper {
        Keeper { next_look: AtomicU64::new(u64::MAX), ..Keeper::default() }
    }

    fn leases(&self) -> MutexGuard<'_, OwnerMap<Arc<Lease>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keep(&self, lease: &Arc<Lease>) {
        let renew_at = lease.renew_at().as_micros();
        self.leases().insert(lease.owner, Arc::clone(lease));
        if renew_at < self.next_look.fetch_min(renew_at, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    /// Stops renewing a lease.
    pub(crate) fn forget(&self, owner: OwnerId) {
        self.leases().remove(&owner);
    }

    pub(crate) fn find(&self, owner: OwnerId) -> Option<Arc<Lease>> {
        self.leases().get(&owner).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Lease>> {
        self.leases().values().cloned().collect()
    }

    /// Stops renewing all leases, and gives them to the caller.
    pub(crate) fn take_all(&self) -> Vec<Arc<Lease>> {
        self.leases().drain().map(|(_, lease)| lease).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.leases().len()
    }

    /// Looks at the leases now.
    pub(crate) fn look_now(&self) {
        self.wake.notify_one();
    }

    fn calling(&self) -> MutexGuard<'_, HashSet<Kind>> {
        self.calling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what was lost by time, and says what is due, what is due soon, and when to look again.
    fn look(&self, now: Moment) -> (Vec<Arc<Lease>>, Vec<Arc<Lease>>, Moment) {
        let (mut due, mut soon) = (Vec::new(), Vec::new());
        let mut next = Moment::NEVER;
        self.leases().retain(|_, lease| {
            if lease.loss().is_some() {
                return false;
            }
            let renew_at = lease.renew_at();
            if renew_at <= now {
                due.push(Arc::clone(lease));
            } else {
                if renew_at <= now + lease.good_for() / 24 {
                    soon.push(Arc::clone(lease));
                }
                next = next.min(renew_at);
            }
            next = next.min(lease.deadline());
            true
        });
        (due, soon, next)
    }

    /// The batches to renew now: for each kind that has something due and no call in flight, what
    /// is due and what is due soon, so that few calls serve many leases. The kinds count as called
    /// from here on.
    fn batches(&self, engine: &dyn Engine, due: Vec<Arc<Lease>>, soon: Vec<Arc<Lease>>) -> Vec<Batch> {
        let mut kinds: HashMap<Kind, Vec<Arc<Lease>>> = HashMap::new();
        for lease in due {
            kinds.entry(Kind::of(&lease, engine)).or_default().push(lease);
        }
        if kinds.is_empty() {
            return Vec::new();
        }
        for lease in soon {
            if let Some(leases) = kinds.get_mut(&Kind::of(&lease, engine)) {
                leases.push(lease);
            }
        }
        let mut calling = self.calling();
        let free = kinds.into_iter().filter(|(kind, _)| calling.insert(*kind));
        free.map(|(kind, mut leases)| {
            // What does not fit goes with the next call, as soon as this one is answered.
            // It may change at any moment.
            leases.sort_by_cached_key(|lease| lease.deadline());
            leases.truncate(BATCH);
            Batch { kind, leases }
        })
        .collect()
    }
}

/// Renews the leases of a client until the client is gone.
pub(crate) async fn run(client: Weak<Inner>, keeper: Arc<Keeper>) {
    loop {
        let Some(strong) = client.upgrade() else { return };
        let clock = Arc::clone(&strong.clock);
        let now = clock.now();
        // The promise to look is kept now. A lease that comes from here on makes a new one; one
        // that came before is seen. A promise that is still ahead stays, even if its lease is gone:
        // a name that is taken and given back all the time must not wake the keeper all the time.
        if keeper.next_look.load(Ordering::Acquire) <= now.as_micros() {
            keeper.next_look.store(u64::MAX, Ordering::Release);
        }
        let (due, soon, next) = keeper.look(now);
        keeper.next_look.fetch_min(next.as_micros(), Ordering::AcqRel);
        for batch in keeper.batches(&*strong.engine, due, soon) {
            let call = Call { keeper: Arc::clone(&keeper), kind: batch.kind };
            let strong = Arc::clone(&strong);
            tokio::spawn(async move {
                batch.renew(&strong).await;
                drop(call);
            });
        }
        drop(strong);
        let next = Moment::from_micros(keeper.next_look.load(Ordering::Acquire));
        tokio::select! {
            biased;
            () = keeper.wake.notified() => {}
            () = sleep_until(&*clock, next) => {}
        }
    }
}

/// A call in flight. Dropped when it has ended, however it ended.
struct Call {
    keeper: Arc<Keeper>,
    kind: Kind,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.keeper.calling().remove(&self.kind);
        self.keeper.look_now();
    }
}

/// Leases that are renewed by one call.
struct Batch {
    kind: Kind,
    leases: Vec<Arc<Lease>>,
}

impl Batch {
    async fn renew(&self, client: &Arc<Inner>) {
        let renewals: Vec<Renewal> = self
            .leases
            .iter()
            .map(|lease| Renewal { name: lease.name.clone(), owner: lease.owner, lease: lease.terms.lease })
            .collect();
        let shortest = self.leases.iter().map(|lease| lease.good_for()).min().unwrap_or(Duration::ZERO);
        let asked_at = client.clock.now();
        let limit = (shortest / 6).min(client.options.call_limit);
        let verdicts = client.call_within(limit, client.engine.renew(&renewals)).await;
        let now = client.clock.now();
        match verdicts {
            Ok(verdicts) => {
                for (lease, verdict) in self.leases.iter().zip(verdicts) {
                    client.events.renewal(&lease.name, Some(verdict));
                    match verdict {
                        Renewed::Yes => lease.renewed(asked_at),
                        Renewed::Gone => lease.lose(Loss::Gone),
                        Renewed::Unknown => lease.doubt(&"its server did not answer in time", now),
                    }
                }
            }
            Err(error) => {
                for lease in &self.leases {
                    client.events.renewal(&lease.name, None);
                    lease.doubt(&error, now);
                }
            }
        }
    }
}
