//! From a URL to a client.

use std::sync::Arc;

use crate::client::{Client, Options};
use crate::engine::Engine;
use crate::engine::memory::Memory;
use crate::error::{Error, Result};

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
///
/// # Errors
///
/// [`Error::Invalid`] for a URL that is none of these; [`Error::Unsupported`] for an engine that this build does not
/// have; whatever the engine says if it can not be reached.
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
pub async fn connect_with(url: &str, options: Options) -> Result<Client> {
    let engine = crate::engine::open(url, &options).await?;
    Client::new(engine, options)
}

/// The engine at a URL, for [`Client::new`]: for those who put something of their own around it.
///
/// # Errors
///
/// As [`connect`].
pub async fn open(url: &str, options: &Options) -> Result<Box<dyn Engine>> {
    let (scheme, rest) = url.split_once(':').ok_or_else(|| {
        // A `@` comes after a password.
        let url = if url.contains('@') { "…" } else { url };
        Error::invalid(format!("`{url}` is not the URL of an engine; for a directory say `file:{url}`"))
    })?;
    match scheme {
        "memory" => Ok(Box::new(Memory::open(rest, Arc::clone(&options.clock)))),
        "file" => open_file(rest).await,
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
        | "rediss+cluster" => open_redis(url).await,
        "redlock" | "redlocks" => open_redlock(url).await,
        other => Err(Error::invalid(format!(
            "there is no engine `{}:` in this version; there are `memory:`, `file:`, `redis:` and `redlock:`",
            if other.contains('@') { "…" } else { other }
        ))),
    }
}

#[cfg(all(feature = "file", target_os = "linux"))]
async fn open_file(rest: &str) -> Result<Box<dyn Engine>> {
    Ok(Box::new(crate::engine::file::File::open(rest).await?))
}

#[cfg(all(feature = "file", not(target_os = "linux")))]
async fn open_file(_: &str) -> Result<Box<dyn Engine>> {
    Err(Error::Unsupported { engine: "file", what: "works on Linux only".into() })
}

#[cfg(not(feature = "file"))]
async fn open_file(_: &str) -> Result<Box<dyn Engine>> {
    Err(Error::Unsupported {
        engine: "file",
        what: "not in this build; enable the cargo feature `file` of the crate `leasehold`".into(),
    })
}

#[cfg(feature = "redis")]
async fn open_redis(url: &str) -> Result<Box<dyn Engine>> {
    Ok(Box::new(crate::engine::redis::Redis::open(url).await?))
}

#[cfg(feature = "redis")]
async fn open_redlock(url: &str) -> Result<Box<dyn Engine>> {
    Ok(Box::new(crate::engine::redlock::Redlock::open(url).await?))
}

#[cfg(not(feature = "redis"))]
async fn open_redlock(_: &str) -> Result<Box<dyn Engine>> {
    Err(Error::Unsupported {
        engine: "redlock",
        what: "not in this build; enable the cargo feature `redis` of the crate `leasehold`".into(),
    })
}

#[cfg(not(feature = "redis"))]
async fn open_redis(_: &str) -> Result<Box<dyn Engine>> {
    Err(Error::Unsupported {
        engine: "redis",
        what: "not in this build; enable the cargo feature `redis` of the crate `leasehold`".into(),
    })
}
