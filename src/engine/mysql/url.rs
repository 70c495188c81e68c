//! What a URL says: where the database is, and how it is used.

use std::ops::RangeInclusive;
use std::time::Duration;

use mysql_async::{Opts, OptsBuilder};

use super::certificates::Certificates;
use super::errors::Blame;
use super::promises::ENGINE;
use super::statement::{PREFIX, Tables, is_prefix};
use crate::engine::url::{LoginPlace, Secret, Syntax, Url};
use crate::error::{Error, Result};

const SYNTAX: Syntax = Syntax {
    engine: ENGINE,
    example: "mysql://USER:PASSWORD@HOST:PORT/DATABASE",
    port: 3306,
    login: LoginPlace::First,
    options: &[
        "table=PREFIX",
        "shedlock=TABLE",
        "at_least=DURATION",
        "connections=N",
        "socket=/PATH",
        "sslmode=require",
        "sslrootcert=FILE",
        "sslcert=FILE",
        "sslkey=FILE",
    ],
};

/// The same where sessions hold the locks: there are no tables.
const ADVISORY_SYNTAX: Syntax = Syntax {
    example: "mysql+advisory://USER:PASSWORD@HOST:PORT/DATABASE",
    options: &[
        "connections=N",
        "socket=/PATH",
        "sslmode=require",
        "sslrootcert=FILE",
        "sslcert=FILE",
        "sslkey=FILE",
    ],
    ..SYNTAX
};

/// How many sessions a client may have where each holds one lock or waits for it.
const SESSIONS: usize = 32;

/// How many connections a client has for its requests, unless its URL says otherwise. The server
/// works on one request of a connection at a time.
const CONNECTIONS: usize = 8;
const MOST_CONNECTIONS: usize = 128;

/// What `at_least` may be.
const AT_LEAST: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(7 * 24 * 60 * 60);

/// What is larger is not sent. A server that allows less refuses it.
const LARGEST_PACKET: usize = 16 << 20;
/// How long a server keeps a connection over which nothing comes: the client died.
pub(super) const IDLE_SECONDS: usize = 600;

/// A database and how it is used.
pub(super) struct Place {
    pub(super) options: Opts,
    pub(super) password: Option<Secret>,
    pub(super) connections: usize,
    /// Sessions hold the locks.
    pub(super) advisory: bool,
    /// How long a name stays closed at least in a table of ShedLock.
    pub(super) at_least: Duration,
    pub(super) blame: Blame,
}

#[derive(Default)]
struct Options {
    table: Option<String>,
    shedlock: Option<String>,
    at_least: Option<Duration>,
    connections: Option<usize>,
    socket: Option<String>,
    encrypted: bool,
    root: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

impl Place {
    pub(super) fn parse(text: &str) -> Result<Place> {
        let advisory = text.split_once(':').is_some_and(|(scheme, _)| scheme.ends_with("+advisory"));
        let url = Url::read(text, if advisory { &ADVISORY_SYNTAX } else { &SYNTAX })?;
        let options = Options::read(&url, advisory)?;
        let [host] = url.hosts.as_slice() else {
            return Err(url.wrong("one host is needed"));
        };
        let [database] = url.path.as_slice() else {
            return Err(url.wrong("the name of a database is needed after the host"));
        };
        let user = url.login.user.as_deref().ok_or_else(|| url.wrong("a user is needed"))?;
        let password = url.login.password.clone();
        let mut driver = OptsBuilder::default()
            .ip_or_hostname(&host.name)
            .tcp_port(host.port)
            .user(Some(user))
            .pass(password.as_ref().map(Secret::reveal))
            .db_name(Some(database))
            // Not what the server says about a socket, which may be on another machine.
            .prefer_socket(false)
            .socket(options.socket.as_deref())
            .tcp_keepalive(Some(Duration::from_secs(30)))
            .stmt_cache_size(0)
            // Given here, they are not asked for: a round trip less.
            .max_allowed_packet(Some(LARGEST_PACKET))
            .wait_timeout(Some(IDLE_SECONDS));
        if let Some(certificates) = options.certificates()? {
            driver = with_tls(driver, &certificates)?;
        }
        let server = options.socket.clone().unwrap_or_else(|| host.to_string());
        let tables = Tables::new(options.table.as_deref().unwrap_or(PREFIX));
        Ok(Place {
            options: driver.into(),
            password,
            connections: options.connections.unwrap_or(if advisory { SESSIONS } else { CONNECTIONS }),
            advisory,
            at_least: options.at_least.unwrap_or_default(),
            blame: Blame { server, database: database.clone(), tables, shedlock: options.shedlock },
        })
    }
}

#[cfg(feature = "mysql-tls")]
fn with_tls(driver: OptsBuilder, certificates: &Certificates) -> Result<OptsBuilder> {
    Ok(driver.ssl_opts(super::tls::options(certificates)?))
}

#[cfg(not(feature = "mysql-tls"))]
fn with_tls(_: OptsBuilder, _: &Certificates) -> Result<OptsBuilder> {
    Err(Error::Unsupported {
        engine: ENGINE,
        what: "`sslmode=require` is not in this build; enable the cargo feature `mysql-tls` of the crate \
               `leasehold`"
            .into(),
    })
}

impl Options {
    fn read(url: &Url<'_>, advisory: bool) -> Result<Options> {
        let mut options = Options::default();
        for option in url.options()? {
            let value = option.value.as_str();
            match option.name {
                "table" | "shedlock" | "at_least" if advisory => return Err(option.wrong()),
                "table" if is_prefix(value) => options.table = Some(value.to_owned()),
                "shedlock" if is_prefix(value) => options.shedlock = Some(value.to_owned()),
                "at_least" => options.at_least = Some(option.duration(AT_LEAST)?),
                "connections" => {
                    let count = value.parse().ok().filter(|count| (1..=MOST_CONNECTIONS).contains(count));
                    options.connections = Some(count.ok_or_else(|| option.wrong())?);
                }
                "socket" if value.starts_with('/') => options.socket = Some(value.to_owned()),
                "sslmode" => match value {
                    "disable" => options.encrypted = false,
                    "require" | "verify-ca" | "verify-full" => options.encrypted = true,
                    _ => return Err(option.wrong()),
                },
                "sslrootcert" if !value.is_empty() => options.root = Some(value.to_owned()),
                "sslcert" if !value.is_empty() => options.cert = Some(value.to_owned()),
                "sslkey" if !value.is_empty() => options.key = Some(value.to_owned()),
                _ => return Err(option.wrong()),
            }
        }
        if options.encrypted && options.socket.is_some() {
            return Err(Error::invalid("a unix socket is not encrypted; leave out `sslmode` or `socket`"));
        }
        if options.at_least.is_some() && options.shedlock.is_none() {
            return Err(Error::invalid("`at_least` is of use with `shedlock=TABLE` only"));
        }
        if options.table.is_some() && options.shedlock.is_some() {
            return Err(Error::invalid("`table` does not go with `shedlock`; leave it out"));
        }
        Ok(options)
    }

