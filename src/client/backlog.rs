//! Releases that nobody waits for: of guards that were dropped, and of requests that were given up
//! half way.
//!
//! They are sent in the background, a few at a time, and sent again until the engine has heard or
//! the claim has ended by itself. However long the engine is away, what is kept for this is
//! bounded; when it comes back, the few in flight leave it to the callers.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::claim::{OwnerId, PATIENCE};
use crate::client::Inner;
use crate::client::hold::Lease;
use crate::clock::Moment;
use crate::name::Name;

/// At most this many are in flight.
const MOST_ACTIVE: usize = 64;
/// At most this many wait behind them. More than that, and the oldest is left to end with its
/// lease.
const MOST_WAITING: usize = 8192;
/// The pause before the engine is told again.
const AGAIN: Duration = Duration::from_millis(50);

/// The releases of a client that nobody waits for.
#[derive(Default)]
pub(crate) struct Backlog {
    state: Mutex<State>,
    emptied: Notify,
}

#[derive(Default)]
struct State {
    active: HashMap<OwnerId, Name>,
    waiting: VecDeque<Release>,
    overflowed: bool,
    /// The client is closed, and so is its engine: it is no use to try again.
    abandoned: bool,
}

/// A claim, or a place in the queue, that is to be given back.
pub(crate) struct Release {
    name: Name,
    owner: OwnerId,
    /// The highest token that was used; 0 if a grant was never heard of.
    used: u64,
    /// When whatever is to be released has ended by itself.
    until: Moment,
    /// The callers in line behind it move on when the engine has heard.
    lease: Option<Arc<Lease>>,
}

impl Release {
    /// Of a claim of whose tokens `used` was used last.
    pub(crate) fn of_claim(lease: Arc<Lease>, used: u64) -> Release {
        Release {
            name: lease.name.clone(),
            owner: lease.owner,
            used,
            // Not the deadline: a renewal whose answer was lost may have moved the claim's end
            // beyond it.
            until: lease.client.clock.now() + lease.terms.lease,
            lease: Some(lease),
        }
    }

    /// Of what a request, given up at `now`, may have come to.
    pub(crate) fn of_request(name: Name, owner: OwnerId, lease: Duration, now: Moment) -> Release {
        Release { name, owner, used: 0, until: now + lease.max(PATIENCE), lease: None }
    }

    async fn send(self, client: &Inner) {
        let Release { name, owner, used, until, lease } = self;
        loop {
            match client.call(client.engine.release(&name, owner, used)).await {
                Ok(_) => break,
                Err(error)
                    if error.is_retryable()
                        && client.clock.now() < until
                        && !client.backlog.is_abandoned() =>
                {
                    tokio::time::sleep(AGAIN).await;
                }
                Err(error) => {
                    client.events.not_released(&name, used, &error);
                    break;
                }
            }
        }
        if let Some(lease) = lease {
            drop(lease.take_turn());
        }
    }
}

impl fmt::Debug for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Backlog")
            .field("active", &state.active.len())
            .field("waiting", &state.waiting.len())
            .finish()
    }
}

impl Backlog {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything was heard or given up.
    pub(crate) async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            // Listening must start before the look, or a change in between is missed.
            emptied.as_mut().enable();
            if self.state().active.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn is_abandoned(&self) -> bool {
        self.state().abandoned
    }

    /// Forgets what waits, tries nothing again from here on, and says for which names the engine
    /// has not heard yet.
    pub(crate) fn abandon(&self) -> Vec<Name> {
        let mut state = self.state();
        state.abandoned = true;
        let waiting = std::mem::take(&mut state.waiting);
        let active = state.active.values().cloned();
        active.chain(waiting.into_iter().map(|release| release.name)).collect()
    }
}

/// A release in flight.
struct Active {
    client: Arc<Inner>,
    owner: OwnerId,
}

impl Active {
    /// Lets the release fly, or has it wait behind those that do.
    fn begin(client: &Arc<Inner>, release: Release) -> Option<(Active, Release)> {
        let mut state = client.backlog.state();
        if state.active.len() >= MOST_ACTIVE {
            let mut given_up = None;
            if state.waiting.len() >= MOST_WAITING {
                given_up = state.waiting.pop_front();
                if !std::mem::replace(&mut state.overflowed, true) {
                    tracing::warn!(
                        target: "leasehold",
                        "more than {MOST_WAITING} releases wait for the engine; the oldest end with their leases"
                    );
                }
            }
            state.waiting.push_back(release);
            drop(state);
            // Somebody may keep the lease to hear of its loss. That must not hold up the line.
            if let Some(lease) = given_up.and_then(|release| release.lease) {
                drop(lease.take_turn());
            }
            return None;
        }
        state.active.insert(release.owner, release.name.clone());
        Some((Active { client: Arc::clone(client), owner: release.owner }, release))
    }

    /// Ends this one and begins the next that waits, if there is one. In one step: in between, it
    /// would look as if nothing were left to do.
    fn next(mut self) -> Option<(Active, Release)> {
        let mut state = self.client.backlog.state();
        let release = state.waiting.pop_front()?;
        state.active.remove(&self.owner);
        state.active.insert(release.owner, release.name.clone());
        drop(state);
        self.owner = release.owner;
        Some((self, release))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let mut state = self.client.backlog.state();
        state.active.remove(&self.owner);
        if state.active.is_empty() && state.waiting.is_empty() {
            state.overflowed = false;
            drop(state);
            self.client.backlog.emptied.notify_waiters();
        }
    }
}

impl Inner {
    /// Gives something back although nobody waits for it. What the engine can do at once is done
    /// before this returns.
    pub(crate) fn release_later(self: &Arc<Inner>, release: Release) {
        let Some(first) = Active::begin(self, release) else { return };
        self.background(async move {
            let mut next = Some(first);
            while let Some((active, release)) = next {
                release.send(&active.client).await;
                next = active.next();
            }
        });
    }
}
