//! etcd: one server, and a cluster of three.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::engine::{AfterDeath, Reach};

use crate::bench::ms;
use crate::members::Members;
use crate::servers::{Etcd, EtcdCluster, Pool};
use crate::setup::{AnyServer, Promises, Setup, Store, Under};

pub(crate) fn setups() -> Vec<Setup> {
    let one = Setup { own_cases: crate::etcd::groups(), ..Setup::new("etcd", promises(), single) };
    let three =
        Setup { own_cases: crate::etcd::cluster_groups(), ..Setup::new("etcd3", promises(), cluster) };
    [one, three].map(|setup| Setup { missing: Etcd::missing(), ..setup }).into()
}

fn promises() -> Promises {
    Promises::everything("etcd", Reach::Network, AfterDeath::AfterLease)
}

/// Keys that no other case has.
fn fresh_prefix() -> String {
    static CASES: AtomicU32 = AtomicU32::new(0);
    format!("case{}", CASES.fetch_add(1, Ordering::Relaxed))
}

fn single() -> Under<Etcd> {
    static POOL: Pool<Etcd> = Pool::new();
    let store = POOL.take(Etcd::start);
    Under { url: format!("{}/{}", store.url(), fresh_prefix()), store }
}

fn cluster() -> Under<EtcdCluster> {
    static POOL: Pool<EtcdCluster> = Pool::new();
    let store = POOL.take(|| EtcdCluster::start(3));
    Under { url: format!("{}/{}", store.url(), fresh_prefix()), store }
}

impl Store for Etcd {
    fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port())
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![self]
    }
}

impl Store for EtcdCluster {
    fn url(&self) -> String {
        format!("etcd://{}", self.hosts())
    }

    fn servers(&self) -> Vec<&AnyServer> {
        self.members.iter().map(|member| member as &AnyServer).collect()
    }

    /// Whichever member the client is connected to.
    fn culprit(&self) -> String {
        "`127.0.0.1:".to_owned()
    }
}

impl Members for EtcdCluster {
    const RENEWED: Duration = ms(20_000);

    fn leader(&self) -> &AnyServer {
        EtcdCluster::leader(self)
    }

    fn wait_until_all_serve(&self) {
        self.wait_until_healthy();
    }
}

/// Names that are shared with other programs. They can not be listed, and only mutexes and
/// elections are shared, so this is no set-up of every case.
pub(crate) fn raw() -> Setup {
    let promises =
        Promises { counts: false, upgrades: false, cells: false, delays: false, shares: false, ..promises() };
    Setup::new("etcd", promises, || {
        static POOL: Pool<Etcd> = Pool::new();
        let store = POOL.take(Etcd::start);
        // Other cases have used the same names.
        store.ctl(&["del", "", "--from-key"]);
        Under { url: format!("{}?raw", store.url()), store }
    })
}
