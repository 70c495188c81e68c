//! What an engine brings to the suite.

use std::any::Any;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::claim::{Ask, OwnerId, WHOLE};
use leasehold::engine::{Engine, Hints};
use leasehold::{Client, Options, TokioClock};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::child::Child;
use crate::servers;
use crate::wire::Wire;

/// An engine, as the suite sees it.
pub(crate) trait Bench: Send + Sync {
    /// The engine's word.
    fn word(&self) -> &'static str;
    /// What must be installed first: a server, usually.
    fn missing(&self) -> Option<String> {
        None
    }
    /// The runtime that a case runs on. An engine inside the process runs on paused time.
    fn runtime(&self) -> Runtime;
    /// A fresh store, for one case.
    fn ground(&self) -> Ground;
}

/// The engines of this build.
pub(crate) fn engines() -> Vec<Arc<dyn Bench>> {
    let mut engines: Vec<Arc<dyn Bench>> = vec![Arc::new(Memory)];
    if cfg!(feature = "file") {
        engines.push(Arc::new(File));
    }
    if cfg!(feature = "redis") {
        engines.push(Arc::new(Redis));
        engines.push(Arc::new(RedisSentinel));
        engines.push(Arc::new(RedisCluster));
        engines.push(Arc::new(Redlock(3)));
        engines.push(Arc::new(Redlock(5)));
    }
    engines
}

/// A store of an engine, and how to hurt it.
pub(crate) struct Ground {
    url: String,
    clock: Option<TokioClock>,
    /// Removed at the end of the case.
    dir: Option<TempDir>,
    /// Killed at the end of the case, or kept for the next.
    servers: Option<Servers>,
}

/// The servers of a case.
enum Servers {
    One(Arc<servers::Redis>),
    Sentinels(Borrowed<servers::Sentinels>),
    Cluster(Borrowed<servers::Cluster>),
    Quorum(Borrowed<servers::Quorum>),
}

pub(crate) struct Memory;

impl Bench for Memory {
    fn word(&self) -> &'static str {
        "memory"
    }

    fn runtime(&self) -> Runtime {
        Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
    }

    fn ground(&self) -> Ground {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let label = COUNT.fetch_add(1, Ordering::Relaxed);
        Ground { url: format!("memory:case-{label}"), clock: None, dir: None, servers: None }
    }
}

pub(crate) struct File;

impl Bench for File {
    fn word(&self) -> &'static str {
        "file"
    }

    fn runtime(&self) -> Runtime {
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    }

    fn ground(&self) -> Ground {
        let dir = TempDir::with_prefix("leasehold-").expect("a directory");
        let url = format!("file:{}", dir.path().join("store").display());
        Ground { url, clock: None, dir: Some(dir), servers: None }
    }
}

pub(crate) struct Redis;

impl Bench for Redis {
    fn word(&self) -> &'static str {
        "redis"
    }

    fn missing(&self) -> Option<String> {
        servers::Redis::missing()
    }

    fn runtime(&self) -> Runtime {
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    }

    fn ground(&self) -> Ground {
        let server = servers::Redis::start();
        let url = server.url();
        Ground { url, clock: None, dir: None, servers: Some(Servers::One(Arc::new(server))) }
    }
}

pub(crate) struct RedisSentinel;

impl Bench for RedisSentinel {
    fn word(&self) -> &'static str {
        "redis+sentinel"
    }

    fn missing(&self) -> Option<String> {
        servers::Redis::missing()
    }

    fn runtime(&self) -> Runtime {
        Redis.runtime()
    }

    fn ground(&self) -> Ground {
        static IDLE: Idle<servers::Sentinels> = Idle::new();
        let found = IDLE.take(servers::Sentinels::start);
        let url = found.value.url();
        found.value.primary().command(&["FLUSHALL"]).ok();
        Ground { url, clock: None, dir: None, servers: Some(Servers::Sentinels(found)) }
    }
}

pub(crate) struct RedisCluster;

impl Bench for RedisCluster {
    fn word(&self) -> &'static str {
        "redis+cluster"
    }

    fn missing(&self) -> Option<String> {
        servers::Redis::missing()
    }

    fn runtime(&self) -> Runtime {
        Redis.runtime()
    }

    fn ground(&self) -> Ground {
        static IDLE: Idle<servers::Cluster> = Idle::new();
        let found = IDLE.take(servers::Cluster::start);
        let url = found.value.url();
        for primary in &found.value.members[..3] {
            primary.command(&["FLUSHALL"]).ok();
        }
        Ground { url, clock: None, dir: None, servers: Some(Servers::Cluster(found)) }
    }
}

/// A quorum of so many servers.
pub(crate) struct Redlock(usize);

