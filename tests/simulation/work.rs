//! What the clients of a run do: everything that can be done with a lock, in any order, and given
//! up at any time.

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold::claim::WHOLE;
use leasehold::lock::{Candidate, MultiGuard, ReadGuard, WriteGuard};
use leasehold::{Client, Error, Event, Guard, Loss, Options, Owner, Result};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::clock::DriftingClock;
use crate::dice::Dice;
use crate::judge::{Belief, Believer};
use crate::world::{Outage, World};

/// The time that a caller's limit may be overrun by: timers count in milliseconds, and one that has
/// fired is followed by another.
const SLACK: Duration = Duration::from_millis(20);

/// One client, as its tasks see it.
#[derive(Clone)]
pub(crate) struct Party {
    pub(crate) world: Arc<World>,
    pub(crate) index: usize,
    pub(crate) client: Client,
    pub(crate) clock: DriftingClock,
    pub(crate) call_limit: Duration,
    pub(crate) owner: Owner,
    /// Its close has begun.
    pub(crate) closing: Arc<AtomicBool>,
    pub(crate) names: Arc<Names>,
    pub(crate) leases: Arc<[Duration]>,
    /// What most of them want, if they want the same: then they stand in line.
    pub(crate) theme: Option<What>,
    /// When the tasks do nothing new.
    pub(crate) until: Instant,
}

/// What there is to be taken. Each name has its place in the world's list: mutexes first, then
/// semaphores, then elections.
pub(crate) struct Names {
    pub(crate) locks: Vec<String>,
    pub(crate) semaphores: Vec<(String, u32)>,
    pub(crate) elections: Vec<String>,
}

/// A guard that is held, and what the judge knows of it.
enum Held {
    Guard(Arc<Guard>),
    Read(Arc<ReadGuard>),
    Write(Arc<WriteGuard>),
    Multi(Arc<MultiGuard>),
    Candidate(Arc<Candidate>),
}

/// The judge knows of a guard for as long as this is kept.
struct Ticket {
    world: Arc<World>,
    name: usize,
    id: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.world.gives_back(self.name, self.id);
    }
}

fn weak<T: Believer + 'static>(guard: &Arc<T>) -> Weak<dyn Believer> {
    let weak: Weak<T> = Arc::downgrade(guard);
    weak
}

fn alone<T>(guard: Arc<T>) -> T {
    Arc::into_inner(guard).expect("only the judge looks at it, and not now")
}

/// What a task asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Mutex,
    Again,
    Read,
    Write,
    Semaphore,
    Multi,
    Election,
    Lead,
}

/// For how long it is ready to wait.
#[derive(Clone, Copy, Debug)]
enum Wait {
    Forever,
    Now,
    For(Duration),
}

impl Party {
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// An error that nothing which happened explains.
    fn check_error(&self, error: &Error, doing: &str) {
        let explained = match error {
            Error::Unavailable { .. } | Error::Lost { .. } => true,
            Error::Invalid { .. } => self.is_closing(),
            _ => false,
        };
        if !explained {
            self.world.found(format!("client {}, {doing}: {error}", self.index));
        }
    }

    fn gets(&self, name: usize, weight: u32, token: u64, guard: Weak<dyn Believer>) -> Ticket {
        let belief = Belief::new(self.index, weight, token, &self.clock, guard);
        let id = self.world.gets(name, belief);
        Ticket { world: Arc::clone(&self.world), name, id }
    }

    /// Does something that must not take longer than `limit`.
    async fn within<T>(&self, limit: Duration, what: &str, work: impl Future<Output = T>) -> T {
        let (started, paused) = (Instant::now(), self.world.paused());
        let done = work.await;
        let took = started.elapsed().saturating_sub(self.world.paused() - paused);
        let limit = self.clock.takes(limit) + SLACK;
        if took > limit {
            self.world.found(format!("X9: client {}: {what} took {took:?} of {limit:?}", self.index));
        }
        done
    }

    /// One task: takes things and gives them back until the time is over or the client is closed.
    pub(crate) async fn work(self, mut dice: Dice) {
        while Instant::now() < self.until && !self.is_closing() {
            let pause = dice.weigh(&[(3, 0), (4, 20), (3, 300), (1, 4000)]);
            sleep(Duration::from_millis(dice.between(0, pause))).await;
            self.once(&mut dice).await;
        }
    }

