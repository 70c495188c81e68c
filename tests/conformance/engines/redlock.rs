//! Redlock: three and five independent Redis servers.

use std::sync::Arc;

use leasehold::engine::{AfterDeath, Reach};

use crate::Group;
use crate::bench::{AnyServer, Bench, Promises, Setup};
use crate::servers::{Pool, Pooled, Quorum, Redis};

pub(crate) fn setups() -> Vec<Arc<dyn Setup>> {
    static OF_3: Pool<Quorum> = Pool::new();
    static OF_5: Pool<Quorum> = Pool::new();
    vec![
        Arc::new(Redlock { word: "redlock3", servers: 3, pool: &OF_3 }),
        Arc::new(Redlock { word: "redlock5", servers: 5, pool: &OF_5 }),
    ]
}

struct Redlock {
    word: &'static str,
    servers: usize,
    pool: &'static Pool<Quorum>,
}

impl Setup for Redlock {
    fn word(&self) -> &'static str {
        self.word
    }

    fn missing(&self) -> Option<String> {
        Redis::missing()
    }

    /// Independent servers have no common order, and agree on whole claims alone.
    fn promises(&self) -> Promises {
        Promises {
            engine: "redlock",
            reach: Reach::Network,
            after_death: AfterDeath::AfterLease,
            fair: false,
            counts: false,
            upgrades: false,
            elects: false,
            cells: false,
            delays: false,
            shares: true,
            fences: true,
        }
    }

    fn start(&self) -> Box<dyn Bench> {
        let all = self.pool.take(|| Quorum::start(self.servers));
        for server in &all.servers {
            server.command(&["FLUSHALL"]).ok();
        }
        Box::new(all)
    }

    fn own_cases(&self) -> Vec<Group> {
        crate::redlock::groups(self.servers)
    }
}

impl Bench for Pooled<Quorum> {
    fn url(&self) -> String {
        Quorum::url(self)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        self.servers.iter().map(|server| server as &AnyServer).collect()
    }

    fn spoil(&self) {
        Pooled::spoil(self);
    }
}
