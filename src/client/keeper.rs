//! The keeper: renews every lease of a client, in batches.
//!
//! One task per client. A lease is due at a third of its length; what is due about now goes together, in few
//! calls, each with a time limit of its own. The keeper also notices when a deadline passes, so that a loss is
//! an event even if nobody asks the guard; the guard itself judges by the clock and does not need the keeper.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::claim::OwnerId;
use crate::client::Inner;
use crate::client::clock::{Moment, sleep_until};
use crate::client::hold::Lease;
use crate::engine::{Renewal, Renewed};
use crate::error::Loss;

/// At most this many renewals go in one call.
const BATCH: usize = 1000;

/// The leases of a client, and when the keeper means to look at them next.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    leases: Mutex<HashMap<OwnerId, Arc<Lease>, BuildHasherDefault<OwnerHasher>>>,
    next_look: AtomicU64,
    calling: AtomicBool,
    wake: Notify,
}

/// Owners are unique numbers already.
#[derive(Debug, Default)]
pub(crate) struct OwnerHasher(u64);

impl Hasher for OwnerHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u128(&mut self, owner: u128) {
        // The low half counts up; the multiplication spreads it over the bits that the table looks at.
        let (high, low) = ((owner >> 64) as u64, owner as u64);
        self.0 = (low ^ high).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Keeper {
    pub(crate) fn new() -> Keeper {
        Keeper { next_look: AtomicU64::new(u64::MAX), ..Keeper::default() }
    }

    fn leases(&self) -> MutexGuard<'_, HashMap<OwnerId, Arc<Lease>, BuildHasherDefault<OwnerHasher>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keep(&self, lease: &Arc<Lease>) {
        let renew_at = lease.renew_at().as_micros();
        self.leases().insert(lease.owner, Arc::clone(lease));
        if renew_at < self.next_look.fetch_min(renew_at, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    pub(crate) fn forget(&self, owner: OwnerId) {
        self.leases().remove(&owner);
    }

    pub(crate) fn find(&self, owner: OwnerId) -> Option<Arc<Lease>> {
        self.leases().get(&owner).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Lease>> {
        self.leases().values().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.leases().len()
    }

    /// Looks at the leases now.
    pub(crate) fn look_now(&self) {
        self.wake.notify_one();
    }

    /// Notes what was lost by time, and says what is due and when to look again.
    fn look(&self, now: Moment) -> (Vec<Arc<Lease>>, Moment) {
        let mut due = Vec::new();
        let mut next = Moment::NEVER;
        let mut first = Moment::NEVER;
        self.leases().retain(|_, lease| {
            if now >= lease.deadline() {
                lease.lose(Loss::Deadline);
            }
            if lease.loss().is_some() {
                return false;
            }
            first = first.min(lease.renew_at());
            let soon = lease.terms.lease / 24;
            if lease.renew_at() <= now + soon {
                due.push(Arc::clone(lease));
            } else {
                next = next.min(lease.renew_at());
            }
            next = next.min(lease.deadline());
            true
        });
        // What is due soon goes with what is due now, so that few calls serve many leases; but not before.
        if first > now {
            due.clear();
            next = next.min(first);
        }
        (due, next)
    }
}

/// Renews the leases of a client until the client is gone.
pub(crate) async fn run(client: Weak<Inner>, keeper: Arc<Keeper>) {
    loop {
        let Some(strong) = client.upgrade() else { return };
        let clock = Arc::clone(&strong.clock);
        let now = clock.now();
        // The promise to look is kept now. A lease that comes from here on makes a new one; one that came
        // before is seen. A promise that is still ahead stays, even if its lease is gone: a name that is
        // taken and given back all the time must not wake the keeper all the time.
        if keeper.next_look.load(Ordering::Acquire) <= now.as_micros() {
            keeper.next_look.store(u64::MAX, Ordering::Release);
        }
        let (due, next) = keeper.look(now);
        keeper.next_look.fetch_min(next.as_micros(), Ordering::AcqRel);
        if !due.is_empty() && !keeper.calling.swap(true, Ordering::AcqRel) {
            let keeper = Arc::clone(&keeper);
            let strong = Arc::clone(&strong);
            tokio::spawn(async move {
                renew(&strong, &due).await;
                keeper.calling.store(false, Ordering::Release);
                keeper.look_now();
            });
        }
        drop(strong);
        let next = Moment::from_micros(keeper.next_look.load(Ordering::Acquire));
        tokio::select! {
            () = keeper.wake.notified() => {}
            () = sleep_until(&*clock, next) => {}
        }
    }
}

async fn renew(client: &Arc<Inner>, due: &[Arc<Lease>]) {
    for batch in due.chunks(BATCH) {
        let renewals: Vec<Renewal> = batch
            .iter()
            .map(|lease| Renewal { name: lease.name.clone(), owner: lease.owner, lease: lease.terms.lease })
            .collect();
        let shortest = batch.iter().map(|lease| lease.terms.lease).min().unwrap_or(Duration::ZERO);
        let asked_at = client.clock.now();
        let limit = (shortest / 6).min(client.options.call_limit);
        let verdicts = client.call_within(limit, client.engine.renew(&renewals)).await;
        let now = client.clock.now();
        match verdicts {
            Ok(verdicts) => {
                for (lease, verdict) in batch.iter().zip(verdicts) {
                    match verdict {
                        Renewed::Yes => lease.renewed(asked_at),
                        Renewed::Gone => lease.lose(Loss::Gone),
                        Renewed::Unknown => lease.doubt(&"its server did not answer in time", now),
                    }
                }
            }
            Err(error) => batch.iter().for_each(|lease| lease.doubt(&error, now)),
        }
    }
}
