//! Recording a result in a transaction of the caller's.

use std::time::Duration;

use super::record::{Fingerprint, Record, State};
use super::submit::LONGEST_RESULT;
use crate::engine::ReplaceSql;
use crate::error::{Error, Result};
use crate::token::Token;

/// Makes the statement that records a result: see
/// [`Once::run_in_transaction`](super::Once::run_in_transaction).
#[derive(Debug)]
pub struct Recorder {
    pub(super) sql: ReplaceSql,
    pub(super) owner: u128,
    pub(super) fingerprint: Fingerprint,
    pub(super) token: Token,
    pub(super) kept: Duration,
}

/// A statement that records the result of a submission. It changes one row if the submission is
/// still the caller's, and none if it is not.
///
/// It takes four parameters, in this order: `value`, `lives`, `key` and `run`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordSql {
    /// The statement.
    pub update: String,
    /// The first parameter: what is recorded.
    pub value: Vec<u8>,
    /// The second parameter: how long it is kept, in microseconds.
    pub lives: i64,
    /// The third parameter: which submission.
    pub key: Vec<u8>,
    /// The fourth parameter: which run of it.
    pub run: Vec<u8>,
}

impl Recorder {
    /// The token of this run.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The statement that records `result`, which others are given from then on.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the result is longer than [`LONGEST_RESULT`].
    pub fn record(&self, result: impl AsRef<[u8]>) -> Result<RecordSql> {
        let result = result.as_ref();
        if result.len() > LONGEST_RESULT {
            return Err(Error::invalid(format!(
                "the result has {} bytes, more than the {LONGEST_RESULT} that are kept; roll back, or record \
                 where it can be found",
                result.len()
            )));
        }
        let (owner, token, fingerprint) = (self.owner, self.token.get(), self.fingerprint);
        let state = State::Done { result: result.to_vec() };
        Ok(RecordSql {
            update: self.sql.update.clone(),
            value: Record { owner, token, fingerprint, state }.encode(),
            lives: i64::try_from(self.kept.as_micros()).unwrap_or(i64::MAX / 4),
            key: self.sql.key.clone(),
            run: Record::start_of_run(owner, token),
        })
    }
}
