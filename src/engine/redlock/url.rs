//! What a URL says: which servers, and how they are used.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::errors::{ENGINE, REDLOCK};
use crate::engine::url::{LoginPlace, Syntax, Url};
use crate::error::{Error, Result};
use crate::redis::keys::Keys;
use crate::redis::requirements::Target;
use crate::redis::source::Source;
use crate::redis::url::{ServerOptions, database};

/// The longest lease that anybody may take, unless the URL says.
pub(super) const MAX_LEASE: Duration = Duration::from_secs(60);

/// What `max_lease` may be.
const MAX_LEASES: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);

const SYNTAX: Syntax = Syntax {
    engine: ENGINE,
    example: "redlock://USER:PASSWORD@HOST:PORT,HOST:PORT,HOST:PORT/DB",
    port: 6379,
    login: LoginPlace::Each,
    options: &["max_lease=60s", "prefix=TEXT", "raw", "eviction=allow", "ca=FILE", "cert=FILE", "key=FILE"],
};

/// The servers and how they are used.
pub(super) struct Place {
    pub(super) targets: Vec<Target>,
    pub(super) keys: Keys,
    pub(super) max_lease: Duration,
}

impl Place {
    /// Reads `redlock://USER:PASSWORD@HOST:PORT,HOST:PORT,…/DB?OPTIONS`. A user and password that
    /// stand before the first host are for all that have none of their own.
    pub(super) fn parse(text: &str) -> Result<Place> {
        let url = Url::read(text, &SYNTAX)?;
        let mut max_lease = MAX_LEASE;
        let mut options = ServerOptions::new(text.starts_with("redlocks:"));
        for option in url.options()? {
            match option.name {
                "max_lease" => max_lease = option.duration(MAX_LEASES)?,
                _ => options.read(option)?,
            }
        }
        let db = database(&url, &url.path)?;
        let mut targets = Vec::new();
        for host in &url.hosts {
            targets.push(Target {
                label: REDLOCK,
                source: Source::Fixed(options.server(host, url.login_of(host), db)?),
                server: host.to_string(),
                eviction_allowed: options.eviction_allowed,
                counts_replicas: false,
            });
        }
        let different: BTreeSet<&str> = targets.iter().map(|target| target.server.as_str()).collect();
        if different.len() < targets.len() {
            return Err(Error::invalid(
                "the URL names a server twice; its vote would count twice. Every server of `redlock:` must be another one",
            ));
        }
        if targets.len() < 3 {
            return Err(Error::invalid(format!(
                "`redlock:` needs three servers or more, of which a majority decides; the URL names {}. It looks like \
                 `redlock://HOST:PORT,HOST:PORT,HOST:PORT`; for one server there is `redis:`",
                targets.len()
            )));
        }
        if targets.len() > usize::try_from(u32::BITS).unwrap_or(32) {
            return Err(Error::Unsupported {
                engine: ENGINE,
                what: "takes at most 32 servers; five are plenty".into(),
            });
        }
        if targets.len() % 2 == 0 {
            let servers = targets.len();
            tracing::warn!(
                target: "leasehold",
                servers,
                "an even number of servers survives the loss of no more of them than one less would"
            );
        }
        Ok(Place { targets, keys: options.keys()?, max_lease })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(url: &str) -> Vec<String> {
        Place::parse(url).expect("a place").targets.into_iter().map(|target| target.server).collect()
    }

    #[test]
    fn hosts_and_options_are_read() {
        assert_eq!(servers("redlock://a:1,b,c:3/2?max_lease=2s"), ["a:1", "b:6379", "c:3"]);
        let place = Place::parse("redlock://u:p@a,v:q@b,c/2?prefix=app:&max_lease=1500ms").expect("a place");
        assert_eq!(place.max_lease, Duration::from_millis(1500));
        assert_eq!(place.keys.prefix, "app:");
        let passwords: Vec<_> = place.targets.iter().map(|target| target.source.password()).collect();
        assert_eq!(passwords, [Some("p"), Some("q"), Some("p")]);
        assert_eq!(Place::parse("redlock://a,b,c,d").expect("even works").max_lease, MAX_LEASE);
    }

    #[test]
    fn what_can_not_be_a_quorum_is_refused() {
        for (url, words) in [
            ("redlock://a", "three servers"),
            ("redlock://a,b", "three servers"),
            ("redlock:", "three servers"),
            ("redlock://a,b,a", "twice"),
            ("redlock://a,b,a:6379", "twice"),
            ("redlock://a,b,c?wait=2", "no option `wait`"),
            ("redlock://a,b,c?max_lease=soon", "max_lease=soon"),
            ("redlock://a,b,c?max_lease=0", "max_lease=0"),
            ("redlock://a,b,c?max_leese=2s", "did you mean `max_lease`?"),
            // Under its own scheme.
            ("redlock://a,b:2,c/x", "`redlock://a,b:2,c` is not the URL of a server"),
            ("redlocks://u:secret@a,b,c/x", "`redlocks://…@a,b,c` is not the URL of a server"),
            ("redlock://a,b,c/x", "looks like `redlock://USER:PASSWORD@HOST:PORT,"),
        ] {
            let error = Place::parse(url).err().expect("refused").to_string();
            assert!(error.contains(words), "{error}");
        }
        for url in [
            "redlock://u:secret@a,b?c=1,d",
            "redlock://u:secret@a:x,b,c",
            "redlock://u:half?secret@a,b,c",
            "redlock://u:half/secret@a,b,c",
            "redlock://u:half#secret@a,b,c",
            "redlock://u:half,secret@a,b",
            "redlock://u:secret,b,c",
            "redlock://u:secret,b,c/1",
            "redlock://:secret,b,c",
            "redlock://a,u:secret,c",
            "redlock://a,b,u:secret",
            "redlock:u:secret,b,c",
            "redlock:///u:secret@a,b,c",
            "redlock://u:secret",
            "redlock://u:secret/1",
            "redlock://u:secret/half@a,b,c",
            "redlock://u:12/secret@a,b,c",
            "redlock://u:secret?half@a,b,c",
            "redlock://u:12?max_lease=secret@a,b,c",
            "redlock://u:12?secret",
            "redlock://u:secret@a,b,c?max_lease=secret",
            "redlock://u:secret@a,b,c?secret",
            "redlock://u:secret#half@a,b,c",
            "redlock://u:%secret,b,c",
            "redlock://u:secret@a,a,c",
        ] {
            let error = Place::parse(url).err().unwrap_or_else(|| panic!("{url} is not refused"));
            for said in [error.to_string(), format!("{error:?}")] {
                assert!(!said.contains("secret") && !said.contains("half"), "{url}: {said}");
            }
        }
    }
}
