//! Distributed locks with leases and fencing tokens, on the engine you already run.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> leasehold::Result<()> {
//! let client = leasehold::connect("memory:").await?;
//! let guard = client.mutex("stock/42")?.lock().await?;
//! println!("held under token {}", guard.token());
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The URL chooses the engine: `memory:`, `file:DIR`, `redis://HOST`, `redlock://A,B,C`,
//! `etcd://A,B,C`, `postgres://USER@HOST/DATABASE`, `mysql://USER@HOST/DATABASE`. See [`connect`].
//!
//! # Locks
//!
//! | | | |
//! | --- | --- | --- |
//! | [`Mutex`] | one holder at a time, first come, first served | [`Client::mutex`] |
//! | [`RwLock`] | many readers or one writer; writers are not starved | [`Client::rwlock`] |
//! | [`Semaphore`] | up to so many permits at a time, taken one by one or many at once | [`Client::semaphore`] |
//! | [`Multi`] | several names: all of them or none | [`Client::multi`] |
//! | [`Election`] | one leader at a time, whom everybody can see | [`Client::election`] |
//! | [`Latch`] | a gate that opens when it has been counted down to zero | [`Client::latch`] |
//!
//! Taking one gives a [`Guard`] with a fencing [`Token`], which says whether it is *held*, *in
//! doubt* or *lost*. Its lease is renewed for as long as it lives. The [`Client`] renews all leases
//! together, lets the tasks of one process pass a name among themselves, and tells what happens
//! ([`Client::events`]). The [`kit`] is built from the same engines: rate limits, submissions that
//! have an effect once, and tasks that run at set times. Those who write an engine start at
//! [`engine`].
//!
//! # Cargo features
//!
//! | feature | on by default | what it adds |
//! | --- | --- | --- |
//! | `file` | yes | `file:DIR`, for the processes of one machine (Linux; needs a C compiler) |
//! | `redis`, `redis-tls` | | `redis://`, `redlock://`; encrypted: `rediss://`, `redlocks://` |
//! | `etcd`, `etcd-tls` | | `etcd://`; encrypted: `etcds://` |
//! | `postgres`, `postgres-tls` | | `postgres://`; encrypted: `sslmode=require` |
//! | `mysql`, `mysql-tls` | | `mysql://`, `mariadb://`; encrypted: `sslmode=require` |
//! | `cache` | | `kit::cache`: one node loads for all, and an invalidation holds |
//! | `leaderboards` | | `kit::leaderboards`: scores and exact places, for very many members too |
//! | `once` | | `kit::once`: submissions that have an effect once |
//! | `sale` | | `kit::sale`: flash sales that never sell more than there is |
//! | `schedule` | | [`kit`]: tasks that run at set times, each time on one node |
//! | `sessions`, `tower-sessions` | | `kit::sessions`; a store for the crate `tower-sessions` |
//! | `topics` | | `kit::topics`: publish and subscribe, with replay from a cursor |
//! | `blocking` | | `leasehold::blocking`: the same locks for programs without async |
//! | `metrics` | | figures for the recorder of the crate [`metrics`](https://docs.rs/metrics) |
//!
//! # What a lock can not promise
//!
//! A lease can not stop a process that was paused from acting late. Only the resource can, by
//! refusing a token older than one it has seen: [`Fence`], and `examples/fencing.rs`.
//!
//! # What it does not do
//!
//! There is no consensus and no server of its own: where one machine is not enough, an engine is a
//! system that already does that. There is no support for other async runtimes than tokio.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "blocking")]
#[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
pub mod blocking;
pub mod claim;
pub mod client;
pub mod clock;
mod connect;
// For the command line tool: durations are read alike in options of URLs and of commands.
#[doc(hidden)]
pub mod duration;
pub mod engine;
mod error;
mod guard;
pub mod kit;
pub mod lock;
pub mod name;
mod nearest;
mod random;
#[cfg(feature = "redis")]
mod redis;
pub mod token;

pub use client::events::{Event, Events};
pub use client::{Client, Options};
pub use clock::{Clock, Moment, SystemClock, TokioClock};
pub use connect::{connect, connect_with};
pub use engine::Guarantees;
pub use error::{Error, Loss, Result};
pub use guard::{Guard, Standing};
pub use lock::{Election, Latch, Multi, Mutex, Owner, RwLock, Semaphore};
pub use name::{Family, Name};
pub use token::{Fence, Token};

/// The examples of README and of the engines' pages, run with the other tests.
#[cfg(all(doctest, feature = "file"))]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/memory.md")]
    mod memory {}
    #[doc = include_str!("../docs/metrics.md")]
    mod metrics {}
    #[doc = include_str!("../docs/engines.md")]
    mod engines {}
    #[doc = include_str!("../docs/file.md")]
    mod file {}
    #[doc = include_str!("../docs/limits.md")]
    mod limits {}
    #[cfg(feature = "cache")]
    #[doc = include_str!("../docs/cache.md")]
    mod cache {}
    #[cfg(feature = "leaderboards")]
    #[doc = include_str!("../docs/leaderboards.md")]
    mod leaderboards {}
    #[cfg(feature = "once")]
    #[doc = include_str!("../docs/once.md")]
    mod once {}
    #[cfg(feature = "etcd")]
    #[doc = include_str!("../docs/etcd.md")]
    mod etcd {}
    #[cfg(feature = "zookeeper")]
    #[doc = include_str!("../docs/zookeeper.md")]
    mod zookeeper {}
    #[cfg(feature = "postgres")]
    #[doc = include_str!("../docs/postgres.md")]
    mod postgres {}
    #[cfg(feature = "redis")]
    #[doc = include_str!("../docs/redis.md")]
    mod redis {}
    #[cfg(feature = "redis")]
    #[doc = include_str!("../docs/redlock.md")]
    mod redlock {}
    #[cfg(feature = "sale")]
    #[doc = include_str!("../docs/sale.md")]
    mod sale {}
    #[cfg(feature = "schedule")]
    #[doc = include_str!("../docs/schedule.md")]
    mod schedule {}
    #[cfg(feature = "sessions")]
    #[doc = include_str!("../docs/sessions.md")]
    mod sessions {}
    #[cfg(feature = "topics")]
    #[doc = include_str!("../docs/topics.md")]
    mod topics {}
}
