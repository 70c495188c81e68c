//! What a case is given.

use std::any::Any;
use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use leasehold::claim::{Ask, OwnerId, WHOLE};
use leasehold::engine::{Engine, Hints, Reach};
use leasehold::{Client, Options, TokioClock};

use crate::child::Child;
use crate::servers::Proxy;
use crate::setup::{AnyServer, Bench, Promises, Setup};
use crate::wire::Wire;

/// What a case is given: a set-up, started when it is first used, and clients of it.
pub(crate) struct Ground {
    setup: Arc<Setup>,
    started: OnceCell<Started>,
    clock: Option<TokioClock>,
}

struct Started {
    bench: Box<dyn Bench>,
    url: String,
}

impl Ground {
    pub(crate) fn new(setup: Arc<Setup>) -> Ground {
        Ground { setup, started: OnceCell::new(), clock: None }
    }

    fn started(&self) -> &Started {
        self.started.get_or_init(|| {
            let bench = (self.setup.start)();
            Started { url: bench.url(), bench }
        })
    }

    fn bench(&self) -> &dyn Bench {
        &*self.started().bench
    }

    /// The bench itself, for the cases of one set-up.
    #[allow(dead_code, reason = "a build without features has the engine `memory`, which has no such cases")]
    pub(crate) fn bench_of<B: Bench>(&self) -> &B {
        (self.bench() as &dyn Any).downcast_ref().expect("a case runs on its own set-up")
    }

    pub(crate) fn url(&self) -> &str {
        &self.started().url
    }

    pub(crate) fn promises(&self) -> Promises {
        self.setup.promises
    }

    /// The prefix of the cases of this set-up.
    #[allow(dead_code, reason = "used by cases of some features")]
    pub(crate) fn word(&self) -> &'static str {
        self.setup.word
    }

    /// Options on the clock of this ground.
    pub(crate) fn options(&mut self) -> Options {
        if !self.setup.paused_time {
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
        leasehold::connect_with(self.url(), options).await.expect("the engine is there")
    }

    /// An engine without a client, which renews nothing by itself.
    pub(crate) async fn engine(&mut self) -> Box<dyn Engine> {
        let options = self.options();
        let engine = leasehold::engine::open(self.url(), &options).await.expect("the engine is there");
        engine.listen(Hints::new(|_| {}));
        engine
    }

    /// A client whose calls go over a wire that can be cut.
    pub(crate) async fn client_on_wire(&mut self, options: Options) -> (Client, Arc<Wire>) {
        let engine = leasehold::engine::open(self.url(), &options).await.expect("the engine is there");
        let (engine, wire) = crate::wire::wire(engine);
        (Client::new(engine, options).expect("a client"), wire)
    }

    /// Another process, if the engine reaches that far.
    pub(crate) async fn child(&self) -> Option<Child> {
        match self.promises().reach {
            Reach::Process => None,
            _ => Some(Child::start(self.url()).await),
        }
    }

    /// What another process says that can not get in.
    pub(crate) async fn child_refused(&self) -> String {
        let program = std::env::current_exe().expect("this binary");
        let mut command = tokio::process::Command::new(program);
        let output = command.args(["child", self.url()]).output().await.expect("this binary starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Who is to blame while the store is stopped: errors must name it.
    pub(crate) fn culprit(&self) -> String {
        self.bench().culprit()
    }

    /// Stops the store for as long as the result is kept. `None` if it is inside this process.
    pub(crate) fn pause(&self) -> Option<Box<dyn Any>> {
        self.bench().spoil();
        self.bench().pause()
    }

    /// The servers, for a case that hurts them. None if the engine has no servers.
    pub(crate) fn servers(&self) -> Vec<&AnyServer> {
        self.bench().spoil();
        self.bench().servers()
    }

    /// The URL with a proxy before each of its addresses. No proxies if it has no address.
    pub(crate) fn behind_proxies(&self) -> (String, Vec<Proxy>) {
        const HOST: &str = "127.0.0.1:";
        let mut parts = self.url().split(HOST);
        let (mut url, mut proxies) = (parts.next().expect("a scheme").to_owned(), Vec::new());
        for part in parts {
            let end = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
            let proxy = Proxy::start(part[..end].parse().expect("a port"));
            url.push_str(&format!("{HOST}{}{}", proxy.port(), &part[end..]));
            proxies.push(proxy);
        }
        (url, proxies)
    }

    /// Whether the cases of this engine run on tokio's paused clock.
    #[cfg(any(feature = "blocking", feature = "leaderboards"))]
    pub(crate) fn paused_time(&self) -> bool {
        self.setup.paused_time
    }

    /// Whether the servers send clients past such proxies.
    pub(crate) fn redirects(&self) -> bool {
        self.setup.redirects
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
    if ground.promises().counts {
        return Some(ground);
    }
    let client = ground.client().await;
    refuses(client.semaphore("x", 1));
    refuses(client.semaphore("x", 5));
    None
}

/// The ground, if its engine has elections; if not, it must refuse them.
pub(crate) async fn elects(mut ground: Ground) -> Option<Ground> {
    if ground.promises().elects {
        return Some(ground);
    }
    refuses(ground.client().await.election("x"));
    None
}

/// The ground, if its engine has cells, which latches are made of; if not, it must refuse them.
pub(crate) async fn latches(mut ground: Ground) -> Option<Ground> {
    if ground.promises().cells {
        return Some(ground);
    }
    refuses(ground.client().await.latch("x", 3));
    None
}

/// The ground, if its engine lets readers become writers; if not, it must refuse that and leave the
/// reader its guard.
pub(crate) async fn upgrades(mut ground: Ground) -> Option<Ground> {
    if ground.promises().upgrades {
        return Some(ground);
    }
    let client = ground.client().await;
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
pub(crate) async fn until(what: &str, so: impl AsyncFnMut() -> bool) {
    until_within(Duration::from_secs(10), what, so).await;
}

/// The same, for what takes its time.
pub(crate) async fn until_within(limit: Duration, what: &str, mut so: impl AsyncFnMut() -> bool) {
    let limit = tokio::time::Instant::now() + limit;
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
