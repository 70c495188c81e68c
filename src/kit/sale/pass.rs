//! What a worker does when it looks at a shard: it ends what is due, calls the database, and
//! settles what that has said.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::Semaphore;

use super::answer::Reservation;
use super::bucket::{Bucket, Record, ReservationId, State};
use super::head::{Head, Mode};
use super::heads::Swept;
use super::orders::{Expired, Orders, Placed};
use super::settle::{Event, Settle, Settled};
use super::worker::{Worked, Worker};
use crate::claim::Micros;
use crate::clock::{Moment, sleep_until};
use crate::engine::MOST_CELLS;
use crate::error::Result;

const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Beside the buyers of a step there are the head and the bucket.
const BUYERS: usize = MOST_CELLS - 2;

/// What one node remembers between its passes.
#[derive(Debug)]
pub(super) struct Memory {
    /// Those that have failed, until when they are left alone.
    paused: Mutex<HashMap<u128, Moment>>,
    calls: Semaphore,
}

impl Memory {
    pub(super) fn new(calls_at_once: usize) -> Memory {
        Memory { paused: Mutex::default(), calls: Semaphore::new(calls_at_once) }
    }
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

impl Worker {
    /// Does what a shard has to do.
    pub(super) async fn pass<O: Orders>(
        &self,
        orders: &O,
        memory: &Memory,
        shard: u8,
        sweep: bool,
    ) -> Result<Worked> {
        const BUCKETS_AT_ONCE: usize = MOST_CELLS;
        let mut worked = Worked::default();
        let Some((now, head)) = self.sale.read_head(shard).await? else { return Ok(worked) };
        if head.mode == Mode::Rebuilding {
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
        let clock = &*self.sale.client.inner.clock;
        let until = clock.now() + self.call_limit;
        // A call that hangs would stop this shard, which no other node takes over meanwhile.
        let called = tokio::select! {
            biased;
            called = ask(orders, &reservation, record.state) => called,
            () = sleep_until(clock, until) => Err(format!("no answer within {:?}", self.call_limit)),
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

/// Asks the database, and what it has said.
async fn ask<O: Orders>(orders: &O, reservation: &Reservation, state: State) -> Result<Event, String> {
    if state == State::Reserved {
        let placed = orders.place(reservation).await.map_err(|error| error.to_string())?;
        return Ok(match placed {
            Placed::Yes => Event::Placed,
            Placed::Refused => Event::Refused,
            Placed::NoStock => Event::NoStock,
        });
    }
    let expired = orders.expire(reservation).await.map_err(|error| error.to_string())?;
    Ok(match expired {
        Expired::Yes => Event::Expired,
        Expired::Paid => Event::PaidBefore,
    })
}
