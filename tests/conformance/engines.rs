//! The engines of the suite, a file for each.
//!
//! A file has one or more [`Setup`]s: Redis alone, with Sentinel and as a Cluster are three of
//! them. Every case of the suite runs on every set-up. To add an engine, write its file and name it
//! here.

#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(feature = "file")]
pub(crate) mod file;
mod memory;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redlock;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

use crate::setup::Setup;

/// The set-ups of this build.
pub(crate) fn setups() -> Vec<Setup> {
    let setups = [
        memory::setups(),
        #[cfg(feature = "etcd")]
        etcd::setups(),
        #[cfg(feature = "zookeeper")]
        zookeeper::setups(),
        #[cfg(feature = "postgres")]
        postgres::setups(),
        #[cfg(feature = "file")]
        file::setups(),
        #[cfg(feature = "redis")]
        redis::setups(),
        #[cfg(feature = "redis")]
        redlock::setups(),
        #[cfg(feature = "mysql")]
        mysql::setups(),
    ];
    setups.into_iter().flatten().collect()
}

/// URLs of the engines that this build lacks, and the cargo feature that an error must name.
pub(crate) const ABSENT: &[(&str, &str)] = &[
    #[cfg(not(feature = "file"))]
    ("file:/tmp/nowhere", "file"),
    #[cfg(not(feature = "etcd"))]
    ("etcd://localhost", "etcd"),
    #[cfg(not(feature = "postgres"))]
    ("postgres://localhost", "postgres"),
    #[cfg(not(feature = "redis"))]
    ("redis://localhost", "redis"),
    #[cfg(not(feature = "redis"))]
    ("redlock://a,b,c", "redis"),
    #[cfg(not(feature = "mysql"))]
    ("mysql://u@h/d", "mysql"),
    #[cfg(not(feature = "zookeeper"))]
    ("zookeeper://localhost", "zookeeper"),
];
