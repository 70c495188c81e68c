//! A wire between a client and its engine that can be cut, slowed down and made to lose what goes
//! over it.
//!
//! It is put around a real engine, at the border where a network would be.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::claim::{Alteration, Answer, Ask, Claim, OwnerId, Released};
use leasehold::engine::{
    AddSql, Cells, Connection, Engine, Guarantees, Hint, Hints, Life, Renewal, Renewed, ReplaceSql, Reply,
    Rule, Swap, Swapped, VerifySql, View, Watching,
};
use leasehold::{Error, Family, Name, Result};
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::Notify;

/// What the wire does to calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Requests vanish: the call never comes back, and nothing happens.
    Hang,
    /// Requests are refused at once, and nothing happens.
    Refuse,
    /// The request is carried out, and the answer is lost: an error.
    LoseAnswer,
    /// The request is carried out, and the answer never comes.
    HangAnswer,
    /// The answer comes this much later.
    Delay(Duration),
    /// The request is carried out this much later.
    Slow(Duration),
    /// Each call stops twice, before and after it is carried out.
    Stutter,
}

/// What happens to a process after some calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "used by cases of some features")]
pub(crate) enum Stop {
    /// kill -9.
    Kill,
    /// No call ever comes back, as if it had been killed.
    Hang,
}

#[derive(Debug)]
pub(crate) struct Wire {
    fault: Mutex<Fault>,
    /// So many calls are made yet, and what happens then.
    stop: Mutex<Option<(u32, Stop)>>,
    stopped: Notify,
    deaf: AtomicBool,
    /// Rules over more cells than this fail.
    most_cells: AtomicUsize,
    /// Renewals of leases of this length never come back.
    hanging: Mutex<Option<Duration>>,
    /// Where the client listens.
    hints: Mutex<Option<Hints>>,
    /// Who asked last, and how many times this owner has asked.
    asked: Mutex<Option<(OwnerId, u32)>>,
    /// What the client is told about its connection, if not the truth.
    connection: Mutex<Option<Connection>>,
    /// How many changes of leadership the engine has forgotten: the log seems to start after them.
    forgotten: AtomicU64,
    /// How many calls were made, of whatever kind.
    calls: AtomicUsize,
    /// How many calls of each kind got through.
    pub(crate) acquires: AtomicUsize,
    pub(crate) renews: AtomicUsize,
    pub(crate) releases: AtomicUsize,
    /// What each release said was used last, whether it got through or not.
    used: Mutex<Vec<u64>>,
    renewed_claims: AtomicU64,
    /// The servers whose claims were renewed.
    shards: Mutex<BTreeSet<u64>>,
}

