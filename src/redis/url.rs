//! What a URL says: where the servers are, and how they are used.

use std::path::PathBuf;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo};

use super::keys::Keys;
use super::sentinel::Sentinels;
use super::source::Source;
use crate::engine::url::{Host, Login, LoginPlace, Secret, Syntax, Url, UrlOption};
use crate::error::{Error, Result};

/// The port of a sentinel.
const SENTINEL_PORT: u16 = 26379;

/// One server.
const ONE: Syntax = Syntax {
    engine: "redis",
    example: "redis://USER:PASSWORD@HOST:PORT/DB",
    port: 6379,
    login: LoginPlace::First,
    options: &[
        "prefix=TEXT",
        "raw",
        "strangers",
        "wait=N",
        "wait=majority",
        "eviction=allow",
        "ca=FILE",
        "cert=FILE",
        "key=FILE",
        "sentinel_user=USER",
        "sentinel_password=PASSWORD",
    ],
};

const SENTINELS: Syntax =
    Syntax { example: "redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB", port: SENTINEL_PORT, ..ONE };

const CLUSTER: Syntax = Syntax { example: "redis+cluster://HOST:PORT,HOST:PORT", ..ONE };

const SOCKET: Syntax = Syntax {
    example: "redis+unix:///PATH?db=N&user=USER&pass=PASSWORD",
    login: LoginPlace::Options,
    options: &[
        "db=N",
        "user=USER",
        "pass=PASSWORD",
        "prefix=TEXT",
        "raw",
        "strangers",
        "wait=N",
        "eviction=allow",
    ],
    ..ONE
};

/// The servers and how they are used.
pub(crate) struct Place {
    pub(crate) servers: Servers,
    pub(crate) keys: Keys,
    pub(crate) eviction_allowed: bool,
    pub(crate) copies: Copies,
    /// Others than leasehold use these names too.
    pub(crate) strangers: bool,
}

/// One server at a time, or a cluster, of which some members are known.
#[allow(clippy::large_enum_variant, reason = "there is one of it, for a moment; smaller without TLS")]
pub(crate) enum Servers {
    One(Source),
    Cluster(Vec<ConnectionInfo>),
}

/// How many replicas must have heard of a claim before it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Copies {
    /// None.
    #[default]
    None,
    /// That many.
    Some(u32),
    /// So many that they are a majority, with the primary.
    Majority,
}

impl Copies {
    /// How many of the replicas that a server has, whether they are there or not. `None` if there
    /// is none that could confirm anything: a server that has lost all its replicas must not become
    /// a majority by itself.
    pub(crate) fn of(self, replicas: u32) -> Option<u32> {
        match self {
            Copies::None => Some(0),
            Copies::Some(count) => Some(count),
            Copies::Majority => (replicas > 0).then(|| replicas.div_ceil(2)),
        }
    }
}

/// What a URL says of every server, whichever engine uses it.
#[derive(Default)]
pub(crate) struct ServerOptions {
    pub(crate) keys: Option<Keys>,
    pub(crate) eviction_allowed: bool,
    /// They are spoken to over TLS.
    encrypted: bool,
    /// Files with certificates and a key.
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

impl ServerOptions {
    /// `encrypted` if the scheme of the URL says so.
    pub(crate) fn new(encrypted: bool) -> ServerOptions {
        ServerOptions { encrypted, ..ServerOptions::default() }
    }

    /// Reads an option; an error if it is none of these.
    pub(crate) fn read(&mut self, option: UrlOption<'_>) -> Result<()> {
        match (option.name, option.value.as_str()) {
            ("prefix", _) => self.keys = Some(Keys::with_prefix(option.value)?),
            ("raw", "" | "true") => self.keys = Some(Keys::raw()),
            ("eviction", "allow") => self.eviction_allowed = true,
            ("eviction", "refuse") => self.eviction_allowed = false,
            ("ca", _) => self.ca = Some(option.value),
            ("cert", _) => self.cert = Some(option.value),
            ("key", _) => self.key = Some(option.value),
            _ => return Err(option.wrong()),
        }
        Ok(())
    }

    /// The keys that the options choose, or the default.
    pub(crate) fn keys(&mut self) -> Result<Keys> {
        self.keys.take().map_or_else(|| Keys::with_prefix("lock:"), Ok)
    }

