//! What the page shows: how the sale stands, and how it got there.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold::kit::sale::Figures;
use serde::{Deserialize, Serialize};

use crate::orders::Books;

/// A point of the charts.
pub(crate) const EVERY: Duration = Duration::from_millis(500);
/// Two minutes.
const MOST_POINTS: usize = 240;
/// The response times that are looked at: the last so many.
const MOST_TIMES: usize = 4096;

/// What this shop has answered. Others may sell the same sale.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) sold_out: AtomicU64,
    pub(crate) over_limit: AtomicU64,
    pub(crate) rate_limited: AtomicU64,
    pub(crate) replayed: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// Counts one more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// How all stands at one moment. The names are those of the page.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Point {
    /// Milliseconds since the shop was opened.
    pub(crate) at: u64,
    // Units, as the sale has them.
    pub(crate) available: u64,
    pub(crate) reserved: u64,
    pub(crate) ordered: u64,
    pub(crate) paid: u64,
    pub(crate) ending: u64,
    pub(crate) dead: u64,
    // Since the sale began.
    pub(crate) reservations: u64,
    pub(crate) returned: u64,
    pub(crate) orders: u64,
    // Since the shop was opened.
    pub(crate) requests: u64,
    pub(crate) sold_out: u64,
    pub(crate) over_limit: u64,
    pub(crate) rate_limited: u64,
    pub(crate) replayed: u64,
    pub(crate) failed: u64,
}

/// What `/state` answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct View {
    pub(crate) engine: String,
    pub(crate) database: String,
    pub(crate) epoch: u32,
    pub(crate) stock: u64,
    pub(crate) pay_within_ms: u64,
    /// False while the store is away, or has lost the sale and is rebuilt.
    pub(crate) selling: bool,
    /// Whether what is on its way explains all that the sale and the database differ in.
    pub(crate) agrees: bool,
    /// Response times of requests to buy, in microseconds.
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) now: Point,
    pub(crate) points: Vec<Point>,
}

#[derive(Debug)]
pub(crate) struct History {
    started: Instant,
    pub(crate) counters: Counters,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    points: VecDeque<Point>,
    times: VecDeque<u64>,
}

impl History {
    pub(crate) fn new() -> History {
        History { started: Instant::now(), counters: Counters::default(), kept: Mutex::default() }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn answered_in(&self, time: Duration) {
        let mut kept = self.kept();
        if kept.times.len() == MOST_TIMES {
            kept.times.pop_front();
        }
        kept.times.push_back(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn point(&self, figures: &Figures, books: &Books) -> Point {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        Point {
            at: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            available: figures.available,
            reserved: figures.reserved,
            ordered: figures.ordered,
            paid: figures.paid,
            ending: figures.ending,
            dead: figures.dead,
            reservations: figures.taken,
            returned: figures.returned,
            orders: books.placed,
            requests: get(&counters.requests),
            sold_out: get(&counters.sold_out),
            over_limit: get(&counters.over_limit),
            rate_limited: get(&counters.rate_limited),
            replayed: get(&counters.replayed),
            failed: get(&counters.failed),
        }
    }

    pub(crate) fn keep(&self, point: Point) {
        let mut kept = self.kept();
        if kept.points.len() == MOST_POINTS {
            kept.points.pop_front();
        }
        kept.points.push_back(point);
    }

    /// Another sale begins.
    pub(crate) fn clear(&self) {
        self.kept().points.clear();
    }

    pub(crate) fn points(&self) -> Vec<Point> {
        self.kept().points.iter().copied().collect()
    }

    /// The response times that half of the requests, and 99 of 100, were answered in.
    pub(crate) fn times(&self) -> (u64, u64) {
        let mut times: Vec<u64> = self.kept().times.iter().copied().collect();
        times.sort_unstable();
        let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
        (at(50), at(99))
    }
}
