//! What can go wrong, by what the caller must do about it.

use std::error::Error as StdError;
use std::fmt;

/// A result with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, by what the caller must do about it.
///
/// That a name is taken, or that a time limit passed, is not an error: it is `None`.
///
/// The message is complete: it says what failed, why, and what to do. So there is no
/// [`source`](std::error::Error::source) behind it, and a report that prints all causes says each
/// of them once. What the engine's driver said, in its own words, is in the field `source` and in
/// the `Debug` output.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The lease is over: stop the protected work.
    Lost {
        /// What was held.
        name: String,
        /// Under which token.
        token: u64,
        /// How it was lost.
        why: Loss,
    },

    /// A newer holder has written: stop the protected work.
    Fenced {
        /// The token that was shown.
        given: u64,
        /// The newest one that the resource has seen.
        newest: u64,
    },

    /// The engine did not answer, or can not at the moment. What was asked may have happened or
    /// not; asking again is safe.
    Unavailable {
        /// Which engine.
        engine: &'static str,
        /// What failed, and what to do.
        what: String,
        /// What the engine's driver said.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },

    /// The engine can not promise this: choose another one.
    Unsupported {
        /// Which engine.
        engine: &'static str,
        /// What it can not do, and what can.
        what: String,
    },

    /// The call is wrong: fix it.
    Invalid {
        /// What is wrong with it.
        what: String,
    },

    /// The store holds something that is not ours, is newer than we are, or is damaged.
    Engine {
        /// Which engine.
        engine: &'static str,
        /// What was found, and what to do.
        what: String,
        /// What the engine's driver said.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Lost { name, token, why } => {
                write!(f, "lost `{name}` (token {token}): {why}; stop the work that it protects")
            }
            Error::Fenced { given, newest } => write!(
                f,
                "fenced: token {given} is older than {newest}, which has already been seen; stop the work"
            ),
            Error::Unavailable { engine, what, .. }
            | Error::Unsupported { engine, what }
            | Error::Engine { engine, what, .. } => write!(f, "{engine}: {what}"),
            Error::Invalid { what } => f.write_str(what),
        }
    }
}

// Without a `source`: the message says what the driver said, in our words, and drivers repeat their
// own causes. A report that prints all causes would say the same three times.
impl StdError for Error {}

impl Error {
    /// True if the same call may succeed later without any change.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Unavailable { .. })
    }

    /// What happened, without the engine's label before it: to be put into another error.
    #[cfg(feature = "_server")]
    pub(crate) fn what(&self) -> String {
        match self {
            Error::Unavailable { what, .. }
            | Error::Unsupported { what, .. }
            | Error::Invalid { what }
            | Error::Engine { what, .. } => what.clone(),
            Error::Lost { .. } | Error::Fenced { .. } => self.to_string(),
        }
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

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Deadline => "the lease was not renewed in time",
            Loss::Gone => "the engine no longer knows the claim (it expired or was broken)",
            Loss::Closed => "the client was closed",
        })
    }
}
