//! Why a request failed, as far as it matters for what is done about it.

use crate::error::Error;

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A session of ours that it names is gone, and with it all that belonged to it.
    SessionEnded,
    /// Nobody has answered, so it may have been done or not. Another server, or another leader, may
    /// answer.
    Unanswered(Error),
    /// Something else.
    Failed(Error),
}

/// What came of a request.
pub(crate) type Attempt<T> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        if error.is_retryable() { Failure::Unanswered(error) } else { Failure::Failed(error) }
    }
}

impl Failure {
    /// The error for a caller that named no session, or can not do anything about it.
    pub(crate) fn into_error(self, engine: &'static str) -> Error {
        match self {
            Failure::SessionEnded => {
                let what = "the servers have ended the session of this client".to_owned();
                Error::Unavailable { engine, what, source: None }
            }
            Failure::Unanswered(error) | Failure::Failed(error) => error,
        }
    }
}