    async fn once(&self, dice: &mut Dice) {
        let theme = self.theme.filter(|_| dice.percent(85));
        let what = theme.unwrap_or_else(|| self.choose(dice));
        let wait = match dice.below(10) {
            0..4 => Wait::Forever,
            4..6 => Wait::Now,
            _ => Wait::For(Duration::from_millis(dice.between(1, 3000))),
        };
        let lease = if theme.is_some() { self.leases[0] } else { dice.pick(&self.leases) };
        let delay = if theme.is_none() && dice.percent(20) {
            Duration::from_millis(dice.between(1, 2000))
        } else {
            Duration::ZERO
        };
        let mut draws = dice.split();
        let taking = self.take(what, wait, lease, delay, &mut draws);
        // Some lose patience without having said so.
        let taken = if dice.percent(20) {
            match timeout(Duration::from_millis(dice.between(0, 1500)), taking).await {
                Ok(taken) => taken,
                Err(_) => {
                    self.world.count("requests dropped");
                    return;
                }
            }
        } else {
            taking.await
        };
        match taken {
            Ok(Some((held, tickets))) => self.hold(held, tickets, dice).await,
            Ok(None) => self.world.count("nothing got"),
            Err(error) => self.check_error(&error, "taking"),
        }
    }

    fn choose(&self, dice: &mut Dice) -> What {
        loop {
            let what = dice.weigh(&[
                (8, What::Mutex),
                (2, What::Again),
                (6, What::Read),
                (4, What::Write),
                (6, What::Semaphore),
                (2, What::Multi),
                (2, What::Election),
                (1, What::Lead),
            ]);
            let there = match what {
                What::Semaphore => !self.names.semaphores.is_empty(),
                What::Election | What::Lead => !self.names.elections.is_empty(),
                _ => true,
            };
            if there {
                return what;
            }
        }
    }

