//! What a caller holds.

use std::sync::Arc;

use tokio::task::AbortHandle;

use super::runtime::Runtime;
use crate::error::Result;

/// What every guard can say, written once: `self.guard` is an async one.
macro_rules! guard {
    () => {
        /// What is held.
        pub fn name(&self) -> &str {
            self.guard.name()
        }

        /// The fencing token: see [`crate::Guard::token`].
        pub fn token(&self) -> crate::Token {
            self.guard.token()
        }

        /// Held, in doubt or lost, at this moment.
        pub fn standing(&self) -> crate::Standing {
            self.guard.standing()
        }

        /// True unless lost.
        pub fn is_held(&self) -> bool {
            self.guard.is_held()
        }

        /// When the lease ends if it is not renewed, on the client's clock.
        pub fn deadline(&self) -> crate::Moment {
            self.guard.deadline()
        }

        /// How long the lease lasts if it is not renewed.
        pub fn remaining(&self) -> std::time::Duration {
            self.guard.remaining()
        }

        /// An error if the name is lost: put it before each step that must not be made too late.
        ///
        /// # Errors
        ///
        /// [`crate::Error::Lost`].
        pub fn check(&self) -> crate::error::Result<()> {
            self.guard.check()
        }

        /// Waits for at most `limit` until the name is lost; `None` if it still stands then.
        ///
        /// # Errors
        ///
        /// [`crate::Error::Invalid`] inside an async task.
        pub fn lost_for(&self, limit: std::time::Duration) -> crate::error::Result<Option<crate::Loss>> {
            let lost = self.guard.lost();
            self.runtime.wait(async { tokio::time::timeout(limit, lost).await.ok() })
        }

        /// Calls `then` when the name is lost, on the client's thread: for a flag that the work
        /// looks at. It must be quick, for renewals wait for it, and can not make blocking calls.
        ///
        /// It is not called because of a release, and not once the guard has been dropped.
        pub fn on_lost(&mut self, then: impl FnOnce(crate::Loss) + Send + 'static) {
            let lost = self.guard.lost();
            self.watches.0.push(self.runtime.spawn(async move { then(lost.await) }));
        }
    };
}
pub(super) use guard;

/// The end of a guard, written once.
macro_rules! release {
    () => {
        /// Gives the name back and waits until the engine has heard: see [`crate::Guard::release`].
        ///
        /// # Errors
        ///
        /// As [`crate::Guard::release`], and [`crate::Error::Invalid`] inside an async task, where
        /// the name is released in the background.
        pub fn release(self) -> crate::error::Result<()> {
            self.runtime.wait(self.guard.release())?
        }
    };
}
pub(super) use release;

/// A name that is held: see [`crate::Guard`].
///
/// Dropped, it is released in the background; [`Guard::release`] also waits for the engine's word.
/// The lease is renewed for as long as the guard lives, whatever its thread does.
#[derive(Debug)]
#[must_use = "a guard that is dropped is released at once"]
pub struct Guard {
    pub(super) guard: crate::Guard,
    pub(super) watches: Watches,
    // Last: what is dropped before needs the thread.
    pub(super) runtime: Arc<Runtime>,
}

impl Guard {
    pub(super) fn new(guard: crate::Guard, runtime: &Arc<Runtime>) -> Guard {
        Guard { guard, watches: Watches::default(), runtime: Arc::clone(runtime) }
    }

    pub(super) fn some(guard: Result<Option<crate::Guard>>, runtime: &Arc<Runtime>) -> Result<Option<Guard>> {
        Ok(guard?.map(|guard| Guard::new(guard, runtime)))
    }

    guard!();
    release!();
}

/// What waits for the loss of a guard, and ends with it.
#[derive(Debug, Default)]
pub(super) struct Watches(pub(super) Vec<AbortHandle>);

impl Drop for Watches {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}
