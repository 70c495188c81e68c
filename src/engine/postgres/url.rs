//! What a URL says: where the database is, and how it is used.

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;

use super::promises::ENGINE;
use super::statements::{Tables, quoted};
use crate::engine::url::Secret;
use crate::engine::url::{LoginPlace, Syntax, Url};
use crate::error::{Error, Result};

const SYNTAX: Syntax = Syntax {
    engine: ENGINE,
    example: "postgres://USER:PASSWORD@HOST:PORT/DATABASE",
    port: 5432,
    login: LoginPlace::First,
    options: &[
        "schema=NAME",
        "table=PREFIX",
        "listen=off",
        "shedlock=TABLE",
        "at_least=DURATION",
        "connections=N",
        "host=/DIRECTORY",
        "port=N",
        "user=USER",
        "password=PASSWORD",
        "sslmode=require",
        "sslrootcert=FILE",
        "sslcert=FILE",
        "sslkey=FILE",
        "application_name=TEXT",
    ],
};

/// The same where sessions hold the locks: there are no tables.
const ADVISORY_SYNTAX: Syntax = Syntax {
    example: "postgres+advisory://USER:PASSWORD@HOST:PORT/DATABASE",
    options: &[
        "connections=N",
        "host=/DIRECTORY",
        "port=N",
        "user=USER",
        "password=PASSWORD",
        "sslmode=require",
        "sslrootcert=FILE",
        "sslcert=FILE",
        "sslkey=FILE",
        "application_name=TEXT",
    ],
    ..SYNTAX
};

/// How many sessions a client may have where each holds one lock or waits for it.
const SESSIONS: usize = 32;

/// How many connections a client has for its requests, unless its URL says otherwise.
const CONNECTIONS: usize = 4;
const MOST_CONNECTIONS: usize = 64;

/// What `at_least` may be.
const AT_LEAST: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(7 * 24 * 60 * 60);

/// A database and how it is used.
pub(super) struct Place {
    pub(super) config: Config,
    /// For errors and logs.
    pub(super) server: String,
    pub(super) database: String,
    pub(super) user: String,
    pub(super) password: Option<Secret>,
    pub(super) tables: Tables,
    pub(super) schema: Option<String>,
    pub(super) listen: bool,
    pub(super) connections: usize,
    /// Sessions hold the locks.
    pub(super) advisory: bool,
    pub(super) shedlock: Option<ShedlockTable>,
    pub(super) tls: Option<Certificates>,
}

/// A table of ShedLock.
#[derive(Clone, Debug)]
pub(super) struct ShedlockTable {
    /// Quoted, with its schema.
    pub(super) table: String,
    /// How long a name stays closed at least.
    pub(super) at_least: Duration,
}

/// Files for an encrypted connection.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "postgres-tls"), allow(dead_code, reason = "such a URL is refused"))]
pub(super) struct Certificates {
    /// Who may vouch for the server; the system's trusted certificates if none is given.
    pub(super) root: Option<String>,
    pub(super) own: Option<(String, String)>,
}

