//! The simulated engine, and the network between it and the clients.
//!
//! The engine is the pure rules of [`leasehold::claim`] on simulated time. What it promises, as
//! every engine must (the clauses are those of `src/engine.rs`):
//!
//! * Requests of one owner are carried out in the order in which they were sent, so a release never
//!   overtakes the acquire that it undoes (6); in half of the runs that goes for all requests of a
//!   client, as on one connection.
//! * An acquire is not carried out later than `answer_within` after it was sent (6).
//! * An acquire, renewal or release may be carried out twice, before the next request of the same
//!   owner (5, 6).
//! * While `connection` says that there is none, nothing is sent, and afterwards it says something
//!   else.
//! * A hint of a grant names the asking that the engine had heard last (7).
//!
//! Everything else is up to chance: how long requests and answers take, which of them are lost,
//! whether the caller hears of that, answers that overtake each other, hints that are lost, late,
//! repeated and false, servers and connections that are away, openly or not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold::claim::{
    Alteration, Answer, Ask, Claim, MemoryQueue, OwnerId, Released, State, Step, WHOLE, World as Rules,
};
use leasehold::engine::{
    Cells, Connection, Engine, Guarantees, HeldClaim, Hint, Hints, Renewal, Renewed, Reply, Swap, Swapped,
    View, Watching,
};
use leasehold::{Error, Family, Name, Result};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::dice::Dice;
use crate::judge::{Belief, Judge};

/// How the network of a run behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) pace: Pace,
    /// Of 100 calls, how many something goes wrong with.
    pub(crate) trouble: u64,
    /// Of 100 hints, how many are lost.
    pub(crate) deaf: u64,
    /// One order for all requests of a client, not only for those of one owner.
    pub(crate) one_connection: bool,
    /// Hints carry the grant.
    pub(crate) tells_grants: bool,
    /// Of 100 grants, how many an operator breaks at once.
    pub(crate) breaks: u64,
}

/// How long a message takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Nothing: an embedded engine.
    None,
    Quick,
    Slow,
    /// Mostly quick.
    Wild,
}

impl Pace {
    fn draw(self, dice: &mut Dice) -> u64 {
        let millis = match self {
            Pace::None => 0,
            Pace::Quick => dice.below(4),
            Pace::Slow => dice.between(1, 120),
            Pace::Wild if dice.percent(8) => dice.between(50, 2500),
            Pace::Wild => dice.between(0, 15),
        };
        millis * 1000
    }
}

/// How long a client has to ask after it was told of a break, where nothing goes wrong.
const GRACE: u64 = 60_000;

#[derive(Debug)]
enum Op {
    Acquire(Name, Ask),
    Renew(Vec<Renewal>),
    Release(Name, OwnerId, u64),
    Alter(Name, OwnerId, Alteration),
    Look(Name, u64),
    Watch(Name, Watching),
}

impl Op {
    fn owner(&self) -> Option<OwnerId> {
        match self {
            Op::Acquire(_, ask) => Some(ask.owner),
            Op::Release(_, owner, _) | Op::Alter(_, owner, _) => Some(*owner),
            Op::Renew(_) | Op::Look(..) | Op::Watch(..) => None,
        }
    }
}

/// A request in one line of the log.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Acquire(name, ask) => {
                let Ask { owner, round, wait, tokens, lease, lock_delay, .. } = ask;
                let weight = if ask.weight == WHOLE { "all".into() } else { ask.weight.to_string() };
                let wait = if *wait { "" } else { " now" };
                write!(f, "acquire {weight} of {name}{wait} #{} round {round}", short(*owner))?;
                write!(f, " (lease {lease:?}, tokens {tokens}, delay {lock_delay:?})")
            }
            Op::Renew(renewals) => {
                write!(f, "renew")?;
                renewals.iter().try_for_each(|one| write!(f, " {} #{}", one.name, short(one.owner)))
            }
            Op::Release(name, owner, used) => write!(f, "release {name} #{} used {used}", short(*owner)),
            Op::Alter(name, owner, what) => write!(f, "alter {name} #{} {what:?}", short(*owner)),
            Op::Look(name, seen) => write!(f, "look {name} after {seen}"),
            Op::Watch(name, watching) => write!(f, "watch {name} {watching:?}"),
        }
    }
}

/// The half of an owner's number that counts.
fn short(owner: OwnerId) -> u64 {
    owner.0 as u64
}

#[derive(Clone, Debug)]
enum Out {
    Answer(Answer),
    Renewed(Vec<Renewed>),
    Released(Released),
    View(View),
    Nothing,
}

enum Event {
    /// A request arrives. `answer` says after what time its answer does, if it does.
    Request {
        call: u64,
        link: usize,
        op: Arc<Op>,
        sent: u64,
        answer: Option<u64>,
        again: bool,
    },
    Answer {
        call: u64,
        link: usize,
        out: Result<Out>,
    },
    Hint {
        link: usize,
        hint: Hint,
    },
    Restore {
        link: usize,
    },
    Break {
        name: usize,
    },
    /// A client was told of a break some time ago.
    Told {
        link: usize,
        name: usize,
        block: (u64, u64),
        told: u64,
    },
}

