//! etcd: one server, and a cluster of three.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::engine::{AfterDeath, Reach};

use crate::Group;
use crate::bench::{AnyServer, Bench, Promises, Setup};
use crate::servers::{Etcd, EtcdCluster, Pool, Pooled};

pub(crate) fn setups() -> Vec<Arc<dyn Setup>> {
    vec![Arc::new(Single), Arc::new(Three)]
}

fn promises() -> Promises {
    Promises::everything("etcd", Reach::Network, AfterDeath::AfterLease)
}

/// Keys that no other case has.
fn fresh_prefix() -> String {
    static CASES: AtomicU32 = AtomicU32::new(0);
    format!("case{}", CASES.fetch_add(1, Ordering::Relaxed))
}

struct Single;

/// One server.
pub(crate) struct SingleServer {
    pub(crate) server: Pooled<Etcd>,
    pub(crate) prefix: String,
}

impl Setup for Single {
    fn word(&self) -> &'static str {
        "etcd"
    }

    fn missing(&self) -> Option<String> {
        Etcd::missing()
    }

    fn promises(&self) -> Promises {
        promises()
    }

    fn start(&self) -> Box<dyn Bench> {
        static POOL: Pool<Etcd> = Pool::new();
        Box::new(SingleServer { server: POOL.take(Etcd::start), prefix: fresh_prefix() })
    }

    fn own_cases(&self) -> Vec<Group> {
        crate::etcd::groups()
    }
}

impl Bench for SingleServer {
    fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}/{}", self.server.port(), self.prefix)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![&*self.server]
    }

    fn spoil(&self) {
        Pooled::spoil(&self.server);
    }
}

struct Three;

/// A cluster of three members.
pub(crate) struct ThreeMembers {
    pub(crate) cluster: Pooled<EtcdCluster>,
    pub(crate) prefix: String,
}

impl Setup for Three {
    fn word(&self) -> &'static str {
        "etcd3"
    }

    fn missing(&self) -> Option<String> {
        Etcd::missing()
    }

    fn promises(&self) -> Promises {
        promises()
    }

    fn start(&self) -> Box<dyn Bench> {
        static POOL: Pool<EtcdCluster> = Pool::new();
        let cluster = POOL.take(|| EtcdCluster::start(3));
        Box::new(ThreeMembers { cluster, prefix: fresh_prefix() })
    }

    fn own_cases(&self) -> Vec<Group> {
        crate::etcd::cluster_groups()
    }
}

impl Bench for ThreeMembers {
    fn url(&self) -> String {
        format!("etcd://{}/{}", self.cluster.hosts(), self.prefix)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        self.cluster.members.iter().map(|member| member as &AnyServer).collect()
    }

    /// Whichever member the client is connected to.
    fn culprit(&self) -> String {
        "`127.0.0.1:".to_owned()
    }

    fn spoil(&self) {
        Pooled::spoil(&self.cluster);
    }
}

/// Names that are shared with other programs. They can not be listed, and only mutexes and
/// elections are shared, so this is no set-up of every case.
pub(crate) struct Raw;

/// A server whose keys are used as they are.
pub(crate) struct RawServer(pub(crate) Pooled<Etcd>);

impl Setup for Raw {
    fn word(&self) -> &'static str {
        "etcd"
    }

    fn missing(&self) -> Option<String> {
        Etcd::missing()
    }

    fn promises(&self) -> Promises {
        Promises { counts: false, upgrades: false, cells: false, delays: false, shares: false, ..promises() }
    }

    fn start(&self) -> Box<dyn Bench> {
        static POOL: Pool<Etcd> = Pool::new();
        let server = POOL.take(Etcd::start);
        // Other cases have used the same names.
        server.ctl(&["del", "", "--from-key"]);
        Box::new(RawServer(server))
    }
}

impl Bench for RawServer {
    fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}?raw", self.0.port())
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![&*self.0]
    }

    fn spoil(&self) {
        Pooled::spoil(&self.0);
    }
}
