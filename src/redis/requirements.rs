//! What we require of a server, and what `INFO` reports.

use redis::ConnectionAddr;

use super::errors::Label;
use super::source::Source;
use crate::error::Result;

/// Where a server is, and what is expected of it.
pub(crate) struct Target {
    /// The engine that uses it.
    pub(crate) label: Label,
    pub(crate) source: Source,
    /// For messages; never with a password.
    pub(crate) server: String,
    /// Live with a server that may throw locks away when its memory is full.
    pub(crate) eviction_allowed: bool,
    /// How many replicas it has must be known.
    pub(crate) counts_replicas: bool,
}

/// What the server is, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) version: (u32, u32),
    pub(crate) run_id: String,
    /// It writes down what it does, and knows it again after a restart. Pictures now and then (RDB)
    /// miss the last of it.
    pub(crate) remembers: bool,
    pub(crate) evicts: bool,
}

/// A field of what `INFO` says; empty if it is not there.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_default().trim()
}

impl Target {
    /// A server, for messages.
    pub(crate) fn name(&self, addr: &ConnectionAddr) -> String {
        match self.source {
            Source::Fixed(_) => self.server.clone(),
            Source::Sentinels(_) => format!("{} ({addr})", self.server),
        }
    }

    /// Reads what the server says of itself, and refuses one that can not keep locks.
    pub(crate) fn check(&self, info: &str, server: &str, epoch: u64) -> Result<Facts> {
        let field = |name| field(info, name);
        let version = field("redis_version");
        let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let version_parts = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if version_parts < (6, 2) {
            return Err(self.label.too_old(server, version));
        }
        if field("role") == "slave" && matches!(self.source, Source::Sentinels(_)) {
            let what =
                format!("`{server}` is the primary by the sentinels' word and a replica by its own; waiting");
            return Err(self.label.unavailable(what));
        }
        if field("role") == "slave" {
            let primary = format!("{}:{}", field("master_host"), field("master_port"));
            // One that was a primary when we first met it may be one again soon.
            if epoch > 1 {
                let what = format!("`{server}` has become a replica of `{primary}`; try again");
                return Err(self.label.unavailable(what));
            }
            return Err(self.label.unfit(format!(
                "`{server}` is a replica of `{primary}`; connect to the primary, or to the sentinels with \
                 `redis+sentinel://`"
            )));
        }
        if field("loading") == "1" {
            let what = format!("`{server}` is loading its data; try again");
            return Err(self.label.unavailable(what));
        }
        let policy = field("maxmemory_policy");
        let evicts = field("maxmemory") != "0" && !policy.is_empty() && policy != "noeviction";
        if evicts && !self.eviction_allowed {
            return Err(self.label.unfit(format!(
                "`{server}` throws keys away when its memory is full (maxmemory-policy {policy}), locks among them; set it \
                 to `noeviction`, use another server, or accept it with `?eviction=allow`"
            )));
        }
        Ok(Facts {
            version: version_parts,
            run_id: field("run_id").into(),
            remembers: field("aof_enabled") == "1",
            evicts,
        })
    }
}
