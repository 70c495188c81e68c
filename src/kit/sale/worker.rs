//! Workers, which turn reservations into orders and let those expire that nobody pays for.

use std::collections::HashMap;
use std::time::Duration;

use super::bucket::State;
use super::orders::Orders;
use super::pass::Memory;
use super::sell::Sale;
use super::settle::Event;
use crate::clock::{Moment, sleep_until};
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
/// With the pauses between them about nine minutes: longer than a database takes to come back.
const DEFAULT_ATTEMPTS: u8 = 60;
const DEFAULT_PAUSE: Duration = Duration::from_millis(100);
const DEFAULT_AT_ONCE: usize = 16;
const DEFAULT_CALL_LIMIT: Duration = Duration::from_secs(10);

/// Works for a sale. Made by [`Sale::worker`].
#[derive(Clone, Debug)]
pub struct Worker {
    pub(super) sale: Sale,
    poll: Duration,
    lease: Duration,
    pub(super) attempts: u8,
    pub(super) pause: Duration,
    at_once: usize,
    pub(super) call_limit: Duration,
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
    pub(super) fn add(&mut self, other: Worked) {
        self.placed += other.placed;
        self.refused += other.refused;
        self.released += other.released;
        self.paid += other.paid;
        self.failed += other.failed;
        self.dead += other.dead;
    }

    pub(super) fn count(&mut self, event: Event, state: State) {
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
            call_limit: DEFAULT_CALL_LIMIT,
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

    /// After so many failures a reservation is given up: 60 by default. With the default
    /// [pauses](Worker::pause) that is a database that is away for about nine minutes.
    ///
    /// [`Worker::run_once`] does not pause: each call of it is an attempt.
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

    /// How long a call to [`Orders`] may take: 10 seconds by default. Then its future is dropped,
    /// and it counts as failed: it is repeated after a pause.
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Worker {
        self.call_limit = limit;
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
    /// It remembers nothing of earlier calls, so what has failed is tried again at once.
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
        Memory::new(self.at_once)
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
