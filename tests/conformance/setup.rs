//! What an engine brings to the suite: ways to run it, and what they promise.

use std::any::Any;

use leasehold::engine::{AfterDeath, Guarantees, Reach};
use rustix::process::{Pid, Signal, kill_process};

use crate::Group;
use crate::servers::{Pooled, Program, Server};

/// One way to run an engine: alone, with so many servers, behind this or that.
pub(crate) struct Setup {
    /// The prefix of its cases: the scheme of its URL, and the number of servers where that varies.
    pub(crate) word: &'static str,
    /// What the engine must promise here. A case asks this and not the engine, which could get out
    /// of the case.
    pub(crate) promises: Promises,
    /// What must be installed first: a server, usually.
    pub(crate) missing: Option<String>,
    /// Whether cases run on paused time, as they can on an engine inside the process.
    pub(crate) paused_time: bool,
    /// Whether the servers send clients to other addresses than those of the URL. A proxy before
    /// these is then in nobody's way.
    pub(crate) redirects: bool,
    /// Cases that are run on this set-up and on no other, beside those of every set-up.
    pub(crate) own_cases: Vec<Group>,
    /// Gives a fresh store, for one case.
    pub(crate) start: Box<dyn Fn() -> Box<dyn Bench> + Send + Sync>,
}

impl Setup {
    /// A set-up that gives each case a fresh store.
    pub(crate) fn new<B: Bench>(
        word: &'static str,
        promises: Promises,
        start: impl Fn() -> B + Send + Sync + 'static,
    ) -> Setup {
        Setup {
            word,
            promises,
            missing: None,
            paused_time: false,
            redirects: false,
            own_cases: Vec::new(),
            start: Box::new(move || Box::new(start())),
        }
    }
}

/// A server of any kind.
pub(crate) type AnyServer = Server<dyn Program>;

/// A store that was started for one case, and how to hurt it. Dropped, it is gone.
pub(crate) trait Bench: Any {
    fn url(&self) -> String;
    /// The servers that keep the names, if servers do.
    fn servers(&self) -> Vec<&AnyServer> {
        Vec::new()
    }
    /// Who is to blame while the store is stopped: errors must name it.
    fn culprit(&self) -> String {
        format!("`127.0.0.1:{}`", self.servers()[0].port())
    }
    /// Stops the store for as long as the result is kept. `None` if it is inside this process.
    fn pause(&self) -> Option<Box<dyn Any>> {
        let servers = self.servers();
        servers.iter().for_each(|server| server.pause());
        let paused = Paused(servers.iter().flat_map(|server| server.pids()).collect());
        (!paused.0.is_empty()).then(|| Box::new(paused) as Box<dyn Any>)
    }
    /// The store is about to be hurt. One that is kept for other cases must be kept no longer.
    fn spoil(&self) {}
}

/// Servers that go on when this is dropped.
struct Paused(Vec<u32>);

impl Drop for Paused {
    fn drop(&mut self) {
        for pid in &self.0 {
            if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                kill_process(pid, Signal::CONT).ok();
            }
        }
    }
}

/// Servers that cases take turns with.
pub(crate) trait Store: 'static {
    fn url(&self) -> String;
    /// The servers that keep the names.
    fn servers(&self) -> Vec<&AnyServer>;
    /// Who is to blame while the servers are stopped: errors must name it.
    fn culprit(&self) -> String {
        format!("`127.0.0.1:{}`", self.servers()[0].port())
    }
}

impl<S: Store> Bench for Pooled<S> {
    fn url(&self) -> String {
        Store::url(&**self)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        Store::servers(&**self)
    }

    fn culprit(&self) -> String {
        Store::culprit(&**self)
    }

    fn spoil(&self) {
        Pooled::spoil(self);
    }
}

/// A store that is used under another URL than its own: one place in it, or in another mode.
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
pub(crate) struct Under<S: Store> {
    pub(crate) store: Pooled<S>,
    pub(crate) url: String,
}

#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
impl<S: Store> Bench for Under<S> {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn servers(&self) -> Vec<&AnyServer> {
        Bench::servers(&self.store)
    }

    fn culprit(&self) -> String {
        Bench::culprit(&self.store)
    }

    fn spoil(&self) {
        Bench::spoil(&self.store);
    }
}

/// The part of [`Guarantees`] that decides what a case expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Promises {
    pub(crate) engine: &'static str,
    pub(crate) reach: Reach,
    pub(crate) after_death: AfterDeath,
    pub(crate) fair: bool,
    pub(crate) counts: bool,
    pub(crate) upgrades: bool,
    pub(crate) elects: bool,
    pub(crate) cells: bool,
    pub(crate) delays: bool,
    pub(crate) shares: bool,
    pub(crate) fences: bool,
}

impl Promises {
    /// An engine that can do all.
    pub(crate) fn everything(engine: &'static str, reach: Reach, after_death: AfterDeath) -> Promises {
        Promises {
            engine,
            reach,
            after_death,
            fair: true,
            counts: true,
            upgrades: true,
            elects: true,
            cells: true,
            delays: true,
            shares: true,
            fences: true,
        }
    }

    /// An engine that keeps others out, and can do nothing else.
    #[allow(dead_code, reason = "used by engines of some features")]
    pub(crate) fn exclusion(engine: &'static str, after_death: AfterDeath) -> Promises {
        Promises {
            fair: false,
            counts: false,
            upgrades: false,
            elects: false,
            cells: false,
            delays: false,
            shares: false,
            fences: false,
            ..Promises::everything(engine, Reach::Network, after_death)
        }
    }
}

impl From<Guarantees> for Promises {
    fn from(said: Guarantees) -> Promises {
        Promises {
            engine: said.engine,
            reach: said.reach,
            after_death: said.after_death,
            fair: said.fair,
            counts: said.counts,
            upgrades: said.upgrades,
            elects: said.elects,
            cells: said.cells,
            delays: said.delays,
            shares: said.shares,
            fences: said.fences,
        }
    }
}
