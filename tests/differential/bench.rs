//! The server, the engines that are connected to it, and all that is heard from them.
//!
//! Two clocks are in our hands. The server's moves when a sequence says so. The clock of the
//! runtime stands still.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use leasehold::engine::{Engine, Hint, Hints, Watching, open};
use leasehold::name::{Family, Name};
use leasehold::{Options, Result};
use tokio::sync::Notify;

use crate::servers::{Connection, FrozenRedis, Redis, Reply};

/// How many clients there are.
pub(crate) const SEATS: usize = 2;

/// Counters below this have not been started at the server's time.
pub(crate) const STARTED: u64 = 1 << 40;

pub(crate) struct Bench {
    server: FrozenRedis,
    raw: Connection,
    inspect: String,
    engines: Vec<Box<dyn Engine>>,
    heard: Vec<Arc<Mutex<Vec<Hint>>>>,
    watchdog: Watchdog,
    /// As long as this is not dropped, the clock of the runtime stands still.
    _still: mpsc::Sender<()>,
}

/// What stands in the keys of a name.
#[derive(Clone, Debug)]
pub(crate) struct Inspected {
    /// The highest token, if the server remembers one.
    pub(crate) counter: Option<u64>,
    pub(crate) holder: bool,
    pub(crate) state: bool,
    /// How long the holder's key has left, in milliseconds.
    pub(crate) holder_left: i64,
    /// The counter says that there is more to the name, although its state may have ended since.
    pub(crate) below: bool,
}

impl Bench {
    /// Must be called inside a runtime whose time is paused.
    pub(crate) async fn new() -> Bench {
        // While something blocks, the runtime does not move its clock by itself.
        let (still, wait) = mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || wait.recv().ok());
        let server = Redis::start_frozen();
        let mut raw = server.connect();
        let inspect = raw.command(&["SCRIPT", "LOAD", include_str!("inspect.lua")]).text();
        let watchdog = Watchdog::start();
        let mut bench =
            Bench { server, raw, inspect, engines: Vec::new(), heard: Vec::new(), watchdog, _still: still };
        bench.connect().await;
        bench
    }

    /// New clients, which remember nothing.
    async fn connect(&mut self) {
        self.engines.clear();
        self.heard.clear();
        for _ in 0..SEATS {
            let engine = open(&self.server.url(), &Options::default()).await.expect("a server");
            let heard = Arc::new(Mutex::new(Vec::new()));
            let sink = Arc::clone(&heard);
            engine.listen(Hints::new(move |hint| sink.lock().expect("no panic").push(hint)));
            self.engines.push(engine);
            self.heard.push(heard);
        }
    }

    /// An empty server, and clients that have heard nothing. Changes of elections are told to the
    /// first.
    pub(crate) async fn reset(&mut self, names: &[Name]) -> Result<(), String> {
        self.raw.command(&["FLUSHALL"]).ok();
        self.server.set_micros(FrozenRedis::START);
        self.connect().await;
        for name in names.iter().filter(|name| name.family() == Family::Election) {
            self.call(self.engines[0].watch(name, Watching::On)).await?;
        }
        Ok(())
    }

    pub(crate) fn now(&self) -> u64 {
        self.server.micros()
    }

    pub(crate) fn set_now(&self, micros: u64) {
        self.server.set_micros(micros);
    }

    pub(crate) fn engine(&self, seat: usize) -> &dyn Engine {
        &*self.engines[seat]
    }

    /// The answer to a call, or that there was none.
    pub(crate) async fn call<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T, String> {
        let answer = tokio::select! {
            answer = pin!(call) => answer,
            () = self.watchdog.barked.notified() => return Err("no answer in time".into()),
        };
        self.watchdog.progress.fetch_add(1, Ordering::Relaxed);
        answer.map_err(|error| error.to_string())
    }

    /// All that was heard since the last time, by seat.
    pub(crate) async fn heard(&self) -> Result<Vec<Vec<Hint>>, String> {
        self.round_trip().await?;
        Ok(self.heard.iter().map(|heard| std::mem::take(&mut *heard.lock().expect("no panic"))).collect())
    }

    /// Messages and answers come over the same connection, in order: after this, all that was sent
    /// is heard and done.
    async fn round_trip(&self) -> Result<(), String> {
        let cell = [Name::new(Family::Cell, "nothing").expect("a name")];
        let trips = async { tokio::try_join!(self.engines[0].read(&cell), self.engines[1].read(&cell)) };
        self.call(trips).await.map(drop)
    }

    /// What stands in the keys of some names, or what is wrong with it.
    pub(crate) fn inspect(&mut self, keys: &[[String; 6]]) -> Result<Vec<Inspected>, String> {
        let count = (keys.len() * 6).to_string();
        let mut words = vec!["EVALSHA", &self.inspect, &count];
        words.extend(keys.iter().flatten().map(String::as_str));
        let answer = self.raw.command(&words);
        if let Reply::Error(error) = answer {
            return Err(error);
        }
        answer.array().iter().map(inspected).collect()
    }

    /// The keys that are there, and how long each has left.
    pub(crate) fn keys(&mut self) -> Vec<(String, i64)> {
        let keys = self.raw.command(&["KEYS", "*"]).texts();
        let left = |key: &String| self.raw.command(&["PTTL", key]).int();
        let left: Vec<i64> = keys.iter().map(left).collect();
        keys.into_iter().zip(left).collect()
    }
}

fn inspected(row: &Reply) -> Result<Inspected, String> {
    let [counter, holder, state, holder_left, below, wrong] = row.array() else {
        return Err(format!("a strange answer: {row:?}"));
    };
    let wrong = wrong.text();
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(Inspected {
        counter: counter.text().parse().ok().filter(|counter| *counter >= STARTED),
        holder: holder.int() == 1,
        state: state.int() == 1,
        holder_left: holder_left.int(),
        below: below.int() == 1,
    })
}

/// Barks if there is no progress, in real time.
struct Watchdog {
    progress: Arc<AtomicU64>,
    barked: Arc<Notify>,
    over: Arc<AtomicBool>,
}

impl Watchdog {
    fn start() -> Watchdog {
        let dog = Watchdog { progress: Arc::default(), barked: Arc::default(), over: Arc::default() };
        let (progress, barked, over) =
            (Arc::clone(&dog.progress), Arc::clone(&dog.barked), Arc::clone(&dog.over));
        thread::spawn(move || {
            let mut before = 0;
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_secs(10));
                let now = progress.load(Ordering::Relaxed);
                if now == before {
                    barked.notify_waiters();
                }
                before = now;
            }
        });
        dog
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
