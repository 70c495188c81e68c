//! Asking an engine for a claim, and waiting for it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::claim::{Answer, Ask, CONFIRM, Grant, Holder, OwnerId, Pause};
use crate::client::Inner;
use crate::client::hold::{Hold, Lease, Pending, Undo, margin};
use crate::client::metrics::Outcome;
use crate::client::queue::{Entered, Line, Pass, Terms, Turn, Use};
use crate::clock::{Moment, sleep_until};
use crate::engine::refusal;
use crate::error::{Error, Loss, Result};
use crate::name::{Family, Name};

/// A waiter that hears nothing asks again after this long, and up to half as long again. It tells
/// the engine that the waiter lives, too.
const POLL: Duration = Duration::from_secs(1);
/// A waiter whose engine does not answer asks again after this long, and then after longer pauses.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a lock asks for, each time it is taken.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) name: Name,
    pub(crate) line: Arc<Line>,
    pub(crate) terms: Terms,
    pub(crate) holder: Arc<Holder>,
    pub(crate) value: Arc<[u8]>,
    /// Elections: every candidate stands for itself, and the engine keeps a log.
    pub(crate) logged: bool,
}

impl Want {
    /// Whether the caller is alone on the name while it holds it. A semaphore that is taken whole
    /// is shared: it may be enlarged meanwhile.
    pub(crate) fn usage(&self) -> Use {
        let alone = self.name.family() == Family::Lock && self.terms.weight == self.terms.capacity;
        if alone { Use::Alone } else { Use::Shared }
    }
}

/// How long a caller is ready to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    Until(Moment),
    Forever,
}

impl Patience {
    pub(crate) fn lasting(duration: Duration, now: Moment) -> Patience {
        if duration.is_zero() { Patience::None } else { Patience::Until(now + duration) }
    }

    pub(crate) fn over(self, now: Moment) -> bool {
        matches!(self, Patience::Until(end) if now >= end)
    }

    pub(crate) fn end(self) -> Moment {
        match self {
            Patience::Until(end) => end,
            Patience::None | Patience::Forever => Moment::NEVER,
        }
    }
}

impl Inner {
    /// Takes what is wanted; `None` if it was not to be had in time.
    pub(crate) async fn acquire(self: &Arc<Inner>, want: &Want, patience: Patience) -> Result<Option<Hold>> {
        self.check_open()?;
        self.check_want(want)?;
        let started = self.clock.now();
        let wait = self.events.meter().wait(&want.name);
        let taken = self.unless_closed(self.acquire_in_turn(want, patience, started)).await;
        wait.end(match (&taken, patience) {
            (Ok(Some(_)), _) => Outcome::Granted,
            (Ok(None), Patience::None) => Outcome::Busy,
            (Ok(None), _) => Outcome::TimedOut,
            (Err(_), _) => Outcome::Failed,
        });
        if matches!((&taken, patience), (Ok(None), Patience::Until(_))) {
            self.events.timed_out(&want.name, self.clock.now().since(started));
        }
        taken
    }

    async fn acquire_in_turn(
        self: &Arc<Inner>,
        want: &Want,
        patience: Patience,
        started: Moment,
    ) -> Result<Option<Hold>> {
        // Who shares and does not wait need not stand in line: the engine says whether there is
        // room.
        let passes_line = patience == Patience::None && want.usage() == Use::Shared;
        if want.logged || passes_line || self.options.hand_over.is_none() {
            let hold = self.ask(want, None, patience, started).await;
            return self.told(hold, started);
        }
        let turn = loop {
            let place = match want.line.enter(want.terms, want.usage(), patience != Patience::None) {
                Entered::Front(turn) => break turn,
                Entered::Busy => return Ok(None),
                Entered::InLine(place) => place,
            };
            let pass = tokio::select! {
                biased;
                pass = place => pass,
                () = sleep_until(&*self.clock, patience.end()) => return Ok(None),
            };
            match pass {
                Ok(Pass::Turn(turn)) => break turn,
                // Lost on the way from one hand to the other: stand in line again.
                Ok(Pass::Hold(hold)) if hold.lease().loss().is_some() => {}
                Ok(Pass::Hold(hold)) => return self.told(Ok(Some(hold)), started),
                // A place is dropped only together with its line, which this want keeps alive.
                Err(_) => return Err(Error::closed()),
            }
        };
        let hold = self.ask(want, Some(turn), patience, started).await;
        self.told(hold, started)
    }

