//! `leasehold run`: hold a name while a command runs.

use std::io::IsTerminal as _;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::engine::View;
use leasehold::lock::ReadGuard;
use leasehold::{Client, Error, Guard, Loss, Options, Result, Standing};

use crate::args::{IfKilled, Run};
use crate::child::{self, Child};
use crate::connect::connect;
use crate::exit::{Failure, LOST, NOT_STARTED, UNAVAILABLE};
use crate::nested::{self, HeldName, Wait};
use crate::signals::{self, Signals};
use crate::{print, report};

/// Someone at a terminal is told what is waited for after this time.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// How long the engine has to hear that we leave. It finds out by itself if it does not.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &Run) -> Result<u8, Failure> {
    let around = nested::around_us();
    let label = args.label.clone().unwrap_or_else(|| child::program_name(&args.command));
    // There is nobody else in this process to hand the name to.
    let options = Options::new().lease(args.lease).label(label).hand_over(Duration::ZERO, 0);
    let client = connect(&args.on, options).await?;
    let lifeline = lifeline(&client, args)?;
    // Only now: until here a signal finds nothing to undo and may end the process as it always does.
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
        held = acquire(&client, args, &around) => held,
    };
    let ended = match held {
        Ok(Some(held)) => hold(args, held, around, lifeline, &mut signals).await,
        Ok(None) => Err(busy(&client, args).await),
        Err(failure) => Err(failure),
    };
    leave(&client).await;
    // The process ends now, and the kernel takes the store's memory back faster than we would.
    std::mem::forget(client);
    ended
}

/// What lets the command keep the name if this process is killed, where the engine has such a thing.
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

/// Lets go of the engine. What it did not hear ends with the lease, and was said where it matters.
async fn leave(client: &Client) {
    tokio::time::timeout(LEAVE_LIMIT, client.close()).await.ok();
}

/// A name that is held, alone or with others.
#[derive(Debug)]
enum Held {
    Guard(Guard),
    Shared(ReadGuard),
}

impl Deref for Held {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Held::Guard(guard) => guard,
            Held::Shared(guard) => guard,
        }
    }
}

impl Held {
    async fn release(self) -> Result<()> {
        match self {
            Held::Guard(guard) => guard.release().await,
            Held::Shared(guard) => guard.release().await,
        }
    }
}

/// Takes the name; `None` if it was not free in time.
async fn acquire(client: &Client, args: &Run, around: &[HeldName]) -> Result<Option<Held>, Failure> {
    let mut limit = if args.no_wait { Some(Duration::ZERO) } else { args.wait };
    let wait = nested::check(client, args, around).await?;
    if wait == Wait::AtOnceOrNever {
        limit = Some(Duration::ZERO);
    }
    let mut taken = pin!(take(client, args, limit));
    // A name that is free is taken at once, without a timer or a look at the terminal.
    tokio::select! {
        biased;
        held = &mut taken => return match held? {
            None if wait == Wait::AtOnceOrNever => Err(nested::not_at_once(args)),
            held => Ok(held),
        },
        () = tokio::time::sleep(TELL_AFTER) => {}
    }
    if std::io::stderr().is_terminal()
        && let Ok(view) = client.look(args.family(), &args.name).await
    {
        print::complain(&format!("waiting for `{}`, {}", print::visible(&args.name), holders(&view)));
    }
    Ok(taken.await?)
}

async fn take(client: &Client, args: &Run, limit: Option<Duration>) -> Result<Option<Held>> {
    let (name, delay) = (&args.name, args.lock_delay);
    if let Some(slots) = args.slots {
        let semaphore = client.semaphore(name, slots)?.lock_delay(delay);
        return Ok(match limit {
            None => Some(semaphore.acquire().await?),
            Some(limit) => semaphore.acquire_for(limit).await?,
        }
        .map(Held::Guard));
    }
    if args.shared {
        let lock = client.rwlock(name)?.lock_delay(delay);
        return Ok(match limit {
            None => Some(lock.read().await?),
            Some(limit) => lock.read_for(limit).await?,
        }
        .map(Held::Shared));
    }
    let mutex = client.mutex(name)?.lock_delay(delay);
    Ok(match limit {
        None => Some(mutex.lock().await?),
        Some(limit) => mutex.lock_for(limit).await?,
    }
    .map(Held::Guard))
}