    async fn take(
        &self,
        what: What,
        wait: Wait,
        lease: Duration,
        delay: Duration,
        dice: &mut Dice,
    ) -> Result<Option<(Held, Vec<Ticket>)>> {
        let limit = match wait {
            Wait::Forever => Duration::from_secs(3600),
            Wait::Now => self.call_limit,
            Wait::For(limit) => limit,
        };
        let locks = self.names.locks.len();
        let at = if self.theme.is_some() { 0 } else { dice.below(locks as u64) as usize };
        let name = &self.names.locks[at];
        let said = format!("{what:?} {wait:?}");
        match what {
            What::Mutex | What::Again => {
                let mutex = self.client.mutex(name)?.lease(lease).lock_delay(delay);
                let again = matches!(what, What::Again);
                let mutex = if again { mutex.owned_by(&self.owner) } else { mutex };
                let taking = async {
                    match wait {
                        Wait::Forever => mutex.lock().await.map(Some),
                        Wait::Now => mutex.try_lock().await,
                        Wait::For(limit) => mutex.lock_for(limit).await,
                    }
                };
                let Some(guard) = self.within(limit, &said, taking).await? else { return Ok(None) };
                let guard = Arc::new(guard);
                let token = guard.token().get();
                let ticket = if again {
                    let belief = Belief::new(self.index, WHOLE, token, &self.clock, weak(&guard));
                    let id = self.world.gets_again(at, belief);
                    Ticket { world: Arc::clone(&self.world), name: at, id }
                } else {
                    self.gets(at, WHOLE, token, weak(&guard))
                };
                Ok(Some((Held::Guard(guard), vec![ticket])))
            }
            What::Read => {
                let lock = self.client.rwlock(name)?.lease(lease).lock_delay(delay);
                let taking = async {
                    match wait {
                        Wait::Forever => lock.read().await.map(Some),
                        Wait::Now => lock.try_read().await,
                        Wait::For(limit) => lock.read_for(limit).await,
                    }
                };
                let Some(guard) = self.within(limit, &said, taking).await? else { return Ok(None) };
                let guard = Arc::new(guard);
                let ticket = self.gets(at, 1, guard.token().get(), weak(&guard));
                Ok(Some((Held::Read(guard), vec![ticket])))
            }
            What::Write => {
                let lock = self.client.rwlock(name)?.lease(lease).lock_delay(delay);
                let taking = async {
                    match wait {
                        Wait::Forever => lock.write().await.map(Some),
                        Wait::Now => lock.try_write().await,
                        Wait::For(limit) => lock.write_for(limit).await,
                    }
                };
                let Some(guard) = self.within(limit, &said, taking).await? else { return Ok(None) };
                let guard = Arc::new(guard);
                let ticket = self.gets(at, WHOLE, guard.token().get(), weak(&guard));
                Ok(Some((Held::Write(guard), vec![ticket])))
            }
            What::Semaphore => {
                let among = if self.theme.is_some() { 1 } else { self.names.semaphores.len() as u64 };
                let at = dice.below(among) as usize;
                let (name, permits) = &self.names.semaphores[at];
                let semaphore = self.client.semaphore(name, *permits)?.lease(lease).lock_delay(delay);
                let weight = if self.theme.is_some() || dice.percent(70) {
                    1
                } else {
                    dice.between(1, u64::from(*permits)) as u32
                };
                let taking = async {
                    match wait {
                        Wait::Forever => semaphore.acquire_many(weight).await.map(Some),
                        Wait::Now => semaphore.try_acquire_many(weight).await,
                        Wait::For(limit) => semaphore.acquire_many_for(weight, limit).await,
                    }
                };
                let Some(guard) = self.within(limit, &said, taking).await? else { return Ok(None) };
                let guard = Arc::new(guard);
                let ticket = self.gets(locks + at, weight, guard.token().get(), weak(&guard));
                Ok(Some((Held::Guard(guard), vec![ticket])))
            }
            What::Multi => {
                let multi = self.client.multi(self.names.locks.iter().map(String::as_str))?;
                let multi = multi.lease(lease).lock_delay(delay);
                // At once means one call for each name, and one for each that is given back.
                let limit = if matches!(wait, Wait::Now) { limit * 2 * locks as u32 } else { limit };
                let taking = async {
                    match wait {
                        Wait::Forever => multi.lock().await.map(Some),
                        Wait::Now => multi.try_lock().await,
                        Wait::For(limit) => multi.lock_for(limit).await,
                    }
                };
                // A moment is added for giving back what was taken in vain.
                let limit = limit + Duration::from_millis(200);
                let Some(guard) = self.within(limit, &said, taking).await? else { return Ok(None) };
                self.world.count("several names at once");
                let guard = Arc::new(guard);
                let tickets = self.names.locks.iter().enumerate().map(|(at, name)| {
                    let token = guard.token(name).expect("its name is held");
                    self.gets(at, WHOLE, token.get(), weak(&guard))
                });
                let tickets = tickets.collect();
                Ok(Some((Held::Multi(guard), tickets)))
            }
            What::Election => {
                let at = dice.below(self.names.elections.len() as u64) as usize;
                let election = self.client.election(&self.names.elections[at])?.lease(lease);
                let taking = async {
                    match wait {
                        Wait::Forever => election.campaign("me").await.map(Some),
                        Wait::Now => election.try_campaign("me").await,
                        Wait::For(limit) => election.campaign_for("me", limit).await,
                    }
                };
                let Some(candidate) = self.within(limit, &said, taking).await? else { return Ok(None) };
                self.world.count("elections won");
                let candidate = Arc::new(candidate);
                let place = locks + self.names.semaphores.len() + at;
                let ticket = self.gets(place, WHOLE, candidate.token().get(), weak(&candidate));
                Ok(Some((Held::Candidate(candidate), vec![ticket])))
            }
            What::Lead => {
                let at = dice.below(self.names.elections.len() as u64) as usize;
                let election = self.client.election(&self.names.elections[at])?.lease(lease);
                let place = locks + self.names.semaphores.len() + at;
                let work = Duration::from_millis(dice.between(0, 2000));
                let terms = AtomicU32::new(0);
                election
                    .lead("leader", |leadership| {
                        let last = terms.fetch_add(1, Ordering::Relaxed) > 0 || Instant::now() >= self.until;
                        async move {
                            let leadership = Arc::new(leadership);
                            let token = leadership.token().get();
                            let _ticket = self.gets(place, WHOLE, token, weak(&leadership));
                            self.world.count("terms led");
                            sleep(work).await;
                            if last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                        }
                    })
                    .await?;
                Ok(None)
            }
        }
    }