    fn told(&self, hold: Result<Option<Hold>>, started: Moment) -> Result<Option<Hold>> {
        if let Ok(Some(hold)) = &hold {
            // Looked at after the keeper has the lease: either this sees that the client is closed,
            // or closing finds the lease.
            if self.closing.has_begun() {
                hold.lease().lose(Loss::Closed);
                return Err(Error::closed());
            }
            let waited = self.clock.now().since(started);
            self.events.granted(&hold.lease().name, hold.token(), waited);
        }
        hold
    }

    async fn ask(
        self: &Arc<Inner>,
        want: &Want,
        turn: Option<Turn>,
        patience: Patience,
        started: Moment,
    ) -> Result<Option<Hold>> {
        let terms = want.terms;
        let handed_on = turn.is_some() && want.line.crowded();
        let ask = Ask {
            owner: self.next_owner(),
            weight: terms.weight,
            capacity: terms.capacity,
            lease: terms.lease,
            lock_delay: terms.lock_delay,
            tokens: if handed_on { self.options.hand_over_tokens } else { 1 },
            wait: patience != Patience::None,
            answer_within: self.options.call_limit,
            round: 0,
            holder: Arc::clone(&want.holder),
            value: Arc::clone(&want.value),
            logged: want.logged,
        };
        let pending = self.pending(want, ask.owner);
        let mut request = Request { client: self, want, ask, pending, turn, patience, started };
        let (answer, asked_at) = request.send().await?;
        match answer {
            Answer::Granted(grant) if !request.is_late(asked_at, terms.lease) => {
                Ok(Some(request.hold(grant, asked_at, terms.lease)))
            }
            // In a box of its own: who gets it at once does not carry it around.
            answer => Box::pin(request.wait(answer, asked_at)).await,
        }
    }

    fn pending(self: &Arc<Inner>, want: &Want, owner: OwnerId) -> Pending {
        Pending {
            client: Arc::clone(self),
            name: want.name.clone(),
            owner,
            lease: want.terms.lease,
            undo: Undo::Nothing,
        }
    }

    /// Waits for a word from the engine, or until it is time to ask again. What it was told, if it
    /// was told of a grant.
    pub(crate) async fn rest(
        &self,
        waiting: &Registered,
        pause: Pause,
        patience: Patience,
        salt: Moment,
    ) -> Option<Told> {
        let jitter = Duration::from_micros((salt.as_micros() ^ waiting.owner.0 as u64) % 500_000);
        let by_time = pause.at_most.saturating_add(Duration::from_millis(1));
        let again = self.clock.now() + by_time.min(POLL + jitter);
        tokio::select! {
            biased;
            () = waiting.notify.notified() => {}
            () = sleep_until(&*self.clock, again.min(patience.end())) => {}
        }
        waiting.wakes.table().told.remove(&waiting.owner)
    }
}

/// A caller's request, until it is granted or given up. Dropped, it leaves nothing behind at the
/// engine.
struct Request<'a> {
    client: &'a Arc<Inner>,
    want: &'a Want,
    ask: Ask,
    pending: Pending,
    turn: Option<Turn>,
    patience: Patience,
    started: Moment,
}