impl Place {
    pub(super) fn parse(text: &str) -> Result<Place> {
        let advisory = text.split_once(':').is_some_and(|(scheme, _)| scheme.ends_with("+advisory"));
        let url = Url::read(text, if advisory { &ADVISORY_SYNTAX } else { &SYNTAX })?;
        let mut config = Config::new();
        let mut place = Options::default();
        for option in url.options()? {
            let value = option.value.as_str();
            match option.name {
                "schema" | "table" | "listen" | "shedlock" | "at_least" if advisory => {
                    return Err(option.wrong());
                }
                "schema" if !value.is_empty() => place.schema = Some(value.to_owned()),
                "table" if is_prefix(value) => place.table = Some(value.to_owned()),
                "listen" if value == "off" => place.deaf = true,
                "listen" if value == "on" => place.deaf = false,
                "shedlock" if is_prefix(value) => place.shedlock = Some(value.to_owned()),
                "at_least" => place.at_least = Some(option.duration(AT_LEAST)?),
                "connections" => {
                    let count = value.parse().ok().filter(|count| (1..=MOST_CONNECTIONS).contains(count));
                    place.connections = Some(count.ok_or_else(|| option.wrong())?);
                }
                "host" if value.starts_with('/') => place.socket = Some(value.to_owned()),
                "port" => place.port = Some(value.parse().map_err(|_| option.wrong())?),
                "user" if !value.is_empty() => place.user = Some(value.to_owned()),
                "password" if !value.is_empty() => place.password = Some(Secret::new(value)),
                "sslmode" => match value {
                    "disable" => place.encrypted = false,
                    "require" | "verify-ca" | "verify-full" => place.encrypted = true,
                    _ => return Err(option.wrong()),
                },
                "sslrootcert" if !value.is_empty() => place.root = Some(value.to_owned()),
                "sslcert" if !value.is_empty() => place.cert = Some(value.to_owned()),
                "sslkey" if !value.is_empty() => place.key = Some(value.to_owned()),
                "application_name" => place.application = Some(value.to_owned()),
                _ => return Err(option.wrong()),
            }
        }
        let mut login = url.login.clone();
        login.user = place.user.take().or(login.user);
        login.password = place.password.take().or(login.password);
        let server = match (&place.socket, url.hosts.as_slice()) {
            (Some(directory), []) => {
                config.host_path(directory);
                config.port(place.port.unwrap_or(SYNTAX.port));
                directory.clone()
            }
            (Some(_), _) => return Err(url.wrong("there is a host before the path and one in `host=`")),
            (None, []) => return Err(url.wrong("a host is needed")),
            (None, hosts) => {
                for host in hosts {
                    config.host(&host.name);
                    config.port(host.port);
                }
                hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            }
        };
        if config.get_hosts().len() > 1 {
            // Standbys are passed over.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let user = login.user.clone().or_else(|| std::env::var("USER").ok());
        let user = user.ok_or_else(|| url.wrong("a user is needed"))?;
        config.user(&user);
        if let Some(password) = &login.password {
            config.password(password.reveal());
        }
        let database = match url.path.as_slice() {
            [] => user.clone(),
            [database] => database.clone(),
            _ => return Err(url.wrong("one database is needed after the host")),
        };
        config.dbname(&database);
        config.application_name(place.application.as_deref().unwrap_or("leasehold"));
        let tls = place.certificates()?;
        let shedlock = place.shedlock()?;
        Ok(Place {
            config,
            server,
            database,
            user,
            password: login.password,
            tables: Tables::new(place.schema.as_deref(), place.table.as_deref().unwrap_or("leasehold")),
            schema: place.schema,
            listen: !place.deaf,
            connections: place.connections.unwrap_or(if advisory { SESSIONS } else { CONNECTIONS }),
            advisory,
            shedlock,
            tls,
        })
    }
}

/// True if this can start the names of tables. Longer than 63 bytes the server would cut them.
pub(super) fn is_prefix(text: &str) -> bool {
    !text.is_empty() && text.len() <= 50 && !text.contains('\0')
}

#[derive(Default)]
struct Options {
    schema: Option<String>,
    table: Option<String>,
    shedlock: Option<String>,
    at_least: Option<Duration>,
    deaf: bool,
    connections: Option<usize>,
    socket: Option<String>,
    port: Option<u16>,
    user: Option<String>,
    password: Option<Secret>,
    encrypted: bool,
    root: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    application: Option<String>,
}

impl Options {
    fn shedlock(&self) -> Result<Option<ShedlockTable>> {
        let at_least = self.at_least.unwrap_or_default();
        let Some(table) = &self.shedlock else {
            return match self.at_least {
                Some(_) => Err(Error::invalid("`at_least` is of use with `shedlock=TABLE` only")),
                None => Ok(None),
            };
        };
        if self.table.is_some() || self.deaf {
            return Err(Error::invalid("`table` and `listen` do not go with `shedlock`; leave them out"));
        }
        let schema = self.schema.as_deref().map(|schema| format!("{}.", quoted(schema)));
        Ok(Some(ShedlockTable { table: schema.unwrap_or_default() + &quoted(table), at_least }))
    }

    fn certificates(&self) -> Result<Option<Certificates>> {
        let named = self.root.is_some() || self.cert.is_some() || self.key.is_some();
        if !self.encrypted {
            return match named {
                true => Err(Error::invalid("certificates are of use with `sslmode=require` only")),
                false => Ok(None),
            };
        }
        if !cfg!(feature = "postgres-tls") {
            return Err(Error::Unsupported {
                engine: ENGINE,
                what: "`sslmode=require` is not in this build; enable the cargo feature `postgres-tls` of \
                       the crate `leasehold`"
                    .into(),
            });
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
    fn a_url_says_where_and_how() {
        let place =
            Place::parse("postgres://me:s%40y@db:6000,other/shop?schema=s&table=t&listen=off").unwrap();
        assert_eq!((place.server.as_str(), place.database.as_str()), ("db:6000,other:5432", "shop"));
        assert_eq!((place.user.as_str(), place.listen, place.connections), ("me", false, CONNECTIONS));
        assert_eq!(place.password.as_ref().map(Secret::reveal), Some("s@y"));
        assert_eq!(place.tables.names, r#""s"."t_names""#);
        let place = Place::parse("postgresql://me@db").unwrap();
        assert_eq!((place.database.as_str(), place.listen), ("me", true));
        let place = Place::parse("postgres://me@db?schema=s&shedlock=locks&at_least=30s").unwrap();
        let shedlock = place.shedlock.unwrap();
        assert_eq!((shedlock.table.as_str(), shedlock.at_least.as_secs()), (r#""s"."locks""#, 30));
        let place = Place::parse("postgres://me@/shop?host=/run/postgresql").unwrap();
        assert_eq!((place.server.as_str(), place.user.as_str()), ("/run/postgresql", "me"));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in [
            "postgres://me:hunter2@/shop",
            "postgres://me:hunter2@db/a/b",
            "postgres://me:hunter2@db/shop?connections=999",
            "postgres://me:hunter2@db/shop?table=",
            "postgres://me:hunter2@db/shop?host=/tmp",
            "postgres://me:hunter2@db/shop?sslcert=/x",
            "postgres://me:hunter2@db/shop?at_least=30s",
            "postgres://me:hunter2@db/shop?shedlock=locks&table=t",
            "postgres://me:hunter2@db/shop?shedlock=locks&at_least=soon",
        ] {
            let error = Place::parse(url).err().unwrap_or_else(|| panic!("{url}")).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
