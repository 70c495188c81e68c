//! The session of a client: it lives as long as the servers hear of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::proof::Proof;
use crate::claim::Seat;
use crate::clock::Moment;
use crate::engine::sessions::now;
use crate::engine::sessions::store::Session as Lives;

/// A session that nobody uses is proved for this much longer.
const IDLE: Duration = Duration::from_secs(10);

/// A session of ours. It is a node that its session takes along when it ends, under a number that
/// is drawn anew for each: what is not there any more is gone for good.
#[derive(Debug)]
pub(super) struct Session {
    seat: Seat,
    proof: Mutex<Proof>,
    /// Microseconds on our clock: since when and until when it is used.
    used_since: AtomicU64,
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
}

impl Session {
    /// A session that was asked for at that moment.
    pub(super) fn new(seat: Seat, asked: Moment, timeout: Duration) -> Session {
        Session {
            seat,
            proof: Mutex::new(Proof::new(asked, timeout)),
            used_since: AtomicU64::new(0),
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
        let now = now();
        if before < now.as_micros() {
            self.used_since.store(now.as_micros(), Ordering::Release);
            self.changed.notify_waiters();
        }
    }

    /// Until when it is used.
    pub(super) fn used_until(&self) -> Moment {
        Moment::from_micros(self.used_until.load(Ordering::Acquire))
    }

    /// Whether it is worth a write to prove that it lives.
    pub(super) fn is_used(&self, at: Moment) -> bool {
        self.used_until() + IDLE > at
    }

    /// A write was answered that names it.
    pub(super) fn answered(&self, sent: Moment) {
        self.proof().answered(sent, now());
    }

    /// Nobody relies on it for longer than that: it lives at least so long, or has not been used
    /// until a moment ago.
    pub(super) fn relied_on_until(&self) -> Moment {
        let since = Moment::from_micros(self.used_since.load(Ordering::Acquire));
        let proof = self.proof();
        // Whoever is granted something has an answer, which proves more.
        proof.good_until().max(since + proof.good_for())
    }

    pub(super) fn write_every(&self) -> Duration {
        self.proof().write_every()
    }

    /// Heard of when it is used again, or has ended.
    pub(super) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }
}