impl Request<'_> {
    /// Asks the engine once, and says when. It takes no longer than the caller is ready to wait.
    async fn send(&mut self) -> Result<(Answer, Moment)> {
        let client = self.client;
        client.check_open()?;
        let asked_at = client.clock.now();
        let limit = client.options.call_limit.min(self.patience.end().since(asked_at));
        self.ask.round += 1;
        self.ask.answer_within = limit;
        self.pending.arm();
        let answer = client.call_within(limit, client.engine.acquire(&self.want.name, &self.ask)).await?;
        Ok((answer, asked_at))
    }

    /// Asks again, for as long as the caller is ready to wait and the engine may come back. `None`
    /// if the caller's time is over.
    async fn send_again(&mut self) -> Result<Option<(Answer, Moment)>> {
        let (client, patience) = (self.client, self.patience);
        let mut pause = FIRST_PAUSE;
        let mut away = false;
        loop {
            let error = match self.send().await {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) if error.is_retryable() => error,
                Err(error) => return Err(error),
            };
            if patience == Patience::None {
                return Err(error);
            }
            if patience.over(client.clock.now()) {
                // It stood in the queue a moment ago, so this is no outage.
                return if away { Err(error) } else { Ok(None) };
            }
            if !std::mem::replace(&mut away, true) {
                let name = &self.want.name;
                tracing::warn!(target: "leasehold", %name, %error, "waiting, although the engine does not answer");
            }
            sleep_until(&*client.clock, (client.clock.now() + pause).min(patience.end())).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// True if a grant that was asked for at that time, and is good for that long, is over.
    fn is_late(&self, asked_at: Moment, good_for: Duration) -> bool {
        self.client.clock.now() >= asked_at + good_for - margin(self.want.terms.lease)
    }

    fn hold(mut self, grant: Grant, asked_at: Moment, good_for: Duration) -> Hold {
        let (client, want, owner) = (self.client, self.want, self.ask.owner);
        let handed_on = client.options.hand_over.is_some() && !want.logged;
        let line = handed_on.then(|| Arc::clone(&want.line));
        if let Some(line) = &line {
            line.granted(owner, want.usage(), grant);
        }
        // Whoever shares the name does not keep others of this process from asking.
        let turn = self.turn.filter(|turn| turn.usage() == Use::Alone);
        let lease = Lease::new(client, want, owner, grant, asked_at, line, turn);
        if good_for < want.terms.lease {
            lease.believe(asked_at, good_for);
        }
        let lease = Arc::new(lease);
        self.pending.disarm();
        client.keeper.keep(&lease);
        if client.wakes.woken_early(owner) {
            // It may have been broken since it was granted.
            lease.renew_soon();
            client.keeper.look_now();
        }
        Hold::new(lease)
    }

    /// Goes on from an answer that was not a grant, or one that came too late.
    async fn wait(mut self, mut answer: Answer, mut asked_at: Moment) -> Result<Option<Hold>> {
        let (client, want, patience) = (self.client, self.want, self.patience);
        let mut waiting: Option<Registered> = None;
        loop {
            match answer {
                // An answer that comes after the deadline is a no, whatever it says.
                Answer::Granted(_) if self.is_late(asked_at, want.terms.lease) => {
                    self.ask.owner = client.next_owner();
                    self.ask.round = 0;
                    self.pending = client.pending(want, self.ask.owner);
                    waiting = None;
                    if patience == Patience::None || patience.over(client.clock.now()) {
                        return Ok(None);
                    }
                }
                Answer::Granted(grant) => return Ok(Some(self.hold(grant, asked_at, want.terms.lease))),
                Answer::Queued(pause) => {
                    if patience.over(client.clock.now()) {
                        return Ok(None);
                    }
                    if let Some(turn) = &mut self.turn {
                        turn.waits();
                    }
                    let waiting = waiting.get_or_insert_with(|| {
                        client.events.waiting(&want.name);
                        client.wakes.register(self.ask.owner)
                    });
                    let told = client.rest(waiting, pause, patience, self.started).await;
                    // Granted after this asking, so no earlier than it was sent. Who never confirms
                    // is taken for dead soon; the keeper confirms. A lock delay is for those who
                    // have: they ask.
                    let good_for = want.terms.lease.min(CONFIRM);
                    if let Some(Told { grant, round }) = told
                        && round == self.ask.round
                        && want.terms.lock_delay.is_zero()
                        && !self.is_late(asked_at, good_for)
                    {
                        return Ok(Some(self.hold(grant, asked_at, good_for)));
                    }
                    if patience.over(client.clock.now()) {
                        return Ok(None);
                    }
                }
                Answer::Refused(refused) => {
                    self.pending.disarm();
                    return Err(refusal(&want.name, refused));
                }
                Answer::Busy(_) => {
                    self.pending.disarm();
                    return Ok(None);
                }
            }
            match self.send_again().await? {
                Some(next) => (answer, asked_at) = next,
                None => return Ok(None),
            }
        }
    }
}

