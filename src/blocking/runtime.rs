//! The thread of a client, and how a caller waits on its own.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::coop;

use crate::client::Client;
use crate::error::{Error, Result};

/// The thread on which a client renews, hears and releases. Dropped, it closes the client, ends and
/// is waited for.
pub(super) struct Runtime {
    handle: Handle,
    client: OnceLock<Client>,
    /// Both are gone only when this is dropped.
    stop: Option<oneshot::Sender<Client>>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Runtime")
    }
}

impl Runtime {
    pub(super) fn start() -> Result<Runtime> {
        refuse_in_a_task()?;
        let failed = |error| Error::invalid(format!("can not start the thread of the client: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<Client>();
        let run = move || {
            runtime.block_on(async {
                // Without a client there was no connection.
                if let Ok(client) = stopped.await {
                    // Nobody is left to hear what was not given back; it ends with its lease.
                    client.close().await.ok();
                }
            });
        };
        let thread = std::thread::Builder::new().name("leasehold".into()).spawn(run).map_err(failed)?;
        let pid = std::process::id();
        Ok(Runtime { handle, client: OnceLock::new(), stop: Some(stop), thread: Some(thread), pid })
    }

    /// The client that is closed at the end.
    pub(super) fn closes(&self, client: &Client) {
        self.client.get_or_init(|| client.clone());
    }

    /// An error where waiting would stop an async runtime, and in a forked child.
    pub(super) fn check(&self) -> Result<()> {
        if self.pid != std::process::id() {
            return Err(Error::invalid(
                "this client was made before a fork; a child process must connect for itself",
            ));
        }
        refuse_in_a_task()
    }

    /// Waits for something on the caller's thread. Its timers and connections are those of the
    /// client's thread.
    ///
    /// # Errors
    ///
    /// As [`Runtime::check`]; the work is dropped then.
    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        self.check()?;
        Ok(self.wait_checked(work))
    }

    /// The same where [`Runtime::check`] was asked before.
    pub(super) fn wait_checked<T>(&self, work: impl Future<Output = T>) -> T {
        let _entered = self.handle.enter();
        let mut work = pin!(work);
        loop {
            // Without an end it returns when the work is done.
            if let Some(done) = poll_until(None, work.as_mut()) {
                return done;
            }
        }
    }

    /// Does something on the client's thread, until it is aborted.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> tokio::task::AbortHandle {
        self.handle.spawn(work).abort_handle()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let (stop, thread, client) = (self.stop.take(), self.thread.take(), self.client.take());
        if self.pid != std::process::id() {
            // The thread is in the parent, and so is whoever the client would say good-bye to.
            std::mem::forget((stop, thread, client));
            return;
        }
        if let (Some(stop), Some(client)) = (stop, client) {
            // Fails only if the thread has ended, which is what it is told to do.
            stop.send(client).ok();
        }
        // Inside an async task it goes on by itself. The thread can not wait for itself.
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && refuse_in_a_task().is_ok()
        {
            thread.join().ok();
        }
    }
}

/// Waits on this thread for something that needs no timers, for at most `limit`.
///
/// # Errors
///
/// [`Error::Invalid`] where waiting would stop an async runtime.
pub(super) fn wait_for<T>(limit: Duration, work: impl Future<Output = T>) -> Result<Option<T>> {
    refuse_in_a_task()?;
    // A limit that is beyond all time is none.
    Ok(poll_until(Instant::now().checked_add(limit), pin!(work)))
}

/// The same without a limit.
///
/// # Errors
///
/// As [`wait_for`].
pub(super) fn wait<T>(work: impl Future<Output = T>) -> Result<Option<T>> {
    refuse_in_a_task()?;
    Ok(poll_until(None, pin!(work)))
}

/// Polls until the work is done, or until the end; `None` then.
fn poll_until<T>(end: Option<Instant>, mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(Arc::clone(&signal));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
            return Some(done);
        }
        if !signal.woken_before(end) {
            return None;
        }
    }
}

/// Wakes a thread that waits for a future. Not `thread::park`, whose wake-ups the caller may use
/// for something else.
#[derive(Debug, Default)]
struct Signal {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Waits until it is given; false if the end came first.
    fn woken_before(&self, end: Option<Instant>) -> bool {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        while !std::mem::take(&mut *woken) {
            woken = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(woken).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return false,
                Some(left) => {
                    self.changed.wait_timeout(woken, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Signal>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Signal>) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }
}

fn refuse_in_a_task() -> Result<()> {
    if !in_a_task() {
        return Ok(());
    }
    Err(Error::invalid(
        "a blocking call inside an async task would stop the runtime's thread; use the async client, or make the call \
         in `tokio::task::spawn_blocking`",
    ))
}

/// True if this thread polls a task of a tokio runtime at the moment.
///
/// Tokio does not say so, and panics if a thread that does so blocks in its own calls. But a task
/// has a limited budget of steps before it must yield, and `spawn_blocking`, `block_in_place` and
/// threads of others have no limit.
fn in_a_task() -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
    let mut context = Context::from_waker(Waker::noop());
    // Dropped at the end, it gives back all the steps that are used up here.
    let Poll::Ready(_budget) = coop::poll_proceed(&mut context) else { return true };
    let mut used_up = false;
    // A budget is less than 256 steps.
    for _ in 0..=u8::MAX {
        match coop::poll_proceed(&mut context) {
            Poll::Ready(step) => step.made_progress(),
            Poll::Pending => used_up = true,
        }
    }
    used_up
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_thread_is_not_in_a_task() {
        assert!(!in_a_task());
    }

    #[tokio::test]
    async fn a_task_is_found_and_keeps_its_budget() {
        assert!(in_a_task());
        assert!(coop::has_budget_remaining());
        let (inside, left) =
            tokio::spawn(async { (in_a_task(), coop::has_budget_remaining()) }).await.expect("no panic");
        assert!(inside && left);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn threads_that_may_block_are_not_in_a_task() {
        assert!(!tokio::task::spawn_blocking(in_a_task).await.expect("no panic"));
        let in_place = tokio::spawn(async { (tokio::task::block_in_place(in_a_task), in_a_task()) });
        assert_eq!(in_place.await.expect("no panic"), (false, true));
    }

    #[test]
    fn a_thread_that_entered_a_runtime_is_not_in_a_task() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let _entered = runtime.enter();
        assert!(!in_a_task());
    }
}
