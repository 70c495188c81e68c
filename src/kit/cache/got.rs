//! What a caller gets from a cache.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::loader::LoadError;
use crate::clock::Moment;
use crate::error::Error;

/// What a cache has of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub(super) value: Option<Arc<[u8]>>,
    pub(super) version: u64,
    pub(super) origin: Origin,
}

impl Got {
    /// The value; `None` if the source has nothing of this name.
    pub fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    /// The same to keep.
    pub fn into_value(self) -> Option<Arc<[u8]>> {
        self.value
    }

    /// The version of the source that it has; 0 if the source has no versions.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Where it comes from.
    pub fn origin(&self) -> Origin {
        self.origin
    }
}

/// Where a value comes from, and so how old it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// From the memory of this process. At most as old as
    /// [`Cache::local_for`](super::Cache::local_for) says.
    Local,
    /// From the shared level: it was not invalidated when it was asked for.
    Shared,
    /// From the shared level, in which it is not fresh any more and is being loaded again. It was
    /// not invalidated when it was asked for.
    Stale,
    /// From the source, loaded for this call or for one that waited at the same time.
    Loaded,
    /// The filter says that the source has nothing of this name.
    Filter,
    /// From the memory of this process because the engine is away. It may have been invalidated.
    Away,
    /// From the source, because the engine is away. Others do not get it.
    Bypass,
}

/// Why a caller gets nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The load has failed: what the loader says.
    Load(LoadError),
    /// Loads have failed, here or elsewhere, and are not tried for a while.
    Paused {
        /// When to ask again.
        retry_after: Duration,
    },
    /// So many loads are under way in this process that none could begin in time.
    Busy,
    /// What the source gave is older than what was invalidated or is there, or has no version. It
    /// is a replica that lags behind, or gives no version to what was deleted.
    Behind {
        /// The version that is wanted.
        wanted: u64,
    },
    /// Whoever loads it took longer than the caller would wait.
    TimedOut,
    /// What the engine says.
    Engine(Arc<Error>),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Load(error) => write!(f, "the load failed: {error}"),
            Failure::Paused { retry_after } => {
                write!(f, "loads have failed and are paused; ask again in {retry_after:?}")
            }
            Failure::Busy => f.write_str("too many loads are under way in this process; ask again later"),
            Failure::Behind { wanted } => write!(
                f,
                "the source gave no version, or one before {wanted}; load from its primary, and give a \
                 version to what was deleted"
            ),
            Failure::TimedOut => f.write_str("it was not loaded in time; ask again later"),
            Failure::Engine(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(Arc::new(error))
    }
}

/// What came of a flight, for all who were on it.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// It tells of the entry as it was at this moment or later.
    pub(super) as_of: Moment,
    pub(super) got: Result<Got, Failure>,
}
