//! Real servers for the tests, and a line to them that can be cut.
//!
//! A server runs on a port of its own and ends with the process that started it, however that ends.
//! Whatever is temporary is removed at the end, unless the process is killed. What does not end by
//! itself then are the workers of a paused PostgreSQL server, which hear of nothing.
//!
//! A kind of server has one file (`redis`), and a folder where one file is not enough. The other
//! files are for every kind: `server` and what it is made of (`process`, `port`), data directories
//! that are made once and copied (`template`), the line (`proxy`), a clock that is told the time
//! (`clock`), a disk that fails (`disk`), certificates (`tls`), and a place for servers that are
//! idle (`pool`).
//!
//! A test binary takes this in with `#[path = "../servers/mod.rs"] mod servers;`. Every call here
//! blocks, for milliseconds, and none needs the runtime of the test to run.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

mod clock;
mod disk;
mod etcd;
mod mariadb;
mod pgbouncer;
mod pool;
mod port;
mod postgres;
mod preload;
mod process;
mod proxy;
mod redis;
mod server;
mod template;
mod tls;
mod zookeeper;

use std::thread;
use std::time::{Duration, Instant};

pub(crate) use self::clock::Clock;
pub(crate) use self::etcd::{Divided, Etcd, EtcdCluster, Fsync};
pub(crate) use self::mariadb::MariaDb;
pub(crate) use self::pgbouncer::PgBouncer;
pub(crate) use self::pool::{Pool, Pooled, drop_idle};
pub(crate) use self::postgres::Postgres;
pub(crate) use self::process::{not_installed, spawn, state};
pub(crate) use self::proxy::Proxy;
pub(crate) use self::redis::{
    Cluster, Connection, DiskRedis, FrozenRedis, Quorum, Redis, Reply, Sentinels, SetBack, TlsRedis,
};
pub(crate) use self::server::{Program, Server};
pub(crate) use self::tls::Certificates;
pub(crate) use self::zookeeper::{Cut, DividedEnsemble, Ensemble, ZooKeeper, class_path};

/// Nothing here takes longer than this.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// Waits until something is so, and fails after ten seconds.
#[track_caller]
pub(crate) fn until(what: &str, so: impl FnMut() -> bool) {
    until_within(LIMIT, what, so);
}

#[track_caller]
fn until_within(limit: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let limit = Instant::now() + limit;
    while !so() {
        assert!(Instant::now() < limit, "waited too long until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