    fn certificates(&self) -> Result<Option<Certificates>> {
        let named = self.root.is_some() || self.cert.is_some() || self.key.is_some();
        if !self.encrypted {
            return match named {
                true => Err(Error::invalid("certificates are of use with `sslmode=require` only")),
                false => Ok(None),
            };
        }
        let own = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            (None, None) => None,
            _ => return Err(Error::invalid("`sslcert` and `sslkey` are given together")),
        };
        Ok(Some(Certificates { root: self.root.clone(), own }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read() {
        let place =
            Place::parse("mysql://ann:se%40cret@db.example/app?table=jobs&connections=3").expect("a URL");
        assert_eq!((place.options.ip_or_hostname(), place.options.tcp_port()), ("db.example", 3306));
        assert_eq!((place.options.user(), place.options.pass()), (Some("ann"), Some("se@cret")));
        assert_eq!((place.options.db_name(), place.connections), (Some("app"), 3));
        assert_eq!(
            (place.blame.server.as_str(), place.blame.tables.all()[0]),
            ("db.example:3306", "`jobs_names`")
        );
        assert!(!place.options.prefer_socket() && place.options.ssl_opts().is_none());
        let place = Place::parse("mysql://ann@h/app?shedlock=locks&at_least=5m").expect("a URL");
        assert_eq!((place.blame.shedlock.as_deref(), place.at_least.as_secs()), (Some("locks"), 300));
        let place = Place::parse("mariadb://ann@localhost/app?socket=/run/s").expect("a URL");
        assert_eq!((place.options.socket(), place.blame.server.as_str()), (Some("/run/s"), "/run/s"));
    }

    #[test]
    fn a_url_that_is_wrong_is_refused_and_its_password_not_shown() {
        for (url, words) in [
            ("mysql://ann:secret@h", "the name of a database is needed"),
            ("mysql://ann:secret@a,b/app", "one host is needed"),
            ("mysql://h/app", "a user is needed"),
            ("mysql://ann:secret@h/app?table=a`b", "value of `table`"),
            ("mysql://ann:secret@h/app?connections=0", "value of `connections`"),
            ("mysql://ann:secret@h/app?at_least=30s", "`shedlock=TABLE` only"),
            ("mysql://ann:secret@h/app?shedlock=a&table=b", "does not go with"),
            ("mysql://ann:secret@h/app?shedlock=a.b", "value of `shedlock`"),
            ("mysql://ann:secret@h/app?sslmode=maybe", "value of `sslmode`"),
            ("mysql://ann:secret@h/app?sslrootcert=x", "`sslmode=require` only"),
            ("mysql://ann:secret@h/app?sslmode=require&sslcert=x", "together"),
            ("mysql://ann:secret@h/app?sslmode=require&socket=/x", "not encrypted"),
        ] {
            let error = Place::parse(url).err().expect(url).to_string();
            assert!(error.contains(words) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
