//! The sessions of a client: etcd leases that say that it lives.
//!
//! A session is a lease of the cluster and a key that the lease takes along when it ends. A claim
//! belongs to a session and ends with it. There is one session for each length of leases, and a
//! short one for those who wait: a waiter that died must be passed over in seconds.
//!
//! The cluster counts a lease from when it hears of it. We count from when we *send*, so a session
//! is good for at least as long as [`Session::good_until`] says. It is kept alive often enough to
//! be good for a whole lease of its claims at any time, so that a claim needs no lease of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::errors::{Attempt, Failure};
use super::keys::Keys;
use super::store::{Store, Txn, put};
use super::watches::{Watched, Watches};
use crate::claim::{CONFIRM, Seat};
use crate::clock::{Moment, SystemClock, sleep_until};
use crate::engine::sessions::now;
use crate::engine::sessions::store::{Purpose, Session as Lives};
use crate::error::Result;

/// How much longer a lease of the cluster is than what it must be good for, at least and at most.
const LEAST_SLACK: Duration = Duration::from_secs(1);
const MOST_SLACK: Duration = Duration::from_secs(10);
/// A session that nobody has used for this long is ended.
const IDLE: Duration = Duration::from_secs(60);
/// How long one keep-alive may take, and the pause after one that failed.
const LIMIT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(200);

/// For how long a session must be good at any time.
fn need(purpose: Purpose) -> Duration {
    match purpose {
        Purpose::Waiting => CONFIRM,
        Purpose::Claims(lease) => lease,
    }
}

fn slack(purpose: Purpose) -> Duration {
    match purpose {
        Purpose::Waiting => Duration::from_secs(2),
        Purpose::Claims(lease) => (lease / 6).clamp(LEAST_SLACK, MOST_SLACK),
    }
}

/// The seconds of the lease.
fn seconds(purpose: Purpose) -> i64 {
    let time = need(purpose) + slack(purpose);
    i64::try_from(time.as_secs() + u64::from(time.subsec_nanos() > 0)).unwrap_or(i64::MAX)
}

/// A lease of the cluster, and what is known of it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) seat: Seat,
    /// The number of the lease.
    pub(super) id: i64,
    purpose: Purpose,
    /// Microseconds on our clock: see [`Session::good_until`].
    good_until: AtomicU64,
    used_until: AtomicU64,
    ended: AtomicBool,
    /// One keep-alive at a time is enough for all.
    keeping: tokio::sync::Mutex<()>,
    changed: Notify,
}

