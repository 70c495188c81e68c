//! A claim that this client holds: its lease, its deadline, and how it ends.
//!
//! A [`Lease`] is the claim in the engine, renewed by the keeper. A [`Hold`] is one caller's use of
//! it, under one token; when it ends, the lease goes to the next caller in line or back to the
//! engine.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::claim::{OwnerId, Released};
use crate::client::Inner;
use crate::client::acquire::Want;
use crate::client::background::Counted;
use crate::client::backlog::Release;
use crate::client::queue::{Line, Terms, Turn, Use};
use crate::clock::{Moment, sleep_until};
use crate::engine::{Connection, Life};
use crate::error::{Error, Loss, Result};
use crate::name::Name;

/// How sure a holder can be of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The lease stands.
    Held,
    /// The lease stands until its deadline, but the last renewal failed.
    InDoubt,
    /// Over. Somebody else may hold the name.
    Lost,
}

/// How much earlier than the engine a holder stops believing in its lease: the reading of two
/// clocks may differ by this much over one lease.
pub(crate) fn margin(lease: Duration) -> Duration {
    (lease / 100).max(Duration::from_millis(2))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A claim in the engine, kept alive by the keeper.
pub(crate) struct Lease {
    pub(crate) client: Arc<Inner>,
    pub(crate) name: Name,
    pub(crate) owner: OwnerId,
    pub(crate) terms: Terms,
    usage: Use,
    /// The token in use; 0 once released.
    token: AtomicU64,
    /// The last one reserved.
    last_token: AtomicU64,
    /// Microseconds on the client's clock.
    deadline: AtomicU64,
    renew_at: AtomicU64,
    /// How long the last word of the engine is good for, in microseconds: a lease, or less while
    /// the grant is not confirmed.
    good_for: AtomicU64,
    /// A writer that became a reader, or the other way round: not what others in line ask for.
    altered: AtomicBool,
    in_doubt: AtomicBool,
    lost: AtomicU8,
    /// Somebody gives it back: the caller that held it last, or whoever closes the client.
    given_back: AtomicBool,
    changed: Notify,
    /// When the caller that holds now was given it, in microseconds on the client's clock.
    held_since: AtomicU64,
    /// When this client heard of the grant: the hand-over budget counts from here. Counted from the
    /// asking, the wait for others would use it up.
    granted_at: Moment,
    /// Where others of this process stand who may take over; `None` if every caller asks for
    /// itself.
    line: Option<Arc<Line>>,
    /// Kept while held alone: nobody else in this process need ask the engine. Gone when lost, so
    /// that a guard that nobody drops does not hold up the line.
    turn: Mutex<Option<Turn>>,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("name", &self.name).field("token", &self.token).finish_non_exhaustive()
    }
}

const NOT_LOST: u8 = 0;

fn encode(loss: Loss) -> u8 {
    match loss {
        Loss::Deadline => 1,
        Loss::Gone => 2,
        Loss::Closed => 3,
    }
}

fn decode(lost: u8) -> Option<Loss> {
    match lost {
        1 => Some(Loss::Deadline),
        2 => Some(Loss::Gone),
        3 => Some(Loss::Closed),
        _ => None,
    }
}

impl Lease {
    /// A lease that was asked for at `asked_at` and granted. Others in `line` may take it over.
    pub(crate) fn new(
        client: &Arc<Inner>,
        want: &Want,
        owner: OwnerId,
        grant: crate::claim::Grant,
        asked_at: Moment,
        line: Option<Arc<Line>>,
        turn: Option<Turn>,
    ) -> Lease {
        let granted_at = client.clock.now();
        let lease = Lease {
            client: Arc::clone(client),
            name: want.name.clone(),
            owner,
            terms: want.terms,
            usage: want.usage(),
            token: AtomicU64::new(grant.token),
            last_token: AtomicU64::new(grant.token + u64::from(grant.tokens) - 1),
            deadline: AtomicU64::new(0),
            renew_at: AtomicU64::new(0),
            good_for: AtomicU64::new(0),
            altered: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            lost: AtomicU8::new(NOT_LOST),
            given_back: AtomicBool::new(false),
            changed: Notify::new(),
            held_since: AtomicU64::new(granted_at.as_micros()),
            granted_at,
            line,
            turn: Mutex::new(turn),
        };
        lease.counts_from(asked_at);
        lease
    }

    /// The engine granted or renewed the lease in answer to a request that was sent at `asked_at`.
    pub(crate) fn counts_from(&self, asked_at: Moment) {
        let lease = self.terms.lease;
        // From before the send: the engine's lease started no earlier than this.
        let deadline = asked_at + lease - margin(lease);
        self.good_for.store(micros(lease), Ordering::Release);
        self.deadline.fetch_max(deadline.as_micros(), Ordering::AcqRel);
        self.renew_at.store((asked_at + lease / 3).as_micros(), Ordering::Release);
    }

