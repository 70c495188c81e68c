//! What goes on in the background, for those who wait until it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts what goes on in the background.
#[derive(Debug, Default)]
pub(crate) struct Unfinished(Arc<UnfinishedCount>);

#[derive(Debug, Default)]
struct UnfinishedCount {
    count: AtomicUsize,
    none: Notify,
}

/// Something that goes on in the background.
#[derive(Debug)]
pub(crate) struct Counted(Arc<UnfinishedCount>);

impl Unfinished {
    pub(crate) fn enter(&self) -> Counted {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        Counted(Arc::clone(&self.0))
    }

    pub(crate) async fn none(&self) {
        loop {
            let none = self.0.none.notified();
            tokio::pin!(none);
            none.as_mut().enable();
            if self.0.count.load(Ordering::Acquire) == 0 {
                return;
            }
            none.await;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none.notify_waiters();
        }
    }
}
