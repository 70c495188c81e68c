//! What a URL says: where the servers are, and how they are used.

use redis::{ConnectionInfo, IntoConnectionInfo as _};

use super::address::Source;
use super::keys::Keys;
use super::sentinel::Sentinels;
use crate::error::{Error, Result};

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

/// The options of a URL.
#[derive(Default)]
struct Options {
    keys: Option<Keys>,
    eviction_allowed: bool,
    copies: Copies,
    strangers: bool,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    /// Files with certificates and a key.
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    /// The driver's own.
    rest: Vec<String>,
}

impl Place {
    /// Reads a URL. Its own options are taken out; the rest is the driver's.
    pub(crate) fn parse(url: &str) -> Result<Place> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let (scheme, rest) = address.split_once(':').unwrap_or((address, ""));
        if scheme != "redis+unix" {
            check_password(address, query)?;
        }
        let options = options(query, scheme, may_be_shown(address, query))?;
        let (plain, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let servers = match kind {
            "sentinel" => Servers::One(Source::Sentinels(sentinels(plain, rest, &options)?)),
            "cluster" => Servers::Cluster(infos(plain, rest, &options)?),
            _ => {
                let query = if options.rest.is_empty() {
                    String::new()
                } else {
                    format!("?{}", options.rest.join("&"))
                };
                Servers::One(Source::Fixed(info(&format!("{address}{query}"), &options)?))
            }
        };
        let fixed = matches!(servers, Servers::One(Source::Fixed(_)));
        if fixed && options.copies == Copies::Majority {
            return Err(Error::invalid(
                "`wait=majority` needs to know how many replicas there are: give a number (`wait=1`), or connect to \
                 the sentinels or the cluster",
            ));
        }
        let keys = match options.keys {
            Some(keys) => keys,
            None => Keys::with_prefix("lock:")?,
        };
        // Nobody gives up the prefix but to share keys.
        let strangers = options.strangers || keys.raw;
        Ok(Place {
            servers,
            keys,
            eviction_allowed: options.eviction_allowed,
            copies: options.copies,
            strangers,
        })
    }
}

/// `shown` if what is wrong may be named.
fn options(query: &str, scheme: &str, shown: bool) -> Result<Options> {
    let mut options = Options::default();
    for option in query.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let text = || decode(value);
        match (name, value) {
            ("prefix", _) => options.keys = Some(Keys::with_prefix(text())?),
            ("raw", "" | "true") => options.keys = Some(Keys::raw()),
            ("strangers", "" | "true") => options.strangers = true,
            ("eviction", "allow") => options.eviction_allowed = true,
            ("eviction", "refuse") => options.eviction_allowed = false,
            ("wait", "none" | "0") => options.copies = Copies::None,
            ("wait", "majority") => options.copies = Copies::Majority,
            ("wait", count) if count.parse::<u32>().is_ok() => {
                options.copies = Copies::Some(count.parse().unwrap_or(0));
            }
            ("sentinel_user", _) => options.sentinel_user = Some(text()),
            ("sentinel_password", _) => options.sentinel_password = Some(text()),
            ("ca", _) => options.ca = Some(text()),
            ("cert", _) => options.cert = Some(text()),
            ("key", _) => options.key = Some(text()),
            // A unix socket has nowhere else to put them.
            ("db" | "user" | "pass", _) if scheme == "redis+unix" => options.rest.push(option.to_owned()),
            _ => {
                // What looks like an option may be the rest of a password with a `?` or an `&` in it.
                let option = if shown && is_option(option) { name } else { "…" };
                return Err(Error::invalid(format!(
                    "`redis:` has no option `{option}` like that; there are `prefix=TEXT`, `raw`, `strangers`, \
                     `wait=N`, `wait=majority`, `eviction=allow`, `ca=FILE`, `cert=FILE` with `key=FILE`, \
                     `sentinel_user=` and `sentinel_password=` (`?`, `&` and `@` in a password are written `%3F`, \
                     `%26` and `%40`)"
                )));
            }
        }
    }
    Ok(options)
}

/// Reads `//USER:PASSWORD@HOST:PORT,HOST:PORT/REST`: one URL for each host, and the rest.
fn hosts(rest: &str) -> Result<(String, Vec<&str>, &str)> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    let hosts: Vec<&str> = hosts.split(',').filter(|host| !host.is_empty()).collect();
    if hosts.is_empty() {
        return Err(Error::invalid(
            "the URL names no server; it looks like `redis+cluster://HOST:PORT,HOST:PORT`",
        ));
    }
    Ok((user, hosts, path))
}

fn infos(plain: &str, rest: &str, options: &Options) -> Result<Vec<ConnectionInfo>> {
    let (user, hosts, _) = hosts(rest)?;
    hosts.iter().map(|host| info(&format!("{plain}://{user}{host}"), options)).collect()
}