    /// A grant that the engine has not heard to be known: good for less than a lease, and to be
    /// confirmed soon. A name that is given back before needs no confirmation.
    pub(crate) fn believe(&self, asked_at: Moment, believed: Duration) {
        const CONFIRM_AFTER: Duration = Duration::from_millis(100);
        let deadline = asked_at + believed - margin(self.terms.lease);
        let now = self.client.clock.now();
        self.good_for.store(micros(believed), Ordering::Release);
        self.deadline.store(deadline.as_micros(), Ordering::Release);
        let soon = now + CONFIRM_AFTER.min(deadline.since(now) / 3);
        self.renew_at.store(soon.as_micros(), Ordering::Release);
    }

    /// Nobody may believe in it any longer.
    pub(crate) fn deadline(&self) -> Moment {
        self.end().0
    }

    /// When it ends unless it is renewed, and what its holder is told then. The engine's session
    /// may end before the lease.
    fn end(&self) -> (Moment, Loss) {
        let deadline = Moment::from_micros(self.deadline.load(Ordering::Acquire));
        match self.client.engine.life(self.owner) {
            Life::AsLeased => (deadline, Loss::Deadline),
            Life::Until(moment) => (moment.min(deadline), Loss::Deadline),
            Life::Over => (self.client.clock.now(), Loss::Gone),
        }
    }

    /// How long the caller that holds now has held it.
    fn held_for(&self) -> Duration {
        self.client.clock.now().since(Moment::from_micros(self.held_since.load(Ordering::Acquire)))
    }

    pub(crate) fn good_for(&self) -> Duration {
        Duration::from_micros(self.good_for.load(Ordering::Acquire))
    }

    pub(crate) fn renew_at(&self) -> Moment {
        Moment::from_micros(self.renew_at.load(Ordering::Acquire))
    }

    pub(crate) fn token(&self) -> u64 {
        self.token.load(Ordering::Acquire)
    }

    /// Upgraded: the same claim under a new token.
    pub(crate) fn retoken(&self, grant: crate::claim::Grant) {
        if let Some(line) = &self.line {
            line.granted(self.owner, Use::Alone, grant);
        }
        self.last_token.store(grant.token + u64::from(grant.tokens) - 1, Ordering::Release);
        self.token.store(grant.token, Ordering::Release);
    }

    /// Asks the engine at the next opportunity whether the claim still stands.
    pub(crate) fn renew_soon(&self) {
        self.renew_at.store(0, Ordering::Release);
    }