impl Wire {
    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock().expect("no panic") = fault;
    }

    /// Rules over more cells fail from now on, not because of the wire.
    #[cfg(feature = "sale")]
    pub(crate) fn refuse_more_cells_than(&self, cells: usize) {
        self.most_cells.store(cells, Ordering::Release);
    }

    /// Every call that renews a lease of this length hangs from now on.
    pub(crate) fn hang_renewals_of(&self, lease: Duration) {
        *self.hanging.lock().expect("no panic") = Some(lease);
    }

    /// Hints no longer arrive.
    pub(crate) fn deafen(&self) {
        self.deaf.store(true, Ordering::Release);
    }

    /// How many servers there are.
    pub(crate) fn shards(&self) -> usize {
        self.shards.lock().expect("no panic").len()
    }

    /// Gives the client a hint, even one that no longer hears the engine's own.
    pub(crate) fn tell(&self, hint: Hint) {
        self.hints.lock().expect("no panic").as_ref().expect("the client listens").give(hint);
    }

    /// Who asked last, and how many times this owner has asked.
    pub(crate) fn asked(&self) -> (OwnerId, u32) {
        self.asked.lock().expect("no panic").expect("somebody has asked")
    }

    /// What the client is told about its connection; `None` for the truth.
    pub(crate) fn set_connection(&self, connection: Option<Connection>) {
        *self.connection.lock().expect("no panic") = connection;
    }

    /// The engine forgets the log of an election, which has so many changes.
    pub(crate) fn forget_log(&self, changes: u64) {
        self.forgotten.store(changes, Ordering::Release);
    }

    /// The view of an engine that has forgotten the beginning of the log.
    fn without_forgotten(&self, mut view: View) -> View {
        let forgotten = self.forgotten.load(Ordering::Acquire);
        view.changes.retain(|change| change.number > forgotten);
        view.changes.iter_mut().for_each(|change| change.number -= forgotten);
        view.change_count = view.change_count.saturating_sub(forgotten);
        view
    }

    /// What each release since the last look said was used last.
    pub(crate) fn said_to_be_used(&self) -> Vec<u64> {
        std::mem::take(&mut self.used.lock().expect("no panic"))
    }

    pub(crate) fn renewed_claims(&self) -> u64 {
        self.renewed_claims.load(Ordering::Acquire)
    }

    /// How many calls the client has made.
    #[allow(dead_code, reason = "used by cases of some features")]
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Acquire)
    }

    /// Lets so many calls through, and stops the process before the next one.
    #[allow(dead_code, reason = "used by cases of some features")]
    pub(crate) fn stop_after(&self, calls: u32, stop: Stop) {
        *self.stop.lock().expect("no panic") = Some((calls, stop));
    }

    /// Waits until it hangs.
    #[cfg(feature = "sale")]
    pub(crate) async fn stopped(&self) {
        self.stopped.notified().await;
    }

    /// Counts a call, also one to something else than the engine.
    pub(crate) async fn count(&self) {
        let stop = match &mut *self.stop.lock().expect("no panic") {
            Some((0, stop)) => *stop,
            Some((left, _)) => {
                *left -= 1;
                return;
            }
            None => return,
        };
        if stop == Stop::Kill {
            kill_process(getpid(), Signal::KILL).expect("this process");
        }
        self.stopped.notify_one();
        std::future::pending::<()>().await;
    }

    /// Carries a request to the engine. One that answers at once has done its work when `call`
    /// returns.
    async fn carry<'a, T>(&self, call: impl FnOnce() -> Reply<'a, T>) -> Result<T> {
        self.calls.fetch_add(1, Ordering::AcqRel);
        self.count().await;
        let fault = *self.fault.lock().expect("no panic");
        let lost = || Error::Unavailable { engine: "wire", what: "cut by the test".into(), source: None };
        match fault {
            Fault::None => call().await,
            Fault::Hang => std::future::pending().await,
            Fault::Refuse => Err(lost()),
            Fault::LoseAnswer => call().await.and(Err(lost())),
            Fault::HangAnswer => {
                drop(call().await);
                std::future::pending().await
            }
            Fault::Delay(time) => {
                let answer = call().await;
                tokio::time::sleep(time).await;
                answer
            }
            Fault::Slow(time) => {
                tokio::time::sleep(time).await;
                call().await
            }
            Fault::Stutter => {
                tokio::task::yield_now().await;
                let answer = call().await;
                tokio::task::yield_now().await;
                answer
            }
        }
    }
}

#[derive(Debug)]
struct Wired {
    engine: Box<dyn Engine>,
    wire: Arc<Wire>,
}

/// Puts a wire before an engine.
pub(crate) fn wire(engine: Box<dyn Engine>) -> (Box<dyn Engine>, Arc<Wire>) {
    let wire = Arc::new(Wire {
        fault: Mutex::new(Fault::None),
        stop: Mutex::new(None),
        stopped: Notify::new(),
        deaf: AtomicBool::new(false),
        most_cells: AtomicUsize::new(usize::MAX),
        hanging: Mutex::new(None),
        hints: Mutex::new(None),
        asked: Mutex::new(None),
        connection: Mutex::new(None),
        forgotten: AtomicU64::new(0),
        calls: AtomicUsize::new(0),
        acquires: AtomicUsize::new(0),
        renews: AtomicUsize::new(0),
        releases: AtomicUsize::new(0),
        used: Mutex::default(),
        renewed_claims: AtomicU64::new(0),
        shards: Mutex::default(),
    });
    (Box::new(Wired { engine, wire: Arc::clone(&wire) }), wire)
}

impl Engine for Wired {
    fn guarantees(&self) -> Guarantees {
        self.engine.guarantees()
    }

    fn listen(&self, hints: Hints) {
        let wire = Arc::clone(&self.wire);
        *wire.hints.lock().expect("no panic") = Some(hints.clone());
        self.engine.listen(Hints::new(move |hint| {
            if !wire.deaf.load(Ordering::Acquire) {
                hints.give(hint);
            }
        }));
    }

