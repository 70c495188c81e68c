//! The session of a client: it lives as long as the servers hear of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::proof::Proof;
use crate::claim::Seat;
use crate::clock::Moment;
use crate::engine::Life;
use crate::engine::sessions::now;
use crate::engine::sessions::store::Session as Lives;

/// A session is proved often for this much longer than it is used.
const IDLE: Duration = Duration::from_secs(10);

/// A session of ours. It is a node that its session takes along when it ends, under a number that
/// is drawn anew for each: what is not there any more is gone for good.
#[derive(Debug)]
pub(super) struct Session {
    seat: Seat,
    proof: Mutex<Proof>,
    /// Microseconds on our clock.
    used_until: AtomicU64,
    ended: AtomicBool,
    /// Somebody uses it who did not, or it has ended.
    changed: Notify,
}

impl Lives for Session {
    fn seat(&self) -> Seat {
        self.seat
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn life(&self) -> Life {
        let good_until = self.good_until();
        // One that was given up because its time was over was not ended by anybody.
        if self.has_ended() && now() < good_until { Life::Over } else { Life::Until(good_until) }
    }
}

impl Session {
    /// A session that was asked for at that moment.
    pub(super) fn new(seat: Seat, asked: Moment, timeout: Duration) -> Session {
        Session {
            seat,
            proof: Mutex::new(Proof::new(asked, timeout)),
            used_until: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    fn proof(&self) -> MutexGuard<'_, Proof> {
        self.proof.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it: nobody relies on it any more. True if it had not ended yet.
    pub(super) fn end(&self) -> bool {
        let is_new = !self.ended.swap(true, Ordering::AcqRel);
        self.changed.notify_waiters();
        is_new
    }

    /// Somebody relies on it until then.
    pub(super) fn use_until(&self, until: Moment) {
        let before = self.used_until.fetch_max(until.as_micros(), Ordering::AcqRel);
        if before < now().as_micros() {
            self.changed.notify_waiters();
        }
    }

    /// A write was answered that names it.
    pub(super) fn answered(&self, sent: Moment) {
        self.proof().answered(sent, now());
    }

    /// It lives at least until then.
    pub(super) fn good_until(&self) -> Moment {
        self.proof().good_until()
    }

    /// How often to prove that it lives.
    pub(super) fn prove_every(&self) -> Duration {
        let used_until = Moment::from_micros(self.used_until.load(Ordering::Acquire));
        self.proof().write_every(used_until + IDLE > now())
    }

    /// Heard of when it is used again, or has ended.
    pub(super) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }
}
