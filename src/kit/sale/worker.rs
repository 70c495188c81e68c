//! Workers, which turn reservations into orders and let those expire that nobody pays for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::Semaphore;

use super::answer::Reservation;
use super::bucket::{Bucket, Record, ReservationId, State};
use super::head::Head;
use super::heads::Swept;
use super::orders::{Expired, Orders, Placed};
use super::sell::Sale;
use super::settle::{Event, Settle, Settled};
use crate::claim::Micros;
use crate::clock::{Moment, sleep_until};
use crate::engine::MOST_CELLS;
use crate::error::{Error, Result};
use crate::guard::Guard;

/// A worker that has nothing to do looks this often.
const DEFAULT_POLL: Duration = Duration::from_millis(100);
/// The lease on a shard: a node that died is followed by another after this.
const DEFAULT_LEASE: Duration = Duration::from_secs(5);
/// A shard that another node works on is tried this often.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// The buckets of a shard are looked through for what is due at most this often.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const DEFAULT_ATTEMPTS: u8 = 10;
const DEFAULT_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const DEFAULT_AT_ONCE: usize = 16;
/// Beside the buyers of a step there are the head and the bucket.
const BUYERS: usize = MOST_CELLS - 2;

/// Works for a sale. Made by [`Sale::worker`].
#[derive(Clone, Debug)]
pub struct Worker {
    sale: Sale,
    poll: Duration,
    lease: Duration,
    attempts: u8,
    pause: Duration,
    at_once: usize,
}

/// What a worker has done, in reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Worked {
    /// Became orders.
    pub placed: u64,
    /// Were refused by the database.
    pub refused: u64,
    /// Ended, and gave their units back.
    pub released: u64,
    /// Were to end, and the database said that they are paid.
    pub paid: u64,
    /// Calls that failed and are repeated.
    pub failed: u64,
    /// Were given up: see [`Sale::dead_letters`].
    pub dead: u64,
}

impl Worked {
    fn add(&mut self, other: Worked) {
        self.placed += other.placed;
        self.refused += other.refused;
        self.released += other.released;
        self.paid += other.paid;
        self.failed += other.failed;
        self.dead += other.dead;
    }

    fn count(&mut self, event: Event, state: State) {
        *match (event, state) {
            (Event::Failed { .. }, State::DeadPlacing | State::DeadExpiring) => &mut self.dead,
            (Event::Failed { .. }, _) => &mut self.failed,
            (_, State::Ordered) => &mut self.placed,
            (_, State::Refused) => &mut self.refused,
            (_, State::Released) => &mut self.released,
            (_, State::Paid) => &mut self.paid,
            _ => return,
        } += 1;
    }
}

/// What one node remembers between its passes.
#[derive(Debug)]
struct Memory {
    /// Those that have failed, until when they are left alone.
    paused: Mutex<HashMap<u128, Moment>>,
    calls: Semaphore,
}

/// One look at a shard.
#[derive(Clone, Copy)]
struct Pass<'a> {
    shard: u8,
    head: &'a Head,
    now: Micros,
    /// All buckets are looked at, and what is due is ended.
    sweeps: bool,
}

impl Sale {
    /// A worker of this sale, with its defaults.
    pub fn worker(&self) -> Worker {
        Worker {
            sale: self.clone(),
            poll: DEFAULT_POLL,
            lease: DEFAULT_LEASE,
            attempts: DEFAULT_ATTEMPTS,
            pause: DEFAULT_PAUSE,
            at_once: DEFAULT_AT_ONCE,
        }
    }

    /// Works for this sale with the defaults of a [`Worker`], until the future is dropped.
    ///
    /// # Errors
    ///
    /// As [`Worker::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Worker::run`].
    pub async fn work<O: Orders>(&self, orders: O) -> Result<()> {
        self.worker().run(orders).await
    }
}

impl Worker {
    /// How often a worker looks that has nothing to do: ten times a second by default.
    #[must_use]
    pub fn poll(mut self, time: Duration) -> Worker {
        self.poll = time;
        self
    }

