//! Work that must be finished although nobody waits for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use tokio::sync::Notify;

use crate::client::Inner;
use crate::engine::Reach;

/// Counts what is under way, for those who wait until it is done.
#[derive(Debug, Default)]
pub(crate) struct Count {
    count: AtomicUsize,
    none: Notify,
}

/// Something that is under way.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Count>);

impl Count {
    pub(crate) fn enter(self: &Arc<Count>) -> Counted {
        self.count.fetch_add(1, Ordering::SeqCst);
        Counted(Arc::clone(self))
    }

    /// How many there are.
    pub(crate) fn now(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until there is nothing under way.
    pub(crate) async fn none(&self) {
        loop {
            let none = self.none.notified();
            tokio::pin!(none);
            // Listening must start before the look, or a change in between is missed.
            none.as_mut().enable();
            if self.now() == 0 {
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

/// Says so when the client's runtime has been shut down: a task of that runtime keeps it and is
/// dropped with it.
#[derive(Debug)]
pub(crate) struct RuntimeEnd(pub(crate) Arc<AtomicBool>);

impl Drop for RuntimeEnd {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Inner {
    /// Runs something that must be finished although nobody waits for it. What the engine can do at
    /// once is done before this returns.
    pub(crate) fn background(self: &Arc<Inner>, work: impl Future<Output = ()> + Send + 'static) {
        let mut work: Work = Box::pin(work);
        if self.runtime_ended.load(Ordering::Acquire) {
            self.after_the_runtime(work);
            return;
        }
        let _runtime = self.runtime.enter();
        if poll_once(&mut work) {
            return;
        }
        let counted = self.in_background.enter();
        self.runtime.spawn(async move {
            work.await;
            drop(counted);
        });
    }

    /// The same for a guard that outlives the runtime of its client, whose timers would panic.
    fn after_the_runtime(&self, mut work: Work) {
        if self.engine.guarantees().reach == Reach::Process {
            // Needs no runtime: it answers at once.
            poll_once(&mut work);
            return;
        }
        let limit = self.options.call_limit;
        let finish = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                // What the engine does not hear ends with its lease.
                Ok(runtime) => drop(runtime.block_on(async { tokio::time::timeout(limit, work).await })),
                Err(error) => {
                    tracing::warn!(target: "leasehold", %error, "not released; it ends with its lease");
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("leasehold".into()).spawn(finish) {
            tracing::warn!(target: "leasehold", %error, "not released; it ends with its lease");
        }
    }
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// True if the work is done.
fn poll_once(work: &mut Work) -> bool {
    work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}
