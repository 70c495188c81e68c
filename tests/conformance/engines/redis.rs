//! Redis: one server, a primary that Sentinel replaces, a Cluster.

use leasehold::engine::{AfterDeath, Reach};

use crate::servers::{Cluster, Pool, Pooled, Redis, Sentinels};
use crate::setup::{AnyServer, Bench, Promises, Setup, Store};

pub(crate) fn setups() -> Vec<Setup> {
    let promises = Promises::everything("redis", Reach::Network, AfterDeath::AfterLease);
    let one = Setup { own_cases: crate::redis::groups(), ..Setup::new("redis", promises, Redis::start) };
    let sentinel = Setup { redirects: true, ..Setup::new("redis+sentinel", promises, with_sentinel) };
    let cluster = Setup { redirects: true, ..Setup::new("redis+cluster", promises, as_cluster) };
    [one, sentinel, cluster].map(|setup| Setup { missing: Redis::missing(), ..setup }).into()
}

impl Bench for Redis {
    fn url(&self) -> String {
        Redis::url(self)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![self]
    }
}

fn with_sentinel() -> Pooled<Sentinels> {
    static POOL: Pool<Sentinels> = Pool::new();
    let all = POOL.take(Sentinels::start);
    all.primary().command(&["FLUSHALL"]).ok();
    all
}

impl Store for Sentinels {
    fn url(&self) -> String {
        Sentinels::url(self)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        self.servers.iter().map(|server| server as &AnyServer).collect()
    }

    /// They fail over, to a server that answers, if they are given the time.
    fn culprit(&self) -> String {
        "127.0.0.1:".to_owned()
    }
}

fn as_cluster() -> Pooled<Cluster> {
    static POOL: Pool<Cluster> = Pool::new();
    let all = POOL.take(Cluster::start);
    for primary in &all.members[..3] {
        primary.command(&["FLUSHALL"]).ok();
    }
    all
}

impl Store for Cluster {
    fn url(&self) -> String {
        Cluster::url(self)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        self.members.iter().map(|member| member as &AnyServer).collect()
    }

    /// As with Sentinel.
    fn culprit(&self) -> String {
        "127.0.0.1:".to_owned()
    }
}
