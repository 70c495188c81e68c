//! What loads the values of a cache.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Why a load has failed.
pub(super) type LoadError = Arc<dyn StdError + Send + Sync>;
type Loading = Pin<Box<dyn Future<Output = Result<Loaded, LoadError>> + Send>>;

/// What the source has of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub(super) value: Option<Vec<u8>>,
    pub(super) version: u64,
}

impl Loaded {
    /// A value.
    pub fn value(value: impl Into<Vec<u8>>) -> Loaded {
        Loaded { value: Some(value.into()), version: 0 }
    }

    /// The source has nothing of this name. That is remembered too, for a time of its own.
    ///
    /// A source with versions should give one to this too ([`Loaded::version`]): of a row that says
    /// that it was deleted, or the position in the log up to which the source has read. Without one
    /// it is not stored in place of what has a version, nor while the version of an invalidation is
    /// remembered, because a replica that lags behind a new row has none of it either.
    pub fn none() -> Loaded {
        Loaded { value: None, version: 0 }
    }

    /// The version that the source gives to it: a number that rises with every change of this name,
    /// as a row's version or a log's position does, below 2^52.
    ///
    /// With it, [`Cache::invalidate_version`](super::Cache::invalidate_version) also protects from
    /// a source that lags behind, as a replica does. Give it to everything that the source has, and
    /// to what was deleted from it: what has no version counts as older than what has one.
    #[must_use]
    pub fn version(mut self, version: u64) -> Loaded {
        self.version = version;
        self
    }
}

impl From<Vec<u8>> for Loaded {
    fn from(value: Vec<u8>) -> Loaded {
        Loaded::value(value)
    }
}

impl From<Option<Vec<u8>>> for Loaded {
    fn from(value: Option<Vec<u8>>) -> Loaded {
        Loaded { value, version: 0 }
    }
}

/// A loader, whatever its types.
#[derive(Clone)]
pub(super) struct Loader(Arc<dyn Fn(String) -> Loading + Send + Sync>);

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Loader")
    }
}

impl Loader {
    pub(super) fn new<F, L, E>(load: impl Fn(String) -> F + Send + Sync + 'static) -> Loader
    where
        F: Future<Output = Result<L, E>> + Send + 'static,
        L: Into<Loaded>,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Loader(Arc::new(move |name| {
            let loading = load(name);
            Box::pin(async move { loading.await.map(L::into).map_err(|error| Arc::from(error.into())) })
        }))
    }

    pub(super) fn load(&self, name: &str) -> Loading {
        (self.0)(name.to_owned())
    }
}