    /// The lease on a shard, 5 seconds by default: so long after its death a node is followed by
    /// another.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Worker {
        self.lease = lease;
        self
    }

    /// After so many failures a reservation is given up: 10 by default.
    #[must_use]
    pub fn attempts(mut self, attempts: u8) -> Worker {
        self.attempts = attempts.max(1);
        self
    }

    /// How long a reservation is left alone after its first failure, 100 ms by default. It is twice
    /// as long after each further one, up to 10 seconds.
    #[must_use]
    pub fn pause(mut self, time: Duration) -> Worker {
        self.pause = time;
        self
    }

    /// How many calls to [`Orders`] are made at the same time: 16 by default.
    #[must_use]
    pub fn at_once(mut self, calls: usize) -> Worker {
        self.at_once = calls.max(1);
        self
    }

    /// Works until the future is dropped, on any number of nodes: each shard is worked on by one of
    /// them. While the engine is away, or there is no such sale, it waits.
    ///
    /// # Errors
    ///
    /// If the client is closed, or a cell of the sale holds something else.
    ///
    /// # Cancel safety
    ///
    /// Calls to [`Orders`] are dropped, too. Whatever they have done is done again by the next
    /// worker.
    pub async fn run<O: Orders>(&self, orders: O) -> Result<()> {
        let memory = self.memory();
        let clock = &*self.sale.client.inner.clock;
        let mut shards: HashMap<u8, Shard> = HashMap::new();
        loop {
            let idle = match self.turn(&orders, &memory, &mut shards).await {
                Ok(worked) => worked == Worked::default(),
                Err(Error::Unavailable { .. } | Error::Lost { .. }) => true,
                Err(error) => return Err(error),
            };
            if idle {
                sleep_until(clock, clock.now() + self.poll).await;
            }
        }
    }

    /// Does what there is to do at the moment, without asking whether another node does it, too:
    /// for tests, and for programs that have a timer of their own.
    ///
    /// # Errors
    ///
    /// As [`Worker::run`], and [`Error::Unavailable`] if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// As [`Worker::run`].
    pub async fn run_once<O: Orders>(&self, orders: O) -> Result<Worked> {
        let memory = self.memory();
        let mut worked = Worked::default();
        if let Some(layout) = self.sale.look_up_layout().await? {
            for shard in 0..layout.shards {
                worked.add(self.pass(&orders, &memory, shard, true).await?);
            }
        }
        Ok(worked)
    }

    fn memory(&self) -> Memory {
        Memory { paused: Mutex::default(), calls: Semaphore::new(self.at_once) }
    }

    /// A look at every shard that is ours.
    async fn turn<O: Orders>(
        &self,
        orders: &O,
        memory: &Memory,
        shards: &mut HashMap<u8, Shard>,
    ) -> Result<Worked> {
        let clock = &*self.sale.client.inner.clock;
        let mut worked = Worked::default();
        let Some(layout) = self.sale.look_up_layout().await? else {
            shards.clear();
            return Ok(worked);
        };
        shards.retain(|shard, _| *shard < layout.shards);
        for number in 0..layout.shards {
            let shard = shards.entry(number).or_insert_with(|| Shard::new(clock.now()));
            if !shard.guard.as_ref().is_some_and(Guard::is_held) {
                shard.guard = None;
                if clock.now() < shard.try_at {
                    continue;
                }
                shard.try_at = clock.now() + TRY_AGAIN;
                let name = format!("sale/{}/{number}", self.sale.name);
                shard.guard = self.sale.client.mutex(name)?.lease(self.lease).try_lock().await?;
            }
            if shard.guard.is_some() {
                let sweep = clock.now() >= shard.sweep_at;
                if sweep {
                    shard.sweep_at = clock.now() + SWEEP_EVERY.min(self.poll * 10);
                }
                worked.add(self.pass(orders, memory, number, sweep).await?);
            }
        }
        Ok(worked)
    }

    /// Does what a shard has to do.
    async fn pass<O: Orders>(&self, orders: &O, memory: &Memory, shard: u8, sweep: bool) -> Result<Worked> {
        const BUCKETS_AT_ONCE: usize = MOST_CELLS;
        let mut worked = Worked::default();
        let Some((now, head)) = self.sale.read_head(shard).await? else { return Ok(worked) };
        if head.rebuilding {
            return Ok(worked);
        }
        let sweeps = sweep && head.due <= now;
        let pass = Pass { shard, head: &head, now, sweeps };
        let wanted: Vec<u16> =
            (0..head.layout.buckets).filter(|bucket| sweeps || head.is_pending(*bucket)).collect();
        // Whoever reserves from now on has the whole time.
        let mut due = now.saturating_add(head.pay_within);
        for part in wanted.chunks(BUCKETS_AT_ONCE) {
            let (_, buckets) = self.sale.read_buckets(shard, head.layout.epoch, part).await?;
            let mut working = FuturesUnordered::new();
            for (number, bucket) in part.iter().zip(buckets) {
                working.push(self.work_on(orders, memory, pass, *number, bucket));
            }
            while let Some(done) = working.next().await {
                let (done, next_due) = done?;
                worked.add(done);
                due = due.min(next_due);
            }
        }
        if sweeps {
            let swept = Arc::new(Swept { epoch: head.layout.epoch, due });
            self.sale.client.inner.update(&[self.sale.head_cell(shard)?], &swept).await?;
        }
        Ok(worked)
    }

    /// Does what a bucket has to do, and tells when the next of its reservations is due.
    async fn work_on<O: Orders>(
        &self,
        orders: &O,
        memory: &Memory,
        pass: Pass<'_>,
        number: u16,
        bucket: Bucket,
    ) -> Result<(Worked, Micros)> {
        let mut worked = Worked::default();
        let mut records = bucket.records;
        let mut next_due = Micros::MAX;
        let mut ending = Vec::new();
        for record in records.iter().filter(|record| matches!(record.state, State::Reserved | State::Ordered))
        {
            if record.deadline > pass.now {
                next_due = next_due.min(record.deadline);
            } else if pass.sweeps {
                ending.push((record.number, Event::Expire));
            }
        }
        // First in the engine, so that a payment loses from here on, and then in the database.
        let states = self.settle(pass, number, Vec::new(), ending.clone()).await?;
        for ((ended, _), state) in ending.iter().zip(states) {
            if let Some(record) = records.iter_mut().find(|record| record.number == *ended) {
                match state {
                    Some((state, _)) => record.state = state,
                    None => next_due = pass.now,
                }
            }
        }
        records.retain(|record| record.state.is_pending() && !self.is_paused(memory, record));
        let mut calls = FuturesUnordered::new();
        for record in &records {
            calls.push(self.call(orders, memory, pass, record));
        }
        let mut events = Vec::with_capacity(records.len());
        while let Some(event) = calls.next().await {
            events.push(event);
        }
        for part in events.chunks(BUYERS) {
            let mut buyers: Vec<String> = part.iter().map(|(record, _)| record.buyer.clone()).collect();
            buyers.sort_unstable();
            buyers.dedup();
            let events: Vec<_> = part.iter().map(|(record, event)| (record.number, *event)).collect();
            let states = self.settle(pass, number, buyers, events.clone()).await?;
            for ((_, event), state) in events.iter().zip(states) {
                if let Some((state, true)) = state {
                    worked.count(*event, state);
                }
            }
        }
        Ok((worked, next_due))
    }

    /// Nothing happens if the sale has another epoch by now.
    async fn settle(
        &self,
        pass: Pass<'_>,
        bucket: u16,
        buyers: Vec<String>,
        events: Vec<(u128, Event)>,
    ) -> Result<Vec<Option<(State, bool)>>> {
        let count = events.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let rule = Settle { epoch: pass.head.layout.epoch, bucket, buyers, events };
        match self.sale.settle(pass.shard, rule).await? {
            Settled::Now(states) => Ok(states),
            Settled::Stale | Settled::NoSale => Ok(vec![None; count]),
            Settled::Foreign => Err(self.sale.foreign()),
        }
    }

    /// Calls the database for one reservation.
    async fn call<'a, O: Orders>(
        &self,
        orders: &O,
        memory: &Memory,
        pass: Pass<'_>,
        record: &'a Record,
    ) -> (&'a Record, Event) {
        // It is never closed.
        let _permit = memory.calls.acquire().await;
        let reservation = Reservation::new(record, pass.head.layout.epoch, pass.now);
        let called = if record.state == State::Reserved {
            orders.place(&reservation).await.map(|placed| match placed {
                Placed::Yes => Event::Placed,
                Placed::Refused => Event::Refused,
                Placed::NoStock => Event::NoStock,
            })
        } else {
            orders.expire(&reservation).await.map(|expired| match expired {
                Expired::Yes => Event::Expired,
                Expired::Paid => Event::PaidBefore,
            })
        };
        let mut paused = memory.paused.lock().unwrap_or_else(PoisonError::into_inner);
        match called {
            Ok(event) => {
                paused.remove(&record.number);
                (record, event)
            }
            Err(error) => {
                let id = ReservationId(record.number);
                tracing::warn!(sale = %self.sale.name, reservation = %id, %error, "an order could not be changed");
                let longer = self.pause.saturating_mul(1 << u32::from(record.attempts).min(20));
                let until = self.sale.client.inner.clock.now() + longer.min(LONGEST_PAUSE);
                paused.insert(record.number, until);
                (record, Event::Failed { most: self.attempts })
            }
        }
    }

    fn is_paused(&self, memory: &Memory, record: &Record) -> bool {
        let now = self.sale.client.inner.clock.now();
        let mut paused = memory.paused.lock().unwrap_or_else(PoisonError::into_inner);
        match paused.get(&record.number) {
            Some(until) if *until > now => true,
            Some(_) => {
                paused.remove(&record.number);
                false
            }
            None => false,
        }
    }
}

/// A shard, as a node sees it.
#[derive(Debug)]
struct Shard {
    guard: Option<Guard>,
    /// Not before this.
    try_at: Moment,
    sweep_at: Moment,
}

impl Shard {
    fn new(now: Moment) -> Shard {
        Shard { guard: None, try_at: now, sweep_at: now }
    }
}