    /// Tries again soon; the holder goes on until its deadline.
    pub(crate) fn doubt(&self, why: &dyn fmt::Display, now: Moment) {
        let soon = (self.good_for() / 12).min(Duration::from_secs(1));
        self.renew_at.store((now + soon).as_micros(), Ordering::Release);
        if !self.in_doubt.swap(true, Ordering::AcqRel) {
            self.client.events.in_doubt(&self.name, self.token(), why);
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn renewed(&self, asked_at: Moment) {
        // A yes that comes after the deadline is too late: somebody else may have held the name
        // since.
        if self.loss().is_some() {
            return;
        }
        self.counts_from(asked_at);
        if self.in_doubt.swap(false, Ordering::AcqRel) {
            self.client.events.recovered(&self.name, self.token());
            self.changed.notify_waiters();
        }
    }

    /// Lost, once and for all.
    pub(crate) fn lose(&self, why: Loss) {
        let first = self.lost.compare_exchange(NOT_LOST, encode(why), Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() && self.token() != 0 {
            self.client.events.lost(&self.name, self.token(), why, self.held_for());
            self.changed.notify_waiters();
            drop(self.take_turn());
        }
    }

    /// True for the first who wants to give it back. Whether it is still renewed does not tell: the
    /// keeper drops what is lost.
    pub(crate) fn begin_giving_back(&self) -> bool {
        !self.given_back.swap(true, Ordering::AcqRel)
    }

    /// About to be upgraded or downgraded. Whether the engine has done it is not known before it
    /// answers, and it may never answer: from here on nobody takes this over for what it was.
    pub(crate) fn begin_altering(&self) {
        self.altered.store(true, Ordering::Release);
    }

    /// Downgraded: others in this process can share the name.
    pub(crate) fn share(&self) {
        drop(self.take_turn());
    }

    pub(crate) fn take_turn(&self) -> Option<Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The line of callers in this process, if one of them can take over.
    fn line_with_heir(&self) -> Option<&Arc<Line>> {
        let line = self.line.as_ref()?;
        let as_granted = !self.altered.load(Ordering::Acquire);
        (as_granted && line.has_heir(&self.terms)).then_some(line)
    }

    /// The highest token that was used of this claim's block, if `token` was used last under it.
    /// The rest is the engine's again.
    pub(crate) fn used(&self, token: u64) -> u64 {
        let shared = self.line.as_ref().filter(|_| self.usage == Use::Shared);
        shared.and_then(|line| line.close_block(self.owner)).unwrap_or(0).max(token)
    }

    /// How it was lost, judged by the clock and not by whether a timer ran.
    pub(crate) fn loss(&self) -> Option<Loss> {
        if self.lost.load(Ordering::Acquire) == NOT_LOST {
            let (end, why) = self.end();
            if self.client.clock.now() >= end {
                self.lose(why);
            }
        }
        decode(self.lost.load(Ordering::Acquire))
    }

    pub(crate) fn standing(&self) -> Standing {
        if self.loss().is_some() {
            Standing::Lost
        } else if self.in_doubt.load(Ordering::Acquire) {
            Standing::InDoubt
        } else {
            Standing::Held
        }
    }

    pub(crate) fn lost_error(&self, token: u64, why: Loss) -> Error {
        Error::Lost { name: self.name.as_str().to_owned(), token, why }
    }

    /// Waits until `stop` says so for this lease while `token` is the one in use; for ever once it
    /// is released.
    async fn watch<T>(&self, token: u64, stop: impl Fn(&Lease) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Listening must start before the look, or a change in between is missed.
            changed.as_mut().enable();
            if self.token() != token {
                return std::future::pending().await;
            }
            if let Some(found) = stop(self) {
                return found;
            }
            let deadline = self.deadline();
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(&*self.client.clock, deadline) => {}
            }
        }
    }

    /// Waits until the lease is lost.
    pub(crate) async fn lost(&self, token: u64) -> Loss {
        self.watch(token, Lease::loss).await
    }

    /// Waits until the lease is not surely held.
    pub(crate) async fn endangered(&self, token: u64) -> Standing {
        self.watch(token, |lease| Some(lease.standing()).filter(|standing| *standing != Standing::Held)).await
    }

    /// The token for the next caller in line, if the budget allows one.
    fn next_token(&self) -> Option<u64> {
        let budget = self.client.options.hand_over?;
        let healthy = self.standing() == Standing::Held;
        let in_time = self.client.clock.now().since(self.granted_at) < budget;
        if !healthy || !in_time {
            return None;
        }
        match self.usage {
            Use::Alone => {
                Some(self.token() + 1).filter(|next| *next <= self.last_token.load(Ordering::Acquire))
            }
            Use::Shared => self.line.as_ref()?.next_token(),
        }
    }
}

/// One caller's use of a lease. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Hold {
    /// Gone once the hold has ended.
    lease: Option<Arc<Lease>>,
    token: u64,
}

