//! The URLs of engines that have servers.
//!
//! ```text
//! SCHEME://USER:PASSWORD@HOST:PORT,HOST:PORT/PATH/PATH?NAME=VALUE&NAME
//! ```
//!
//! An engine describes its URLs with a [`Syntax`], reads one with [`Url::read`], and gives the
//! driver the parts: no URL is put together again. Users, passwords, path segments and values of
//! options are percent-decoded here, once. Options are read in a loop, whose last arm refuses:
//!
//! ```text
//! for option in url.options()? {
//!     match (option.name, option.value.as_str()) {
//!         ("table", table) => place.table = table.to_owned(),
//!         ("lock_timeout", _) => place.limit = option.duration(LIMITS)?,
//!         _ => return Err(option.wrong()),
//!     }
//! }
//! ```
//!
//! Every error shows no more of the URL than [`super::shown`] allows.

use std::fmt;
use std::net::Ipv6Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use self::secrets::{PASSWORD_HINT, Parts};
pub(crate) use self::secrets::{Secret, without_secret};
use super::shown::is_host;
use crate::duration;
use crate::error::{Error, Result};
use crate::nearest::nearest;

mod secrets;

/// What the URLs of an engine look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Syntax {
    /// The engine's label.
    pub(crate) engine: &'static str,
    /// A URL that is right, with words in capitals.
    pub(crate) example: &'static str,
    /// The port of a host that is named without one.
    pub(crate) port: u16,
    pub(crate) login: LoginPlace,
    /// The options, as they are shown to users: `prefix=TEXT`, `raw`.
    pub(crate) options: &'static [&'static str],
}

/// Where user and password are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginPlace {
    /// Before the first host, for all of them.
    First,
    /// Before any host, for that one. That of the first host is also for all that have none.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "some engines have one login"))]
    Each,
    /// In the options: there are no hosts, and the path is that of a unix socket.
    Options,
}

/// Who logs in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
}

/// A host of a URL. As text it is `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// A name or an address; an IPv6 address without brackets.
    pub(crate) name: String,
    pub(crate) port: u16,
    /// Its own, where hosts can have one: see [`Url::login_of`].
    login: Option<Login>,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { name, port, .. } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

/// A URL that was read. As text it is what may be shown of it.
pub(crate) struct Url<'a> {
    syntax: &'a Syntax,
    parts: Parts<'a>,
    /// For all hosts that have none of their own.
    pub(crate) login: Login,
    /// There may be none: the engine says whether it needs one.
    pub(crate) hosts: Vec<Host>,
    /// The path, cut at each `/`; empty if there is none.
    pub(crate) path: Vec<String>,
}

impl fmt::Display for Url<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.fmt(f)
    }
}

impl<'a> Url<'a> {
    /// Reads a URL. Options are only cut off; see [`Url::options`].
    pub(crate) fn read(text: &'a str, syntax: &'a Syntax) -> Result<Url<'a>> {
        let parts = Parts::cut(text);
        let mut url = Url { syntax, parts, login: Login::default(), hosts: Vec::new(), path: Vec::new() };
        if !url.is_socket() && parts.has_late_login() {
            return Err(Error::invalid(format!(
                "the URL has a `@` after its hosts; {PASSWORD_HINT}, and `@` in an option `%40`, too"
            )));
        }
        if parts.path.contains('#') {
            return Err(url.wrong("there is a `#` in it, which is written `%23`"));
        }
        if !parts.slashes && !parts.authority.is_empty() {
            return Err(url.wrong("`//` is missing after the scheme"));
        }
        if url.is_socket() && !parts.authority.is_empty() {
            return Err(url.wrong("a socket has a path, and no host"));
        }
        let path = parts.path.trim_matches('/');
        for segment in path.split('/').filter(|_| !path.is_empty()) {
            url.path.push(url.decode("path", segment)?);
        }
        url.read_hosts()?;
        Ok(url)
    }

    fn read_hosts(&mut self) -> Result<()> {
        let authority = self.parts.authority;
        let (shared, hosts) = match self.syntax.login {
            // A `,` that was not encoded belongs to the password.
            LoginPlace::First => split_login(authority),
            LoginPlace::Each | LoginPlace::Options => (None, authority),
        };
        if let Some(shared) = shared {
            self.login = self.read_login(shared)?;
        }
        for host in hosts.split(',').filter(|host| !host.is_empty()) {
            let (login, host) = match self.syntax.login {
                LoginPlace::Each => split_login(host),
                LoginPlace::First | LoginPlace::Options => (None, host),
            };
            let login = login.map(|login| self.read_login(login)).transpose()?;
            if let (true, Some(login)) = (self.hosts.is_empty(), &login) {
                self.login = login.clone();
            }
            let (name, port) = self.read_host(host)?;
            self.hosts.push(Host { name, port: port.unwrap_or(self.syntax.port), login });
        }
        Ok(())
    }

    /// Who logs in at a host.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "some engines have one login"))]
    pub(crate) fn login_of<'h>(&'h self, host: &'h Host) -> &'h Login {
        host.login.as_ref().unwrap_or(&self.login)
    }

    fn read_host(&self, text: &str) -> Result<(String, Option<u16>)> {
        let wrong = || self.wrong("a host is needed, with a port that is a number if it has one");
        if !is_host(text) {
            return Err(wrong());
        }
        let (name, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
            Some((address, port)) => {
                let address: Ipv6Addr = address.parse().map_err(|_| wrong())?;
                (address.to_string(), port)
            }
            None => {
                let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                (name.to_owned(), port)
            }
        };
        if name.is_empty() {
            return Err(wrong());
        }
        if matches!(name.as_str(), "0.0.0.0" | "::") {
            return Err(self.wrong("a server listens there, but nobody can connect to all addresses"));
        }
        let port = port.strip_prefix(':').filter(|port| !port.is_empty());
        Ok((name, port.map(|port| port.parse().map_err(|_| wrong())).transpose()?))
    }

    fn read_login(&self, login: &str) -> Result<Login> {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let decode = |what, text| match self.decode(what, text) {
            Ok(text) => Ok((!text.is_empty()).then_some(text)),
            Err(error) => Err(error),
        };
        Ok(Login { user: decode("user", user)?, password: decode("password", password)?.map(Secret::new) })
    }

    fn decode(&self, what: &str, text: &str) -> Result<String> {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(Into::into).map_err(|_| self.wrong(&format!("the {what} is not UTF-8")))
    }

    /// True if the URL is that of a unix socket.
    pub(crate) fn is_socket(&self) -> bool {
        self.syntax.login == LoginPlace::Options
    }

    /// The error for a URL that is wrong.
    pub(crate) fn wrong(&self, why: &str) -> Error {
        let example = self.syntax.example;
        Error::invalid(format!(
            "`{self}` is not the URL of a server: {why}. It looks like `{example}` ({PASSWORD_HINT})"
        ))
    }

    /// The options in their order, decoded. Their names are not checked: the reader refuses what it
    /// does not know with [`UrlOption::wrong`].
    pub(crate) fn options(&self) -> Result<Vec<UrlOption<'_>>> {
        let options = self.parts.query.split('&').filter(|option| !option.is_empty());
        let read = |option: &'a str| {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = self.decode("value of an option", value)?;
            Ok(UrlOption { url: self, name, value, has_value: option.contains('=') })
        };
        options.map(read).collect()
    }

    /// The options, for an error.
    fn known_options(&self) -> String {
        let known: Vec<String> = self.syntax.options.iter().map(|option| format!("`{option}`")).collect();
        known.join(", ")
    }
}

