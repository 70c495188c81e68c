//! What you hold: mutex, read-write lock, semaphore, several at once, election, latch.

mod election;
mod latch;
mod multi;
mod mutex;
mod rwlock;
mod semaphore;

pub use election::{Candidate, Election, LONGEST_VALUE, Leader, Leadership, Observed, Observer};
pub use latch::Latch;
pub use multi::{Multi, MultiGuard};
pub use mutex::{Mutex, Owner};
pub use rwlock::{NotUpgraded, ReadGuard, RwLock, WriteGuard};
pub use semaphore::Semaphore;

/// The settings that every lock has, written once.
macro_rules! settings {
    () => {
        /// Another lease than the client's: see [`crate::Options::lease`].
        #[must_use]
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            self.want.terms.lease = lease;
            self
        }

        /// What the holder is called for humans.
        #[must_use]
        pub fn label(mut self, label: impl Into<String>) -> Self {
            std::sync::Arc::make_mut(&mut self.want.holder).label = label.into();
            self
        }

        /// How long the name stays closed after a holder's lease *expired*; not after a release.
        /// Zero by default.
        ///
        /// For resources that can not check tokens: it gives a paused holder time to find out. It
        /// narrows the gap and does not close it.
        #[must_use]
        pub fn lock_delay(mut self, delay: std::time::Duration) -> Self {
            self.want.terms.lock_delay = delay;
            self
        }

        /// The name, with its namespaces.
        pub fn name(&self) -> &str {
            self.want.name.as_str()
        }
    };
}
use settings;
