//! `leasehold run`: hold a name while a command runs.

use std::io::IsTerminal as _;
use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

use leasehold::engine::View;
use leasehold::lock::ReadGuard;
use leasehold::{Client, Error, Family, Guard, Loss, Options, Result, Standing};

use crate::args::Run;
use crate::child::{self, Child};
use crate::connect::connect;
use crate::exit::{Failure, LOST, NOT_STARTED, UNAVAILABLE};
use crate::signals::{self, Signals};
use crate::{print, report};

/// Someone at a terminal is told what is waited for after this time.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// How long the engine has to hear that we leave. It finds out by itself if it does not.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &Run) -> Result<u8, Failure> {
    let label = args.label.clone().unwrap_or_else(|| child::program_name(&args.command));
    // There is nobody else in this process to hand the name to.
    let options = Options::new().lease(args.lease).label(label).hand_over(Duration::ZERO, 0);
    let client = connect(&args.on, options).await?;
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
        held = acquire(&client, args) => held?,
    };
    let ended = match held {
        Some(held) => hold(args, held, &mut signals).await,
        None => Err(busy(&client, args).await),
    };
    leave(&client).await;
    // The process ends now, and the kernel takes the store's memory back faster than we would.
    std::mem::forget(client);
    ended
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

fn family(args: &Run) -> Family {
    if args.slots.is_some() { Family::Semaphore } else { Family::Lock }
}

/// Takes the name; `None` if it was not free in time.
async fn acquire(client: &Client, args: &Run) -> Result<Option<Held>> {
    let mut taken = pin!(take(client, args));
    // A name that is free is taken at once, without a timer or a look at the terminal.
    tokio::select! {
        biased;
        held = &mut taken => return held,
        () = tokio::time::sleep(TELL_AFTER) => {}
    }
    if std::io::stderr().is_terminal()
        && let Ok(view) = client.look(family(args), &args.name).await
    {
        print::complain(&format!("waiting for `{}`, {}", print::visible(&args.name), holders(&view)));
    }
    taken.await
}

async fn take(client: &Client, args: &Run) -> Result<Option<Held>> {
    let limit = if args.no_wait { Some(Duration::ZERO) } else { args.wait };
    let (name, delay) = (&args.name, args.lock_delay);
    if let Some(slots) = args.slots {
        let semaphore = client.semaphore(name, slots)?.lock_delay(delay);
        return Ok(match limit {
            None => Some(semaphore.acquire().await?),
            Some(limit) => semaphore.acquire_for(1, limit).await?,
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
    let who = match client.look(family(args), &args.name).await {
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
async fn hold(args: &Run, held: Held, signals: &mut Signals) -> Result<u8, Failure> {
    let mut child = match Child::start(&args.command, &held) {
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
                print::complain(&format!("{lost}; sending TERM to {}", child.describe()));
                child.stop(args.grace, signals).await.ok();
                return Err(Failure { code: LOST, message: None });
            }
        }
    };
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

fn tell_not_given_back(name: &str, error: &Error) {
    let name = print::visible(name);
    print::complain(&format!("`{name}` was not given back and ends with its lease: {error}"));
}

fn lost(name: &str, token: u64, why: Loss) -> String {
    format!("lost `{}` (token {token}): {why}", print::visible(name))
}
