//! The rules of a claim, explored: every order of events in small worlds.
//!
//! `worlds.rs` says which worlds and what must be seen in them; `bugs.rs` is the hall of bugs:
//! broken designs that the same explorer must find a violation in. What is held to be true is in
//! `world.rs` (what clients believe), `judge.rs` (every step of the engine) and `probe.rs` (what
//! must come to pass).
//!
//! `LEASEHOLD_MODEL=deep` goes further, which takes about an hour and 16 GB.

mod bugs;
mod explore;
mod few;
mod fingerprint;
mod judge;
mod line;
mod probe;
mod serve;
mod setup;
mod world;
mod worlds;
