//! `leasehold run`: hold a name while a command runs.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{Client, Error, Standing};

use crate::args::{IfKilled, Run};
use crate::child::{self, Child};
use crate::exit::{Failure, LOST, NOT_STARTED, UNAVAILABLE};
use crate::nested::{self, HeldName};
use crate::print;
use crate::signals::{self, Signals};
use crate::take::{self, Held, leave, lost, tell_not_given_back};

pub(crate) async fn run(args: &Run) -> Result<u8, Failure> {
    let around = nested::around_us();
    let client = take::connect_for(&args.take, args.default_label()).await?;
    let lifeline = lifeline(&client, args)?;
    // Only now: until here a signal finds nothing to undo and may end the process as it always
    // does.
    let mut signals = Signals::listen(&signals::PASSED_ON)
        .map_err(|error| Failure::new(UNAVAILABLE, format!("can not listen for signals: {error}")))?;
    let held = tokio::select! {
        // Nothing is started any more once a signal is here.
        biased;
        signal = signals.next_that_ends() => {
            // The wait was dropped, and with it the place in the queue.
            leave(&client).await;
            return Ok(child::by_signal(signal.as_raw()));
        }
        held = take::acquire(&client, &args.take, &around) => held,
    };
    let ended = match held {
        Ok(held) => hold(&client, args, held, around, lifeline, &mut signals).await,
        Err(failure) => Err(failure),
    };
    leave(&client).await;
    // The process ends now, and the kernel takes the store's memory back faster than we would.
    std::mem::forget(client);
    ended
}

/// What lets the command keep the name if this process is killed, where the engine has such a
/// thing.
fn lifeline(client: &Client, args: &Run) -> Result<Option<OwnedFd>, Failure> {
    let lifeline = client.lifeline()?;
    if lifeline.is_none() && args.if_killed == Some(IfKilled::Keep) {
        return Err(Failure::usage(format!(
            "`{}:` can not keep a name for a command whose leasehold was killed; only `file:` can: say --if-killed stop",
            client.guarantees().engine
        )));
    }
    Ok(lifeline)
}

/// Runs the command, and gives the name back.
async fn hold(
    client: &Client,
    args: &Run,
    held: Held,
    around: Vec<HeldName>,
    lifeline: Option<OwnedFd>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let default = if lifeline.is_some() { IfKilled::Keep } else { IfKilled::Stop };
    let tokens = held.tokens(&args.take);
    // Not where nobody could rely on it.
    let token = tokens.first().filter(|_| client.guarantees().fences);
    let token = token.map_or_else(String::new, |(_, token)| token.to_string());
    let environment = [
        ("LEASEHOLD_NAME", args.take.name.clone()),
        ("LEASEHOLD_TOKEN", token),
        ("LEASEHOLD_DEADLINE", deadline(held.remaining())),
        (nested::VARIABLE, nested::with(around, &args.take, tokens)),
    ];
    let command = args.words();
    let started = match args.if_killed.unwrap_or(default) {
        IfKilled::Keep => Child::start(&command, environment, lifeline),
        // With a lifeline the name stays taken until the last process of the command has ended.
        IfKilled::Stop => Child::start_supervised(&command, environment, lifeline, args.grace),
    };
    let mut child = match started {
        Ok(child) => child,
        Err(failure) => {
            // It was held for nothing, so a loss does no harm; but others may have to wait for the
            // end of the lease.
            if let Err(error) = held.release().await {
                tell_not_given_back(&args.take, &error);
            }
            return Err(failure);
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
                child.stop(args.grace, signals).await;
                return Err(Failure { code: LOST, message: None });
            }
        }
    };
    if let Ok(ended) = ended
        && let Some(signal) = child.lost_its_supervisor(ended)
    {
        // The command may go on, and nothing would end it if we were killed as well.
        let command = child.describe();
        print::complain(&format!("what supervises {command} was ended by signal {signal}; ending {command}"));
        child.stop(args.grace, signals).await;
    }
    // As it is at the end of the command. The release may take its time, and what happens meanwhile
    // harms nobody.
    let standing = held.standing();
    let released = held.release().await;
    let ended = ended.map_err(|error| {
        Failure::new(NOT_STARTED, format!("can not wait for {}: {error}", child.describe()))
    })?;
    match released {
        Ok(()) => Ok(ended.code()),
        // The command may have worked without protection at the end: its success can not be
        // trusted.
        Err(Error::Lost { name, token, why }) => {
            let lost = lost(&name, token, why);
            Err(Failure::new(LOST, format!("{lost}, before the command ended with {}", ended.code())))
        }
        // Only that we leave was not heard; the command worked under the lease to its end.
        Err(error) if standing == Standing::Held && error.is_retryable() => {
            tell_not_given_back(&args.take, &error);
            Ok(ended.code())
        }
        // The store was removed or moved, or the last renewal had failed and the engine can not be
        // asked: others may have held the name while the command still worked.
        Err(error) => Err(Failure::new(
            LOST,
            format!(
                "{} may have been lost before the command ended with {}: {error}",
                take::shown_names(&args.take),
                ended.code()
            ),
        )),
    }
}

/// When a lease ends, in milliseconds of Unix time.
fn deadline(remaining: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now + remaining).as_millis().to_string()
}