fn sentinels(plain: &str, rest: &str, options: &Options) -> Result<Sentinels> {
    const PORT: &str = ":26379";
    let (user, hosts, path) = hosts(rest)?;
    let (primary, db) = path.split_once('/').unwrap_or((path, ""));
    if primary.is_empty() {
        return Err(Error::invalid(
            "the URL does not say what the sentinels call the primary; it looks like \
             `redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB`",
        ));
    }
    let mut sentinels = Vec::new();
    for host in &hosts {
        let port = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            ""
        } else {
            PORT
        };
        let sentinel = info(&format!("{plain}://{host}{port}"), options)?;
        let mut settings = sentinel.redis_settings().clone();
        if let Some(user) = &options.sentinel_user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &options.sentinel_password {
            settings = settings.set_password(password);
        }
        sentinels.push(sentinel.set_redis_settings(settings));
    }
    let node = info(&format!("{plain}://{user}{}/{db}", hosts[0]), options)?;
    Ok(Sentinels::new(sentinels, decode(primary), node))
}

/// One server, as the driver understands it.
fn info(url: &str, options: &Options) -> Result<ConnectionInfo> {
    let wrong = |error: redis::RedisError| {
        // The driver's own words may repeat the URL, and with it the password.
        Error::invalid(format!(
            "`{}` is not the URL of a server ({}); it looks like `redis://USER:PASSWORD@HOST:PORT/DB` ({WRITTEN})",
            without_password(url),
            error.category()
        ))
    };
    let info = url.into_connection_info().map_err(wrong)?;
    if !info.addr().is_supported() {
        return Err(Error::Unsupported {
            engine: "redis",
            what: "`rediss:` is not in this build; enable the cargo feature `redis-tls` of the crate `leasehold`".into(),
        });
    }
    with_certificates(info, options)
}

/// The certificates that the options name, for a server that is spoken to over TLS.
fn with_certificates(info: ConnectionInfo, options: &Options) -> Result<ConnectionInfo> {
    let encrypted = matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. });
    if !encrypted && (options.ca.is_some() || options.cert.is_some() || options.key.is_some()) {
        return Err(Error::invalid("`ca`, `cert` and `key` are for `rediss:`"));
    }
    #[cfg(feature = "redis-tls")]
    if encrypted {
        let own = match (&options.cert, &options.key) {
            (Some(cert), Some(key)) => Some((cert.as_str(), key.as_str())),
            (None, None) => None,
            _ => return Err(Error::invalid("`cert` and `key` go together")),
        };
        return super::tls::with_certificates(info, options.ca.as_deref(), own);
    }
    Ok(info)
}

/// How a password is written that has letters which mean something in a URL.
const WRITTEN: &str =
    "`/`, `?`, `#`, `,` and `@` in a password are written `%2F`, `%3F`, `%23`, `%2C` and `%40`";

/// Refuses a URL whose password ends it too early: what comes after would be taken for hosts, names and options, and said aloud.
pub(crate) fn check_password(address: &str, query: &str) -> Result<()> {
    let after_hosts = parts(address).2;
    if after_hosts.contains('@') || !address.contains('@') && query.contains('@') {
        return Err(Error::invalid(format!(
            "the URL has a `@` after its hosts; {WRITTEN}, and `@` in an option `%40`, too"
        )));
    }
    Ok(())
}

/// The scheme of an address, what comes before its path, and the path.
fn parts(address: &str) -> (&str, &str, &str) {
    let (scheme, rest) = address.split_once(':').unwrap_or((address, ""));
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (authority, path) = rest.split_at(rest.find(['/', '#']).unwrap_or(rest.len()));
    (scheme, authority, path)
}

/// True if this can only be a host, perhaps with a port.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or(rest)),
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let six = host.contains(':') && text.starts_with('[');
    let letter = |letter: char| {
        letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_') || six && letter == ':'
    };
    host.chars().all(letter) && (port.is_empty() || port.parse::<u16>().is_ok())
}

/// True if this looks like an option with a value.
pub(crate) fn is_option(text: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    text.split_once('=').is_some_and(|(name, _)| name.chars().all(letter))
}

/// True if nothing in a URL can be part of a password: there is none, and no place where one could begin.
pub(crate) fn may_be_shown(address: &str, query: &str) -> bool {
    let (_, authority, path) = parts(address);
    let path = path.strip_prefix('/').unwrap_or(path);
    authority.split(',').all(is_host) && is_host(path) && !query.contains('@') && !query.contains("pass")
}

/// A URL as it may be shown: its scheme, and its hosts if it is certain that they are some. It need not be a good one.
fn without_password(url: &str) -> String {
    let (address, _) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, authority, _) = parts(address);
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((_, hosts)) => ("…@", hosts),
        None => ("", authority),
    };
    let scheme = if scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '+') {
        scheme
    } else {
        "…"
    };
    if hosts.split(',').all(is_host) {
        format!("{scheme}://{login}{hosts}")
    } else {
        format!("{scheme}://…")
    }
}

/// Undoes percent-encoding; what is not encoded stays.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        match (first, after.get(..2).and_then(hex)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
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
        let raw = Place::parse("redis://h?raw").expect("a place");
        assert!(raw.keys.raw && raw.strangers);
        assert!(Place::parse("redis://h?strangers&prefix=a").expect("a place").strangers);
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
        for wrong in
            ["redis+sentinel://a", "redis+cluster://", "redis://a?wait=majority", "redis://a?wait=many"]
        {
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
            // With letters that mean something else: the rest of the password comes in a place of its own.
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
