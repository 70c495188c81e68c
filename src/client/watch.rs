//! Names that are watched, and waiting until something is true of them.
//!
//! An engine tells of changes by hints, which may be lost. So whoever waits also looks from time to
//! time, not all at the same moment.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::client::Inner;
use crate::client::acquire::Patience;
use crate::clock::{Moment, sleep_until};
use crate::engine::Watching;
use crate::error::Result;
use crate::name::Name;

/// Whoever hears nothing looks again after this long, and up to half as long again.
const LOOK: Duration = Duration::from_secs(1);

/// The elections and cells that a client watches.
#[derive(Debug, Default)]
pub(crate) struct WatchedNames(Mutex<HashMap<Name, Weak<Notify>>>);

impl WatchedNames {
    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Weak<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who wait that a name has changed.
    pub(crate) fn notify(&self, name: &Name) {
        if let Some(changed) = self.lock().get(name).and_then(Weak::upgrade) {
            changed.notify_waiters();
        }
    }

    /// What hears of changes to a name, and whether it is new.
    fn join(&self, name: &Name) -> (Arc<Notify>, bool) {
        let mut watched = self.lock();
        if let Some(changed) = watched.get(name).and_then(Weak::upgrade) {
            return (changed, false);
        }
        let changed = Arc::new(Notify::new());
        watched.insert(name.clone(), Arc::downgrade(&changed));
        (changed, true)
    }

    /// True if nobody else watches the name.
    fn leave(&self, name: &Name, changed: &Arc<Notify>) -> bool {
        let mut watched = self.lock();
        let last = Arc::strong_count(changed) == 1;
        if last {
            watched.remove(name);
        }
        last
    }
}

/// What somebody waits for.
///
/// A trait and not a closure: a future of an async closure that borrows is not known to be `Send`.
pub(crate) trait Awaited: Send {
    /// What is found in the end.
    type Found: Send;

    /// Looks whether it is there by now.
    fn look(&mut self) -> impl Future<Output = Result<Option<Self::Found>>> + Send;
}

/// Notes that a look was answered.
struct Answered<'a, A> {
    awaited: A,
    answered: &'a AtomicBool,
}

impl<A: Awaited> Awaited for Answered<'_, A> {
    type Found = A::Found;

    async fn look(&mut self) -> Result<Option<A::Found>> {
        let found = self.awaited.look().await?;
        self.answered.store(true, Ordering::Release);
        Ok(found)
    }
}

/// An election or a cell that is watched for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Watched {
    client: Arc<Inner>,
    name: Name,
    changed: Arc<Notify>,
}

impl Inner {
    /// Listens for changes to an election or a cell for as long as the result is kept.
    pub(crate) async fn watch(self: &Arc<Inner>, name: &Name) -> Result<Watched> {
        let (changed, first) = self.watched.join(name);
        let watched = Watched { client: Arc::clone(self), name: name.clone(), changed };
        if first {
            self.call(self.engine.watch(name, Watching::On)).await?;
        }
        Ok(watched)
    }

    /// Waits until a look at an election or a cell finds something; `None` if it does not within
    /// `limit`. It looks at least once.
    ///
    /// If no look was answered within `limit`, that is an error. Dropping the future leaves nothing
    /// behind.
    pub(crate) async fn wait_until<A: Awaited>(
        self: &Arc<Inner>,
        name: &Name,
        limit: Option<Duration>,
        awaited: A,
    ) -> Result<Option<A::Found>> {
        self.check_open()?;
        let end = limit.map_or(Moment::NEVER, |limit| self.clock.now() + limit);
        let patience = if limit.is_some() { Patience::Until(end) } else { Patience::Forever };
        let answered = AtomicBool::new(false);
        let looking = self.unless_closed(async {
            let watched = self.watch(name).await?;
            let mut awaited = Answered { awaited, answered: &answered };
            watched.until(patience, &mut awaited).await
        });
        tokio::select! {
            biased;
            found = looking => found,
            () = sleep_until(&*self.clock, end), if limit.is_some_and(|limit| !limit.is_zero()) => {
                match limit {
                    Some(limit) if !answered.load(Ordering::Acquire) => Err(self.no_answer(limit)),
                    _ => Ok(None),
                }
            }
        }
    }
}

impl Watched {
    /// Looks until a look finds something: at once, at every change that is told, and now and then.
    /// `None` if patience is over before.
    pub(crate) async fn until<A: Awaited>(
        &self,
        patience: Patience,
        awaited: &mut A,
    ) -> Result<Option<A::Found>> {
        let clock = &*self.client.clock;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Listening must start before the look, or a change in between is missed.
            changed.as_mut().enable();
            if let Some(found) = awaited.look().await? {
                return Ok(Some(found));
            }
            let now = clock.now();
            if patience.over(now) {
                return Ok(None);
            }
            let again = now + LOOK + jitter(now);
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(clock, patience.end().min(again)) => {}
            }
        }
    }
}

/// Up to half of [`LOOK`]. Those who look at the same time do not look at the same microsecond, and
/// that is enough to part them.
fn jitter(now: Moment) -> Duration {
    const HALF: u64 = LOOK.as_micros() as u64 / 2;
    let spread = now.as_micros().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    Duration::from_micros(spread % HALF)
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Others watch the same name; the last of them ends it.
        if !self.client.watched.leave(&self.name, &self.changed) {
            return;
        }
        let (client, name) = (Arc::clone(&self.client), self.name.clone());
        self.client.background(async move {
            // The engine forgets by itself if it does not hear this.
            client.call(client.engine.watch(&name, Watching::Off)).await.ok();
        });
    }
}
