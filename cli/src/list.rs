//! `leasehold ls`: the names in use.

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use leasehold::claim::WHOLE;
use leasehold::engine::View;
use leasehold::{Family, Name, Options};

use crate::args::Ls;
use crate::connect::connect;
use crate::duration::show;
use crate::exit::Failure;
use crate::print::{self, FAINT, visible, width};
use crate::report::{self, NameReport};
use crate::stored::{self, LimitReport, SubmissionReport};
use crate::tasks::{self, Listed, TaskReport};

// A line fits a terminal of 80 columns as a rule, so tokens are left to `show` and `--json`.
const HEADINGS: [&str; 6] = ["FAMILY", "NAME", "HELD", "FOR", "WAITING", "HOLDER"];

pub(crate) async fn list(args: &Ls) -> Result<u8, Failure> {
    let client = connect(&args.on, Options::new()).await?;
    let found = report::in_use(&client, &args.prefix).await;
    let tasks = tasks::all(&client, &args.prefix).await;
    let limits = client.limits_in_use(&args.prefix).await;
    let submissions = stored::submissions(&client, &args.prefix).await;
    client.close().await.ok();
    let (found, tasks, limits, submissions) = (found?, tasks?, limits?, submissions?);
    if args.json {
        let names = found.iter().map(|(name, view)| Listed::Name(NameReport::new(name, view)));
        let tasks = tasks.iter().map(|(name, status)| Listed::Task(TaskReport::new(name, status)));
        let limits = limits.iter().map(|limit| Listed::Limit(LimitReport::new(limit)));
        let submissions = submissions.iter().map(|one| Listed::Submission(SubmissionReport::new(one)));
        print::json(&names.chain(tasks).chain(limits).chain(submissions).collect::<Vec<_>>())?;
        return Ok(0);
    }
    let mut out = BufWriter::new(anstream::stdout().lock());
    if !found.is_empty() {
        write_table(&mut out, &found)?;
    }
    for (name, status) in &tasks {
        tasks::write_line(&mut out, name, status)?;
    }
    for limit in &limits {
        stored::write_limit(&mut out, limit)?;
    }
    for submission in &submissions {
        stored::write_submission(&mut out, submission)?;
    }
    out.flush()?;
    Ok(0)
}

fn write_table(out: &mut impl Write, found: &[(Name, View)]) -> io::Result<()> {
    let rows: Vec<[String; 6]> = found.iter().map(|(name, view)| row(name, view)).collect();
    let mut widths = HEADINGS.map(width);
    for row in &rows {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = width(cell).max(*widest);
        }
    }
    let line = |cells: [&str; 6]| {
        let mut line = String::new();
        for (cell, widest) in cells.iter().zip(widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', widest - width(cell) + 2));
        }
        line.trim_end().to_owned()
    };
    writeln!(out, "{FAINT}{}{FAINT:#}", line(HEADINGS))?;
    for row in &rows {
        writeln!(out, "{}", line(row.each_ref().map(String::as_str)))?;
    }
    out.flush()
}

fn row(name: &Name, view: &View) -> [String; 6] {
    let none = || "-".to_owned();
    let longest: Option<Duration> = view.claims.iter().map(|held| held.held_for).max();
    let holder = match view.claims.as_slice() {
        [] => none(),
        [held] => report::who(&held.claim.holder),
        [held, rest @ ..] => format!("{} +{}", report::who(&held.claim.holder), rest.len()),
    };
    [
        name.family().to_string(),
        visible(name.as_str()).into_owned(),
        held(name.family(), view),
        longest.map_or_else(none, show),
        view.waiting.to_string(),
        holder,
    ]
}

/// How much of it is held.
fn held(family: Family, view: &View) -> String {
    let weight: u64 = view.claims.iter().map(|held| u64::from(held.claim.weight)).sum();
    match family {
        Family::Semaphore => format!("{weight}/{}", view.capacity),
        // What is shared has no number that it could be full at.
        _ if weight > 0 && weight < u64::from(WHOLE) => format!("{} shared", view.claims.len()),
        _ => format!("{}/1", view.claims.len()),
    }
}