impl Bench for Redlock {
    fn word(&self) -> &'static str {
        if self.0 == 3 { "redlock3" } else { "redlock5" }
    }

    fn missing(&self) -> Option<String> {
        servers::Redis::missing()
    }

    fn runtime(&self) -> Runtime {
        Redis.runtime()
    }

    fn ground(&self) -> Ground {
        static OF_3: Idle<servers::Quorum> = Idle::new();
        static OF_5: Idle<servers::Quorum> = Idle::new();
        let idle = if self.0 == 3 { &OF_3 } else { &OF_5 };
        let found = idle.take(|| servers::Quorum::start(self.0));
        for server in &found.value.servers {
            server.command(&["FLUSHALL"]).ok();
        }
        Ground { url: found.value.url(), clock: None, dir: None, servers: Some(Servers::Quorum(found)) }
    }
}

/// Servers that take long to start, between the cases that use them. A case has them to itself.
struct Idle<T: 'static>(Mutex<Vec<T>>);

impl<T> Idle<T> {
    const fn new() -> Idle<T> {
        Idle(Mutex::new(Vec::new()))
    }

    fn take(&'static self, start: impl FnOnce() -> T) -> Borrowed<T> {
        let idle = self.0.lock().expect("no panic").pop();
        Borrowed {
            value: Some(idle.unwrap_or_else(start)).into(),
            home: &self.0,
            spoilt: AtomicBool::new(false),
        }
    }
}

/// Servers that go back when this is dropped, unless they were hurt.
struct Borrowed<T: 'static> {
    value: Kept<T>,
    home: &'static Mutex<Vec<T>>,
    spoilt: AtomicBool,
}

impl<T> Drop for Borrowed<T> {
    fn drop(&mut self) {
        if !self.spoilt.load(Ordering::Acquire)
            && !std::thread::panicking()
            && let Some(value) = self.value.0.take()
            && let Ok(mut home) = self.home.lock()
        {
            home.push(value);
        }
    }
}

/// There until it is given back.
struct Kept<T>(Option<T>);

impl<T> From<Option<T>> for Kept<T> {
    fn from(value: Option<T>) -> Kept<T> {
        Kept(value)
    }
}

impl<T> std::ops::Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("not given back yet")
    }
}

impl Ground {
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn paused_time(&self) -> bool {
        self.url.starts_with("memory:")
    }

    /// Options on the clock of this ground.
    pub(crate) fn options(&mut self) -> Options {
        if !self.paused_time() {
            return Options::new();
        }
        let clock = *self.clock.get_or_insert_with(TokioClock::new);
        Options::new().clock(clock)
    }

    /// A client; called again, a second client, as another process would have.
    pub(crate) async fn client(&mut self) -> Client {
        let options = self.options();
        self.client_with(options).await
    }

    pub(crate) async fn client_with(&mut self, options: Options) -> Client {
        leasehold::connect_with(&self.url, options).await.expect("the engine is there")
    }

    /// An engine without a client, which renews nothing by itself.
    pub(crate) async fn engine(&mut self) -> Box<dyn Engine> {
        let options = self.options();
        let engine = leasehold::engine::open(&self.url, &options).await.expect("the engine is there");
        engine.listen(Hints::new(|_| {}));
        engine
    }

    /// A client whose calls go over a wire that can be cut.
    pub(crate) async fn client_on_wire(&mut self, options: Options) -> (Client, Arc<Wire>) {
        let engine = leasehold::engine::open(&self.url, &options).await.expect("the engine is there");
        let (engine, wire) = crate::wire::wire(engine);
        (Client::new(engine, options).expect("a client"), wire)
    }

    /// Another process, if the engine reaches that far.
    pub(crate) async fn child(&self) -> Option<Child> {
        if self.paused_time() { None } else { Some(Child::start(&self.url).await) }
    }

