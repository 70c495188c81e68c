//! What is built from locks and cells.
//!
//! Each part is a pure rule over cells (see [`crate::engine::cell`]) with a small API around it, so it
//! is written once and runs on every engine that has cells.
//!
//! * [`rate`]: rate limits that all processes share.

pub mod rate;
