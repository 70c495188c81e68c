//! From a URL to a client: a table of schemes and engines.

use std::sync::Arc;

use crate::client::{Client, Options};
use crate::engine::memory::Memory;
use crate::engine::shown::{is_host, is_scheme};
use crate::engine::{Engine, Reply};
use crate::error::{Error, Result};
use crate::nearest::nearest;

/// Connects to an engine.
///
/// | URL | engine |
/// | --- | --- |
/// | `memory:` | claims in this client and its clones |
/// | `memory:LABEL` | claims shared by the clients of this process that give the same label |
/// | `file:DIR` | claims shared by the processes of this machine that give the same directory |
/// | `file:` | the same, in the user's default directory |
/// | `redis://HOST:PORT/DB` | claims in a Redis server |
/// | `redis+sentinel://HOST,HOST/NAME/DB` | the same, wherever the sentinels say that its primary is |
/// | `redis+cluster://HOST:PORT,HOST:PORT` | claims in a Redis Cluster |
/// | `redlock://HOST:PORT,HOST:PORT,HOST:PORT` | claims at a majority of independent Redis servers |
/// | `etcd://HOST:PORT,HOST:PORT/PREFIX` | claims in an etcd cluster |
/// | `zookeeper://HOST:PORT,HOST:PORT/PATH` | claims in a ZooKeeper ensemble |
/// | `postgres://USER@HOST/DATABASE` | claims in a table of a PostgreSQL database |
/// | `mysql://USER@HOST/DATABASE` | claims in a table of a MySQL or MariaDB database |
/// | `postgres://…?shedlock=TABLE`, `mysql://…?shedlock=TABLE` | locks in a table of ShedLock |
/// | `postgres+advisory://…`, `mysql+advisory://…` | locks of sessions: `pg_advisory_lock`, `GET_LOCK` |
///
/// # Errors
///
/// [`Error::Invalid`] for a URL that is none of these; [`Error::Unsupported`] for an engine that
/// this build does not have; whatever the engine says if it can not be reached.
///
/// # Cancel safety
///
/// Dropping the future closes the connections that were made. Nothing is held yet.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let guard = client.mutex("stock/42")?.lock().await?;
/// # guard.release().await
/// # }
/// ```
pub async fn connect(url: &str) -> Result<Client> {
    connect_with(url, Options::default()).await
}

/// Connects to an engine, with options.
///
/// # Errors
///
/// As [`connect`], and [`Error::Invalid`] if an option is out of its range.
///
/// # Cancel safety
///
/// As [`connect`].
pub async fn connect_with(url: &str, options: Options) -> Result<Client> {
    let engine = crate::engine::open(url, &options).await?;
    Client::new(engine, options)
}

/// The engine at a URL, for [`Client::new`]: for those who put something of their own around it.
///
/// # Errors
///
/// As [`connect`].
///
/// # Cancel safety
///
/// As [`connect`].
pub async fn open(url: &str, options: &Options) -> Result<Box<dyn Engine>> {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme);
    let Some(row) = SCHEMES.iter().find(|row| Some(row.scheme) == scheme) else {
        return Err(no_engine(url));
    };
    match row.open {
        Some(open) => open(url, options).await,
        None => Err(Error::Unsupported {
            engine: row.engine,
            what: format!(
                "`{}:` is not in this build; enable the cargo feature `{}` of the crate `leasehold`",
                row.scheme, row.feature
            ),
        }),
    }
}

/// The URL schemes of this build: `file`, `redis`, `rediss` and so on.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    SCHEMES.iter().filter(|row| row.open.is_some()).map(|row| row.scheme)
}

type Open = for<'a> fn(&'a str, &'a Options) -> Reply<'a, Box<dyn Engine>>;

/// A scheme, and the engine that its URLs are for.
struct Scheme {
    scheme: &'static str,
    /// The engine's label.
    engine: &'static str,
    /// What a URL looks like.
    example: &'static str,
    /// The port at which such servers are found as a rule.
    port: Option<u16>,
    /// The cargo feature that is needed; empty if none is.
    feature: &'static str,
    /// Opens the engine; `None` if this build does not have it.
    open: Option<Open>,
}

