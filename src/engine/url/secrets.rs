//! The secrets in a URL, and the parts that may be shown: see [`crate::engine::shown`].

use std::fmt;

use crate::engine::shown::{is_host, is_scheme};
use crate::error::Error;

/// How a password is written that has letters which mean something in a URL.
pub(crate) const PASSWORD_HINT: &str =
    "`/`, `?`, `#`, `,` and `@` in a password are written `%2F`, `%3F`, `%23`, `%2C` and `%40`";

/// A URL, cut at its separators. Nothing is decoded, and the URL need not be a good one.
///
/// As text it is what may be shown: `redis://…@10.0.0.7:6379`.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) scheme: &'a str,
    /// `//` follows the scheme.
    pub(crate) slashes: bool,
    /// Users, passwords, hosts and ports.
    pub(crate) authority: &'a str,
    /// What follows, with the `/` or `#` that it starts with.
    pub(crate) path: &'a str,
    /// What follows the first `?`.
    pub(crate) query: &'a str,
}

impl<'a> Parts<'a> {
    /// Cuts a URL. Without a `:`, all of it is the scheme.
    pub(crate) fn cut(url: &'a str) -> Parts<'a> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let (scheme, rest) = address.split_once(':').unwrap_or((address, ""));
        let slashes = rest.starts_with("//");
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (authority, path) = rest.split_at(rest.find(['/', '#']).unwrap_or(rest.len()));
        Parts { scheme, slashes, authority, path, query }
    }

    /// True if a password may have ended the authority too early: a `@` follows, where the hosts
    /// would have to be.
    pub(crate) fn has_late_login(&self) -> bool {
        self.path.contains('@') || (!self.authority.contains('@') && self.query.contains('@'))
    }

    /// True if no part of the URL can be a part of a password: there is no login, and no place
    /// where one could begin.
    pub(crate) fn has_no_secret(&self) -> bool {
        let path = self.path.strip_prefix('/').unwrap_or(self.path);
        let hosts = self.authority.split(',').all(is_host);
        hosts && is_host(path) && !self.query.contains('@') && !self.query.contains("pass")
    }
}

impl fmt::Display for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if is_scheme(self.scheme) { self.scheme } else { "…" };
        let (login, hosts) = match self.authority.rsplit_once('@') {
            Some((_, hosts)) => ("…@", hosts),
            None => ("", self.authority),
        };
        if hosts.split(',').all(is_host) {
            write!(f, "{scheme}://{login}{hosts}")
        } else {
            write!(f, "{scheme}://…")
        }
    }
}

/// A text that must not be shown: a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text, for the driver and nobody else.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// An error without a secret in it.
///
/// Some servers, and some proxies before servers, repeat what they do not understand, and that can
/// be the login.
pub(crate) fn without_secret(secret: &str, error: Error) -> Error {
    let source = match &error {
        Error::Engine { source, .. } | Error::Unavailable { source, .. } => source.as_ref(),
        _ => None,
    };
    let source = source.map(ToString::to_string).unwrap_or_default();
    let texts = [error.to_string(), format!("{error:?}"), source];
    if secret.is_empty() || !texts.iter().any(|text| text.contains(secret)) {
        return error;
    }
    let hide = |what: String| what.replace(secret, "…");
    // The source repeats it too, so it is dropped.
    match error {
        Error::Engine { engine, what, .. } => Error::Engine { engine, what: hide(what), source: None },
        Error::Unavailable { engine, what, .. } => {
            Error::Unavailable { engine, what: hide(what), source: None }
        }
        Error::Unsupported { engine, what } => Error::Unsupported { engine, what: hide(what) },
        Error::Invalid { what } => Error::Invalid { what: hide(what) },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_shown_and_logins_are_not() {
        for (url, shown) in [
            ("redis://h:1/x", "redis://h:1"),
            ("redlock://a:1,b/0?raw", "redlock://a:1,b"),
            ("postgres://u:secret@h/db", "postgres://…@h"),
            ("redis://[::1]:7/x", "redis://[::1]:7"),
            // It may be a password.
            ("redis://u:secret", "redis://…"),
            ("redis://u:secret,b:1", "redis://…"),
            ("redis://:secret", "redis://…"),
            ("redis://h h", "redis://…"),
            ("a@b://h", "…://h"),
            ("redis:u:secret@h", "redis://…@h"),
        ] {
            assert_eq!(Parts::cut(url).to_string(), shown, "{url}");
        }
    }

    #[test]
    fn a_secret_is_taken_out_of_every_part_of_an_error() {
        let source = std::io::Error::other("unknown command `AUTH secret`");
        let error = Error::Unavailable {
            engine: "redis",
            what: "`h` answered: `AUTH secret`".into(),
            source: Some(source.into()),
        };
        let error = without_secret("secret", error);
        assert_eq!(error.to_string(), "redis: `h` answered: `AUTH …`");
        assert!(!format!("{error:?}").contains("secret"));
        assert_eq!(format!("{:?}", Secret::new("secret")), "…");
        // Nothing to hide leaves the error and its source alone.
        let error = Error::Unavailable {
            engine: "redis",
            what: "refused".into(),
            source: Some(std::io::Error::other("refused").into()),
        };
        let error = without_secret("", error);
        assert!(matches!(error, Error::Unavailable { source: Some(_), .. }));
    }
}