/// What is before the last `@`, and what is after it.
fn split_login(text: &str) -> (Option<&str>, &str) {
    text.rsplit_once('@').map_or((None, text), |(login, rest)| (Some(login), rest))
}

/// An option of a URL. Without a `=` its value is empty.
pub(crate) struct UrlOption<'a> {
    url: &'a Url<'a>,
    pub(crate) name: &'a str,
    pub(crate) value: String,
    has_value: bool,
}

impl UrlOption<'_> {
    /// The error for an option that is not known, or has a value that can not be understood.
    pub(crate) fn wrong(&self) -> Error {
        let Url { syntax, parts, .. } = self.url;
        let engine = syntax.engine;
        let names = || syntax.options.iter().filter_map(|option| option.split('=').next());
        let known = names().find(|name| *name == self.name);
        // What looks like an option may be the rest of a password with a `?` or an `&` in it. A
        // word without a value looks like anything.
        let shown = parts.has_no_secret();
        let mut what = match known {
            Some(name) if shown => format!("`{engine}:` does not understand `{name}={}`", self.value),
            Some(name) => format!("`{engine}:` does not understand the value of `{name}`"),
            None if shown && self.has_value && is_name(self.name) => {
                format!("`{engine}:` has no option `{}`", self.name)
            }
            None => format!("`{engine}:` does not know an option of the URL"),
        };
        if known.is_none()
            && let Some(name) = nearest(self.name, names())
        {
            what.push_str(&format!("; did you mean `{name}`?"));
        }
        what.push_str(&format!("; there are {}", self.url.known_options()));
        if !shown {
            what.push_str(&format!(" (`&`, too, is written `%26` in a password, and {PASSWORD_HINT})"));
        }
        Error::invalid(what)
    }

    /// The value as a duration.
    #[cfg_attr(
        not(any(feature = "_sql", feature = "redis")),
        allow(dead_code, reason = "not every engine has an option that is one")
    )]
    pub(crate) fn duration(&self, range: RangeInclusive<Duration>) -> Result<Duration> {
        let why = match duration::parse(&self.value) {
            Ok(duration) if range.contains(&duration) => return Ok(duration),
            Ok(_) => format!("it must be from {:?} to {:?}", range.start(), range.end()),
            Err(why) => why,
        };
        if self.url.parts.has_no_secret() {
            return Err(Error::invalid(format!("`{}={}`: {why}", self.name, self.value)));
        }
        // Why may repeat a part of the value.
        Err(Error::invalid(format!(
            "the option `{}` needs a duration from {:?} to {:?}, like `500ms`, `30s` or `5m`",
            self.name,
            range.start(),
            range.end()
        )))
    }
}

/// True if this looks like the name of an option.
fn is_name(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
}

#[cfg(test)]
mod tests;
