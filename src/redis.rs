//! The Redis protocol: connections, Sentinel, Cluster, scripts, errors and TLS.
//!
//! Below `engine/redis` and `engine/redlock`, and knows neither of them.

use std::time::Duration;

pub(crate) mod address;
pub(crate) mod cluster;
pub(crate) mod errors;
pub(crate) mod holder;
pub(crate) mod keys;
pub(crate) mod link;
pub(crate) mod replicas;
pub(crate) mod requirements;
pub(crate) mod scan;
pub(crate) mod script;
pub(crate) mod sentinel;
pub(crate) mod slots;
pub(crate) mod source;
#[cfg(feature = "redis-tls")]
mod tls;
pub(crate) mod topology;
pub(crate) mod url;

/// How long renewals of leases that are not shorter may take when others that go with them are
/// answered. Less than any caller waits, so that what is answered is not lost with what is not.
pub(crate) fn stragglers(shortest: Duration) -> Duration {
    const MOST: Duration = Duration::from_secs(1);
    (shortest / 8).min(MOST)
}

/// A time as scripts are told it.
pub(crate) fn micros(duration: Duration) -> u64 {
    // What a script can hold.
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).min(1 << 52)
}