    /// Holds what was taken for a while, and gives it back in one way or another.
    async fn hold(&self, held: Held, mut tickets: Vec<Ticket>, dice: &mut Dice) {
        let most = dice.weigh(&[(4, 0), (4, 30), (3, 500), (1, 4000)]);
        sleep(Duration::from_millis(dice.between(0, most))).await;
        let held = match held {
            Held::Read(guard) if dice.percent(25) => {
                let place = tickets[0].name;
                tickets.clear();
                let wait = dice.percent(60);
                let Some((held, ticket)) = self.upgrade(alone(guard), place, wait).await else { return };
                tickets.push(ticket);
                held
            }
            Held::Write(guard) if dice.percent(40) => {
                let place = tickets[0].name;
                tickets.clear();
                let down = self.within(self.call_limit, "downgrade", alone(guard).downgrade()).await;
                match down {
                    Ok(guard) => {
                        self.world.count("downgrades");
                        let guard = Arc::new(guard);
                        let token = guard.token().get();
                        let belief = Belief::new(self.index, 1, token, &self.clock, weak(&guard));
                        let id = self.world.shares(place, belief);
                        tickets.push(Ticket { world: Arc::clone(&self.world), name: place, id });
                        Held::Read(guard)
                    }
                    Err(error) => return self.check_error(&error, "downgrade"),
                }
            }
            Held::Candidate(candidate) if dice.percent(50) => {
                if let Err(error) = candidate.proclaim("word").await {
                    self.check_error(&error, "proclaim");
                }
                Held::Candidate(candidate)
            }
            held => held,
        };
        sleep(Duration::from_millis(dice.between(0, most))).await;
        tickets.clear();
        if dice.percent(35) {
            self.world.count("guards dropped");
            return;
        }
        let limit = self.call_limit;
        let releasing = async {
            match held {
                Held::Guard(guard) => self.within(limit, "release", alone(guard).release()).await,
                Held::Read(guard) => self.within(limit, "release", alone(guard).release()).await,
                Held::Write(guard) => self.within(limit, "release", alone(guard).release()).await,
                Held::Candidate(candidate) => self.within(limit, "resign", alone(candidate).resign()).await,
                Held::Multi(guard) => alone(guard).release().await,
            }
        };
        let released = if dice.percent(15) {
            match timeout(Duration::from_millis(dice.between(0, 300)), releasing).await {
                Ok(released) => released,
                Err(_) => return self.world.count("releases dropped"),
            }
        } else {
            releasing.await
        };
        match released {
            Ok(()) => self.world.count("releases"),
            Err(error) => self.check_error(&error, "release"),
        }
    }

    async fn upgrade(&self, guard: ReadGuard, place: usize, wait: bool) -> Option<(Held, Ticket)> {
        let outcome = if wait {
            guard.upgrade().await.map(Ok)
        } else {
            self.within(self.call_limit, "try_upgrade", guard.try_upgrade()).await
        };
        match outcome {
            Ok(Ok(writer)) => {
                self.world.count("upgrades");
                let writer = Arc::new(writer);
                let ticket = self.gets(place, WHOLE, writer.token().get(), weak(&writer));
                Some((Held::Write(writer), ticket))
            }
            Ok(Err(reader)) => Some(self.still_reads(reader, place)),
            Err(refused) => {
                self.world.count("upgrades refused");
                Some(self.still_reads(refused.guard, place))
            }
        }
    }

    fn still_reads(&self, guard: ReadGuard, place: usize) -> (Held, Ticket) {
        let guard = Arc::new(guard);
        let belief = Belief::new(self.index, 1, guard.token().get(), &self.clock, weak(&guard));
        let id = self.world.shares(place, belief);
        (Held::Read(guard), Ticket { world: Arc::clone(&self.world), name: place, id })
    }

    /// Ends the client.
    pub(crate) async fn close(&self, must_succeed: bool) {
        self.closing.store(true, Ordering::Relaxed);
        self.world.note(|| format!("client {} is closed", self.index));
        if self.world.calls_in_flight(self.index) > 0 {
            self.world.count("closes with calls in flight");
        }
        self.world.count("closes");
        let lost = self.world.lost_names(self.index);
        let closed = self.within(self.call_limit, "close", self.client.close()).await;
        self.world.note(|| format!("client {} was closed: {closed:?}", self.index));
        if let Some(belief) = self.world.believes(self.index) {
            self.world.found(format!("closed, and {belief} still believes"));
        }
        match closed {
            Ok(()) => {
                // What ends by itself about now is not told: when that is, the client knows only by
                // its clock and from when it asked.
                let soon = Duration::from_secs(3) + self.clock.jumped();
                if let Some(what) = self.world.left_of(self.index, soon, &lost) {
                    let index = self.index;
                    self.world
                        .found(format!("X6: client {index} was closed without an error, and has {what}"));
                }
            }
            Err(error) if must_succeed => {
                self.world.found(format!("client {} could not be closed: {error}", self.index));
            }
            Err(_) => self.world.count("closes that were not heard"),
        }
    }

