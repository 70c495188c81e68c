//! Requests that wait together, sent as one.
//!
//! Most calls take a free lock or give one back. The first of them goes out at once, alone. Those that come while it is under
//! way are gathered, and go as one request for all that are to be taken and one script for all that are given back:
//! the server does more of them in the same time, and so do we.
//!
//! What is taken and given up on must not be sent after the release that undoes it. So one task sends all that was
//! gathered, in order, and nothing of which the caller has gone; and a call goes alone only while that task has nothing
//! under way.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use redis::{Pipeline, Value};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::fast_path::{self, Attempt, HolderText, answers};
use super::give_back_script;
use super::scripts::SCRIPTS;
use crate::engine::Reply;
use crate::error::Result;
use crate::redis::errors;
use crate::redis::keys::NameKeys;
use crate::redis::link::Link;
use crate::redis::script::Invocation;
use crate::redis::topology::Request;

/// At most this many locks at once: others use the server too.
const LARGEST: usize = 128;

/// While the server does one batch we make the next. More than this, and the batches are too small.
const MOST_UNDER_WAY: usize = 4;

/// Gathers requests for one server. Dropped, it sends nothing more.
pub(super) struct Post {
    link: Arc<Link>,
    tray: Arc<Tray>,
    task: AbortHandle,
}

#[derive(Default)]
struct Tray {
    letters: Mutex<Letters>,
    filled: Notify,
}

#[derive(Default)]
struct Letters {
    batch: Batch,
    under_way: usize,
    /// Nothing is sent any more.
    closed: bool,
}

/// What goes together.
#[derive(Default)]
struct Batch {
    takes: Vec<Take>,
    gifts: Vec<GiveBack>,
    releases: Vec<Release>,
}

/// A lock to be taken.
struct Take {
    keys: Arc<NameKeys>,
    text: HolderText,
    /// Gets the text back.
    answer: oneshot::Sender<(Option<Attempt>, String)>,
}

/// A lock to be given back if this stands at its holder's key. The answer is whether that was done.
struct GiveBack {
    keys: Arc<NameKeys>,
    text: String,
    answer: oneshot::Sender<bool>,
}

/// A release by the rules.
struct Release {
    script: Invocation,
    answer: oneshot::Sender<Result<i64>>,
}

/// The right to send one request past the others. Dropped when it is answered.
struct Alone<'a>(&'a Post);

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Post")
    }
}

impl Post {
    pub(super) fn new(link: &Arc<Link>) -> Post {
        let tray = Arc::new(Tray::default());
        let task = tokio::spawn(deliver(Arc::downgrade(link), Arc::clone(&tray))).abort_handle();
        Post { link: Arc::clone(link), tray, task }
    }

    /// Sends nothing more. Whoever waits is told, and so is whoever comes.
    pub(super) fn close(&self) {
        self.task.abort();
        let mut letters = self.tray.letters();
        letters.closed = true;
        letters.batch = Batch::default();
    }

    /// Says that nothing is under way, so that there is nothing to wait for.
    fn alone(&self) -> Option<Alone<'_>> {
        let mut letters = self.tray.letters();
        if letters.under_way > 0 || !letters.batch.is_empty() {
            return None;
        }
        letters.under_way = 1;
        Some(Alone(self))
    }

    /// Takes a lock that nobody else wants. `None` if it is not known what came of it. Gives back what stands at the holder's key
    /// if it was taken.
    pub(super) async fn take(
        &self,
        keys: &Arc<NameKeys>,
        text: HolderText,
    ) -> Result<(Option<Attempt>, String)> {
        let Some(alone) = self.alone() else {
            let (answer, answered) = oneshot::channel();
            self.tray.put(|batch| batch.takes.push(Take { keys: Arc::clone(keys), text, answer }));
            return Ok(answered.await.unwrap_or_default());
        };
        let (answer, since) = alone.send(Request::Commands(&fast_path::commands(keys, &text))).await?;
        Ok((fast_path::read(&mut answers(&answer), since), text.text))
    }

    /// Gives back a lock if this stands at its holder's key. `None` if that was not tried.
    pub(super) async fn give_back(&self, keys: &Arc<NameKeys>, text: String) -> Result<Option<bool>> {
        let Some(alone) = self.alone() else {
            let (answer, answered) = oneshot::channel();
            self.tray.put(|batch| batch.gifts.push(GiveBack { keys: Arc::clone(keys), text, answer }));
            return answered.await.map(Some).map_err(|_| self.link.given_up());
        };
        // Where others want it too one of them is likely to wait, and should not wait for two round trips.
        if keys.is_shared() {
            return Ok(None);
        }
        let script = give_back_script(keys, &text);
        let (answer, _) = alone.send(Request::Script(&script)).await?;
        Ok(Some(answer == Value::Int(1)))
    }

    /// Runs the script of a release; `wakes` if it is likely to tell another client something.
    pub(super) async fn release(&self, script: Invocation, wakes: bool) -> Result<i64> {
        let Some(alone) = self.alone() else {
            let (answer, answered) = oneshot::channel();
            self.tray.put(|batch| batch.releases.push(Release { script, answer }));
            return answered.await.unwrap_or_else(|_| Err(self.link.given_up()));
        };
        let request = if wakes { Request::Waking(&script) } else { Request::Script(&script) };
        errors::read(alone.send(request).await?.0)
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Alone<'_> {
    /// Sends a request, and gives the answer and since when the server is connected.
    ///
    /// In a box of its own: what goes with others need not carry it around.
    fn send<'a>(&'a self, request: Request<'a>) -> Reply<'a, (Value, u64)> {
        let link = &self.0.link;
        Box::pin(async move {
            let connected = link.connected().await?;
            let mut connection = connected.connection.clone();
            let answer = link.call(&connected, pin!(request.send(&mut connection))).await?;
            Ok((answer, connected.since))
        })
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.tray.one_is_done();
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.takes.is_empty() && self.gifts.is_empty() && self.releases.is_empty()
    }

    /// The first of some equal parts.
    fn split(&mut self, parts: usize) -> Batch {
        Batch {
            takes: first(&mut self.takes, parts),
            gifts: first(&mut self.gifts, parts),
            releases: first(&mut self.releases, parts),
        }
    }
}