/// A function that needs a cargo feature: `None` without it.
macro_rules! with_feature {
    ($feature:literal, $open:path) => {{
        #[cfg(feature = $feature)]
        let open: Option<Open> = Some($open);
        #[cfg(not(feature = $feature))]
        let open: Option<Open> = None;
        open
    }};
}

/// Every scheme. The first one of an engine is the one that errors suggest.
const SCHEMES: &[Scheme] = &[
    Scheme {
        scheme: "memory",
        engine: "memory",
        example: "memory:",
        port: None,
        feature: "",
        open: Some(open_memory),
    },
    Scheme {
        scheme: "file",
        engine: "file",
        example: "file:DIR",
        port: None,
        feature: "file",
        open: with_feature!("file", open_file),
    },
    redis("redis", "redis://HOST:PORT"),
    redis("redis+unix", "redis+unix:///PATH"),
    redis("redis+sentinel", "redis+sentinel://HOST:PORT,HOST:PORT/NAME"),
    redis("redis+cluster", "redis+cluster://HOST:PORT,HOST:PORT"),
    redis_tls("rediss", "rediss://HOST:PORT"),
    redis_tls("rediss+sentinel", "rediss+sentinel://HOST:PORT,HOST:PORT/NAME"),
    redis_tls("rediss+cluster", "rediss+cluster://HOST:PORT,HOST:PORT"),
    Scheme {
        scheme: "redlock",
        engine: "redlock",
        example: "redlock://HOST:PORT,HOST:PORT,HOST:PORT",
        port: None,
        feature: "redis",
        open: with_feature!("redis", open_redlock),
    },
    Scheme {
        scheme: "redlocks",
        engine: "redlock",
        example: "redlocks://HOST:PORT,HOST:PORT,HOST:PORT",
        port: None,
        feature: "redis-tls",
        open: with_feature!("redis-tls", open_redlock),
    },
    Scheme {
        scheme: "etcd",
        engine: "etcd",
        example: "etcd://HOST:PORT,HOST:PORT",
        port: Some(2379),
        feature: "etcd",
        open: with_feature!("etcd", open_etcd),
    },
    Scheme {
        scheme: "etcds",
        engine: "etcd",
        example: "etcds://HOST:PORT,HOST:PORT",
        port: None,
        feature: "etcd-tls",
        open: with_feature!("etcd-tls", open_etcd),
    },
    Scheme {
        scheme: "zookeeper",
        engine: "zookeeper",
        example: "zookeeper://HOST:PORT,HOST:PORT",
        port: Some(2181),
        feature: "zookeeper",
        open: with_feature!("zookeeper", open_zookeeper),
    },
    Scheme {
        scheme: "zookeepers",
        engine: "zookeeper",
        example: "zookeepers://HOST:PORT,HOST:PORT",
        port: None,
        feature: "zookeeper-tls",
        open: with_feature!("zookeeper-tls", open_zookeeper),
    },
    postgres("postgres", "postgres://USER@HOST/DATABASE"),
    postgres("postgresql", "postgresql://USER@HOST/DATABASE"),
    postgres("postgres+advisory", "postgres+advisory://USER@HOST/DATABASE"),
    postgres("postgresql+advisory", "postgresql+advisory://USER@HOST/DATABASE"),
    mysql("mysql", "mysql://USER@HOST/DATABASE"),
    mysql("mariadb", "mariadb://USER@HOST/DATABASE"),
    mysql("mysql+advisory", "mysql+advisory://USER@HOST/DATABASE"),
    mysql("mariadb+advisory", "mariadb+advisory://USER@HOST/DATABASE"),
];

const fn postgres(scheme: &'static str, example: &'static str) -> Scheme {
    let open = with_feature!("postgres", open_postgres);
    Scheme { scheme, engine: "postgres", example, port: Some(5432), feature: "postgres", open }
}

const fn mysql(scheme: &'static str, example: &'static str) -> Scheme {
    let open = with_feature!("mysql", open_mysql);
    Scheme { scheme, engine: "mysql", example, port: Some(3306), feature: "mysql", open }
}

const fn redis(scheme: &'static str, example: &'static str) -> Scheme {
    let open = with_feature!("redis", open_redis);
    Scheme { scheme, engine: "redis", example, port: Some(6379), feature: "redis", open }
}

