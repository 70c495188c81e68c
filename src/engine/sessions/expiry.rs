//! Ends claims of this client that are not renewed any more.

use std::sync::{Arc, Weak};

use super::names::{Names, now};
use super::store::Store;
use crate::clock::{Moment, SystemClock, sleep_until};

/// Ends claims whose leases are over, until the client is gone.
pub(crate) async fn run<S: Store>(names: Weak<Names<S>>) {
    loop {
        let Some(strong) = names.upgrade() else { return };
        let (over, next) = strong.asked.over(now());
        for owner in over {
            let strong = Arc::clone(&strong);
            // Each for itself: one whose name is busy holds up no other.
            tokio::spawn(async move { strong.end_claim(owner).await });
        }
        let sooner = strong.asked.sooner();
        drop(strong);
        tokio::select! {
            () = sooner.notified() => {}
            () = sleep_until(&SystemClock, next.unwrap_or(Moment::NEVER)) => {}
        }
    }
}
