//! The command that runs while something is held: started, watched, and stopped if that is lost.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{Client, Error, Standing};

use crate::args::{IfKilled, Job, Take};
use crate::child::Child;
use crate::exit::{Failure, LOST, NOT_STARTED};
use crate::nested::{self, HeldName};
use crate::print;
use crate::signals::Signals;
use crate::take::{self, Held, lost, tell_not_given_back};

/// What became of a command.
pub(crate) enum Ran {
    /// It has ended by itself, or could not be started.
    Ended(Result<u8, Failure>),
    /// What was held is lost, which was said, and the command was stopped.
    Stopped,
}

/// What lets the command keep the name if this process is killed, where the engine has such a
/// thing.
pub(crate) fn lifeline(client: &Client, job: &Job) -> Result<Option<OwnedFd>, Failure> {
    let lifeline = client.lifeline()?;
    if lifeline.is_none() && job.if_killed == Some(IfKilled::Keep) {
        return Err(Failure::usage(format!(
            "`{}:` can not keep a name for a command whose leasehold was killed; only `file:` can: say --if-killed stop",
            client.guarantees().engine
        )));
    }
    Ok(lifeline)
}

/// Runs the command, and gives back what is held.
pub(crate) async fn run(
    client: &Client,
    take: &Take,
    job: &Job,
    held: Held,
    around: Vec<HeldName>,
    lifeline: Option<OwnedFd>,
    signals: &mut Signals,
) -> Ran {
    let default = if lifeline.is_some() { IfKilled::Keep } else { IfKilled::Stop };
    let tokens = held.tokens(take);
    // Not where nobody could rely on it.
    let token = tokens.first().filter(|_| client.guarantees().fences);
    let token = token.map_or_else(String::new, |(_, token)| token.to_string());
    let environment = [
        ("LEASEHOLD_NAME", take.name.clone()),
        ("LEASEHOLD_TOKEN", token),
        ("LEASEHOLD_DEADLINE", deadline(held.remaining())),
        (nested::VARIABLE, nested::with(around, take, tokens)),
    ];
    let command = job.words();
    let started = match job.if_killed.unwrap_or(default) {
        IfKilled::Keep => Child::start(&command, environment, lifeline),
        // With a lifeline the name stays taken until the last process of the command has ended.
        IfKilled::Stop => Child::start_supervised(&command, environment, lifeline, job.grace),
    };
    let mut child = match started {
        Ok(child) => child,
        Err(failure) => {
            // It was held for nothing, so a loss does no harm; but others may have to wait for the
            // end of the lease.
            if let Err(error) = held.release().await {
                tell_not_given_back(take, &error);
            }
            return Ran::Ended(Err(failure));
        }
    };
    let ended = tokio::select! {
        biased;
        ended = child.ended(signals) => ended,
        lost = held.lost() => match child.has_ended() {
            // It needs no stopping; that it did not end in time is seen at the release.
            Some(ended) => Ok(ended),
            None => {
                let command = child.describe();
                print::complain(&format!("{lost}; sending TERM to {command} and all that it started"));
                child.stop(job.grace, signals).await;
                return Ran::Stopped;
            }
        }
    };
    if let Ok(ended) = ended
        && let Some(signal) = child.lost_its_supervisor(ended)
    {
        // The command may go on, and nothing would end it if we were killed as well.
        let command = child.describe();
        print::complain(&format!("what supervises {command} was ended by signal {signal}; ending {command}"));
        child.stop(job.grace, signals).await;
    }
    // As it is at the end of the command. The release may take its time, and what happens meanwhile
    // harms nobody.
    let standing = held.standing();
    let released = held.release().await;
    let ended = match ended {
        Ok(ended) => ended.code(),
        Err(error) => {
            let why = format!("can not wait for {}: {error}", child.describe());
            return Ran::Ended(Err(Failure::new(NOT_STARTED, why)));
        }
    };
    Ran::Ended(match released {
        Ok(()) => Ok(ended),
        // The command may have worked without protection at the end: its success can not be
        // trusted.
        Err(Error::Lost { name, token, why }) => {
            let lost = lost(&name, token, why);
            Err(Failure::new(LOST, format!("{lost}, before the command ended with {ended}")))
        }
        // Only that we leave was not heard; the command worked under the lease to its end.
        Err(error) if standing == Standing::Held && error.is_retryable() => {
            tell_not_given_back(take, &error);
            Ok(ended)
        }
        // The store was removed or moved, or the last renewal had failed and the engine can not be
        // asked: others may have held the name while the command still worked.
        Err(error) => {
            let names = take::shown_names(take);
            let why = format!("{names} may have been lost before the command ended with {ended}: {error}");
            Err(Failure::new(LOST, why))
        }
    })
}

/// When a lease ends, in milliseconds of Unix time.
fn deadline(remaining: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now + remaining).as_millis().to_string()
}
