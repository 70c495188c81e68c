//! Redlock: three and five independent Redis servers.

use leasehold::engine::AfterDeath;

use crate::servers::{Pool, Quorum, Redis};
use crate::setup::{AnyServer, Promises, Setup, Store};

pub(crate) fn setups() -> Vec<Setup> {
    static OF_3: Pool<Quorum> = Pool::new();
    static OF_5: Pool<Quorum> = Pool::new();
    vec![quorum("redlock3", 3, &OF_3), quorum("redlock5", 5, &OF_5)]
}

fn quorum(word: &'static str, servers: usize, pool: &'static Pool<Quorum>) -> Setup {
    // Independent servers have no common order, and agree on whole claims alone.
    let exclusion = Promises::exclusion("redlock", AfterDeath::AfterLease);
    let promises = Promises { shares: true, fences: true, ..exclusion };
    let start = move || {
        let all = pool.take(|| Quorum::start(servers));
        for server in &all.servers {
            server.command(&["FLUSHALL"]).ok();
        }
        all
    };
    Setup {
        missing: Redis::missing(),
        own_cases: crate::redlock::groups(servers),
        ..Setup::new(word, promises, start)
    }
}

impl Store for Quorum {
    fn url(&self) -> String {
        Quorum::url(self)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        self.servers.iter().map(|server| server as &AnyServer).collect()
    }
}
