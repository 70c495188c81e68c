//! What is built from locks and cells.
//!
//! Each part is a pure rule over cells (see [`crate::engine::cell`]) with a small API around it, so
//! it is written once and runs on every engine that has cells.
//!
//! * `cache`: values that one node loads for all (feature `cache`).
//! * `leaderboards`: scores and exact places, for very many members too (feature `leaderboards`).
//! * [`rate`]: rate limits that all processes share.
//! * `once`: submissions that must have an effect once (feature `once`).
//! * `sale`: a flash sale that never sells more than there is (feature `sale`).
//! * `schedule`: tasks that run at set times, on one node each time (feature `schedule`).
//! * `sessions`: sessions of users, all of which can be ended at one moment (feature `sessions`).
//! * `topics`: publish and subscribe, with replay from a cursor (feature `topics`).
//! * `web`: both as layers of an HTTP service (feature `tower`).

mod breaker;
mod bytes;
#[cfg(feature = "cache")]
#[cfg_attr(docsrs, doc(cfg(feature = "cache")))]
pub mod cache;
mod cells;
#[cfg(feature = "leaderboards")]
pub mod leaderboards;
#[cfg(feature = "once")]
pub mod once;
pub mod rate;
#[cfg(feature = "sale")]
pub mod sale;
#[cfg(feature = "schedule")]
pub mod schedule;
#[cfg(feature = "sessions")]
pub mod sessions;
#[cfg(feature = "topics")]
pub mod topics;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub mod web;