    /// What another process says that can not get in.
    pub(crate) async fn child_refused(&self) -> String {
        let program = std::env::current_exe().expect("this binary");
        let mut command = tokio::process::Command::new(program);
        let output = command.args(["child", &self.url]).output().await.expect("this binary starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The directory of a store in files.
    pub(crate) fn store_dir(&self) -> Option<PathBuf> {
        self.dir.as_ref().map(|dir| dir.path().join("store"))
    }

    /// The server of an engine that has one.
    #[cfg(feature = "redis")]
    pub(crate) fn server(&self) -> &servers::Redis {
        match &self.servers {
            Some(Servers::One(server)) => server,
            _ => panic!("not an engine with one server"),
        }
    }

    /// Who is to blame while the store is stopped: errors must name it.
    pub(crate) fn culprit(&self) -> String {
        match &self.servers {
            Some(Servers::One(server)) => format!("`127.0.0.1:{}`", server.port()),
            // They fail over, to a server that answers, if they are given the time.
            Some(Servers::Sentinels(_) | Servers::Cluster(_)) => "127.0.0.1:".into(),
            Some(Servers::Quorum(all)) => format!("`127.0.0.1:{}`", all.value.servers[0].port()),
            None => format!("process {}", std::process::id()),
        }
    }

    /// Stops the store for as long as the result is kept: what a server that is paused is, or here a process that is
    /// stopped in the middle of a write.
    pub(crate) fn pause(&self) -> Option<Box<dyn Any + Send>> {
        if let Some(servers) = &self.servers {
            return Some(Box::new(servers.pause()));
        }
        let store = self.store_dir()?;
        let boot = fs::read_dir(store)
            .ok()?
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with("boot-"))?;
        let gate = fs::OpenOptions::new().write(true).open(boot.path().join("gate")).expect("a gate");
        flock(&gate, FlockOperation::LockExclusive).expect("the gate can be locked");
        Some(Box::new(gate))
    }
}

impl Servers {
    /// Stops all servers that keep names.
    fn pause(&self) -> Paused {
        let stopped: Vec<&servers::Redis> = match self {
            Servers::One(server) => vec![server],
            Servers::Sentinels(all) => {
                all.spoilt.store(true, Ordering::Release);
                all.value.servers.iter().collect()
            }
            Servers::Cluster(all) => {
                all.spoilt.store(true, Ordering::Release);
                all.value.members.iter().collect()
            }
            Servers::Quorum(all) => {
                all.spoilt.store(true, Ordering::Release);
                all.value.servers.iter().collect()
            }
        };
        stopped.iter().for_each(|server| server.pause());
        Paused(stopped.iter().map(|server| server.pid()).collect())
    }
}

/// Servers that go on when this is dropped.
struct Paused(Vec<u32>);

impl Drop for Paused {
    fn drop(&mut self) {
        for pid in &self.0 {
            if let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) {
                rustix::process::kill_process(pid, rustix::process::Signal::CONT).ok();
            }
        }
    }
}

/// What asks an engine for a mutex, once, with a long lease.
pub(crate) fn ask(owner: u128) -> Ask {
    Ask {
        owner: OwnerId(owner),
        weight: WHOLE,
        capacity: WHOLE,
        lease: ms(30_000),
        lock_delay: ms(0),
        tokens: 1,
        wait: false,
        answer_within: ms(5000),
        round: 1,
        holder: Arc::default(),
        value: Arc::default(),
        logged: false,
    }
}

/// The ground, if its engine has semaphores; if not, it must refuse them.
pub(crate) async fn counts(mut ground: Ground) -> Option<Ground> {
    let client = ground.client().await;
    if client.guarantees().counts {
        return Some(ground);
    }
    refuses(client.semaphore("x", 1));
    refuses(client.semaphore("x", 5));
    None
}

/// The ground, if its engine has elections and latches; if not, it must refuse them.
pub(crate) async fn elects(mut ground: Ground) -> Option<Ground> {
    let client = ground.client().await;
    if client.guarantees().elects && client.guarantees().cells {
        return Some(ground);
    }
    if !client.guarantees().elects {
        refuses(client.election("x"));
    }
    if !client.guarantees().cells {
        refuses(client.latch("x", 3));
    }
    None
}

/// The ground, if its engine lets readers become writers; if not, it must refuse that and leave the reader its guard.
pub(crate) async fn upgrades(mut ground: Ground) -> Option<Ground> {
    let client = ground.client().await;
    if client.guarantees().upgrades {
        return Some(ground);
    }
    let reader = client.rwlock("x").expect("a name").read().await.expect("free");
    let refused = reader.upgrade().await.expect_err("not possible here");
    assert!(matches!(refused.error, leasehold::Error::Unsupported { .. }), "{refused}");
    let refused = refused.guard.try_upgrade().await.expect_err("not possible here");
    assert!(matches!(refused.error, leasehold::Error::Unsupported { .. }), "{refused}");
    assert_eq!(refused.guard.standing(), leasehold::Standing::Held);
    refused.guard.release().await.expect("still a reader");
    None
}

/// Expects that an engine says that it can not do something.
#[track_caller]
pub(crate) fn refuses<T>(made: leasehold::Result<T>) {
    let error = made.err().expect("what is not promised is refused");
    assert!(matches!(error, leasehold::Error::Unsupported { .. }), "{error}");
}

/// Waits until something is so, and fails after ten seconds.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let limit = tokio::time::Instant::now() + Duration::from_secs(10);
    while !so().await {
        assert!(tokio::time::Instant::now() < limit, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Runs something that must be done soon.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(10), work).await {
        Ok(done) => done,
        Err(_) => panic!("{what} took too long"),
    }
}

/// Expects that something does not happen for a while.
pub(crate) async fn not_within<T>(time: Duration, what: &str, work: impl Future<Output = T>) {
    assert!(tokio::time::timeout(time, work).await.is_err(), "{what}, and should not have");
}

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