/// A client's way to the engine.
struct Link {
    hints: Option<Hints>,
    outage: Option<Outage>,
    connections: u64,
    restored: Arc<Notify>,
    frozen_until: u64,
    closed: bool,
    last_arrival: BTreeMap<Option<OwnerId>, u64>,
    /// When something went wrong last.
    mishap: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Nobody has noticed: requests vanish.
    Silent,
    /// There is no connection, and calls fail at once.
    Refused,
    /// There is no connection, and calls wait for one.
    Waiting,
}

struct Flight {
    link: usize,
    reply: oneshot::Sender<Result<Out>>,
}

struct Entry {
    name: Name,
    state: State,
    queue: MemoryQueue,
    watchers: BTreeSet<usize>,
}

struct Inner {
    dice: Dice,
    weather: Weather,
    entries: Vec<Entry>,
    floor: u64,
    longest_lease: u64,
    rounds: BTreeMap<OwnerId, u32>,
    events: BTreeMap<(u64, u64), Event>,
    last_event: u64,
    /// When claims end unless renewed: the judge looks then.
    expiries: BTreeSet<(u64, usize)>,
    links: Vec<Link>,
    flights: BTreeMap<u64, Flight>,
    judge: Judge,
    counts: Counts,
    log: Option<VecDeque<String>>,
    digest: u64,
    paused: Duration,
}

/// How often what happened.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

/// The engine and the network of a run.
pub(crate) struct World {
    zero: Instant,
    inner: Mutex<Inner>,
    changed: Notify,
    guarantees: Guarantees,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

/// What to do when the world is unlocked.
#[derive(Default)]
struct Post {
    hints: Vec<(Hints, Hint)>,
}

/// The engine's clock when a run begins.
const BEGIN: u64 = 1_000_000_000;

pub(crate) fn unavailable(what: &str) -> Error {
    Error::Unavailable { engine: "simulated", what: what.to_owned(), source: None }
}

impl World {
    pub(crate) fn new(
        seed: u64,
        weather: Weather,
        names: Vec<(Name, u32)>,
        longest_lease: Duration,
        mut guarantees: Guarantees,
        logged: bool,
    ) -> Arc<World> {
        guarantees.engine = "simulated";
        let mut judge = Judge::default();
        judge.only_looks = seed % 2 == 1;
        names.iter().for_each(|(_, capacity)| judge.add_name(*capacity));
        let entries = names.into_iter().map(|(name, _)| Entry {
            name,
            state: State::new(0),
            queue: MemoryQueue::default(),
            watchers: BTreeSet::new(),
        });
        let inner = Inner {
            dice: Dice::new(seed ^ 0x6e65_7477_6f72_6b00),
            weather,
            entries: entries.collect(),
            floor: 0,
            longest_lease: micros(longest_lease),
            rounds: BTreeMap::new(),
            events: BTreeMap::new(),
            last_event: 0,
            expiries: BTreeSet::new(),
            links: Vec::new(),
            flights: BTreeMap::new(),
            judge,
            counts: Counts::new(),
            log: logged.then(VecDeque::new),
            digest: 0,
            paused: Duration::ZERO,
        };
        Arc::new(World { zero: Instant::now(), inner: Mutex::new(inner), changed: Notify::new(), guarantees })
    }

    /// An engine for one more client.
    pub(crate) fn connect(self: &Arc<World>) -> Box<dyn Engine> {
        let mut inner = self.lock();
        inner.links.push(Link {
            hints: None,
            outage: None,
            connections: 1,
            restored: Arc::default(),
            frozen_until: 0,
            closed: false,
            last_arrival: BTreeMap::new(),
            mishap: 0,
        });
        Box::new(Linked { world: Arc::clone(self), link: inner.links.len() - 1 })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while the world is locked")
    }

    /// The engine's clock.
    pub(crate) fn now(&self) -> u64 {
        BEGIN + micros(self.zero.elapsed())
    }

    /// Lets happen what is due. After a pause of the whole simulation, each thing at its time.
    pub(crate) fn step(&self) {
        let now = self.now();
        loop {
            let mut post = Post::default();
            let mut inner = self.lock();
            let more = inner.step(now, &mut post);
            drop(inner);
            post.hints.into_iter().for_each(|(hints, hint)| hints.give(hint));
            if !more {
                return;
            }
        }
    }

    /// Runs the world until it is dropped.
    pub(crate) async fn run(self: Arc<World>) {
        loop {
            self.step();
            let next = self.lock().next_event().saturating_sub(BEGIN);
            let sleep = tokio::time::sleep_until(self.zero + Duration::from_micros(next));
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = sleep => {}
            }
        }
    }

    fn send(&self, link: usize, op: &Arc<Op>) -> Sent {
        self.step();
        let now = self.now();
        let sent = self.lock().send(link, op, now);
        self.changed.notify_one();
        sent
    }

    async fn call(&self, link: usize, op: Op) -> Result<Out> {
        let op = Arc::new(op);
        loop {
            match self.send(link, &op) {
                Sent::Done(out) => return out,
                Sent::Flying(reply) => match reply.await {
                    Ok(out) => return out,
                    // Nobody will ever say what came of it.
                    Err(_) => return std::future::pending().await,
                },
                Sent::Waits(restored) => restored.notified().await,
            }
        }
    }

