//! `leasehold cron`: run a command at set times, on one machine each time.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::kit::schedule::{IfLost, Misfire, Run, Task};
use leasehold::{Client, Error, Options};

use crate::args::Cron;
use crate::child::Child;
use crate::connect::connect;
use crate::exit::Failure;
use crate::signals::{self, Signals};
use crate::{duration, print, take};

/// How often an occurrence runs in all with --run-again.
const ATTEMPTS: u32 = 3;

/// Understands `skip`, `once` and `all=N`.
pub(crate) fn parse_misfire(text: &str) -> Result<Misfire, String> {
    match text.split_once('=') {
        None if text == "skip" => Ok(Misfire::Skip),
        None if text == "once" => Ok(Misfire::Once),
        Some(("all", number)) => match number.parse() {
            Ok(at_most) => Ok(Misfire::All { at_most }),
            Err(_) => Err(format!("`{number}` is not a whole number")),
        },
        _ => Err("it is `skip`, `once` or `all=N`".to_owned()),
    }
}

pub(crate) async fn cron(args: &Cron) -> Result<u8, Failure> {
    let program = args.command.first().cloned().unwrap_or_default();
    let label = Path::new(&program).file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    // There is nobody else in this process to hand a name to.
    let options = Options::new().lease(args.lease).label(label).hand_over(Duration::ZERO, 0);
    let client = connect(&args.on, options).await?;
    let ended = run_all(args, &client).await;
    take::leave(&client).await;
    ended
}

async fn run_all(args: &Cron, client: &Client) -> Result<u8, Failure> {
    let task = task(args, client)?;
    // Two listeners: what is passed on to a command that runs must end us as well, afterwards.
    let (mut passed_on, mut ending) =
        (Signals::listen(&signals::PASSED_ON)?, Signals::listen(&signals::ENDING)?);
    let mut left = args.runs;
    while left != Some(0) {
        let run = tokio::select! {
            biased;
            _ = ending.next() => break,
            run = task.next() => run?,
        };
        run_one(args, client, run, &mut passed_on).await?;
        left = left.map(|left| left - 1);
    }
    Ok(0)
}

fn task(args: &Cron, client: &Client) -> Result<Task, Failure> {
    let schedule = client.schedule(&args.name);
    let task = match args.spec.strip_prefix("@every ") {
        Some(period) => {
            let period = duration::parse_some(period.trim())
                .map_err(|why| Failure::usage(format!("`{period}` is no period: {why}")))?;
            schedule.every(period)?
        }
        None => schedule.cron(&args.spec, &args.zone)?,
    };
    let if_lost = match args.run_again {
        Some(within) => IfLost::RunAgain { within, attempts: ATTEMPTS },
        None => IfLost::Record,
    };
    Ok(task.grace(args.late).misfire(args.misfire).jitter(args.jitter).if_lost(if_lost).lease(args.lease))
}

/// Runs one occurrence to its end. Only a trouble of this process ends the others.
async fn run_one(args: &Cron, client: &Client, run: Run, signals: &mut Signals) -> Result<(), Failure> {
    let occurrence = run.occurrence().clone();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let scheduled = occurrence.scheduled().duration_since(UNIX_EPOCH).unwrap_or_default();
    let environment = [
        ("LEASEHOLD_NAME", args.name.clone()),
        ("LEASEHOLD_SCHEDULED", scheduled.as_millis().to_string()),
        ("LEASEHOLD_TOKEN", occurrence.token().to_string()),
        ("LEASEHOLD_ATTEMPT", occurrence.attempt().to_string()),
        ("LEASEHOLD_DEADLINE", (now + run.remaining()).as_millis().to_string()),
    ];
    // With a lifeline, which `file:` has, the run counts as held until its last process has ended.
    let lifeline = client.lifeline()?;
    let started = Child::start_supervised(&args.command, environment, lifeline, args.grace);
    let mut child = match started {
        Ok(child) => child,
        Err(failure) => {
            let why = failure.message.unwrap_or_else(|| "it could not be started".to_owned());
            print::complain(&format!("{occurrence}: {why}"));
            return recorded(run.failed(why).await);
        }
    };
    let ended = tokio::select! {
        biased;
        ended = child.ended(signals) => Some(ended),
        _ = run.lost() => None,
    };
    match ended {
        None => {
            print::complain(&format!(
                "{occurrence}: the lease was lost; sending TERM to {} and all that it started",
                child.describe()
            ));
            child.stop(args.grace, signals).await;
            Ok(())
        }
        Some(Ok(ended)) if ended.code() == 0 => recorded(run.done().await),
        Some(Ok(ended)) => {
            let why = format!("the command ended with {}", ended.code());
            print::complain(&format!("{occurrence}: {why}"));
            recorded(run.failed(why).await)
        }
        Some(Err(error)) => {
            let why = format!("can not wait for {}: {error}", child.describe());
            print::complain(&format!("{occurrence}: {why}"));
            child.stop(args.grace, signals).await;
            recorded(run.failed(why).await)
        }
    }
}

/// An end that could not be recorded is told: others will find the run as lost.
fn recorded(recorded: leasehold::Result<()>) -> Result<(), Failure> {
    match recorded {
        Err(error @ (Error::Lost { .. } | Error::Unavailable { .. })) => {
            print::complain(&format!("the end of a run is not recorded: {error}"));
            Ok(())
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_the_late_is_understood() {
        assert_eq!(parse_misfire("skip"), Ok(Misfire::Skip));
        assert_eq!(parse_misfire("once"), Ok(Misfire::Once));
        assert_eq!(parse_misfire("all=7"), Ok(Misfire::All { at_most: 7 }));
        for wrong in ["", "all", "all=", "all=x", "skip=1", "none"] {
            assert!(parse_misfire(wrong).is_err(), "{wrong}");
        }
    }
}
