//! `leasehold show`: who holds a name, and who waits for it.

use std::io::{self, BufWriter, Write};

use leasehold::engine::View;
use leasehold::{Family, Name, Options};

use crate::args::Show;
use crate::connect::connect;
use crate::duration::show as shown;
use crate::exit::{FREE, Failure};
use crate::print::{self, STRONG, visible};
use crate::report::{self, NameReport, Share};
use crate::stored::{self, LimitReport, SubmissionReport};
use crate::tasks::{self, Listed, TaskReport};

pub(crate) async fn show(args: &Show) -> Result<u8, Failure> {
    let client = connect(&args.on, Options::new()).await?;
    let found = report::look(&client, args.family.map(Family::from), &args.name).await;
    let task = match args.family {
        None => tasks::one(&client, &args.name).await,
        Some(_) => Ok(None),
    };
    let stored = match args.family {
        None => stored::of(&client, &args.name).await,
        Some(_) => Ok((Vec::new(), Vec::new())),
    };
    client.close().await.ok();
    let (found, task, (limits, submissions)) = (found?, task?, stored?);
    let known = task.is_some() || !limits.is_empty() || !submissions.is_empty();
    if args.json {
        let names = found.iter().map(|(name, view)| Listed::Name(NameReport::new(name, view)));
        let task = task.iter().map(|status| Listed::Task(TaskReport::new(&args.name, status)));
        let limits = limits.iter().map(|limit| Listed::Limit(LimitReport::new(limit)));
        let submissions = submissions.iter().map(|one| Listed::Submission(SubmissionReport::new(one)));
        print::json(&names.chain(task).chain(limits).chain(submissions).collect::<Vec<_>>())?;
    } else {
        let mut out = BufWriter::new(anstream::stdout().lock());
        if found.is_empty() && !known {
            writeln!(out, "`{}` is free", visible(&args.name))?;
        }
        for (name, view) in &found {
            write_name(&mut out, name, view)?;
        }
        if let Some(status) = &task {
            tasks::write(&mut out, &args.name, status)?;
        }
        for limit in &limits {
            stored::write_limit(&mut out, limit)?;
        }
        for submission in &submissions {
            stored::write_submission(&mut out, submission)?;
        }
        out.flush()?;
    }
    let held = found.iter().any(|(_, view)| !view.claims.is_empty());
    Ok(if held || known { 0 } else { FREE })
}

fn write_name(out: &mut impl Write, name: &Name, view: &View) -> io::Result<()> {
    let family = name.family();
    let text = visible(name.as_str());
    match (family, view.claims.len()) {
        (Family::Semaphore, _) => {
            let used: u64 = view.claims.iter().map(|held| u64::from(held.claim.weight)).sum();
            writeln!(out, "{family} {STRONG}{text}{STRONG:#}: {used} of {} slots are held", view.capacity)?;
        }
        (_, 0) => writeln!(out, "{family} {STRONG}{text}{STRONG:#}: not held")?,
        _ => writeln!(out, "{family} {STRONG}{text}{STRONG:#}: held")?,
    }
    if !view.closed_for.is_zero() {
        writeln!(out, "  closed for another {} because a lease ran out", shown(view.closed_for))?;
    }
    for held in &view.claims {
        let value = report::value(&held.claim);
        let value = value.map_or_else(String::new, |value| format!(", with the value {}", visible(&value)));
        writeln!(
            out,
            "  held by {} for {}{}{value}\n    token {}, lease ends in {} unless renewed",
            report::who(&held.claim.holder),
            shown(held.held_for),
            Share::new(family, held.claim.weight).remark(),
            held.claim.token,
            shown(held.ends_in),
        )?;
    }
    for (place, waiting) in view.waiters.iter().enumerate() {
        writeln!(
            out,
            "  waiting {}: {} for {}{}",
            place + 1,
            report::who(&waiting.waiter.holder),
            shown(waiting.waited),
            Share::new(family, waiting.waiter.weight).remark(),
        )?;
    }
    Ok(())
}
