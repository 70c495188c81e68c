//! Requests that wait together, sent as one.
//!
//! Most calls take a free lock or give one back. A request that finds nothing in flight goes out at
//! once, alone. Those that come while something is in flight are gathered. They go as one script
//! for all locks to be taken, and one for all to be given back, which costs the server and us less
//! than single requests do.
//!
//! A request that was given up must not be sent after the release that undoes it. So one task sends
//! all that was gathered, in order, and leaves out what nobody waits for any more; and a request
//! goes alone only while that task has nothing in flight.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use redis::FromRedisValue;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::scripts::{self, GiveBack, Take};
use crate::engine::Reply;
use crate::error::Result;
use crate::redis::errors;
use crate::redis::link::{Connected, Link};
use crate::redis::script::{Invocation, is_unknown};

/// At most this many locks in a batch: others use the server too.
const LARGEST: usize = 128;

/// While the server runs one batch we make the next. With more in flight, batches are too small.
const MOST_IN_FLIGHT: usize = 4;

/// Gathers requests for one server. Dropped, it sends nothing more.
pub(super) struct Batcher {
    link: Arc<Link>,
    queue: Arc<Queue>,
    task: AbortHandle,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    gathered: Batch,
    in_flight: usize,
    /// Nothing is sent any more.
    closed: bool,
}

/// Requests that go together.
#[derive(Default)]
struct Batch {
    takes: Vec<Pending<Take, u64>>,
    give_backs: Vec<Pending<GiveBack, bool>>,
    releases: Vec<Pending<Invocation, Result<i64>>>,
}

/// A request, and where its answer goes.
struct Pending<R, A> {
    request: R,
    answer: oneshot::Sender<A>,
}

/// The right to send one request past the queue. Dropped when it is answered.
struct Alone<'a>(&'a Batcher);

impl fmt::Debug for Batcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Batcher")
    }
}

impl Batcher {
    pub(super) fn new(link: &Arc<Link>) -> Batcher {
        let queue = Arc::new(Queue::default());
        let task = tokio::spawn(send_all(Arc::downgrade(link), Arc::clone(&queue))).abort_handle();
        Batcher { link: Arc::clone(link), queue, task }
    }

    /// Sends nothing more. All that wait get no answer, and neither do later callers.
    pub(super) fn close(&self) {
        self.task.abort();
        let mut state = self.queue.state();
        state.closed = true;
        state.gathered = Batch::default();
    }

    /// Takes a lock if it is free, and gives its token; 0 if the rules must decide, or if it is not
    /// known what came of it.
    pub(super) async fn take(&self, take: Take) -> Result<u64> {
        if let Some(alone) = self.alone() {
            let tokens: Vec<u64> = alone.run(|connected| scripts::take([&take], connected)).await?;
            return Ok(tokens.first().copied().unwrap_or(0));
        }
        let token = self.queue.put(|batch| &mut batch.takes, take).await;
        Ok(token.unwrap_or(0))
    }

    /// Gives a lock back together with others. True if that was done, false if the rules must
    /// decide. A lock that would go alone is left to [`Batcher::release`], which is as fast then.
    pub(super) async fn give_back(&self, lock: GiveBack) -> Result<bool> {
        if self.queue.state().is_idle() {
            return Ok(false);
        }
        let given = self.queue.put(|batch| &mut batch.give_backs, lock).await;
        given.map_err(|_| self.link.given_up())
    }

    /// Runs the script of a release.
    pub(super) async fn release(&self, script: Invocation) -> Result<i64> {
        if let Some(alone) = self.alone() {
            return alone.run(|_| script).await;
        }
        let released = self.queue.put(|batch| &mut batch.releases, script).await;
        released.unwrap_or_else(|_| Err(self.link.given_up()))
    }

    /// Nothing is in flight, so there is nothing to be gathered with.
    fn alone(&self) -> Option<Alone<'_>> {
        let mut state = self.queue.state();
        if !state.is_idle() {
            return None;
        }
        state.in_flight = 1;
        Some(Alone(self))
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Alone<'_> {
    /// In a box: requests that are gathered need not carry the state of this one around.
    fn run<'a, T: FromRedisValue>(
        &'a self,
        script: impl FnOnce(&Connected) -> Invocation + Send + 'a,
    ) -> Reply<'a, T> {
        Box::pin(async move { errors::read(self.0.link.run(script).await?.answer) })
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.queue.one_is_done();
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.gathered.is_empty()
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.takes.is_empty() && self.give_backs.is_empty() && self.releases.is_empty()
    }

    /// The first of some equal parts.
    fn split(&mut self, parts: usize) -> Batch {
        Batch {
            takes: first(&mut self.takes, parts),
            give_backs: first(&mut self.give_backs, parts),
            releases: first(&mut self.releases, parts),
        }
    }
}

