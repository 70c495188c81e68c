//! Several Redis servers that belong together: a primary that can fail over, a cluster.

use std::time::Duration;

use super::super::port::Port;
use super::super::{LIMIT, until};
use super::Redis;

/// A primary, two replicas, and three sentinels that watch them.
pub(crate) struct Sentinels {
    /// The primary, as long as nothing happened, and its replicas.
    pub(crate) servers: Vec<Redis>,
    pub(crate) sentinels: Vec<Redis>,
}

impl Sentinels {
    /// What the sentinels call the primary.
    pub(crate) const NAME: &str = "stock";

    pub(crate) fn start() -> Sentinels {
        let primary = Redis::start();
        let port = primary.port().to_string();
        let replicaof = ["--replicaof", &format!("127.0.0.1 {port}"), "--repl-diskless-sync-delay", "0"];
        let mut servers = vec![primary];
        servers.extend((0..2).map(|_| Redis::start_with(&replicaof)));
        for replica in &servers[1..] {
            until("a replica is in step", || {
                replica.command(&["INFO", "replication"]).text().contains("master_link_status:up")
            });
        }
        let sentinels = (0..3).map(|_| {
            Redis::start_sentinel(&[
                &format!("sentinel monitor {} 127.0.0.1 {port} 2", Sentinels::NAME),
                &format!("sentinel down-after-milliseconds {} 700", Sentinels::NAME),
                &format!("sentinel failover-timeout {} 3000", Sentinels::NAME),
            ])
        });
        let sentinels = Sentinels { servers, sentinels: sentinels.collect() };
        until("the sentinels know the replicas", || {
            sentinels.sentinels.iter().all(|sentinel| {
                let facts = sentinel.command(&["SENTINEL", "MASTER", Sentinels::NAME]).texts();
                let fact =
                    |name: &str| facts.iter().position(|fact| fact == name).map(|at| facts[at + 1].as_str());
                fact("num-slaves") == Some("2")
            })
        });
        sentinels
    }

    /// Waits until the sentinels know each other, without which they can not agree on a fail-over.
    pub(crate) fn agree(&self) {
        until("the sentinels know each other", || {
            self.sentinels.iter().all(|sentinel| {
                let quorum = sentinel.command(&["SENTINEL", "CKQUORUM", Sentinels::NAME]);
                !matches!(quorum, super::Reply::Error(_)) && quorum.text().starts_with("OK 3")
            })
        });
    }

    /// The server that is the primary by the word of a sentinel.
    pub(crate) fn primary(&self) -> &Redis {
        let address =
            self.sentinels[0].command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Sentinels::NAME]).texts();
        let port = address[1].parse().unwrap_or(0);
        self.servers.iter().find(|server| server.port() == port).expect("one of ours")
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        format!("redis+sentinel://{}/{}", hosts.join(","), Sentinels::NAME)
    }
}

/// Servers that know nothing of each other, and decide by majority.
pub(crate) struct Quorum {
    pub(crate) servers: Vec<Redis>,
}

impl Quorum {
    /// What makes a server remember everything, so that it votes again right after a restart.
    pub(crate) const REMEMBERS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

    pub(crate) fn start(servers: usize) -> Quorum {
        Quorum::start_with(servers, &Quorum::REMEMBERS)
    }

    pub(crate) fn start_with(servers: usize, arguments: &[&str]) -> Quorum {
        Quorum { servers: (0..servers).map(|_| Redis::start_with(arguments)).collect() }
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> =
            self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        format!("redlock://{}", hosts.join(","))
    }
}

/// Three primaries with a third of the slots each, and a replica for each of them.
pub(crate) struct Cluster {
    /// The primaries first, as long as nothing happened.
    pub(crate) members: Vec<Redis>,
    /// Where the members talk to each other.
    _buses: Vec<Port>,
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        const PRIMARIES: usize = 3;
        let buses: Vec<Port> = (0..2 * PRIMARIES).map(|_| Port::reserve()).collect();
        let start = |bus: &Port| {
            Redis::start_with(&[
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus.number().to_string(),
                "--cluster-node-timeout",
                "1500",
                "--repl-diskless-sync-delay",
                "0",
            ])
        };
        let members: Vec<Redis> = buses.iter().map(start).collect();
        for (number, primary) in members[..PRIMARIES].iter().enumerate() {
            let (first, last) = (number * 16384 / PRIMARIES, (number + 1) * 16384 / PRIMARIES - 1);
            primary.command(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).ok();
        }
        for (member, bus) in members.iter().zip(&buses).skip(1) {
            let (port, bus) = (member.port().to_string(), bus.number().to_string());
            members[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).ok();
        }
        let known =
            |member: &Redis| member.command(&["CLUSTER", "INFO"]).text().contains("cluster_known_nodes:6");
        until("all know all", || members.iter().all(known));
        for (number, replica) in members[PRIMARIES..].iter().enumerate() {
            let primary = members[number].command(&["CLUSTER", "MYID"]).text();
            until("a replica has its primary", || {
                !matches!(replica.command(&["CLUSTER", "REPLICATE", &primary]), super::Reply::Error(_))
            });
        }
        let cluster = Cluster { members, _buses: buses };
        cluster.whole();
        for replica in &cluster.members[PRIMARIES..] {
            until("a replica is in step", || {
                replica.command(&["INFO", "replication"]).text().contains("master_link_status:up")
            });
        }
        // By gossip, which takes longer than the connection of a replica to its primary.
        let replicas_known = |member: &Redis| {
            let nodes = member.command(&["CLUSTER", "NODES"]).text();
            nodes.lines().filter(|node| node.contains("slave ")).count() == PRIMARIES
        };
        until("all know who is a replica", || cluster.members.iter().all(replicas_known));
        cluster
    }

    /// Waits until every member that answers thinks that the cluster works.
    pub(crate) fn whole(&self) {
        let whole = |member: &Redis| {
            let info = member.try_command(&["CLUSTER", "INFO"], Duration::from_millis(200));
            info.is_ok_and(|info| info.text().contains("cluster_state:ok"))
        };
        let limit = std::time::Instant::now() + 3 * LIMIT;
        while !self.members.iter().filter(|member| member.runs()).all(whole) {
            assert!(std::time::Instant::now() < limit, "the cluster did not come together");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> =
            self.members.iter().take(2).map(|member| format!("127.0.0.1:{}", member.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// The primary that has a key.
    pub(crate) fn primary_of(&self, key: &str) -> &Redis {
        let asked = self.members.iter().find(|member| member.runs()).expect("a member runs");
        let slot = asked.command(&["CLUSTER", "KEYSLOT", key]).int();
        let slots = asked.command(&["CLUSTER", "SLOTS"]);
        let row = slots.array().iter().find(|row| {
            let row = row.array();
            (row[0].int()..=row[1].int()).contains(&slot)
        });
        let port = row.expect("all slots are served").array()[2].array()[1].int();
        self.members.iter().find(|member| i64::from(member.port()) == port).expect("one of ours")
    }
}