    /// Writes a line to the log, if there is one. What was written decides whether two runs were
    /// the same.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        let now = self.now();
        self.lock().note(now, line);
    }

    pub(crate) fn count(&self, what: &'static str) {
        *self.lock().counts.entry(what).or_default() += 1;
    }

    pub(crate) fn counted(&self, what: &'static str) -> u64 {
        self.lock().counts.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn found(&self, what: String) {
        let now = self.now();
        let mut inner = self.lock();
        inner.note(now, || format!("VIOLATION {what}"));
        inner.judge.found(what);
    }

    /// Somebody got a guard.
    pub(crate) fn gets(&self, name: usize, belief: Belief) -> u64 {
        self.step();
        let now = self.now();
        let mut inner = self.lock();
        let Inner { entries, counts, .. } = &mut *inner;
        let claim = entries[name]
            .state
            .claims(now)
            .find(|claim| (claim.token..claim.token + u64::from(claim.tokens)).contains(&belief.token));
        *counts.entry("guards").or_default() += 1;
        if claim.is_some_and(|claim| claim.token != belief.token) {
            let shared = belief.weight != WHOLE;
            *counts.entry(if shared { "shares handed over" } else { "names handed over" }).or_default() += 1;
        }
        if claim.is_some_and(|claim| !claim.confirmed) {
            *counts.entry("grants believed by hint").or_default() += 1;
        }
        inner.note(now, || format!("guard on {name}: {belief}"));
        // Time passes between the grant and the task only when everybody stands still, or the clock
        // jumps.
        if belief.is_over() && inner.links[belief.client].mishap + 5_000 < now {
            inner.judge.found(format!("X5: {belief} got what was over before"));
        }
        let id = inner.judge.gets(name, belief, now);
        inner.check(name, now);
        id
    }

    /// Somebody got a guard as an owner who may have one already.
    pub(crate) fn gets_again(&self, name: usize, belief: Belief) -> u64 {
        if !self.lock().judge.has_had(name, &belief) {
            return self.gets(name, belief);
        }
        self.count("guards taken again by their owner");
        let now = self.now();
        let mut inner = self.lock();
        inner.note(now, || format!("guard on {name} again: {belief}"));
        inner.judge.gets_again(name, belief)
    }

    /// A writer became a reader.
    pub(crate) fn shares(&self, name: usize, belief: Belief) -> u64 {
        self.step();
        let now = self.now();
        let mut inner = self.lock();
        let id = inner.judge.shares(name, belief, now);
        inner.check(name, now);
        id
    }

    pub(crate) fn gives_back(&self, name: usize, id: u64) {
        let now = self.now();
        let mut inner = self.lock();
        inner.note(now, || format!("guard on {name} ends"));
        inner.judge.gives_back(name, id);
    }

    /// Cuts a client off for some time.
    pub(crate) fn cut(&self, link: usize, outage: Outage, lasts: Duration) {
        self.step();
        let now = self.now();
        self.lock().cut(link, outage, now, micros(lasts));
        self.changed.notify_one();
    }

    /// Holds back all that goes to and from a client.
    pub(crate) fn freeze(&self, link: usize, lasts: Duration) {
        let now = self.now();
        let mut inner = self.lock();
        inner.note(now, || format!("client {link} is frozen for {lasts:?}"));
        let link = &mut inner.links[link];
        link.frozen_until = link.frozen_until.max(now + micros(lasts));
        link.mishap = link.frozen_until;
    }

    /// Notes that something went wrong for a client.
    pub(crate) fn mishap(&self, link: usize) {
        let now = self.now();
        self.lock().links[link].mishap = now;
    }

    /// Something that nobody needs to hear.
    pub(crate) fn stray_hint(&self) {
        let now = self.now();
        let mut inner = self.lock();
        let owners: Vec<OwnerId> = inner.rounds.keys().copied().collect();
        let links = inner.links.len() as u64;
        let link = inner.dice.below(links) as usize;
        let hint = match inner.dice.below(4) {
            0 => Hint::WakeAll,
            1 => Hint::Verify,
            2 if !owners.is_empty() => Hint::Wake(inner.dice.pick(&owners)),
            _ if !owners.is_empty() => Hint::Broken(inner.dice.pick(&owners)),
            _ => Hint::WakeAll,
        };
        inner.hint(link, hint, now);
        self.changed.notify_one();
    }

    /// All clients stand still, and the engine and the network go on.
    pub(crate) async fn pause(&self, lasts: Duration) {
        let now = self.now();
        {
            let mut inner = self.lock();
            inner.note(now, || format!("all clients stand still for {lasts:?}"));
            inner.count("pauses");
            inner.paused += lasts;
            let until = now + micros(lasts);
            inner.links.iter_mut().for_each(|link| link.mishap = until);
        }
        tokio::time::advance(lasts).await;
    }

    /// For how long all clients have stood still.
    pub(crate) fn paused(&self) -> Duration {
        self.lock().paused
    }

    pub(crate) fn operator_breaks(&self, name: usize) {
        let now = self.now();
        self.lock().push(now, Event::Break { name });
        self.changed.notify_one();
    }

    /// From here on nothing goes wrong.
    pub(crate) fn heal(&self) {
        self.step();
        let now = self.now();
        let mut inner = self.lock();
        inner.note(now, || "the network heals".into());
        let weather = inner.weather;
        inner.weather = Weather { pace: weather.pace.min_quick(), trouble: 0, deaf: 0, breaks: 0, ..weather };
        for link in 0..inner.links.len() {
            inner.links[link].frozen_until = 0;
            inner.restore(link, now);
            inner.links[link].last_arrival.values_mut().for_each(|last| *last = now.min(*last));
        }
        // What is on its way arrives, in its order.
        for ((at, _), event) in std::mem::take(&mut inner.events) {
            let told = matches!(event, Event::Told { .. });
            inner.push(if told { at } else { at.min(now) }, event);
        }
        self.changed.notify_one();
    }

    /// What a client will still have in the engine after some time, if nobody does anything.
    pub(crate) fn left_of(&self, link: usize, after: Duration, except: &[usize]) -> Option<String> {
        self.step();
        let now = self.now() + micros(after);
        let inner = self.lock();
        let entries = inner.entries.iter().enumerate();
        let mut entries = entries.filter(|(name, _)| !except.contains(name));
        entries.find_map(|(_, entry)| {
            let claim = entry.state.claims(now).find(|claim| claim.seat == link as u64);
            let lives = |alive_until| after.is_zero() || alive_until > now;
            let mut waiters = entry.queue.iter();
            let waiter = waiters.find(|waiter| waiter.seat == link as u64 && lives(waiter.alive_until));
            let claim = claim.map(|claim| format!("claim #{} on {}", short(claim.owner), entry.name));
            claim
                .or_else(|| waiter.map(|waiter| format!("waiter #{} of {}", short(waiter.owner), entry.name)))
        })
    }

    /// What is still in the engine.
    pub(crate) fn left(&self) -> Option<String> {
        let now = self.now();
        let mut inner = self.lock();
        for name in 0..inner.entries.len() {
            inner.on_name(name, now, |state, queue, rules| {
                let Ok(step) = state.sweep(queue, rules);
                step
            });
        }
        drop(inner);
        let links = self.lock().links.len();
        (0..links).find_map(|link| {
            self.left_of(link, Duration::ZERO, &[]).map(|what| format!("client {link} has {what}"))
        })
    }

    pub(crate) fn calls_in_flight(&self, link: usize) -> usize {
        let inner = self.lock();
        inner.flights.values().filter(|flight| flight.link == link && !flight.reply.is_closed()).count()
    }

    pub(crate) fn lost_names(&self, client: usize) -> Vec<usize> {
        self.lock().judge.lost_names(client)
    }

    pub(crate) fn believes(&self, client: usize) -> Option<String> {
        self.lock().judge.believes(client)
    }

    pub(crate) fn registered(&self) -> usize {
        self.lock().judge.registered()
    }

    pub(crate) fn violation(&self) -> Option<String> {
        self.lock().judge.violations.first().cloned()
    }

    /// What came of the run: how often what happened, the log, and a number that is another one if
    /// anything was.
    pub(crate) fn outcome(&self) -> (Counts, Vec<String>, u64) {
        let mut inner = self.lock();
        let log = inner.log.take().unwrap_or_default().into();
        (std::mem::take(&mut inner.counts), log, inner.digest)
    }
}

