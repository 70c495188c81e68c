//! ZooKeeper: one server, and an ensemble of three.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::engine::{AfterDeath, Reach};

use crate::Group;
use crate::bench::{AnyServer, Bench, Promises, Setup};
use crate::servers::{Ensemble, Pool, Pooled, ZooKeeper};

pub(crate) fn setups() -> Vec<Arc<dyn Setup>> {
    vec![Arc::new(Single), Arc::new(Three)]
}

fn promises() -> Promises {
    let promises = Promises::everything("zookeeper", Reach::Network, AfterDeath::AfterSession);
    Promises { delays: false, ..promises }
}

/// Nodes that no other case has, and sessions that do not outlive the dead for long.
fn fresh_path() -> String {
    static CASES: AtomicU32 = AtomicU32::new(0);
    format!("case{}?session_timeout=4s", CASES.fetch_add(1, Ordering::Relaxed))
}

struct Single;

/// One server.
pub(crate) struct SingleServer {
    pub(crate) server: Pooled<ZooKeeper>,
    pub(crate) path: String,
}

impl Setup for Single {
    fn word(&self) -> &'static str {
        "zookeeper"
    }

    fn missing(&self) -> Option<String> {
        ZooKeeper::missing()
    }

    fn promises(&self) -> Promises {
        promises()
    }

    fn start(&self) -> Box<dyn Bench> {
        static POOL: Pool<ZooKeeper> = Pool::new();
        Box::new(SingleServer { server: POOL.take(ZooKeeper::start), path: fresh_path() })
    }

    fn own_cases(&self) -> Vec<Group> {
        crate::zookeeper::groups()
    }
}

impl Bench for SingleServer {
    fn url(&self) -> String {
        format!("zookeeper://127.0.0.1:{}/{}", self.server.port(), self.path)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![&*self.server]
    }

    fn spoil(&self) {
        Pooled::spoil(&self.server);
    }
}

/// Names that are shared with other programs. They can not be listed, and only locks are shared, so
/// this is no set-up of every case.
pub(crate) struct Raw {
    /// `raw`, `raw=rwlock` and so on.
    pub(crate) option: &'static str,
}

/// A server whose nodes are used as they are.
pub(crate) struct RawServer {
    pub(crate) server: Pooled<ZooKeeper>,
    pub(crate) path: String,
}

impl Setup for Raw {
    fn word(&self) -> &'static str {
        "zookeeper"
    }

    fn missing(&self) -> Option<String> {
        ZooKeeper::missing()
    }

    fn promises(&self) -> Promises {
        let shares = self.option == "raw=rwlock";
        let counts = self.option == "raw=semaphore";
        let elects = matches!(self.option, "raw=latch" | "raw=kazoo");
        Promises { counts, upgrades: false, elects, cells: false, shares, ..promises() }
    }

    fn start(&self) -> Box<dyn Bench> {
        static POOL: Pool<ZooKeeper> = Pool::new();
        let path = format!("{}&{}", fresh_path(), self.option);
        Box::new(RawServer { server: POOL.take(ZooKeeper::start), path })
    }
}

impl Bench for RawServer {
    fn url(&self) -> String {
        format!("zookeeper://127.0.0.1:{}/{}", self.server.port(), self.path)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![&*self.server]
    }

    fn spoil(&self) {
        Pooled::spoil(&self.server);
    }
}

struct Three;

/// An ensemble of three members.
pub(crate) struct ThreeMembers {
    pub(crate) ensemble: Pooled<Ensemble>,
    pub(crate) path: String,
}

impl Setup for Three {
    fn word(&self) -> &'static str {
        "zookeeper3"
    }

    fn missing(&self) -> Option<String> {
        ZooKeeper::missing()
    }

    fn promises(&self) -> Promises {
        promises()
    }

    fn start(&self) -> Box<dyn Bench> {
        static POOL: Pool<Ensemble> = Pool::new();
        let ensemble = POOL.take(|| Ensemble::start(3));
        Box::new(ThreeMembers { ensemble, path: fresh_path() })
    }

    fn own_cases(&self) -> Vec<Group> {
        crate::zookeeper::ensemble_groups()
    }
}

impl Bench for ThreeMembers {
    fn url(&self) -> String {
        format!("zookeeper://{}/{}", self.ensemble.hosts(), self.path)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        self.ensemble.members.iter().map(|member| member as &AnyServer).collect()
    }

    /// Whichever member the client is connected to.
    fn culprit(&self) -> String {
        "`127.0.0.1:".to_owned()
    }

    fn spoil(&self) {
        Pooled::spoil(&self.ensemble);
    }
}