    /// Counts what the client says happens.
    pub(crate) async fn listen(world: Arc<World>, mut events: leasehold::Events) {
        while let Some(event) = events.next().await {
            match event {
                Event::InDoubt { .. } => world.count("doubts"),
                Event::Recovered { .. } => world.count("doubts that were cleared"),
                Event::Lost { why: Loss::Deadline, .. } => world.count("losses by deadline"),
                Event::Lost { why: Loss::Gone, .. } => world.count("losses by the engine's word"),
                Event::Lost { why: Loss::Closed, .. } => world.count("losses by closing"),
                Event::NotReleased { .. } => world.count("releases given up"),
                _ => {}
            }
        }
    }

    /// After all is well again: every name can be had, and given back, without an error.
    pub(crate) async fn prove(&self, limit: Duration) {
        for (at, name) in self.names.locks.iter().enumerate() {
            let Ok(mutex) = self.client.mutex(name) else { continue };
            match mutex.lock_for(limit).await {
                Ok(Some(guard)) => {
                    let guard = Arc::new(guard);
                    let ticket = self.gets(at, WHOLE, guard.token().get(), weak(&guard));
                    drop(ticket);
                    if let Err(error) = alone(guard).release().await {
                        self.world.found(format!("all is well, and client {} gets {error}", self.index));
                    }
                }
                Ok(None) => {
                    self.world.found(format!("X7: client {} did not get {name} in {limit:?}", self.index));
                }
                Err(error) => {
                    self.world.found(format!("all is well, and client {} gets {error}", self.index));
                }
            }
        }
        for (at, (name, permits)) in self.names.semaphores.iter().enumerate() {
            let Ok(semaphore) = self.client.semaphore(name, *permits) else { continue };
            match semaphore.acquire_many_for(*permits, limit).await {
                Ok(Some(guard)) => {
                    let guard = Arc::new(guard);
                    let place = self.names.locks.len() + at;
                    drop(self.gets(place, *permits, guard.token().get(), weak(&guard)));
                    drop(guard);
                }
                Ok(None) => {
                    self.world.found(format!("X7: client {} did not get {name} in {limit:?}", self.index));
                }
                Err(error) => {
                    self.world.found(format!("all is well, and client {} gets {error}", self.index));
                }
            }
        }
    }
}

/// The options of a client, and its clock.
pub(crate) fn options(dice: &mut Dice, lease: Duration) -> (Options, DriftingClock, Duration) {
    let rate = dice.weigh(&[(4, 1000), (2, 995), (1, 1005), (1, 1020)]);
    let clock = DriftingClock::new(rate);
    let call_limit = Duration::from_millis(dice.pick(&[300, 1000, 3000, 5000]));
    let (time, times) = dice.weigh(&[(2, (0, 0)), (3, (50, 64)), (3, (1000, 3)), (3, (100_000, 1000))]);
    let options = Options::new()
        .lease(lease)
        .call_limit(call_limit)
        .hand_over(Duration::from_millis(time), times)
        .clock(clock.clone());
    (options, clock, call_limit)
}

/// What happens to clients and connections, until the time is over.
pub(crate) async fn disturb(parties: Vec<Party>, mut dice: Dice, mean: u64, operator: bool, until: Instant) {
    let world = Arc::clone(&parties[0].world);
    loop {
        let next = Instant::now() + Duration::from_millis(dice.between(1, mean * 2));
        sleep_until(next.min(until)).await;
        if Instant::now() >= until {
            return;
        }
        let link = dice.below(parties.len() as u64) as usize;
        let lasts = Duration::from_millis(dice.weigh(&[(3, 100), (3, 1500), (2, 8000), (1, 20_000)]));
        let lasts = lasts.mul_f64(dice.between(1, 100) as f64 / 100.0);
        let outage = dice.pick(&[Outage::Silent, Outage::Refused, Outage::Waiting]);
        match dice.below(12) {
            0..3 => world.cut(link, outage, lasts),
            3 => (0..parties.len()).for_each(|link| world.cut(link, outage, lasts)),
            4..6 => world.freeze(link, lasts),
            6 => world.pause(lasts.min(Duration::from_secs(6))).await,
            7 => {
                world.count("clocks that jumped");
                world.mishap(link);
                parties[link].clock.jump(lasts / 4);
            }
            8..11 => world.stray_hint(),
            _ if operator => {
                let names = &parties[0].names;
                let all = names.locks.len() + names.semaphores.len() + names.elections.len();
                world.operator_breaks(dice.below(all as u64) as usize);
            }
            _ => {}
        }
    }
}