fn first<T>(letters: &mut Vec<T>, parts: usize) -> Vec<T> {
    let length = letters.len().div_ceil(parts).min(LARGEST);
    if letters.len() <= length {
        return std::mem::take(letters);
    }
    let rest = letters.split_off(length);
    std::mem::replace(letters, rest)
}

impl Tray {
    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, letter: impl FnOnce(&mut Batch)) {
        let mut letters = self.letters();
        // Dropped, it is answered: whoever sent it asks by the rules, and hears there what is
        // wrong.
        if letters.closed {
            return letter(&mut Batch::default());
        }
        letter(&mut letters.batch);
        drop(letters);
        self.filled.notify_one();
    }

    fn one_is_done(&self) {
        let mut letters = self.letters();
        letters.under_way -= 1;
        if !letters.batch.is_empty() {
            self.filled.notify_one();
        }
    }

    /// What goes next; nothing if enough is under way.
    fn next_batch(&self) -> Option<Batch> {
        let mut letters = self.letters();
        if letters.batch.is_empty() || letters.under_way >= MOST_UNDER_WAY {
            return None;
        }
        // All of it in one batch would leave nothing for the time at which the server does that.
        let parts = MOST_UNDER_WAY - letters.under_way;
        letters.under_way += 1;
        Some(letters.batch.split(parts))
    }
}

/// Sends what is gathered, until the link is gone.
async fn deliver(link: Weak<Link>, tray: Arc<Tray>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        while let Some(batch) = tray.next_batch() {
            let Some(link) = link.upgrade() else { return };
            let mut sending = Box::pin(send(link, batch));
            // Now, and not when the answers of others have been handed out.
            match futures_util::poll!(&mut sending) {
                Poll::Pending => under_way.push(sending),
                Poll::Ready(()) => tray.one_is_done(),
            }
        }
        tokio::select! {
            () = tray.filled.notified() => {}
            Some(()) = under_way.next() => {
                tray.one_is_done();
                // Many answers come at once. What the callers of one batch want next is sent before the next batch is handed
                // out, so that the server has something to do meanwhile.
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Sends a batch and hands out the answers. Whoever gets none asks by the rules, and hears there what is wrong.
async fn send(link: Arc<Link>, mut batch: Batch) {
    let Ok(connected) = link.connected().await else { return };
    // No waiting between this and the moment at which the driver has the commands: whoever goes now sends a release after it.
    batch.takes.retain(|take| !take.answer.is_closed());
    let Batch { takes, gifts, releases } = batch;
    let answers = takes.len() * fast_path::ANSWERS;
    let mut commands = Pipeline::with_capacity(answers);
    takes.iter().for_each(|take| fast_path::add(&mut commands, &take.keys, &take.text));
    let given: Vec<&str> = gifts.iter().map(|gift| gift.keys.holder.as_str()).collect();
    let mut give_back = SCRIPTS.give_back.on(&given);
    gifts.iter().for_each(|gift| {
        give_back.arg(&gift.text);
    });
    let (link, connected) = (&*link, &connected);
    let taking = async move {
        if !takes.is_empty() {
            let mut connection = connected.connection.clone();
            let answers = connection.send_packed_commands(&commands, 0, answers);
            let answers = link.call(connected, pin!(answers)).await.unwrap_or_default();
            let mut answers = answers.as_slice();
            for take in takes {
                let attempt = fast_path::read(&mut answers, connected.since);
                take.answer.send((attempt, take.text.text)).ok();
            }
        }
    };
    let giving = async move {
        if !gifts.is_empty() {
            let mut connection = connected.connection.clone();
            let given: Result<Vec<u8>> = link.call(connected, pin!(give_back.call(&mut connection))).await;
            for (gift, given) in gifts.into_iter().zip(given.unwrap_or_default()) {
                gift.answer.send(given == 1).ok();
            }
        }
    };
    let released = join_all(releases.into_iter().map(|release| async move {
        let mut connection = connected.connection.clone();
        let released = link.call(connected, pin!(release.script.call(&mut connection))).await;
        release.answer.send(released).ok();
    }));
    tokio::join!(taking, giving, released);
}