const fn redis_tls(scheme: &'static str, example: &'static str) -> Scheme {
    let open = with_feature!("redis-tls", open_redis);
    Scheme { scheme, engine: "redis", example, port: None, feature: "redis-tls", open }
}

fn open_memory<'a>(url: &'a str, options: &'a Options) -> Reply<'a, Box<dyn Engine>> {
    let label = url.strip_prefix("memory:").unwrap_or_default();
    let engine = Memory::open(label, Arc::clone(&options.clock));
    Box::pin(std::future::ready(Ok(Box::new(engine) as Box<dyn Engine>)))
}

#[cfg(all(feature = "file", target_os = "linux"))]
fn open_file<'a>(url: &'a str, _: &'a Options) -> Reply<'a, Box<dyn Engine>> {
    let dir = url.strip_prefix("file:").unwrap_or_default();
    Box::pin(async move { Ok(Box::new(crate::engine::file::File::open(dir).await?) as Box<dyn Engine>) })
}

#[cfg(all(feature = "file", not(target_os = "linux")))]
fn open_file<'a>(_: &'a str, _: &'a Options) -> Reply<'a, Box<dyn Engine>> {
    let error = Error::Unsupported { engine: "file", what: "works on Linux only".into() };
    Box::pin(std::future::ready(Err(error)))
}

#[cfg(feature = "redis")]
fn open_redis<'a>(url: &'a str, _: &'a Options) -> Reply<'a, Box<dyn Engine>> {
    Box::pin(async move { Ok(Box::new(crate::engine::redis::Redis::open(url).await?) as Box<dyn Engine>) })
}

#[cfg(feature = "redis")]
fn open_redlock<'a>(url: &'a str, _: &'a Options) -> Reply<'a, Box<dyn Engine>> {
    Box::pin(
        async move { Ok(Box::new(crate::engine::redlock::Redlock::open(url).await?) as Box<dyn Engine>) },
    )
}

#[cfg(feature = "zookeeper")]
fn open_zookeeper<'a>(url: &'a str, _: &'a Options) -> Reply<'a, Box<dyn Engine>> {
    Box::pin(crate::engine::zookeeper::open(url))
}

#[cfg(feature = "etcd")]
fn open_etcd<'a>(url: &'a str, _: &'a Options) -> Reply<'a, Box<dyn Engine>> {
    Box::pin(crate::engine::etcd::open(url))
}

#[cfg(feature = "mysql")]
fn open_mysql<'a>(url: &'a str, _: &'a Options) -> Reply<'a, Box<dyn Engine>> {
    Box::pin(crate::engine::mysql::open(url))
}

#[cfg(feature = "postgres")]
fn open_postgres<'a>(url: &'a str, _: &'a Options) -> Reply<'a, Box<dyn Engine>> {
    Box::pin(crate::engine::postgres::open(url))
}

/// The error for a text whose scheme is not in the table, with what was probably meant.
fn no_engine(text: &str) -> Error {
    if text.is_empty() {
        return Error::invalid(format!("the URL of the engine is empty; it looks like {}", examples()));
    }
    // A `@` comes after a password.
    let shown = if text.contains('@') { "…" } else { text };
    if let Some((host, port)) = host_and_port(text) {
        let at_port = SCHEMES.iter().find(|row| row.port == Some(port));
        return Error::invalid(match at_port {
            Some(row) => {
                format!("`{host}` is not the URL of an engine; did you mean `{}://{host}`?", row.scheme)
            }
            None => {
                format!("`{host}` is not the URL of an engine, which starts with the engine: {}", examples())
            }
        });
    }
    let is_path = text.starts_with(['/', '.', '~']);
    let (scheme, has_scheme) = text.split_once(':').map_or((text, false), |(scheme, _)| (scheme, true));
    if is_path || (!has_scheme && text.contains('/')) {
        return Error::invalid(format!(
            "`{shown}` is not the URL of an engine; for a directory say `file:{shown}`"
        ));
    }
    let near = nearest(scheme, SCHEMES.iter().map(|row| row.scheme));
    let near = near.and_then(|near| SCHEMES.iter().find(|row| row.scheme == near));
    let what = match (has_scheme, near) {
        (true, _) if is_scheme(scheme) => format!("there is no engine `{scheme}:`"),
        (true, _) => "there is no engine of that name".to_owned(),
        (false, Some(_)) => format!("`{shown}` is not the URL of an engine"),
        (false, None) => {
            format!("`{shown}` is not the URL of an engine; for a directory say `file:{shown}`")
        }
    };
    Error::invalid(match near {
        Some(row) => format!("{what}; did you mean `{}`?", row.example),
        None => format!("{what}; a URL looks like {}", examples()),
    })
}