    /// A server at a host of the URL, as the driver wants it.
    pub(crate) fn server(&self, host: &Host, login: &Login, db: i64) -> Result<ConnectionInfo> {
        let (host, port) = (host.name.clone(), host.port);
        let addr = if self.encrypted {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        self.server_at(addr, login, db)
    }

    /// A server at an address, with the certificates that the options name.
    fn server_at(&self, addr: ConnectionAddr, login: &Login, db: i64) -> Result<ConnectionInfo> {
        if !self.encrypted && (self.ca.is_some() || self.cert.is_some() || self.key.is_some()) {
            return Err(Error::invalid(
                "`ca`, `cert` and `key` are for servers that are spoken to over TLS: `rediss:`, `redlocks:`",
            ));
        }
        let mut settings = RedisConnectionInfo::default().set_db(db);
        if let Some(user) = &login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password.reveal());
        }
        let info = addr.into_connection_info().map_err(|error| {
            Error::invalid(format!("the driver refuses the address: {}", error.category()))
        })?;
        let info = info.set_redis_settings(settings);
        #[cfg(feature = "redis-tls")]
        if self.encrypted {
            let own = match (&self.cert, &self.key) {
                (Some(cert), Some(key)) => Some((cert.as_str(), key.as_str())),
                (None, None) => None,
                _ => return Err(Error::invalid("`cert` and `key` go together")),
            };
            return super::tls::with_certificates(info, self.ca.as_deref(), own);
        }
        Ok(info)
    }
}

/// The options of a URL of this engine.
#[derive(Default)]
struct Options {
    server: ServerOptions,
    copies: Copies,
    strangers: bool,
    sentinel_login: Login,
    /// Of a unix socket, which has nowhere else to put them.
    db: i64,
    login: Login,
}

impl Options {
    fn read(url: &Url<'_>, encrypted: bool) -> Result<Options> {
        let mut options = Options { server: ServerOptions::new(encrypted), ..Options::default() };
        for option in url.options()? {
            match (option.name, option.value.as_str()) {
                ("strangers", "" | "true") => options.strangers = true,
                ("wait", "none" | "0") => options.copies = Copies::None,
                ("wait", "majority") => options.copies = Copies::Majority,
                ("wait", count) => {
                    options.copies = Copies::Some(count.parse().map_err(|_| option.wrong())?);
                }
                ("sentinel_user", _) => options.sentinel_login.user = Some(option.value),
                ("sentinel_password", _) => {
                    options.sentinel_login.password = Some(Secret::new(option.value));
                }
                ("db", number) if url.is_socket() => {
                    options.db = number.parse().map_err(|_| option.wrong())?;
                }
                ("user", _) if url.is_socket() => options.login.user = Some(option.value),
                ("pass", _) if url.is_socket() => {
                    options.login.password = Some(Secret::new(option.value));
                }
                _ => options.server.read(option)?,
            }
        }
        Ok(options)
    }
}

