//! What a URL says: which servers, and how they are used.

use std::collections::BTreeSet;
use std::time::Duration;

use super::ENGINE;
use crate::error::{Error, Result};
use crate::redis::keys::Keys;
use crate::redis::requirements::Target;
use crate::redis::url::{Place as Single, Servers, check_password, is_option, may_be_shown};

/// The longest lease that anybody may take, unless the URL says.
pub(super) const MAX_LEASE: Duration = Duration::from_secs(60);

/// The servers and how they are used.
pub(super) struct Place {
    pub(super) targets: Vec<Target>,
    pub(super) keys: Keys,
    pub(super) max_lease: Duration,
}

impl Place {
    /// Reads `redlock://USER:PASSWORD@HOST:PORT,HOST:PORT,…/DB?OPTIONS`. A user and password that stand before the first host are for
    /// all that have none of their own.
    pub(super) fn parse(url: &str) -> Result<Place> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let (scheme, rest) = address.split_once(':').unwrap_or((address, ""));
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (authority, db) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = if scheme == "redlocks" { "rediss" } else { "redis" };
        check_password(address, query)?;
        // What looks like an option may be the rest of a password.
        let shown = may_be_shown(address, query);
        let mut max_lease = MAX_LEASE;
        let mut options = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("max_lease", value) => max_lease = duration(value, shown)?,
                ("prefix" | "raw" | "eviction" | "ca" | "cert" | "key", _) => options.push(option),
                (name, _) => {
                    let name = if shown && is_option(option) { name } else { "…" };
                    return Err(Error::invalid(format!(
                        "`redlock:` has no option `{name}`; there are `max_lease=60s`, `prefix=TEXT`, `raw`, `eviction=allow`, \
                         `ca=FILE`, and `cert=FILE` with `key=FILE`"
                    )));
                }
            }
        }
        let hosts: Vec<&str> = authority.split(',').filter(|host| !host.is_empty()).collect();
        let shared_user = hosts.first().and_then(|host| host.rsplit_once('@')).map(|(user, _)| user);
        let mut targets = Vec::new();
        let mut keys = None;
        for host in &hosts {
            let (user, host) =
                host.rsplit_once('@').map_or((shared_user, *host), |(user, host)| (Some(user), host));
            let user = user.map(|user| format!("{user}@")).unwrap_or_default();
            let single = Single::parse(&format!("{plain}://{user}{host}/{db}?{}", options.join("&")))?;
            let Servers::One(source) = single.servers else {
                return Err(Error::invalid("`redlock:` takes independent servers"));
            };
            keys = Some(single.keys);
            let server = source.to_string();
            let eviction_allowed = single.eviction_allowed;
            targets.push(Target { source, server, eviction_allowed, counts_replicas: false });
        }
        let different: BTreeSet<&str> = targets.iter().map(|target| target.server.as_str()).collect();
        if different.len() < targets.len() {
            return Err(Error::invalid(
                "the URL names a server twice; its vote would count twice. Every server of `redlock:` must be another one",
            ));
        }
        let (Some(keys), 3..) = (keys, targets.len()) else {
            return Err(Error::invalid(format!(
                "`redlock:` needs three servers or more, of which a majority decides; the URL names {}. It looks like \
                 `redlock://HOST:PORT,HOST:PORT,HOST:PORT`; for one server there is `redis:`",
                targets.len()
            )));
        };
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
        Ok(Place { targets, keys, max_lease })
    }
}

/// Reads `60s`, `500ms` or `60`; `shown` if the text may be.
fn duration(text: &str, shown: bool) -> Result<Duration> {
    let (number, unit) =
        text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let wrong = || {
        let text = if shown { text } else { "…" };
        Error::invalid(format!(
            "`max_lease={text}` is not a time between 100ms and a day; it looks like `60s`, `500ms` or `5m`"
        ))
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let millis = match unit {
        "ms" => number,
        "" | "s" => number.saturating_mul(1000),
        "m" => number.saturating_mul(60_000),
        _ => return Err(wrong()),
    };
    if (100..=86_400_000).contains(&millis) { Ok(Duration::from_millis(millis)) } else { Err(wrong()) }
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