fn first<T>(requests: &mut Vec<T>, parts: usize) -> Vec<T> {
    let length = requests.len().div_ceil(parts).min(LARGEST);
    if requests.len() <= length {
        return std::mem::take(requests);
    }
    let rest = requests.split_off(length);
    std::mem::replace(requests, rest)
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request to those of its kind. If nothing is sent any more, there is no answer.
    fn put<R, A>(&self, kind: fn(&mut Batch) -> &mut Vec<Pending<R, A>>, request: R) -> oneshot::Receiver<A> {
        let (answer, answered) = oneshot::channel();
        let mut state = self.state();
        if !state.closed {
            kind(&mut state.gathered).push(Pending { request, answer });
            drop(state);
            self.filled.notify_one();
        }
        answered
    }

    fn one_is_done(&self) {
        let mut state = self.state();
        state.in_flight -= 1;
        if !state.gathered.is_empty() {
            self.filled.notify_one();
        }
    }

    /// What goes next; nothing if enough is in flight.
    fn next_batch(&self) -> Option<Batch> {
        let mut state = self.state();
        if state.gathered.is_empty() || state.in_flight >= MOST_IN_FLIGHT {
            return None;
        }
        // All of it in one batch would leave nothing to send while the server runs it.
        let parts = MOST_IN_FLIGHT - state.in_flight;
        state.in_flight += 1;
        Some(state.gathered.split(parts))
    }
}

/// Sends what is gathered, until the link is gone.
async fn send_all(link: Weak<Link>, queue: Arc<Queue>) {
    let mut in_flight = FuturesUnordered::new();
    loop {
        while let Some(batch) = queue.next_batch() {
            let Some(link) = link.upgrade() else { return };
            let mut sending = Box::pin(send(link, batch));
            // Now, and not when the answers of others have been handed out.
            match futures_util::poll!(&mut sending) {
                Poll::Pending => in_flight.push(sending),
                Poll::Ready(()) => queue.one_is_done(),
            }
        }
        tokio::select! {
            () = queue.filled.notified() => {}
            Some(()) = in_flight.next() => {
                queue.one_is_done();
                // Many answers come at once. What the callers of one batch want next is sent before
                // the next batch is handed out, so that the server has something to do meanwhile.
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Sends a batch and hands out the answers. A caller that gets none asks by the rules.
async fn send(link: Arc<Link>, batch: Batch) {
    let Ok(connected) = link.connected().await else { return };
    let Batch { takes, give_backs, releases } = batch;
    let (link, connected) = (&*link, &*connected);
    let giving = async move {
        if give_backs.is_empty() {
            return;
        }
        let script = scripts::give_back(give_backs.iter().map(|pending| &pending.request));
        let mut connection = connected.connection.clone();
        let given: Result<Vec<u8>> = link.call(connected, pin!(script.call(&mut connection))).await;
        for (pending, given) in give_backs.into_iter().zip(given.unwrap_or_default()) {
            pending.answer.send(given == 1).ok();
        }
    };
    let releasing = join_all(releases.into_iter().map(|pending| async move {
        let mut connection = connected.connection.clone();
        let released = link.call(connected, pin!(pending.request.call(&mut connection))).await;
        pending.answer.send(released).ok();
    }));
    tokio::join!(take_all(link, connected, takes), giving, releasing);
}

/// Takes locks and hands out their tokens.
///
/// A caller that has gone sends a release, which must not come before its request. So its request
/// is left out each time that something is sent, and nothing is awaited between that look and the
/// moment at which the driver has the command.
async fn take_all(link: &Link, connected: &Connected, mut takes: Vec<Pending<Take, u64>>) {
    let mut known = true;
    loop {
        takes.retain(|pending| !pending.answer.is_closed());
        if takes.is_empty() {
            return;
        }
        let script = scripts::take(takes.iter().map(|pending| &pending.request), connected);
        let mut connection = connected.connection.clone();
        let calling = async {
            if known {
                script.call_by_hash(&mut connection).await
            } else {
                script.call_by_text(&mut connection).await
            }
        };
        let Some(answer) = connected.while_up(pin!(calling)).await else { return };
        if known && answer.as_ref().is_err_and(is_unknown) {
            known = false;
            continue;
        }
        let tokens: Vec<u64> = link.read(connected, answer).unwrap_or_default();
        for (pending, token) in takes.into_iter().zip(tokens) {
            pending.answer.send(token).ok();
        }
        return;
    }
}