impl Lives for Session {
    fn seat(&self) -> Seat {
        self.seat
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

impl Session {
    /// The cluster keeps the session at least until then, unless somebody revokes it.
    pub(super) fn good_until(&self) -> Moment {
        Moment::from_micros(self.good_until.load(Ordering::Acquire))
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Somebody relies on it until then.
    pub(super) fn use_until(&self, until: Moment) {
        let before = self.used_until.fetch_max(until.as_micros(), Ordering::AcqRel);
        if before < now().as_micros() {
            // It was idle, and is kept alive more often from now on.
            self.changed.notify_waiters();
        }
    }

    fn is_used(&self, at: Moment) -> bool {
        self.used_until.load(Ordering::Acquire) > at.as_micros()
    }

    /// Keeps the session alive unless it is good for what it is for from `from` on.
    pub(super) async fn make_good(&self, store: &Store, from: Moment) -> Attempt<()> {
        let enough = from + need(self.purpose);
        if self.good_until() >= enough {
            return Ok(());
        }
        let _one = self.keeping.lock().await;
        if self.good_until() >= enough {
            return Ok(());
        }
        self.keep_alive(store).await
    }

    async fn keep_alive(&self, store: &Store) -> Attempt<()> {
        if self.has_ended() {
            return Err(Failure::SessionEnded);
        }
        // Counted from before the send: the cluster's count starts no earlier than this.
        let sent = now();
        match store.keep_alive(self.id).await {
            Ok(lives) => {
                self.good_until.fetch_max((sent + lives).as_micros(), Ordering::AcqRel);
                Ok(())
            }
            Err(Failure::SessionEnded) => {
                self.end();
                Err(Failure::SessionEnded)
            }
            Err(error) => Err(error),
        }
    }

    /// When it is to be kept alive next; `None` if it has been idle for so long that it can end.
    fn due(&self, at: Moment) -> Option<Moment> {
        let used_until = Moment::from_micros(self.used_until.load(Ordering::Acquire));
        if at >= used_until + IDLE {
            return None;
        }
        let kept = need(self.purpose) + slack(self.purpose) / 2;
        // An idle one is kept alive once in a while: whoever uses it next makes it good first.
        let left = if self.is_used(at) { kept } else { kept / 2 };
        Some(self.good_until() - left)
    }
}

/// The sessions of a client.
#[derive(Debug)]
pub(super) struct Sessions {
    store: Arc<Store>,
    keys: Keys,
    watches: Arc<Watches>,
    slots: Mutex<HashMap<i64, Arc<Slot>>>,
    /// All that have not ended.
    live: Mutex<HashMap<Seat, Arc<Session>>>,
}

type Slot = tokio::sync::Mutex<Option<Arc<Session>>>;

impl Sessions {
    pub(super) fn new(store: Arc<Store>, keys: Keys, watches: Arc<Watches>) -> Arc<Sessions> {
        Arc::new(Sessions { store, keys, watches, slots: Mutex::default(), live: Mutex::default() })
    }

    fn live(&self) -> MutexGuard<'_, HashMap<Seat, Arc<Session>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of our sessions that has not ended, as far as we know.
    pub(super) fn own(&self, seat: Seat) -> Option<Arc<Session>> {
        self.live().get(&seat).cloned()
    }

    /// A session is gone.
    pub(super) fn ended(&self, seat: Seat) -> bool {
        let own = self.live().remove(&seat);
        if let Some(session) = &own {
            session.end();
            self.watches.unwatch(&Watched::Session(seat));
        }
        own.is_some()
    }

    /// A session that is good for its purpose from now on, and is kept so until `until`.
    pub(super) async fn get(self: &Arc<Self>, purpose: Purpose, until: Moment) -> Attempt<Arc<Session>> {
        // Those who wait have one of their own, even if its lease is as long as another's.
        let number = if purpose == Purpose::Waiting { 0 } else { seconds(purpose) };
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(number).or_default())
        };
        let mut place = slot.lock().await;
        let asked = now();
        if let Some(session) = place.as_ref().filter(|session| !session.has_ended()) {
            session.use_until(until);
            match session.make_good(&self.store, asked).await {
                Ok(()) => return Ok(Arc::clone(session)),
                Err(Failure::SessionEnded) => {
                    self.ended(session.seat);
                }
                Err(error) => return Err(error),
            }
        }
        // The longest lease that needs so many seconds decides how often it is kept alive.
        let purpose = match purpose {
            Purpose::Waiting => Purpose::Waiting,
            Purpose::Claims(_) => longest_of(number),
        };
        let session = self.open(purpose, until).await?;
        *place = Some(Arc::clone(&session));
        Ok(session)
    }

    async fn open(self: &Arc<Self>, purpose: Purpose, until: Moment) -> Attempt<Arc<Session>> {
        let sent = now();
        let (id, lives) = self.store.grant(seconds(purpose)).await?;
        let seat = id.cast_unsigned();
        let session = Arc::new(Session {
            seat,
            id,
            purpose,
            good_until: AtomicU64::new((sent + lives).as_micros()),
            used_until: AtomicU64::new(until.as_micros()),
            ended: AtomicBool::new(false),
            keeping: tokio::sync::Mutex::default(),
            changed: Notify::new(),
        });
        // Listened to before anybody can know of it.
        self.watches.watch(Watched::Session(seat)).await?;
        let key = put(self.keys.session(seat), Vec::new(), id);
        self.store.txn(Txn { then: vec![key], ..Txn::default() }).await?;
        self.live().insert(seat, Arc::clone(&session));
        tokio::spawn(keep(Arc::downgrade(self), Arc::clone(&session)));
        Ok(session)
    }

    /// Ends all sessions, and with them all claims of this client.
    pub(super) async fn close(&self) -> Result<()> {
        let sessions: Vec<_> = self.live().drain().map(|(_, session)| session).collect();
        for session in sessions {
            session.end();
            // What can not be ended now ends by itself.
            timeout(LIMIT, self.store.revoke(session.id)).await.ok();
        }
        Ok(())
    }
}

/// The longest lease that needs a lease of the cluster of so many seconds.
fn longest_of(seconds: i64) -> Purpose {
    let time = Duration::from_secs(seconds.max(0).cast_unsigned());
    let slack = (time / 7).clamp(LEAST_SLACK, MOST_SLACK);
    Purpose::Claims(time.saturating_sub(slack))
}

/// Keeps a session alive until it ends.
async fn keep(sessions: Weak<Sessions>, session: Arc<Session>) {
    while !session.has_ended() {
        let changed = session.changed.notified();
        let at = now();
        let Some(due) = session.due(at) else {
            match sessions.upgrade() {
                Some(sessions) if !end_idle(&sessions, &session).await => continue,
                _ => return,
            }
        };
        if due > at {
            tokio::select! {
                () = changed => {}
                () = sleep_until(&SystemClock, due) => {}
            }
            continue;
        }
        let Some(strong) = sessions.upgrade() else { return };
        let _one = session.keeping.lock().await;
        match timeout(LIMIT, session.keep_alive(&strong.store)).await {
            Ok(Ok(())) => {}
            Ok(Err(Failure::SessionEnded)) => {
                strong.ended(session.seat);
                return;
            }
            // Its claims are in doubt until their own deadlines. It is tried again.
            Ok(Err(Failure::Failed(_))) => sleep(5 * PAUSE).await,
            Ok(Err(Failure::Unanswered(_))) | Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Ends a session that nobody uses; false if somebody uses it again.
async fn end_idle(sessions: &Arc<Sessions>, session: &Session) -> bool {
    let slots: Vec<_> = {
        let slots = sessions.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.values().cloned().collect()
    };
    for slot in slots {
        // While this is locked, nobody begins to use it.
        let mut place = slot.lock().await;
        if place.as_ref().is_some_and(|own| own.seat == session.seat) {
            if session.is_used(now()) {
                return false;
            }
            *place = None;
            sessions.ended(session.seat);
            sessions.store.revoke(session.id).await.ok();
            return true;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_good_for_every_lease_that_shares_it() {
        for millis in [100, 300, 900, 1000, 1001, 2000, 5999, 6000, 6001, 30_000, 60_000, 60_500, 86_400_000]
        {
            let purpose = Purpose::Claims(Duration::from_millis(millis));
            let needed = seconds(purpose);
            let shared = longest_of(needed);
            assert!(need(shared) >= need(purpose), "{millis}: {shared:?}");
            let lives = Duration::from_secs(needed.cast_unsigned());
            assert!(need(shared) + slack(shared) <= lives + Duration::from_millis(1), "{millis}: {shared:?}");
            assert!(slack(shared) >= LEAST_SLACK);
        }
    }
}
