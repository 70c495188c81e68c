//! A connection, and what wakes those who wait for its answers when it is given up.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A connection that a supervisor has made.
#[derive(Debug)]
pub(crate) struct Connected<S> {
    session: S,
    /// The number of the connection.
    pub(crate) epoch: u64,
    given_up: AtomicBool,
    /// Wakes those who still wait for an answer when the connection is given up.
    giving_up: Notify,
}

impl<S> Deref for Connected<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.session
    }
}

impl<S> Connected<S> {
    pub(super) fn new(session: S, epoch: u64) -> Arc<Connected<S>> {
        let (given_up, giving_up) = (AtomicBool::new(false), Notify::new());
        Arc::new(Connected { session, epoch, given_up, giving_up })
    }

    /// The answer to a request, or `None` if the connection is given up before it comes.
    ///
    /// The caller pins the request: the futures of drivers are large, and passed by value each
    /// future on the way would have a copy.
    pub(crate) async fn while_up<T>(&self, request: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        // It hears of what comes after this line, so the flag is read after it.
        let giving_up = self.giving_up.notified();
        if self.given_up.load(Ordering::Acquire) {
            return None;
        }
        tokio::select! {
            // An answer of the connection itself says more.
            biased;
            answer = request => Some(answer),
            () = giving_up => None,
        }
    }

    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.giving_up.notify_waiters();
    }
}
