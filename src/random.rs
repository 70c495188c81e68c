//! Numbers that nobody else has.
//!
//! They come from the operating system each time. A generator inside the process would be copied by
//! `fork`, and parent and child would draw the same numbers: the engine would take them for one
//! owner.

use crate::error::{Error, Result};

/// A number that no other client draws, in this process or any other.
pub(crate) fn number() -> Result<u64> {
    getrandom::u64().map_err(|error| {
        Error::invalid(format!("the operating system gives no random numbers, which owners need: {error}"))
    })
}