/// A grant that a waiter was told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    grant: Grant,
    /// The asking that it answers.
    round: u32,
}

/// The waiters of a client, by owner, for the engine's hints.
#[derive(Debug, Default)]
pub(crate) struct Wakes(Mutex<WakeTable>);

#[derive(Debug, Default)]
struct WakeTable {
    waiting: HashMap<OwnerId, Arc<Notify>>,
    /// Hints that came before the waiter had been told that it is in the queue.
    early: HashSet<OwnerId>,
    /// Grants that were told of and not yet heard.
    told: HashMap<OwnerId, Told>,
}

impl WakeTable {
    fn note_early(&mut self, owner: OwnerId) {
        // Hints for waiters that gave up pile up here; losing a hint only costs time.
        const MOST_EARLY: usize = 1024;
        if self.early.len() >= MOST_EARLY {
            self.early.clear();
            let WakeTable { waiting, told, .. } = self;
            told.retain(|owner, _| waiting.contains_key(owner));
        }
        self.early.insert(owner);
    }
}

/// A waiter that can be woken. Dropped, it is forgotten.
#[derive(Debug)]
pub(crate) struct Registered {
    wakes: Arc<Wakes>,
    owner: OwnerId,
    notify: Arc<Notify>,
}

impl Wakes {
    fn table(&self) -> MutexGuard<'_, WakeTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(self: &Arc<Wakes>, owner: OwnerId) -> Registered {
        let notify = Arc::new(Notify::new());
        let mut table = self.table();
        table.waiting.insert(owner, Arc::clone(&notify));
        if table.early.remove(&owner) {
            notify.notify_one();
        }
        drop(table);
        Registered { wakes: Arc::clone(self), owner, notify }
    }

    pub(crate) fn wake(&self, owner: OwnerId) {
        let mut table = self.table();
        match table.waiting.get(&owner) {
            Some(notify) => notify.notify_one(),
            None => table.note_early(owner),
        }
    }

    /// What an owner was granted may be gone, although it does not hold it yet: a grant that it was
    /// told of is void, and one that it hears of from now on is to be made sure of.
    pub(crate) fn broken(&self, owner: OwnerId) {
        let mut table = self.table();
        table.told.remove(&owner);
        table.note_early(owner);
        if let Some(notify) = table.waiting.get(&owner) {
            notify.notify_one();
        }
    }

    /// True if there was a hint for an owner that did not wait.
    pub(crate) fn woken_early(&self, owner: OwnerId) -> bool {
        let mut table = self.table();
        !table.early.is_empty() && table.early.remove(&owner)
    }

    /// Wakes an owner and says what it was granted.
    pub(crate) fn grant(&self, owner: OwnerId, grant: Grant, round: u32) {
        self.table().told.insert(owner, Told { grant, round });
        self.wake(owner);
    }

    /// Everybody asks again: hints may have been lost.
    pub(crate) fn wake_all(&self) {
        self.table().waiting.values().for_each(|notify| notify.notify_one());
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut table = self.wakes.table();
        table.waiting.remove(&self.owner);
        table.told.remove(&self.owner);
    }
}