/// Says who has the name.
async fn busy(client: &Client, args: &Run) -> Failure {
    let name = print::visible(&args.name);
    let who = match client.look(args.family(), &args.name).await {
        Ok(view) => holders(&view),
        Err(error) => format!("held, and it can not be seen by whom: {error}"),
    };
    Failure::new(args.exit_if_busy, format!("`{name}` is {who}"))
}

/// Who holds a name, in a few words.
fn holders(view: &View) -> String {
    match view.claims.as_slice() {
        [] if !view.closed_for.is_zero() => {
            format!("closed for another {} after a lease ran out", crate::duration::show(view.closed_for))
        }
        [] if view.waiting > 0 => format!("about to go to the first of {} that wait", view.waiting),
        [] => "free by now; somebody else was faster".into(),
        [first] => format!("held by {}", report::describe(first)),
        [first, rest @ ..] => format!("held by {}, and {} more", report::describe(first), rest.len()),
    }
}

/// Runs the command, and gives the name back.
async fn hold(
    args: &Run,
    held: Held,
    around: Vec<HeldName>,
    lifeline: Option<OwnedFd>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let default = if lifeline.is_some() { IfKilled::Keep } else { IfKilled::Stop };
    let environment = [
        ("LEASEHOLD_NAME", args.name.clone()),
        ("LEASEHOLD_TOKEN", held.token().to_string()),
        ("LEASEHOLD_DEADLINE", deadline(held.remaining())),
        (nested::VARIABLE, nested::with(around, args, &held)),
    ];
    let started = match args.if_killed.unwrap_or(default) {
        IfKilled::Keep => Child::start(&args.command, environment, lifeline),
        // With a lifeline the name stays taken until the last process of the command has ended.
        IfKilled::Stop => Child::start_supervised(&args.command, environment, lifeline, args.grace),
    };
    let mut child = match started {
        Ok(child) => child,
        Err(failure) => {
            // It was held for nothing, so a loss does no harm; but others may have to wait for the end of the lease.
            if let Err(error) = held.release().await {
                tell_not_given_back(&args.name, &error);
            }
            return Err(failure);
        }
    };
    let ended = tokio::select! {
        biased;
        ended = child.ended(signals) => ended,
        why = held.lost() => match child.has_ended() {
            // It needs no stopping; that it did not end in time is seen at the release.
            Some(ended) => Ok(ended),
            None => {
                let lost = lost(&args.name, held.token().get(), why);
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
    // As it is at the end of the command. The release may take its time, and what happens meanwhile harms nobody.
    let standing = held.standing();
    let released = held.release().await;
    let ended = ended.map_err(|error| {
        Failure::new(NOT_STARTED, format!("can not wait for {}: {error}", child.describe()))
    })?;
    match released {
        Ok(()) => Ok(ended.code()),
        // The command may have worked without protection at the end: its success can not be trusted.
        Err(Error::Lost { token, why, .. }) => {
            let lost = lost(&args.name, token, why);
            Err(Failure::new(LOST, format!("{lost}, before the command ended with {}", ended.code())))
        }
        // Only that we leave was not heard; the command worked under the lease to its end.
        Err(error) if standing == Standing::Held && error.is_retryable() => {
            tell_not_given_back(&args.name, &error);
            Ok(ended.code())
        }
        // The store was removed or moved, or the last renewal had failed and the engine can not be asked: others may have
        // held the name while the command still worked.
        Err(error) => Err(Failure::new(
            LOST,
            format!(
                "`{}` may have been lost before the command ended with {}: {error}",
                print::visible(&args.name),
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

fn tell_not_given_back(name: &str, error: &Error) {
    let name = print::visible(name);
    print::complain(&format!("`{name}` was not given back and ends with its lease: {error}"));
}

fn lost(name: &str, token: u64, why: Loss) -> String {
    format!("lost `{}` (token {token}): {why}", print::visible(name))
}
