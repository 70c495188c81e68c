//! Real servers for the tests, and a line to them that can be cut.
//!
//! A server runs on a port of its own and ends with the process that started it, however that ends.
//! Whatever is temporary is removed at the end, unless the process is killed.
//!
//! A kind of server has one file (`redis`), and a folder where one file is not enough. The other
//! files are for every kind: `server` and what it is made of (`process`, `port`), the line
//! (`proxy`), a clock that is told the time (`clock`), a disk that fails (`disk`), certificates
//! (`tls`), and a place for servers that are idle (`pool`).
//!
//! A test binary takes this in with `#[path = "../servers/mod.rs"] mod servers;`. Every call here
//! blocks, for milliseconds, and none needs the runtime of the test to run.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

mod clock;
mod disk;
mod pool;
mod port;
mod preload;
mod process;
mod proxy;
mod redis;
mod server;
mod tls;

use std::thread;
use std::time::{Duration, Instant};

pub(crate) use self::clock::Clock;
pub(crate) use self::pool::{Pool, Pooled};
pub(crate) use self::process::{not_installed, spawn, state};
pub(crate) use self::proxy::Proxy;
pub(crate) use self::redis::{
    Cluster, Connection, DiskRedis, FrozenRedis, Quorum, Redis, Reply, Sentinels, SetBack, TlsRedis,
};
pub(crate) use self::server::{Program, Server};
pub(crate) use self::tls::Certificates;

/// Nothing here takes longer than this.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// Waits until something is so, and fails after ten seconds.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !so() {
        assert!(Instant::now() < limit, "waited too long until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
