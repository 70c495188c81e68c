//! What a URL says: where the ensemble is, and how it is used.

use std::time::Duration;

use super::promises::ENGINE;
use crate::engine::url::{Host, Login, LoginPlace, Syntax, Url};
use crate::error::{Error, Result};

const SYNTAX: Syntax = Syntax {
    engine: ENGINE,
    example: "zookeeper://USER:PASSWORD@HOST:PORT,HOST:PORT/PATH",
    port: 2181,
    login: LoginPlace::First,
    options: &[
        "raw",
        "raw=rwlock",
        "raw=semaphore",
        "raw=latch",
        "raw=kazoo",
        "session_timeout=TIME",
        "ca=FILE",
        "cert=FILE",
        "key=FILE",
    ],
};

/// Where the nodes are, unless the URL says otherwise.
const PREFIX: &str = "/leasehold";
/// How long a session may be silent, unless the URL says otherwise. The servers have the last word.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no SASL.
pub(super) const NO_SASL: &str = "has no SASL: its mechanisms here, GSSAPI and DIGEST-MD5, need libraries that are not carried. \
     `USER:PASSWORD@` logs in by the scheme `digest`, and servers know clients by their certificates, too \
     (`zookeepers://`, `cert=FILE`, `key=FILE`)";

/// An ensemble and how it is used.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) hosts: Vec<Host>,
    pub(super) login: Login,
    /// The path that all nodes are under, without a `/` at its end; empty for the root.
    pub(super) prefix: String,
    pub(super) session_timeout: Duration,
    /// Names are shared with other programs, and used as they are.
    pub(super) raw: Option<RawKind>,
    pub(super) tls: Option<Certificates>,
}

/// Which of the recipes of others raw names are for. They are not to be mixed on one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RawKind {
    /// Curator's `InterProcessMutex`.
    Mutex,
    /// Its `InterProcessReadWriteLock`.
    ReadWrite,
    /// Its `InterProcessSemaphoreV2`.
    Semaphore,
    /// Its `LeaderLatch`.
    Latch,
    /// kazoo's `Lock` and `Election`.
    Kazoo,
}

impl RawKind {
    fn read(value: &str) -> Option<RawKind> {
        Some(match value {
            "" | "true" | "mutex" => RawKind::Mutex,
            "rwlock" => RawKind::ReadWrite,
            "semaphore" => RawKind::Semaphore,
            "latch" => RawKind::Latch,
            "kazoo" => RawKind::Kazoo,
            _ => return None,
        })
    }
}

/// Files for encrypted connections.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "zookeeper-tls"), allow(dead_code, reason = "such a URL is refused"))]
pub(super) struct Certificates {
    /// Who may vouch for the servers; the system's trusted certificates if none is given.
    pub(super) ca: Option<String>,
    pub(super) own: Option<(String, String)>,
}

impl Place {
    pub(super) fn parse(text: &str) -> Result<Place> {
        let url = Url::read(text, &SYNTAX)?;
        let encrypted = text.starts_with("zookeepers:");
        let (mut ca, mut cert, mut key, mut raw) = (None, None, None, None);
        let mut session_timeout = SESSION_TIMEOUT;
        for option in url.options()? {
            let file = (!option.value.is_empty()).then(|| option.value.clone());
            match option.name {
                "raw" => raw = Some(RawKind::read(&option.value).ok_or_else(|| option.wrong())?),
                "session_timeout" => {
                    session_timeout = option.duration(Duration::from_secs(1)..=Duration::from_secs(600))?;
                }
                "ca" if file.is_some() => ca = file,
                "cert" if file.is_some() => cert = file,
                "key" if file.is_some() => key = file,
                // What people call it who look for it.
                "sasl" | "auth" | "mechanism" | "principal" => {
                    return Err(Error::Unsupported { engine: ENGINE, what: NO_SASL.to_owned() });
                }
                _ => return Err(option.wrong()),
            }
        }
        if !encrypted && (ca.is_some() || cert.is_some() || key.is_some()) {
            return Err(Error::invalid("certificates are of use with `zookeepers://` only"));
        }
        let own = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(Error::invalid("`cert` and `key` are given together")),
        };
        if url.hosts.is_empty() {
            return Err(url.wrong("a host is needed"));
        }
        if url.login.user.is_some() != url.login.password.is_some() {
            return Err(url.wrong("a user is given with its password"));
        }
        let is_wrong = |part: &String| part.is_empty() || part == "." || part == ".." || part.contains('\0');
        if url.path.iter().any(is_wrong) {
            return Err(url.wrong("a part of its path can not be the name of a node"));
        }
        let prefix = match (url.path.is_empty(), raw.is_some()) {
            (false, _) => format!("/{}", url.path.join("/")),
            (true, false) => PREFIX.to_owned(),
            (true, true) => String::new(),
        };
        if prefix.starts_with("/zookeeper/") || prefix == "/zookeeper" {
            return Err(url.wrong("`/zookeeper` is where the servers keep their own nodes"));
        }
        Ok(Place {
            hosts: url.hosts.clone(),
            login: url.login.clone(),
            prefix,
            session_timeout,
            raw,
            tls: encrypted.then_some(Certificates { ca, own }),
        })
    }

    /// All hosts, for the driver, errors and logs.
    pub(super) fn server(&self) -> String {
        self.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let place = Place::parse("zookeeper://me:s%40y@a:1,b/team/locks?session_timeout=4s").unwrap();
        assert_eq!((place.server().as_str(), place.prefix.as_str()), ("a:1,b:2181", "/team/locks"));
        assert_eq!(place.login.user.as_deref(), Some("me"));
        assert_eq!(place.session_timeout, Duration::from_secs(4));
        assert!(place.tls.is_none() && place.raw.is_none());
        let place = Place::parse("zookeeper://h?raw").unwrap();
        assert_eq!((place.raw, place.prefix.as_str()), (Some(RawKind::Mutex), ""));
        for (option, kind) in [
            ("raw=rwlock", RawKind::ReadWrite),
            ("raw=semaphore", RawKind::Semaphore),
            ("raw=latch", RawKind::Latch),
            ("raw=kazoo", RawKind::Kazoo),
        ] {
            assert_eq!(Place::parse(&format!("zookeeper://h?{option}")).unwrap().raw, Some(kind));
        }
        let place = Place::parse("zookeepers://h?ca=/x&cert=/c&key=/k").unwrap();
        assert_eq!(place.prefix, "/leasehold");
        assert_eq!(place.tls.unwrap().own, Some(("/c".into(), "/k".into())));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in [
            "zookeeper://me:hunter2@/x",
            "zookeeper://me:hunter2@h?ca=/x",
            "zookeepers://me:hunter2@h?cert=/x",
            "zookeeper://me:hunter2@h?what=1",
            "zookeeper://me:hunter2@h/a/../b",
            "zookeeper://me:hunter2@h/zookeeper/x",
            "zookeeper://me:hunter2@h?session_timeout=1ms",
            "zookeeper://me:hunter2@h?raw=mutexes",
            "zookeeper://me:hunter2@h?sasl",
        ] {
            let error = Place::parse(url).err().unwrap_or_else(|| panic!("{url}")).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(Place::parse("zookeeper://me@h").is_err(), "a user without a password");
        for option in ["sasl", "sasl=GSSAPI", "auth=sasl", "mechanism=DIGEST-MD5", "principal=zookeeper/h"] {
            let error = Place::parse(&format!("zookeeper://h?{option}")).err().unwrap();
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            assert!(
                error.to_string().contains("no SASL") && error.to_string().contains("`digest`"),
                "{error}"
            );
        }
    }
}