impl Hold {
    pub(crate) fn new(lease: Arc<Lease>) -> Hold {
        Hold { token: lease.token(), lease: Some(lease) }
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        // Taken only by what consumes or drops the hold.
        self.lease.as_ref().expect("a hold in use has its lease")
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// An error if it is lost.
    pub(crate) fn check(&self) -> Result<()> {
        let lease = self.lease();
        lease.loss().map_or(Ok(()), |why| Err(lease.lost_error(self.token, why)))
    }

    /// The same claim under a new token.
    pub(crate) fn retoken(&mut self, grant: crate::claim::Grant) {
        self.lease().retoken(grant);
        self.token = grant.token;
    }

    /// Ends the hold as far as can be done at once; what is left is to be done with the engine.
    fn end(&mut self) -> Option<Ending> {
        let lease = self.lease.take()?;
        let loss = lease.loss();
        if loss.is_none() {
            lease.client.events.released(&lease.name, self.token, || lease.held_for());
        }
        if loss.is_none()
            && let Some(line) = lease.line_with_heir().cloned()
            && let Some(next) = lease.next_token()
        {
            // The old guard is over before the next one starts.
            lease.token.store(next, Ordering::Release);
            lease.held_since.store(lease.client.clock.now().as_micros(), Ordering::Release);
            lease.changed.notify_waiters();
            let terms = lease.terms;
            let heir = Hold { lease: Some(lease), token: next };
            let mut unwanted = line.hand_over(&terms, heir).err()?;
            return Some(Ending::new(unwanted.lease.take()?, self.token, loss));
        }
        Some(Ending::new(lease, self.token, loss))
    }

    /// Gives the name back, and waits for the engine's word.
    pub(crate) async fn release(mut self) -> Result<()> {
        match self.end() {
            Some(ending) => ending.finish().await,
            None => Ok(()),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(ending) = self.end() {
            drop(ending);
        }
    }
}

/// A claim on its way back to the engine. Dropped, it goes on in the background.
struct Ending {
    lease: Arc<Lease>,
    token: u64,
    loss: Option<Loss>,
    /// The highest token that was used of the claim's block, once that is asked for. Then the block
    /// is closed, and nobody could say it again.
    used: Option<u64>,
    /// The engine must still hear of it.
    owed: bool,
    /// Closing waits until the engine has heard, or what is left of it is in the background.
    _counted: Counted,
}

impl Ending {
    fn new(lease: Arc<Lease>, token: u64, loss: Option<Loss>) -> Ending {
        // Counted before it is taken from the keeper: closing finds the one or the other.
        let counted = lease.client.requests.enter();
        // The token goes after that: whoever closes the client and finds none leaves it to us.
        let owed = lease.begin_giving_back();
        lease.token.store(0, Ordering::Release);
        lease.changed.notify_waiters();
        lease.client.keeper.forget(lease.owner);
        Ending { lease, token, loss, used: None, owed, _counted: counted }
    }

    fn used(&mut self) -> u64 {
        *self.used.get_or_insert_with(|| self.lease.used(self.token))
    }

    async fn finish(mut self) -> Result<()> {
        // What closing the client gives back was lost by that.
        if let Some(loss) = self.loss.or((!self.owed).then_some(Loss::Closed)) {
            // It is over. What may be left of it in the engine is cleared away in the background.
            return Err(self.lease.lost_error(self.token, loss));
        }
        let used = self.used();
        let found = give_back(&self.lease, used).await;
        // Tried again in the background, for as long as the lease may stand.
        self.owed = found.as_ref().is_err_and(Error::is_retryable);
        match found {
            Ok(Released::Nothing) => Err(self.lease.lost_error(self.token, Loss::Gone)),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.owed {
            let client = Arc::clone(&self.lease.client);
            let used = self.used();
            client.release_later(Release::of_claim(Arc::clone(&self.lease), used));
        } else {
            // The line moves on only after the engine has heard: its head would find the name
            // taken.
            drop(self.lease.take_turn());
        }
    }
}

/// Releases the claim, within the time that one call may take.
async fn give_back(lease: &Lease, used: u64) -> Result<Released> {
    let client = &lease.client;
    let give_up = client.clock.now() + client.options.call_limit;
    match client.call(client.engine.release(&lease.name, lease.owner, used)).await {
        // In a box of its own: it is needed seldom.
        Err(error) if error.is_retryable() => Box::pin(give_back_again(lease, used, give_up, error)).await,
        released => released,
    }
}

/// Tries again until `give_up`: the engine may be back soon. If not, the last error that it gave is
/// the answer.
async fn give_back_again(lease: &Lease, used: u64, give_up: Moment, mut error: Error) -> Result<Released> {
    const AGAIN: Duration = Duration::from_millis(50);
    let client = &lease.client;
    loop {
        let trying = async {
            tokio::time::sleep(AGAIN).await;
            client.call(client.engine.release(&lease.name, lease.owner, used)).await
        };
        let tried = tokio::select! {
            biased;
            tried = trying => tried,
            () = sleep_until(&*client.clock, give_up) => return Err(error),
        };
        match tried {
            // Only the answer was lost: it was held when it was first given back.
            Ok(Released::Nothing) => return Ok(Released::Claim),
            Err(again) if again.is_retryable() => error = again,
            released => return released,
        }
    }
}

/// Leaves the queue, or gives back a grant that nobody waits for any more, when a request is
/// dropped half way.
///
/// It exists before the request is sent, so there is no point at which a dropped future leaves
/// something behind.
pub(crate) struct Pending {
    pub(crate) client: Arc<Inner>,
    pub(crate) name: Name,
    pub(crate) owner: OwnerId,
    pub(crate) lease: Duration,
    pub(crate) undo: Undo,
}

/// What must be undone if a request is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// Nothing: it was not sent yet, or its outcome is known.
    Nothing,
    /// Nothing as long as this has not changed: the engine was out of reach when it was to be sent.
    UnlessStill(Connection),
    /// The engine may have heard of it.
    Request,
}

impl Pending {
    /// The outcome is known, and there is nothing to undo.
    pub(crate) fn disarm(&mut self) {
        self.undo = Undo::Nothing;
    }

    /// Called before the request is sent.
    pub(crate) fn arm(&mut self) {
        let connection = self.client.engine.connection(&self.name);
        self.undo = match (self.undo, connection) {
            (Undo::Request, _) | (_, Connection::Up) => Undo::Request,
            (before @ Undo::UnlessStill(_), _) => before,
            (Undo::Nothing, down) => Undo::UnlessStill(down),
        };
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let client = &self.client;
        match self.undo {
            Undo::Nothing => return,
            Undo::UnlessStill(down) if client.engine.connection(&self.name) == down => return,
            Undo::UnlessStill(_) | Undo::Request => {}
        }
        let now = client.clock.now();
        client.release_later(Release::of_request(self.name.clone(), self.owner, self.lease, now));
    }
}
