//! What is stored of submissions, for people who look.

use std::time::Duration;

use super::record::{Record, State};
use crate::claim::Micros;
use crate::client::Client;
use crate::error::Result;
use crate::kit::cells;
use crate::token::Token;

/// What is stored of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredSubmission {
    /// The name that scopes its key.
    pub name: String,
    /// Its key.
    pub key: String,
    /// The token of its last run.
    pub token: Token,
    /// How it stands.
    pub progress: Progress,
    /// How long ago that was recorded.
    pub changed: Duration,
}

/// How a submission stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Somebody runs it, for at most this long without a word.
    Running(Duration),
    /// Whoever ran it fell silent this long ago.
    Unknown(Duration),
    /// It has had its effect, and this is the result.
    Done(Vec<u8>),
}

impl Client {
    /// All submissions whose names start with `prefix` that are remembered. For people: it reads
    /// every one of them.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) if the engine does not answer.
    ///
    /// # Cancel safety
    ///
    /// It only reads: dropping the future changes nothing.
    pub async fn submissions(&self, prefix: impl AsRef<str>) -> Result<Vec<StoredSubmission>> {
        if !self.guarantees().cells {
            return Ok(Vec::new());
        }
        let prefix = prefix.as_ref();
        let wanted = |name: &str| parse(name).is_some_and(|parsed| parsed.name.starts_with(prefix));
        let found = self.find_cells(wanted).await?;
        let submissions = found
            .iter()
            .filter_map(|(name, cell, now)| stored(name, cell.value.as_deref()?, cell.changed_at, *now));
        Ok(submissions.collect())
    }
}

fn parse(name: &str) -> Option<cells::Parsed<'_>> {
    cells::parse("once", false, name)
}

fn stored(name: &str, record: &[u8], changed_at: Micros, now: Micros) -> Option<StoredSubmission> {
    let cells::Parsed { name, key, .. } = parse(name)?;
    let Record { token, state, .. } = Record::decode(record)?;
    let progress = match state {
        State::Done { result } => Progress::Done(result),
        State::Running { until } if until > now => Progress::Running(Duration::from_micros(until - now)),
        State::Running { until } => Progress::Unknown(Duration::from_micros(now - until)),
    };
    let changed = Duration::from_micros(now.saturating_sub(changed_at));
    Some(StoredSubmission { name, key, token: Token::granted(token), progress, changed })
}