impl Place {
    /// Reads a URL.
    pub(crate) fn parse(text: &str) -> Result<Place> {
        let scheme = text.split(':').next().unwrap_or_default();
        let (plain, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let syntax = match kind {
            "sentinel" => SENTINELS,
            "cluster" => CLUSTER,
            "unix" => SOCKET,
            _ => ONE,
        };
        let url = Url::read(text, &syntax)?;
        let mut options = Options::read(&url, plain == "rediss")?;
        let servers = match kind {
            "sentinel" => Servers::One(Source::Sentinels(sentinels(&url, &options)?)),
            "cluster" => Servers::Cluster(members(&url, &options.server)?),
            "unix" => Servers::One(Source::Fixed(socket(&url, &options)?)),
            _ => Servers::One(Source::Fixed(one(&url, &options.server)?)),
        };
        let fixed = matches!(servers, Servers::One(Source::Fixed(_)));
        if fixed && options.copies == Copies::Majority {
            return Err(Error::invalid(
                "`wait=majority` needs to know how many replicas there are: give a number (`wait=1`), or connect to \
                 the sentinels or the cluster",
            ));
        }
        let keys = options.server.keys()?;
        // Nobody gives up the prefix but to share keys.
        let strangers = options.strangers || keys.raw;
        Ok(Place {
            servers,
            keys,
            eviction_allowed: options.server.eviction_allowed,
            copies: options.copies,
            strangers,
        })
    }
}

fn one(url: &Url<'_>, options: &ServerOptions) -> Result<ConnectionInfo> {
    let [host] = url.hosts.as_slice() else {
        return Err(url.wrong("it must name one server"));
    };
    options.server(host, &url.login, database(url, &url.path)?)
}

fn socket(url: &Url<'_>, options: &Options) -> Result<ConnectionInfo> {
    if url.path.is_empty() {
        return Err(url.wrong("the path of the socket is missing"));
    }
    let path = PathBuf::from(format!("/{}", url.path.join("/")));
    options.server.server_at(ConnectionAddr::Unix(path), &options.login, options.db)
}

fn members(url: &Url<'_>, options: &ServerOptions) -> Result<Vec<ConnectionInfo>> {
    if url.hosts.is_empty() {
        return Err(url.wrong("it names no server"));
    }
    if database(url, &url.path)? != 0 {
        return Err(url.wrong("a cluster has one database, 0"));
    }
    url.hosts.iter().map(|host| options.server(host, &url.login, 0)).collect()
}

fn sentinels(url: &Url<'_>, Options { server, sentinel_login, .. }: &Options) -> Result<Sentinels> {
    let (Some(first), Some((primary, db))) = (url.hosts.first(), url.path.split_first()) else {
        return Err(url.wrong("it must name a sentinel, and what the sentinels call the primary"));
    };
    // The login of the URL is the server's.
    let sentinels = url.hosts.iter().map(|host| server.server(host, sentinel_login, 0));
    // Its address is the sentinels' to say.
    let node = server.server(first, &url.login, database(url, db)?)?;
    Ok(Sentinels::new(sentinels.collect::<Result<_>>()?, primary.clone(), node))
}

/// The number of the database that a path names.
pub(crate) fn database(url: &Url<'_>, path: &[String]) -> Result<i64> {
    match path {
        [] => Ok(0),
        [number] => number.parse().map_err(|_| url.wrong("the database is not a number")),
        _ => Err(url.wrong("the path is longer than the number of a database")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_out() {
        let place = Place::parse("redis://127.0.0.1:7000/3?prefix=app%3Alock:&eviction=allow&wait=2")
            .expect("a place");
        assert_eq!((place.keys.prefix.as_str(), place.keys.raw), ("app:lock:", false));
        assert!(place.eviction_allowed);
        assert!(!place.strangers);
        assert_eq!(place.copies, Copies::Some(2));
        let Servers::One(source) = place.servers else { panic!("one server") };
        assert_eq!(source.to_string(), "127.0.0.1:7000");
        let Ok(Place { servers: Servers::One(source), .. }) = Place::parse("redis://[::1]:7/1") else {
            panic!("one server")
        };
        assert_eq!(source.to_string(), "[::1]:7");
        let raw = Place::parse("redis://h?raw").expect("a place");
        assert!(raw.keys.raw && raw.strangers);
        assert!(Place::parse("redis://h?strangers&prefix=a").expect("a place").strangers);
    }

    #[test]
    fn a_socket_has_its_login_in_the_options() {
        let place = Place::parse("redis+unix:///run/a%20b.sock?db=2&user=u&pass=p%2Fq").expect("a place");
        let Servers::One(Source::Fixed(info)) = place.servers else { panic!("one server") };
        assert_eq!(info.addr().to_string(), "/run/a b.sock");
        let settings = info.redis_settings();
        assert_eq!((settings.db(), settings.username(), settings.password()), (2, Some("u"), Some("p/q")));
        // Elsewhere they are no options.
        assert!(Place::parse("redis://h?db=2").is_err());
    }

    #[test]
    fn sentinels_and_clusters_have_many_hosts() {
        let place = Place::parse("redis+sentinel://u:p@a,b:7001/stock/2?wait=majority").expect("a place");
        let Servers::One(Source::Sentinels(sentinels)) = place.servers else { panic!("sentinels") };
        let (infos, primary) = sentinels.parts();
        let addresses: Vec<String> = infos.iter().map(|info| info.addr().to_string()).collect();
        assert_eq!(addresses, ["a:26379", "b:7001"]);
        assert_eq!(primary, "stock");
        assert_eq!(sentinels.node().redis_settings().db(), 2);
        // The password is the server's, not the sentinels'.
        assert_eq!(sentinels.node().redis_settings().password(), Some("p"));
        assert_eq!(infos[0].redis_settings().password(), None);
        let place = Place::parse("redis+cluster://a:1,b:2").expect("a place");
        assert!(matches!(place.servers, Servers::Cluster(members) if members.len() == 2));
        for wrong in [
            "redis+sentinel://a",
            "redis+cluster://",
            "redis+cluster://a/3",
            "redis://a,b",
            "redis://a?wait=majority",
            "redis://a?wait=many",
        ] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in [
            "redis://u:secret@h?speed=9",
            "redis://u:secret@:x:y",
            "redis://u:secret@h/notanumber",
            "redis+sentinel://u:secret@h",
            "redis+cluster://u:secret@h:x",
            "redis:u:secret@h",
            "redis://u:half?secret@h",
            "redis+unix:///s?pass=half&secret",
            // Without `@`.
            "redis://u:secret",
            "redis://u:secret/0",
            "redis://u:secret?prefix=a",
            "redis://:secret",
            "redis:u:secret",
            "redis:/u:secret@h",
            "redis:///u:secret@h",
            "redis:///u:secret",
            "redis://u:secret:6379",
            "redis://u:secret#",
            "redis://u:secret h",
            "redis+cluster://u:secret",
            "redis+cluster://u:secret,b:1",
            "redis+sentinel://u:secret,b:1/stock",
            "redis+sentinel://u:secret/stock",
            "redis+sentinel://u:secret:26379/stock",
            "redis+unix://u:secret",
            "redis+unix:u:secret",
            // With letters that mean something else: the rest of the password comes in a place of
            // its own.
            "redis://u:secret/half@h",
            "redis://u:12/secret@h",
            "redis://u:secret?half@h",
            "redis://u:12?secret@h",
            "redis://u:12?prefix=secret@h",
            "redis://u:12?wait=secret@h",
            "redis://u:secret?prefix=half@h",
            "redis://u:secret#half@h",
            "redis://u:12#secret@h",
            "redis://u:12?secret",
            "redis://u:se?secret",
            "redis://u:half&secret@h:x",
            "redis://u:half&secret@h?speed=secret",
            "redis+cluster://u:12/secret@a,b",
            "redis+cluster://u:secret/half@a,b",
            "redis+cluster://u:12?secret@a,b",
            "redis+sentinel://u:12/secret@a/stock",
            "redis+sentinel://u:secret/half@a/stock",
            "redis+sentinel://u:12,secret@a:x/stock",
            "redis+sentinel://u:12#secret@a/stock",
            // Encoded, wrongly.
            "redis://u:secret%@h:x",
            "redis://u:%secret",
            "redis://u%3Asecret%40h:x",
            "redis+cluster://u:%73secret,b",
            // Something else is wrong.
            "redis://u:secret@h/x",
            "redis://u:secret@h:99999",
            "redis://u:secret@[::1",
            "redis://u:secret@h?wait=x",
            "redis://u:secret@h?prefix={",
            "redis://u:secret@h?ca=x",
            "redis+sentinel://u:secret@h",
            "redis+sentinel://u:secret@h?sentinel_password=secret",
        ] {
            let error = Place::parse(url).err();
            // A port that is a number can not be told from a password that is one.
            let error = error.unwrap_or_else(|| panic!("{url} is not refused"));
            for said in [error.to_string(), format!("{error:?}")] {
                assert!(!said.contains("secret") && !said.contains("half"), "{url}: {said}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named_where_it_can_not_be_a_password() {
        for (url, words) in [
            ("redis://h:1/x", "`redis://h:1` is not the URL of a server"),
            ("redis://u:secret@h/x", "`redis://…@h` is not the URL of a server"),
            ("redis://[::1]:7/x", "`redis://[::1]:7` is not"),
            ("redis://h?speed=9", "no option `speed`"),
            ("redis+cluster://a:1,b:2?speed=9", "no option `speed`"),
            ("redis+sentinel://a:1,b:2/stock?speed=9", "no option `speed`"),
            ("redis://a?prefix={", "hash tag"),
        ] {
            let error = Place::parse(url).err().expect(url).to_string();
            assert!(error.contains(words), "{error}");
        }
        // What is encoded is understood.
        for password in ["%2F", "%3F", "%23", "%2C", "%40", "%25", "a&b", "a=b"] {
            Place::parse(&format!("redis://u:{password}@h/1?prefix=a@b")).expect(password);
            Place::parse(&format!("redis+sentinel://u:{password}@a,b/stock")).expect(password);
        }
    }

    #[test]
    fn a_majority_counts_the_primary() {
        let wanted = [0, 1, 2, 3, 4].map(|replicas| Copies::Majority.of(replicas));
        assert_eq!(wanted, [None, Some(1), Some(1), Some(2), Some(2)]);
        assert_eq!([Copies::None, Copies::Some(3)].map(|copies| copies.of(0)), [Some(0), Some(3)]);
    }
}
