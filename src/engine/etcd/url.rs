//! What a URL says: where the cluster is, and how it is used.

use super::promises::ENGINE;
use crate::engine::url::{Host, Login, LoginPlace, Syntax, Url};
use crate::error::{Error, Result};

const SYNTAX: Syntax = Syntax {
    engine: ENGINE,
    example: "etcd://USER:PASSWORD@HOST:PORT,HOST:PORT/PREFIX",
    port: 2379,
    login: LoginPlace::First,
    options: &["raw", "ca=FILE", "cert=FILE", "key=FILE"],
};

/// Where the keys are, unless the URL says otherwise.
const PREFIX: &str = "leasehold";

/// A cluster and how it is used.
pub(super) struct Place {
    pub(super) hosts: Vec<Host>,
    pub(super) login: Login,
    /// What all keys start with, with a `/` at its end.
    pub(super) prefix: Vec<u8>,
    /// Names are shared with other programs, and used as they are.
    pub(super) raw: bool,
    pub(super) tls: Option<Certificates>,
}

/// Files for encrypted connections.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "etcd-tls"), allow(dead_code, reason = "such a URL is refused"))]
pub(super) struct Certificates {
    /// Who may vouch for the servers; the system's trusted certificates if none is given.
    pub(super) ca: Option<String>,
    pub(super) own: Option<(String, String)>,
}

impl Place {
    pub(super) fn parse(text: &str) -> Result<Place> {
        let url = Url::read(text, &SYNTAX)?;
        let encrypted = text.starts_with("etcds:");
        let (mut ca, mut cert, mut key, mut raw) = (None, None, None, false);
        for option in url.options()? {
            let file = (!option.value.is_empty()).then(|| option.value.clone());
            match option.name {
                "raw" if matches!(option.value.as_str(), "" | "true") => raw = true,
                "ca" if file.is_some() => ca = file,
                "cert" if file.is_some() => cert = file,
                "key" if file.is_some() => key = file,
                _ => return Err(option.wrong()),
            }
        }
        if !encrypted && (ca.is_some() || cert.is_some() || key.is_some()) {
            return Err(Error::invalid("certificates are of use with `etcds://` only"));
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
        if raw && !url.path.is_empty() {
            return Err(url.wrong("raw names have no prefix: leave out what is after the hosts"));
        }
        let mut prefix = if url.path.is_empty() { PREFIX.to_owned() } else { url.path.join("/") };
        prefix.push('/');
        Ok(Place {
            hosts: url.hosts.clone(),
            login: url.login.clone(),
            prefix: prefix.into_bytes(),
            raw,
            tls: encrypted.then_some(Certificates { ca, own }),
        })
    }

    /// All hosts, for errors and logs.
    pub(super) fn server(&self) -> String {
        self.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let place = Place::parse("etcd://me:s%40y@a:1,b/team/locks").unwrap();
        assert_eq!((place.server().as_str(), place.prefix.as_slice()), ("a:1,b:2379", &b"team/locks/"[..]));
        assert_eq!(place.login.user.as_deref(), Some("me"));
        assert!(place.tls.is_none() && !place.raw);
        assert!(Place::parse("etcd://h?raw").unwrap().raw);
        let place = Place::parse("etcds://h?ca=/x&cert=/c&key=/k").unwrap();
        assert_eq!(place.prefix, b"leasehold/");
        assert_eq!(place.tls.unwrap().own, Some(("/c".into(), "/k".into())));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in [
            "etcd://me:hunter2@/x",
            "etcd://me:hunter2@h?ca=/x",
            "etcds://me:hunter2@h?cert=/x",
            "etcd://me:hunter2@h?what=1",
            "etcd://me:hunter2@h/prefix?raw",
        ] {
            let error = Place::parse(url).err().unwrap_or_else(|| panic!("{url}")).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(Place::parse("etcd://me@h").is_err(), "a user without a password");
    }
}
