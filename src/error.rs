//! What can go wrong, by what the caller must do about it.

use std::error::Error as StdError;

/// A result with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, by what the caller must do about it.
///
/// That a name is taken, or that a time limit passed, is not an error: it is `None`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lease is over: stop the protected work.
    #[error("lost `{name}` (token {token}): {why}; stop the work that it protects")]
    Lost {
        /// What was held.
        name: String,
        /// Under which token.
        token: u64,
        /// How it was lost.
        why: Loss,
    },

    /// A newer holder has written: stop the protected work.
    #[error("fenced: token {given} is older than {newest}, which has already been seen; stop the work")]
    Fenced {
        /// The token that was shown.
        given: u64,
        /// The newest one that the resource has seen.
        newest: u64,
    },

    /// The engine did not answer, or can not at the moment. What was asked may have happened or not; asking
    /// again is safe.
    #[error("{engine}: {what}")]
    Unavailable {
        /// Which engine.
        engine: &'static str,
        /// What failed, and what to do.
        what: String,
        /// What the engine's driver said.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },

    /// The engine can not promise this: choose another one.
    #[error("{engine}: {what}")]
    Unsupported {
        /// Which engine.
        engine: &'static str,
        /// What it can not do, and what can.
        what: String,
    },

    /// The call is wrong: fix it.
    #[error("{what}")]
    Invalid {
        /// What is wrong with it.
        what: String,
    },

    /// The store holds something that is not ours, is newer than we are, or is damaged.
    #[error("{engine}: {what}")]
    Engine {
        /// Which engine.
        engine: &'static str,
        /// What was found, and what to do.
        what: String,
        /// What the engine's driver said.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
}

impl Error {
    /// True if the same call may succeed later without any change.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Unavailable { .. })
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Error {
        Error::Invalid { what: what.into() }
    }

    pub(crate) fn closed() -> Error {
        Error::invalid("the client is closed; connect again")
    }
}

/// How a holder lost its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The lease was not renewed in time: the process was paused, or the engine did not answer.
    Deadline,
    /// The engine says that the claim is gone: it expired there, or an operator broke it.
    Gone,
    /// The client was closed while the name was held.
    Closed,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Loss::Deadline => "the lease was not renewed in time",
            Loss::Gone => "the engine no longer knows the claim (it expired or was broken)",
            Loss::Closed => "the client was closed",
        })
    }
}
