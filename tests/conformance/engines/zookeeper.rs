//! ZooKeeper: one server, and an ensemble of three.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::engine::{AfterDeath, Reach};

use crate::bench::ms;
use crate::members::Members;
use crate::servers::{Ensemble, Pool, ZooKeeper};
use crate::setup::{AnyServer, Promises, Setup, Store, Under};

pub(crate) fn setups() -> Vec<Setup> {
    let one = Setup { own_cases: crate::zookeeper::groups(), ..Setup::new("zookeeper", promises(), single) };
    let three = Setup {
        own_cases: crate::zookeeper::ensemble_groups(),
        ..Setup::new("zookeeper3", promises(), ensemble)
    };
    [one, three].map(|setup| Setup { missing: ZooKeeper::missing(), ..setup }).into()
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

fn single() -> Under<ZooKeeper> {
    static POOL: Pool<ZooKeeper> = Pool::new();
    let store = POOL.take(ZooKeeper::start);
    Under { url: format!("{}/{}", store.url(), fresh_path()), store }
}

fn ensemble() -> Under<Ensemble> {
    static POOL: Pool<Ensemble> = Pool::new();
    let store = POOL.take(|| Ensemble::start(3));
    Under { url: format!("{}/{}", store.url(), fresh_path()), store }
}

impl Store for ZooKeeper {
    fn url(&self) -> String {
        format!("zookeeper://127.0.0.1:{}", self.port())
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![self]
    }
}

impl Store for Ensemble {
    fn url(&self) -> String {
        format!("zookeeper://{}", self.hosts())
    }

    fn servers(&self) -> Vec<&AnyServer> {
        self.members.iter().map(|member| member as &AnyServer).collect()
    }

    /// Whichever member the client is connected to.
    fn culprit(&self) -> String {
        "`127.0.0.1:".to_owned()
    }
}

impl Members for Ensemble {
    /// Less than a third of their sessions has passed.
    const RENEWED: Duration = ms(8000);

    fn leader(&self) -> &AnyServer {
        Ensemble::leader(self)
    }

    fn wait_until_all_serve(&self) {
        self.wait_until_it_serves();
    }
}

/// Names that are shared with other programs, in the way that an option says: `raw`, `raw=rwlock`
/// and so on. They can not be listed, and only locks are shared, so this is no set-up of every
/// case.
pub(crate) fn raw(option: &'static str) -> Setup {
    let promises = Promises {
        counts: option == "raw=semaphore",
        upgrades: false,
        elects: matches!(option, "raw=latch" | "raw=kazoo"),
        cells: false,
        shares: option == "raw=rwlock",
        ..promises()
    };
    Setup::new("zookeeper", promises, move || {
        let Under { store, url } = single();
        Under { url: format!("{url}&{option}"), store }
    })
}
