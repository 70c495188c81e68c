//! Redis: one server, a primary that Sentinel replaces, a Cluster.

use std::sync::Arc;

use leasehold::engine::{AfterDeath, Reach};

use crate::Group;
use crate::bench::{AnyServer, Bench, Promises, Setup};
use crate::servers::{Cluster, Pool, Pooled, Redis, Sentinels};

pub(crate) fn setups() -> Vec<Arc<dyn Setup>> {
    vec![Arc::new(OneServer), Arc::new(WithSentinel), Arc::new(AsCluster)]
}

fn promises() -> Promises {
    Promises::everything("redis", Reach::Network, AfterDeath::AfterLease)
}

struct OneServer;

impl Setup for OneServer {
    fn word(&self) -> &'static str {
        "redis"
    }

    fn missing(&self) -> Option<String> {
        Redis::missing()
    }

    fn promises(&self) -> Promises {
        promises()
    }

    fn start(&self) -> Box<dyn Bench> {
        Box::new(Redis::start())
    }

    fn own_cases(&self) -> Vec<Group> {
        crate::redis::groups()
    }
}

impl Bench for Redis {
    fn url(&self) -> String {
        Redis::url(self)
    }

    fn servers(&self) -> Vec<&AnyServer> {
        vec![self]
    }
}

struct WithSentinel;

impl Setup for WithSentinel {
    fn word(&self) -> &'static str {
        "redis+sentinel"
    }

    fn missing(&self) -> Option<String> {
        Redis::missing()
    }

    fn promises(&self) -> Promises {
        promises()
    }

    fn redirects(&self) -> bool {
        true
    }

    fn start(&self) -> Box<dyn Bench> {
        static POOL: Pool<Sentinels> = Pool::new();
        let all = POOL.take(Sentinels::start);
        all.primary().command(&["FLUSHALL"]).ok();
        Box::new(all)
    }
}

impl Bench for Pooled<Sentinels> {
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

    fn spoil(&self) {
        Pooled::spoil(self);
    }
}

struct AsCluster;

impl Setup for AsCluster {
    fn word(&self) -> &'static str {
        "redis+cluster"
    }

    fn missing(&self) -> Option<String> {
        Redis::missing()
    }

    fn promises(&self) -> Promises {
        promises()
    }

    fn redirects(&self) -> bool {
        true
    }

    fn start(&self) -> Box<dyn Bench> {
        static POOL: Pool<Cluster> = Pool::new();
        let all = POOL.take(Cluster::start);
        for primary in &all.members[..3] {
            primary.command(&["FLUSHALL"]).ok();
        }
        Box::new(all)
    }
}

impl Bench for Pooled<Cluster> {
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

    fn spoil(&self) {
        Pooled::spoil(self);
    }
}