/// Reads `HOST:PORT`, perhaps with the number of a database behind it.
fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    let (name, port) = host.rsplit_once(':')?;
    let number = path.strip_prefix('/').is_none_or(|path| path.bytes().all(|byte| byte.is_ascii_digit()));
    (is_host(host) && !name.is_empty() && number).then_some((text, port.parse().ok()?))
}

/// An example for each engine.
fn examples() -> String {
    let mut examples: Vec<String> = Vec::new();
    let mut last = "";
    for row in SCHEMES.iter().filter(|row| std::mem::replace(&mut last, row.engine) != row.engine) {
        examples.push(format!("`{}`", row.example));
    }
    let end = examples.pop().unwrap_or_default();
    format!("{} or {end}", examples.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{SystemClock, TokioClock};

    #[tokio::test(start_paused = true)]
    async fn paused_time_needs_a_clock_that_follows_it() {
        let error = connect("memory:").await.expect_err("the machine's clock goes on");
        assert!(error.to_string().contains("clock(TokioClock::new())"), "{error}");
        connect_with("memory:", Options::new().clock(TokioClock::new())).await.expect("it follows");
        // Whoever chooses a clock knows what it is for.
        connect_with("memory:", Options::new().clock(SystemClock)).await.expect("chosen");
        tokio::time::resume();
        connect("memory:").await.expect("time goes on");
    }

    #[test]
    fn what_is_no_url_is_refused_with_what_was_meant() {
        for (text, words) in [
            ("localhost:6379", "did you mean `redis://localhost:6379`?"),
            ("127.0.0.1:6379", "did you mean `redis://127.0.0.1:6379`?"),
            ("localhost:6379/2", "did you mean `redis://localhost:6379/2`?"),
            ("[::1]:6379", "did you mean `redis://[::1]:6379`?"),
            ("localhost:7001", "`redis://HOST:PORT`"),
            ("/var/lib/locks", "for a directory say `file:/var/lib/locks`"),
            ("./locks:old", "for a directory say `file:./locks:old`"),
            ("state/locks", "for a directory say `file:state/locks`"),
            ("locks", "for a directory say `file:locks`"),
            ("redis", "did you mean `redis://HOST:PORT`?"),
            ("memory", "did you mean `memory:`?"),
            ("Redis://h", "did you mean `redis://HOST:PORT`?"),
            ("reids://u:secret@h", "no engine `reids:`; did you mean `redis://HOST:PORT`?"),
            ("redis+sentinal://h/x", "did you mean `redis+sentinel://"),
            ("redlok://a,b,c", "did you mean `redlock://"),
            ("fiel:/tmp", "did you mean `file:DIR`?"),
            (
                "carrier-pigeon:x",
                "no engine `carrier-pigeon:`; a URL looks like `memory:`, `file:DIR`, `redis://",
            ),
            ("", "is empty"),
            // What may be a password is not shown.
            ("secret@h", "`…` is not"),
            ("u:secret@h:6379", "no engine `u:`"),
            ("u secret:x", "no engine of that name"),
            ("/u:secret@h", "file:…"),
        ] {
            let error = no_engine(text).to_string();
            assert!(error.contains(words) && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn every_scheme_is_its_own() {
        for (at, row) in SCHEMES.iter().enumerate() {
            assert!(SCHEMES[..at].iter().all(|other| other.scheme != row.scheme), "{}", row.scheme);
            assert!(row.example.starts_with(&format!("{}:", row.scheme)), "{}", row.example);
        }
    }

    #[tokio::test]
    async fn an_engine_that_is_not_built_in_names_its_feature() {
        for row in SCHEMES.iter().filter(|row| row.open.is_none()) {
            let error = open(row.example, &Options::default()).await.expect_err("not in this build");
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            assert!(error.to_string().contains(&format!("cargo feature `{}`", row.feature)), "{error}");
        }
    }
}