impl Pace {
    fn min_quick(self) -> Pace {
        if self == Pace::None { Pace::None } else { Pace::Quick }
    }
}

enum Sent {
    Done(Result<Out>),
    Flying(oneshot::Receiver<Result<Out>>),
    Waits(Arc<Notify>),
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    /// The request is lost, and the caller hears of that or not.
    RequestLost {
        heard: bool,
    },
    /// It is carried out, and the caller hears an error or nothing.
    AnswerLost {
        heard: bool,
    },
    Twice,
    Refused,
    SlowRequest,
    SlowAnswer,
}

impl Inner {
    fn note(&mut self, now: u64, line: impl FnOnce() -> String) {
        const LINES: usize = 400;
        // What comes after the first fault explains nothing.
        let ended = !self.judge.violations.is_empty();
        if let Some(log) = self.log.as_mut().filter(|_| !ended) {
            let now = now - BEGIN;
            let line = format!("{:4}.{:03} {}", now / 1_000_000, now / 1000 % 1000, line());
            for byte in line.bytes() {
                self.digest = (self.digest.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            log.push_back(line);
            if log.len() > LINES {
                log.pop_front();
            }
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn push(&mut self, at: u64, event: Event) {
        self.last_event += 1;
        self.events.insert((at, self.last_event), event);
    }

    fn next_event(&self) -> u64 {
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let expiry = self.expiries.first().map(|(at, _)| *at);
        // The clock never comes this far.
        let never = BEGIN + 1_000_000_000_000;
        event.unwrap_or(never).min(expiry.unwrap_or(never))
    }

    /// Does the next thing that is due; false if there is none.
    fn step(&mut self, now: u64, post: &mut Post) -> bool {
        let at = self.next_event();
        if at > now {
            return false;
        }
        if let Some(&(expiry, name)) = self.expiries.first()
            && expiry == at
        {
            self.expiries.pop_first();
            self.note_undelayed(name, at);
            // What is believed is asked now: in the past it can not be.
            self.check(name, now);
            return true;
        }
        let Some(((at, _), event)) = self.events.pop_first() else { return false };
        match event {
            Event::Request { call, link, op, sent, answer, again } => {
                let out = self.carry_out(link, &op, sent, at);
                if again {
                    self.count("requests carried out twice");
                }
                if let Some(after) = answer {
                    self.push(at + after, Event::Answer { call, link, out });
                }
            }
            Event::Answer { call, link, out } if self.links[link].frozen_until > at => {
                let later = self.links[link].frozen_until;
                self.push(later, Event::Answer { call, link, out });
            }
            Event::Answer { call, link, out } => {
                if let Some(flight) = self.flights.remove(&call) {
                    self.note(at, || format!("client {link} hears {out:?}"));
                    if flight.reply.send(out).is_err() {
                        self.count("answers that nobody waited for");
                    }
                }
            }
            Event::Hint { link, hint } if self.links[link].frozen_until > at => {
                let later = self.links[link].frozen_until;
                self.push(later, Event::Hint { link, hint });
            }
            Event::Hint { link, hint } => self.deliver(link, hint, at, post),
            Event::Restore { link } => self.restore(link, at),
            Event::Break { name } => {
                let broken = self.on_name(name, at, |state, queue, rules| {
                    let Ok(step) = state.break_claims(queue, rules);
                    step
                });
                self.note(at, || format!("an operator breaks {} claims on {name}", broken.len()));
                let longest = self.longest_lease;
                self.judge.breaks(name, &broken, at, longest);
                for claim in broken {
                    self.count("claims broken");
                    self.hint(claim.seat as usize, Hint::Broken(claim.owner), at);
                    if claim.weight == WHOLE {
                        let block = (claim.token, claim.token + u64::from(claim.tokens) - 1);
                        let (link, told) = (claim.seat as usize, at + 5_000);
                        self.push(told + GRACE, Event::Told { link, name, block, told });
                    }
                }
            }
            Event::Told { link, name, block, told } => {
                let quick = matches!(self.weather.pace, Pace::None | Pace::Quick);
                let Link { mishap, outage, .. } = &self.links[link];
                // What went wrong before may hold up what comes after it.
                let well = outage.is_none() && mishap + 10_000_000 < told;
                if quick && well && at + 1_000 > now {
                    self.count("breaks told where nothing went wrong");
                    self.judge.was_told(name, block, told, now, GRACE);
                }
            }
        }
        true
    }

    fn deliver(&mut self, link: usize, hint: Hint, at: u64, post: &mut Post) {
        let down = self.links[link].outage.is_some() || self.links[link].closed;
        if let Some(hints) = self.links[link].hints.clone().filter(|_| !down) {
            self.note(at, || format!("client {link} is told {hint:?}"));
            if let Hint::Granted { owner, round, .. } = &hint {
                let newest = self.rounds.get(owner).is_some_and(|newest| newest == round);
                self.count(if newest { "hints of a grant" } else { "hints of an older asking" });
            }
            post.hints.push((hints, hint));
        }
    }

    fn mishap(&mut self, link: usize, fate: Fate, now: u64) {
        self.links[link].mishap = now;
        self.count(match fate {
            Fate::Fine => "calls that went well",
            Fate::RequestLost { heard: true } => "requests lost, with an error",
            Fate::RequestLost { heard: false } => "requests lost, without a word",
            Fate::AnswerLost { heard: true } => "answers lost, with an error",
            Fate::AnswerLost { heard: false } => "answers lost, without a word",
            Fate::Twice => "requests sent twice",
            Fate::Refused => "calls refused",
            Fate::SlowRequest => "slow requests",
            Fate::SlowAnswer => "slow answers",
        });
    }

    fn send(&mut self, link: usize, op: &Arc<Op>, now: u64) -> Sent {
        if self.links[link].closed {
            return Sent::Done(Err(unavailable("the engine is closed")));
        }
        self.count("calls");
        self.note(now, || format!("client {link} sends {op}"));
        let (reply, answer) = oneshot::channel();
        self.last_event += 1;
        let call = self.last_event;
        match self.links[link].outage {
            Some(Outage::Refused) => return Sent::Done(Err(unavailable("no connection"))),
            Some(Outage::Waiting) => return Sent::Waits(Arc::clone(&self.links[link].restored)),
            Some(Outage::Silent) => {
                self.count("calls into the void");
                self.flights.insert(call, Flight { link, reply });
                return Sent::Flying(answer);
            }
            None => {}
        }
        let fate = if self.dice.percent(self.weather.trouble) {
            let heard = self.dice.percent(50);
            let fates = [
                (3, Fate::RequestLost { heard }),
                (3, Fate::AnswerLost { heard }),
                (if matches!(**op, Op::Alter(..)) { 0 } else { 2 }, Fate::Twice),
                (1, Fate::Refused),
                (3, Fate::SlowRequest),
                (3, Fate::SlowAnswer),
            ];
            self.dice.weigh(&fates)
        } else {
            Fate::Fine
        };
        if fate != Fate::Fine {
            self.note(now, || format!("    {fate:?}"));
            self.mishap(link, fate, now);
        }
        let pace = self.weather.pace;
        let (mut there, mut back) = (pace.draw(&mut self.dice), pace.draw(&mut self.dice));
        let slow = self.dice.weigh(&[(3, 200), (3, 1000), (1, 7000)]);
        match fate {
            Fate::Refused => return Sent::Done(Err(unavailable("refused"))),
            Fate::SlowRequest => there += self.dice.between(1, slow) * 1000,
            Fate::SlowAnswer => back += self.dice.between(1, slow) * 1000,
            _ => {}
        }
        let arrives = self.arrival(link, op, now + there);
        if fate == Fate::Fine && arrives == now && back == 0 {
            let out = self.carry_out(link, op, now, now);
            self.note(now, || format!("client {link} hears {out:?} at once"));
            return Sent::Done(out);
        }
        self.flights.insert(call, Flight { link, reply });
        let error = || Err(unavailable("the connection was reset"));
        match fate {
            Fate::RequestLost { heard: true } => {
                self.push(now + there + back, Event::Answer { call, link, out: error() });
            }
            Fate::RequestLost { heard: false } => {}
            Fate::AnswerLost { heard } => {
                let op = Arc::clone(op);
                self.push(arrives, Event::Request { call, link, op, sent: now, answer: None, again: false });
                if heard {
                    self.push(arrives + back, Event::Answer { call, link, out: error() });
                }
            }
            Fate::Twice => {
                // Whoever sends again hears the last answer; but a release that finds nothing was
                // heard before.
                let last = matches!(**op, Op::Acquire(..));
                let repeated = self.dice.between(0, 400) * 1000;
                let (first, second) = (arrives, self.arrival(link, op, arrives + repeated));
                for (at, again) in [(first, false), (second, true)] {
                    let (op, answer) = (Arc::clone(op), (again == last).then_some(back));
                    self.push(at, Event::Request { call, link, op, sent: now, answer, again });
                }
            }
            _ => {
                let (op, answer) = (Arc::clone(op), Some(back));
                self.push(arrives, Event::Request { call, link, op, sent: now, answer, again: false });
            }
        }
        Sent::Flying(answer)
    }

    /// When a request arrives that would arrive at `at` if there were no others before it.
    fn arrival(&mut self, link: usize, op: &Op, at: u64) -> u64 {
        let one = self.weather.one_connection;
        let link = &mut self.links[link];
        let at = at.max(link.frozen_until);
        let order = match op.owner() {
            _ if one => None,
            None => return at,
            owner => owner,
        };
        let last = link.last_arrival.entry(order).or_default();
        *last = at.max(*last);
        *last
    }

    fn cut(&mut self, link: usize, outage: Outage, now: u64, lasts: u64) {
        if self.links[link].outage.is_some() || self.links[link].closed {
            return;
        }
        self.note(now, || format!("client {link} is cut off: {outage:?} for {} ms", lasts / 1000));
        self.count(match outage {
            Outage::Silent => "outages that nobody noticed",
            Outage::Refused => "outages with errors",
            Outage::Waiting => "outages with waiting",
        });
        self.links[link].outage = Some(outage);
        self.links[link].mishap = now + lasts;
        self.lose_flights(link, outage != Outage::Silent);
        self.push(now + lasts, Event::Restore { link });
    }

    /// What is on its way to the engine may arrive or not; what is on its way back is lost.
    fn lose_flights(&mut self, link: usize, heard: bool) {
        let requests: Vec<(u64, u64)> = self
            .events
            .iter()
            .filter(|(_, event)| matches!(event, Event::Request { link: of, .. } if *of == link))
            .map(|(key, _)| *key)
            .collect();
        for key in requests {
            if self.dice.percent(50) {
                self.events.remove(&key);
            }
        }
        let calls: Vec<u64> =
            self.flights.iter().filter(|(_, flight)| flight.link == link).map(|(call, _)| *call).collect();
        for call in calls {
            if let Some(flight) = self.flights.remove(&call)
                && heard
            {
                flight.reply.send(Err(unavailable("the connection was reset"))).ok();
            }
        }
    }

    fn restore(&mut self, link: usize, now: u64) {
        if self.links[link].outage.take().is_none() {
            return;
        }
        self.note(now, || format!("client {link} is connected again"));
        self.lose_flights(link, true);
        let told = self.dice.percent(80);
        let link_ = &mut self.links[link];
        link_.connections += 1;
        link_.restored.notify_waiters();
        if told {
            self.push(now, Event::Hint { link, hint: Hint::WakeAll });
            self.push(now, Event::Hint { link, hint: Hint::Verify });
        }
    }

    fn hint(&mut self, link: usize, hint: Hint, now: u64) {
        if self.dice.percent(self.weather.deaf) {
            self.links[link].mishap = now;
            self.count("hints lost");
            return;
        }
        let after = self.weather.pace.draw(&mut self.dice);
        if self.weather.trouble > 0 && self.dice.percent(5) {
            self.count("hints repeated");
            let again = after + self.dice.between(0, 3000) * 1000;
            self.push(now + again, Event::Hint { link, hint: hint.clone() });
        }
        self.push(now + after, Event::Hint { link, hint });
    }

    fn index(&self, name: &Name) -> usize {
        let index = self.entries.iter().position(|entry| entry.name == *name);
        index.expect("only names of the run are used")
    }

    fn on_name<T>(
        &mut self,
        name: usize,
        now: u64,
        request: impl FnOnce(&mut State, &mut MemoryQueue, Rules<'_>) -> Step<T>,
    ) -> T {
        self.note_undelayed(name, now);
        let entry = &mut self.entries[name];
        let changes = entry.state.change_count();
        let step = request(&mut entry.state, &mut entry.queue, Rules::at(now, &|_| true));
        let changed = entry.state.change_count() != changes;
        let watchers: Vec<usize> =
            if changed { entry.watchers.iter().copied().collect() } else { Vec::new() };
        for claim in entry.state.claims(now) {
            self.expiries.insert((claim.expires, name));
        }
        let mut hints = Vec::new();
        for wake in &step.wakes {
            let granted = entry.state.claims(now).find(|claim| claim.owner == wake.owner);
            let grant = granted.filter(|claim| !claim.confirmed && self.weather.tells_grants);
            let round = self.rounds.get(&wake.owner).copied();
            let hint = match (grant, round) {
                (Some(Claim { token, tokens, .. }), Some(round)) => {
                    let grant = leasehold::claim::Grant { token: *token, tokens: *tokens };
                    Hint::Granted { owner: wake.owner, grant, round }
                }
                _ => Hint::Wake(wake.owner),
            };
            hints.push((wake.seat as usize, hint));
        }
        if let Some(last) = entry.state.retire(now) {
            if last >= now {
                self.floor = self.floor.max(last);
            }
            entry.state = State::new(self.floor);
            entry.queue = MemoryQueue::default();
        }
        for (link, hint) in hints {
            self.count("grants to a waiter");
            self.hint(link, hint, now);
            self.maybe_break(name, now);
        }
        let changed = self.entries[name].name.clone();
        for link in watchers {
            self.hint(link, Hint::Changed(changed.clone()), now);
        }
        step.answer
    }

    /// Notes what ends at `now` without the lock delay that its holder asked for.
    fn note_undelayed(&mut self, name: usize, now: u64) {
        // The rules list what has ended until somebody asks.
        let all = self.entries[name].state.claims(0);
        let ended: Vec<Claim> =
            all.filter(|claim| claim.expires <= now && claim.lock_delay > 0).cloned().collect();
        for claim in &ended {
            if claim.confirmed {
                self.count("lock delays");
            } else {
                self.judge.not_delayed(name, claim);
            }
        }
    }

    fn maybe_break(&mut self, name: usize, now: u64) {
        if self.dice.percent(self.weather.breaks) {
            let at = now + self.dice.below(4) * 1000;
            self.push(at, Event::Break { name });
        }
    }

    fn carry_out(&mut self, link: usize, op: &Op, sent: u64, now: u64) -> Result<Out> {
        let seat = link as u64;
        let out = match op {
            Op::Acquire(_, ask) if now > sent + micros(ask.answer_within) => {
                self.count("acquires refused because they came late");
                self.note(now, || format!("    {op}: too late"));
                return Err(unavailable("too late"));
            }
            Op::Acquire(name, ask) => {
                let round = self.rounds.entry(ask.owner).or_default();
                *round = ask.round.max(*round);
                let name = self.index(name);
                let answer = self.on_name(name, now, |state, queue, rules| {
                    let Ok(step) = state.ask(queue, ask, seat, rules);
                    step
                });
                if let Answer::Granted(_) = answer {
                    self.maybe_break(name, now);
                }
                Out::Answer(answer)
            }
            Op::Renew(renewals) => {
                let trouble = self.weather.trouble > 0;
                let verdicts = renewals.iter().map(|renewal| {
                    let name = self.index(&renewal.name);
                    let unknown = trouble && self.dice.percent(2);
                    if unknown {
                        self.links[link].mishap = now;
                    }
                    if unknown && self.dice.percent(50) {
                        self.count("renewals that were not carried out");
                        return Renewed::Unknown;
                    }
                    let renewed = self.on_name(name, now, |state, _, rules| Step {
                        answer: state.renew(renewal.owner, renewal.lease, rules.now),
                        wakes: Vec::new(),
                    });
                    match renewed {
                        _ if unknown => Renewed::Unknown,
                        true => Renewed::Yes,
                        false => Renewed::Gone,
                    }
                });
                Out::Renewed(verdicts.collect())
            }
            Op::Release(name, owner, used) => {
                let (name, owner) = (self.index(name), *owner);
                self.check_seat(name, owner, link);
                Out::Released(self.on_name(name, now, |state, queue, rules| {
                    let Ok(step) = state.release(queue, owner, *used, rules);
                    step
                }))
            }
            Op::Alter(name, owner, alteration) => {
                let (name, owner) = (self.index(name), *owner);
                self.check_seat(name, owner, link);
                Out::Answer(self.on_name(name, now, |state, queue, rules| {
                    let Ok(step) = state.alter(queue, owner, alteration.clone(), rules);
                    step
                }))
            }
            Op::Look(name, seen) => {
                let name = self.index(name);
                let view = self.on_name(name, now, |state, queue, rules| {
                    let Ok(step) = state.sweep(queue, rules);
                    Step { answer: view(state, queue, *seen, rules.now), wakes: step.wakes }
                });
                Out::View(view)
            }
            Op::Watch(name, watching) => {
                let name = self.index(name);
                let watchers = &mut self.entries[name].watchers;
                match watching {
                    Watching::On => watchers.insert(link),
                    Watching::Off => watchers.remove(&link),
                };
                Out::Nothing
            }
        };
        self.note(now, || format!("    client {link}, {op}: {out:?}"));
        Ok(out)
    }

    /// Nobody's release touches another's claim.
    fn check_seat(&mut self, name: usize, owner: OwnerId, link: usize) {
        let foreign = |claim: &Claim| claim.owner == owner && claim.seat != link as u64;
        if self.entries[name].state.claims(0).any(foreign) {
            self.judge.found(format!("X4: client {link} changes a claim of another, #{}", short(owner)));
        }
    }

    fn check(&mut self, name: usize, now: u64) {
        let Inner { entries, judge, .. } = self;
        let live: Vec<&Claim> = entries[name].state.claims(now).collect();
        judge.check(name, &live);
    }
}

fn view(state: &State, queue: &MemoryQueue, seen: u64, now: u64) -> View {
    let held = |claim: &Claim| HeldClaim {
        claim: claim.clone(),
        held_for: Duration::from_micros(now.saturating_sub(claim.since)),
        ends_in: Duration::from_micros(claim.expires - now),
    };
    View {
        capacity: state.capacity(),
        claims: state.claims(now).map(held).collect(),
        waiters: Vec::new(),
        waiting: u32::try_from(queue.iter().count()).expect("few"),
        closed_for: Duration::from_micros(state.closed_until().saturating_sub(now)),
        changes: state.changes(seen),
        change_count: state.change_count(),
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 4)
}

/// The engine as one client sees it.
#[derive(Debug)]
struct Linked {
    world: Arc<World>,
    link: usize,
}

impl Linked {
    fn call<'a, T: 'a>(&'a self, op: Op, out: impl Fn(Out) -> Option<T> + Send + 'a) -> Reply<'a, T> {
        Box::pin(async move {
            let came = self.world.call(self.link, op).await?;
            Ok(out(came).expect("an answer of the right kind"))
        })
    }
}

fn answer(out: Out) -> Option<Answer> {
    if let Out::Answer(answer) = out { Some(answer) } else { None }
}

impl Engine for Linked {
    fn guarantees(&self) -> Guarantees {
        self.world.guarantees.clone()
    }

    fn listen(&self, hints: Hints) {
        self.world.lock().links[self.link].hints = Some(hints);
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        self.call(Op::Acquire(name.clone(), ask.clone()), answer)
    }

    fn shard(&self, name: &Name) -> u64 {
        u64::from(name.family() != Family::Lock)
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        self.call(Op::Renew(renewals.to_vec()), |out| match out {
            Out::Renewed(verdicts) => Some(verdicts),
            _ => None,
        })
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, used: u64) -> Reply<'a, Released> {
        self.call(Op::Release(name.clone(), owner, used), |out| match out {
            Out::Released(released) => Some(released),
            _ => None,
        })
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        self.call(Op::Alter(name.clone(), owner, alteration), answer)
    }

    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View> {
        self.call(Op::Look(name.clone(), seen), |out| match out {
            Out::View(view) => Some(view),
            _ => None,
        })
    }

    fn list_cells<'a>(&'a self, _: &'a str, _: Option<&'a str>, _: usize) -> Reply<'a, Vec<Name>> {
        Box::pin(std::future::ready(Err(unavailable("not simulated"))))
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        self.call(Op::Watch(name.clone(), watching), |out| matches!(out, Out::Nothing).then_some(()))
    }

    fn connection(&self, _: &Name) -> Connection {
        let inner = self.world.lock();
        let link = &inner.links[self.link];
        match link.outage {
            Some(Outage::Refused | Outage::Waiting) => Connection::Down(link.connections),
            Some(Outage::Silent) | None => Connection::Up,
        }
    }

    fn close(&self) -> Reply<'_, ()> {
        self.world.step();
        let mut inner = self.world.lock();
        inner.lose_flights(self.link, true);
        inner.links[self.link].closed = true;
        Box::pin(std::future::ready(Ok(())))
    }

    // Not used by what is simulated.

    fn resize<'a>(&'a self, _: &'a Name, _: u32, _: u32) -> Reply<'a, ()> {
        Box::pin(std::future::ready(Err(unavailable("not simulated"))))
    }

    fn list<'a>(
        &'a self,
        _: Family,
        _: &'a str,
        _: Option<&'a str>,
        _: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        Box::pin(std::future::ready(Err(unavailable("not simulated"))))
    }

    fn break_claims<'a>(&'a self, _: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(std::future::ready(Err(unavailable("not simulated"))))
    }

    fn read<'a>(&'a self, _: &'a [Name]) -> Reply<'a, Cells> {
        Box::pin(std::future::ready(Err(unavailable("not simulated"))))
    }

    fn swap(&self, _: Vec<Swap>) -> Reply<'_, Swapped> {
        Box::pin(std::future::ready(Err(unavailable("not simulated"))))
    }
}