    fn acquire<'a>(&'a self, name: &'a Name, ask: &'a Ask) -> Reply<'a, Answer> {
        *self.wire.asked.lock().expect("no panic") = Some((ask.owner, ask.round));
        self.wire.acquires.fetch_add(1, Ordering::AcqRel);
        Box::pin(async move { self.wire.carry(|| self.engine.acquire(name, ask)).await })
    }

    fn life(&self, owner: OwnerId) -> Life {
        self.engine.life(owner)
    }

    fn shard(&self, name: &Name) -> u64 {
        let shard = self.engine.shard(name);
        self.wire.shards.lock().expect("no panic").insert(shard);
        shard
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Reply<'a, Vec<Renewed>> {
        self.wire.renews.fetch_add(1, Ordering::AcqRel);
        self.wire.renewed_claims.fetch_add(renewals.len() as u64, Ordering::AcqRel);
        let hanging = *self.wire.hanging.lock().expect("no panic");
        if hanging.is_some_and(|length| renewals.iter().any(|renewal| renewal.lease == length)) {
            return Box::pin(std::future::pending());
        }
        Box::pin(async move { self.wire.carry(|| self.engine.renew(renewals)).await })
    }

    fn release<'a>(&'a self, name: &'a Name, owner: OwnerId, used: u64) -> Reply<'a, Released> {
        Box::pin(async move {
            self.wire.used.lock().expect("no panic").push(used);
            let released = self.wire.carry(|| self.engine.release(name, owner, used)).await;
            self.wire.releases.fetch_add(1, Ordering::AcqRel);
            released
        })
    }

    fn alter<'a>(&'a self, name: &'a Name, owner: OwnerId, alteration: Alteration) -> Reply<'a, Answer> {
        Box::pin(async move { self.wire.carry(|| self.engine.alter(name, owner, alteration)).await })
    }

    fn resize<'a>(&'a self, name: &'a Name, declared: u32, capacity: u32) -> Reply<'a, ()> {
        Box::pin(async move { self.wire.carry(|| self.engine.resize(name, declared, capacity)).await })
    }

    fn look<'a>(&'a self, name: &'a Name, seen: u64) -> Reply<'a, View> {
        let seen = seen.saturating_add(self.wire.forgotten.load(Ordering::Acquire));
        Box::pin(async move {
            let view = self.wire.carry(|| self.engine.look(name, seen)).await?;
            Ok(self.wire.without_forgotten(view))
        })
    }

    fn list<'a>(
        &'a self,
        family: Family,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(Name, View)>> {
        Box::pin(async move { self.wire.carry(|| self.engine.list(family, prefix, after, limit)).await })
    }

    fn break_claims<'a>(&'a self, name: &'a Name) -> Reply<'a, Vec<Claim>> {
        Box::pin(async move { self.wire.carry(|| self.engine.break_claims(name)).await })
    }

    fn read<'a>(&'a self, names: &'a [Name]) -> Reply<'a, Cells> {
        Box::pin(async move { self.wire.carry(|| self.engine.read(names)).await })
    }

    fn swap(&self, swaps: Vec<Swap>) -> Reply<'_, Swapped> {
        Box::pin(async move { self.wire.carry(|| self.engine.swap(swaps)).await })
    }

    fn apply<'a>(&'a self, names: &'a [Name], rule: &'a Arc<dyn Rule>) -> Reply<'a, Vec<u8>> {
        if names.len() > self.wire.most_cells.load(Ordering::Acquire) {
            let what = "too many cells for the test".into();
            return Box::pin(async { Err(Error::Engine { engine: "wire", what, source: None }) });
        }
        Box::pin(async move { self.wire.carry(|| self.engine.apply(names, rule)).await })
    }

    fn list_cells<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<Name>> {
        Box::pin(async move { self.wire.carry(|| self.engine.list_cells(prefix, after, limit)).await })
    }

    fn watch<'a>(&'a self, name: &'a Name, watching: Watching) -> Reply<'a, ()> {
        Box::pin(async move { self.wire.carry(|| self.engine.watch(name, watching)).await })
    }

    fn verify_sql(&self, name: &Name, token: u64) -> Option<VerifySql> {
        self.engine.verify_sql(name, token)
    }

    fn replace_sql(&self, cell: &Name) -> Option<ReplaceSql> {
        self.engine.replace_sql(cell)
    }

    fn add_sql(&self, cell: &Name) -> Option<AddSql> {
        self.engine.add_sql(cell)
    }

    fn lifeline(&self) -> Result<Option<std::os::fd::OwnedFd>> {
        self.engine.lifeline()
    }

    fn connection(&self, name: &Name) -> Connection {
        let told = *self.wire.connection.lock().expect("no panic");
        told.unwrap_or_else(|| self.engine.connection(name))
    }

    fn close(&self) -> Reply<'_, ()> {
        self.engine.close()
    }
}
