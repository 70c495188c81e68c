//! A Redis server whose wall clock stands still until it is told to move.
//!
//! The wall clock is what `TIME`, the end of keys and the time-outs of `BLPOP` and its like go by.
//! A key that was set to end in 1000 ms is there at +1000 ms with 0 ms left, and gone at +1001 ms:
//! Redis ends a key when its moment is past, not when it is reached.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::clock::Clock;
use super::Redis;

/// A server on a clock that stands still, at [`FrozenRedis::START`] at first. The clock survives a
/// restart.
pub(crate) struct FrozenRedis {
    redis: Redis,
    clock: Clock,
}

impl Redis {
    pub(crate) fn start_frozen() -> FrozenRedis {
        Redis::start_frozen_with(&[])
    }

    pub(crate) fn start_frozen_with(arguments: &[&str]) -> FrozenRedis {
        // A thread of the allocator waits for moments of the wall clock. They are long past, and it
        // would never rest.
        let mut all = vec!["--jemalloc-bg-thread", "no"];
        all.extend(arguments);
        let mut redis = Redis::prepare(&all);
        let clock = Clock::freeze(&mut redis, FrozenRedis::START);
        redis.run();
        FrozenRedis { redis, clock }
    }
}

impl FrozenRedis {
    /// Some moment in microseconds since 1970, the same in every run.
    pub(crate) const START: u64 = 1_700_000_000_000_000;

    /// What the server's clock says, in microseconds since 1970.
    pub(crate) fn micros(&self) -> u64 {
        self.clock.micros()
    }

    /// Sets the clock, forwards or back, for every command that is sent from now on.
    pub(crate) fn set_micros(&self, micros: u64) {
        self.clock.set_micros(micros);
    }

    pub(crate) fn advance(&self, time: Duration) {
        self.clock.advance(time);
    }
}

impl Deref for FrozenRedis {
    type Target = Redis;

    fn deref(&self) -> &Redis {
        &self.redis
    }
}

/// A server whose clock goes on like ours, but for what it was set back. Dropped, it stands still.
pub(crate) struct SetBack {
    server: Arc<FrozenRedis>,
    back: Arc<AtomicU64>,
}

impl SetBack {
    pub(crate) fn start() -> SetBack {
        let (server, back) = (Arc::new(Redis::start_frozen()), Arc::new(AtomicU64::new(0)));
        let (weak, set_back) = (Arc::downgrade(&server), Arc::clone(&back));
        thread::spawn(move || {
            let start = Instant::now();
            while let Some(server) = weak.upgrade() {
                let gone = u64::try_from(start.elapsed().as_micros()).expect("some years");
                server.set_micros(FrozenRedis::START + gone - set_back.load(Ordering::Acquire));
                drop(server);
                thread::sleep(Duration::from_millis(1));
            }
        });
        SetBack { server, back }
    }

    /// Returns when the server goes by the other time.
    pub(crate) fn set_back(&self, by: Duration) {
        let before = self.micros();
        self.back.store(u64::try_from(by.as_micros()).expect("some years"), Ordering::Release);
        while self.micros() >= before {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Deref for SetBack {
    type Target = FrozenRedis;

    fn deref(&self) -> &FrozenRedis {
        &self.server
    }
}
