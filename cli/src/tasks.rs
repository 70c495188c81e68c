//! What is told of tasks by `ls` and `show`, and `leasehold pause` and `resume`.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::kit::schedule::{Outcome, Past, Running, Status};
use leasehold::{Client, Options};
use serde::Serialize;

use crate::args::TaskName;
use crate::connect::connect;
use crate::exit::{FREE, Failure};
use crate::print::{self, STRONG, visible};
use crate::report::NameReport;
use crate::stored::{LimitReport, SubmissionReport};

pub(crate) async fn pause(args: &TaskName) -> Result<u8, Failure> {
    change(args, "is paused already", async |client| client.schedule(&args.name).pause().await).await
}

pub(crate) async fn resume(args: &TaskName) -> Result<u8, Failure> {
    change(args, "is not paused", async |client| client.schedule(&args.name).resume().await).await
}

async fn change(
    args: &TaskName,
    so_before: &str,
    change: impl AsyncFnOnce(&Client) -> leasehold::Result<bool>,
) -> Result<u8, Failure> {
    let client = connect(&args.on, Options::new()).await?;
    let changed = change(&client).await;
    let known = one(&client, &args.name).await;
    client.close().await.ok();
    if changed? {
        return Ok(0);
    }
    let so = if known?.is_some() { so_before } else { "is not known: no machine has run `cron` with it" };
    print::complain(&format!("`{}` {so}", args.name));
    Ok(FREE)
}

/// The tasks whose names start with `prefix`, in order.
pub(crate) async fn all(client: &Client, prefix: &str) -> Result<Vec<(String, Status)>, Failure> {
    let mut found = Vec::new();
    for name in client.tasks().await?.into_iter().filter(|name| name.starts_with(prefix)) {
        if let Some(status) = client.schedule(&name).status().await? {
            found.push((name, status));
        }
    }
    Ok(found)
}

/// What is known of a task.
pub(crate) async fn one(client: &Client, name: &str) -> Result<Option<Status>, Failure> {
    if !client.guarantees().cells {
        return Ok(None);
    }
    Ok(client.schedule(name).status().await?)
}

/// One line for a task.
pub(crate) fn write_line(out: &mut impl Write, name: &str, status: &Status) -> io::Result<()> {
    let running = if status.running.is_empty() { "" } else { ", running" };
    writeln!(out, "task {STRONG}{}{STRONG:#}: {}{running}", visible(name), visible(&status.to_string()))
}

/// All that is known of a task.
pub(crate) fn write(out: &mut impl Write, name: &str, status: &Status) -> io::Result<()> {
    write_line(out, name, status)?;
    let Status { done, failed, lost, missed, .. } = status;
    writeln!(out, "  {done} done, {failed} failed, {lost} lost, {missed} missed")?;
    for past in &status.history {
        writeln!(out, "  {}", visible(&past.to_string()))?;
    }
    for running in &status.running {
        writeln!(out, "  {}", visible(&running.to_string()))?;
    }
    Ok(())
}

/// What `ls` and `show` list, in JSON.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Listed<'a> {
    Name(NameReport<'a>),
    Task(TaskReport<'a>),
    Limit(LimitReport<'a>),
    Submission(SubmissionReport<'a>),
}

/// A task in JSON. Times are in milliseconds since 1970.
#[derive(Debug, Serialize)]
pub(crate) struct TaskReport<'a> {
    family: &'static str,
    name: &'a str,
    timing: &'a str,
    next: Option<u128>,
    paused_since: Option<u128>,
    running: Vec<RunReport<'a>>,
    history: Vec<PastReport<'a>>,
    done: u64,
    failed: u64,
    lost: u64,
    missed: u64,
}

#[derive(Debug, Serialize)]
struct RunReport<'a> {
    scheduled: u128,
    started: u128,
    token: Option<u64>,
    attempt: u32,
    node: &'a str,
}

#[derive(Debug, Serialize)]
struct PastReport<'a> {
    scheduled: u128,
    last: u128,
    started: Option<u128>,
    ended: u128,
    token: Option<u64>,
    attempt: u32,
    node: &'a str,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
}

fn millis(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

impl<'a> TaskReport<'a> {
    pub(crate) fn new(name: &'a str, status: &'a Status) -> TaskReport<'a> {
        TaskReport {
            family: "task",
            name,
            timing: &status.timing,
            next: status.next.map(millis),
            paused_since: status.paused.map(millis),
            running: status.running.iter().map(RunReport::new).collect(),
            history: status.history.iter().map(PastReport::new).collect(),
            done: status.done,
            failed: status.failed,
            lost: status.lost,
            missed: status.missed,
        }
    }
}

impl<'a> RunReport<'a> {
    fn new(run: &'a Running) -> RunReport<'a> {
        RunReport {
            scheduled: millis(run.scheduled),
            started: millis(run.started),
            token: run.token.map(leasehold::Token::get),
            attempt: run.attempt,
            node: &run.node,
        }
    }
}

impl<'a> PastReport<'a> {
    fn new(past: &'a Past) -> PastReport<'a> {
        let (outcome, why, count) = match &past.outcome {
            Outcome::Done => ("done", None, None),
            Outcome::Failed(why) => ("failed", Some(why.as_str()), None),
            Outcome::Lost => ("lost", None, None),
            Outcome::Missed { count, .. } => ("missed", None, Some(*count)),
            Outcome::Paused => ("paused", None, None),
            Outcome::Replaced => ("replaced", None, None),
            _ => ("unknown", None, None),
        };
        PastReport {
            scheduled: millis(past.scheduled),
            last: millis(past.last),
            started: past.started.map(millis),
            ended: millis(past.ended),
            token: past.token.map(leasehold::Token::get),
            attempt: past.attempt,
            node: &past.node,
            outcome,
            why,
            count,
        }
    }
}
