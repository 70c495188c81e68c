//! What is told of limits and submissions by `ls` and `show`.

use std::io::{self, Write};

use leasehold::Client;
use leasehold::kit::once::{Progress, StoredSubmission};
use leasehold::kit::rate::StoredLimit;
use serde::Serialize;

use crate::duration::show;
use crate::exit::Failure;
use crate::once::SCOPE;
use crate::print::{STRONG, visible};

/// The submissions whose names start with `prefix`. Those of `leasehold once` are called by their
/// keys.
pub(crate) async fn submissions(client: &Client, prefix: &str) -> Result<Vec<StoredSubmission>, Failure> {
    let all = client.submissions("").await?;
    let called = |one: &StoredSubmission| {
        let text = if one.name == SCOPE { &one.key } else { &one.name };
        text.starts_with(prefix)
    };
    Ok(all.into_iter().filter(called).collect())
}

/// The limits and submissions with this name.
pub(crate) async fn of(
    client: &Client,
    name: &str,
) -> Result<(Vec<StoredLimit>, Vec<StoredSubmission>), Failure> {
    let mut limits = client.limits_in_use(name).await?;
    limits.retain(|limit| limit.name == name);
    let mut submissions = submissions(client, name).await?;
    submissions.retain(|one| one.name == name || one.name == SCOPE && one.key == name);
    Ok((limits, submissions))
}

/// One line for a limit.
pub(crate) fn write_limit(out: &mut impl Write, limit: &StoredLimit) -> io::Result<()> {
    let StoredLimit { name, key, algorithm, period, used, changed, .. } = limit;
    write!(out, "limit {STRONG}{}{STRONG:#}", visible(name))?;
    if !key.is_empty() {
        write!(out, " for {}", visible(key))?;
    }
    let ago = show(*changed);
    match algorithm.as_str() {
        "bucket" | "leaky" => writeln!(out, ": {used} used {ago} ago ({algorithm} of {})", show(*period)),
        _ => writeln!(out, ": {used} used, the last {ago} ago ({algorithm} of {})", show(*period)),
    }
}

/// One line for a submission.
pub(crate) fn write_submission(out: &mut impl Write, submission: &StoredSubmission) -> io::Result<()> {
    let StoredSubmission { name, key, token, progress, changed, .. } = submission;
    write!(out, "submission {STRONG}{}{STRONG:#}", visible(key))?;
    if name != SCOPE {
        write!(out, " of {}", visible(name))?;
    }
    let ago = show(*changed);
    match progress {
        Progress::Running(left) => {
            writeln!(out, ": running, token {token}, unknown in {} unless it says a word", show(*left))
        }
        Progress::Unknown(since) => {
            writeln!(out, ": unknown, whoever ran it fell silent {} ago, token {token}", show(*since))
        }
        Progress::Done(result) => {
            writeln!(out, ": done {ago} ago, {} bytes are kept, token {token}", result.len())
        }
        other => writeln!(out, ": {other:?}"),
    }
}

/// A limit in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct LimitReport<'a> {
    family: &'static str,
    name: &'a str,
    key: &'a str,
    algorithm: &'a str,
    period_ms: u128,
    used: u32,
    changed_ms_ago: u128,
}

impl<'a> LimitReport<'a> {
    pub(crate) fn new(limit: &'a StoredLimit) -> LimitReport<'a> {
        LimitReport {
            family: "limit",
            name: &limit.name,
            key: &limit.key,
            algorithm: &limit.algorithm,
            period_ms: limit.period.as_millis(),
            used: limit.used,
            changed_ms_ago: limit.changed.as_millis(),
        }
    }
}

/// A submission in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct SubmissionReport<'a> {
    family: &'static str,
    name: &'a str,
    key: &'a str,
    token: u64,
    progress: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_bytes: Option<usize>,
    changed_ms_ago: u128,
}

impl<'a> SubmissionReport<'a> {
    pub(crate) fn new(submission: &'a StoredSubmission) -> SubmissionReport<'a> {
        let (progress, result_bytes) = match &submission.progress {
            Progress::Running(_) => ("running", None),
            Progress::Done(result) => ("done", Some(result.len())),
            _ => ("unknown", None),
        };
        SubmissionReport {
            family: "submission",
            name: &submission.name,
            key: &submission.key,
            token: submission.token.get(),
            progress,
            result_bytes,
            changed_ms_ago: submission.changed.as_millis(),
        }
    }
}
