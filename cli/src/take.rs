//! Taking what was asked for, and saying who has it if it can not be had.

use std::io::IsTerminal as _;
use std::pin::pin;
use std::time::Duration;

use leasehold::engine::View;
use leasehold::lock::{Candidate, MultiGuard, ReadGuard};
use leasehold::{Client, Error, Guard, Loss, Options, Result, Standing};

use crate::args::Take;
use crate::connect::connect;
use crate::exit::Failure;
use crate::nested::{self, HeldName, Wait};
use crate::{print, report};

/// Someone at a terminal is told what is waited for after this time.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// How long the engine has to hear that we leave. It finds out by itself if it does not.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);

/// A client for one holder.
pub(crate) async fn connect_for(args: &Take, label: String) -> Result<Client, Failure> {
    let label = args.hold.label.clone().unwrap_or(label);
    // There is nobody else in this process to hand the name to.
    let options = Options::new().lease(args.hold.lease).label(label).hand_over(Duration::ZERO, 0);
    connect(&args.hold.on, options).await
}

/// Lets go of the engine. What it did not hear ends with the lease, and was said where it matters.
pub(crate) async fn leave(client: &Client) {
    tokio::time::timeout(LEAVE_LIMIT, client.close()).await.ok();
}

/// What is held, alone or with others.
#[derive(Debug)]
pub(crate) enum Held {
    Guard(Guard),
    Shared(ReadGuard),
    Several(MultiGuard),
    Leader(Candidate),
}

impl Held {
    /// The names and their tokens; the name that was typed first comes first.
    pub(crate) fn tokens(&self, args: &Take) -> Vec<(String, u64)> {
        let token = |name: &str| match self {
            Held::Guard(guard) => Some(guard.token()),
            Held::Shared(guard) => Some(guard.token()),
            Held::Several(guard) => guard.token(name),
            Held::Leader(candidate) => Some(candidate.token()),
        };
        let names = args.names().into_iter();
        names.filter_map(|name| Some((name.to_owned(), token(name)?.get()))).collect()
    }

    pub(crate) fn standing(&self) -> Standing {
        match self {
            Held::Guard(guard) => guard.standing(),
            Held::Shared(guard) => guard.standing(),
            Held::Several(guard) => guard.standing(),
            Held::Leader(candidate) => candidate.guard().standing(),
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self {
            Held::Guard(guard) => guard.remaining(),
            Held::Shared(guard) => guard.remaining(),
            Held::Several(guard) => guard.remaining(),
            Held::Leader(candidate) => candidate.guard().remaining(),
        }
    }

    /// Waits until it is lost, and says it.
    pub(crate) async fn lost(&self) -> String {
        let checked = match self {
            Held::Guard(guard) => {
                guard.lost().await;
                guard.check()
            }
            Held::Shared(guard) => {
                guard.lost().await;
                guard.check()
            }
            Held::Several(guard) => {
                guard.lost().await;
                guard.check()
            }
            Held::Leader(candidate) => {
                candidate.guard().lost().await;
                candidate.guard().check()
            }
        };
        match checked {
            Err(Error::Lost { name, token, why }) => lost(&name, token, why),
            Err(error) => error.to_string(),
            // What was lost stays lost.
            Ok(()) => "lost the lease".to_owned(),
        }
    }

    pub(crate) async fn release(self) -> Result<()> {
        match self {
            Held::Guard(guard) => guard.release().await,
            Held::Shared(guard) => guard.release().await,
            Held::Several(guard) => guard.release().await,
            Held::Leader(candidate) => candidate.resign().await,
        }
    }
}

pub(crate) fn lost(name: &str, token: u64, why: Loss) -> String {
    format!("lost `{}` (token {token}): {why}", print::visible(name))
}

/// The names that were asked for, for messages.
pub(crate) fn shown_names(args: &Take) -> String {
    let names: Vec<String> =
        args.names().into_iter().map(|name| format!("`{}`", print::visible(name))).collect();
    names.join(", ")
}

pub(crate) fn tell_not_given_back(args: &Take, error: &Error) {
    let (names, ends) = (shown_names(args), if args.also.is_empty() { "ends" } else { "end" });
    let (was, its) = if args.also.is_empty() { ("was", "its") } else { ("were", "their") };
    print::complain(&format!("{names} {was} not given back and {ends} with {its} lease: {error}"));
}

/// Takes what was asked for. If that was not free in time, the failure says who has it.
pub(crate) async fn acquire(client: &Client, args: &Take, around: &[HeldName]) -> Result<Held, Failure> {
    let mut limit = args.limit();
    let wait = nested::check(client, args, around).await?;
    if wait == Wait::AtOnceOrNever {
        limit = Some(Duration::ZERO);
    }
    let mut taken = pin!(take(client, args, limit));
    // A name that is free is taken at once, without a timer or a look at the terminal.
    let held = tokio::select! {
        biased;
        held = &mut taken => held?,
        () = tokio::time::sleep(TELL_AFTER) => {
            if !args.hold.quiet && std::io::stderr().is_terminal() {
                let (name, who) = who_has_it(client, args).await;
                print::remark(&format!("waiting for `{}`, {who}", print::visible(name)));
            }
            taken.await?
        }
    };
    match held {
        Some(held) => Ok(held),
        None if wait == Wait::AtOnceOrNever => Err(nested::not_at_once(args)),
        None => Err(busy(client, args).await),
    }
}

async fn take(client: &Client, args: &Take, limit: Option<Duration>) -> Result<Option<Held>> {
    let (name, delay) = (&args.name, args.hold.lock_delay);
    if let Some(value) = &args.candidacy {
        let election = client.election(name)?.lock_delay(delay);
        return Ok(match limit {
            None => Some(election.campaign(value).await?),
            Some(limit) => election.campaign_for(value, limit).await?,
        }
        .map(Held::Leader));
    }
    if !args.also.is_empty() {
        let several = client.multi(args.names())?.lock_delay(delay);
        return Ok(match limit {
            None => Some(several.lock().await?),
            Some(limit) => several.lock_for(limit).await?,
        }
        .map(Held::Several));
    }
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

/// Says who has the name, unless nobody wants to hear it: cron sends mail if something is said.
async fn busy(client: &Client, args: &Take) -> Failure {
    let code = args.hold.exit_if_busy;
    if args.hold.quiet || code == 0 {
        return Failure { code, message: None };
    }
    let (name, who) = who_has_it(client, args).await;
    Failure::new(code, format!("`{}` is {who}", print::visible(name)))
}

/// The first of the names that is not free, and who has it.
async fn who_has_it<'a>(client: &Client, args: &'a Take) -> (&'a str, String) {
    let mut found = (args.name.as_str(), "free by now; somebody else was faster".to_owned());
    for name in args.names() {
        match client.look(args.family(), name).await {
            Ok(view) => match holders(&view) {
                Some(who) => return (name, who),
                None => continue,
            },
            Err(error) => found = (name, format!("held, and it can not be seen by whom: {error}")),
        }
    }
    found
}

/// Who holds a name, in a few words; `None` if nobody does.
fn holders(view: &View) -> Option<String> {
    match view.claims.as_slice() {
        [] if !view.closed_for.is_zero() => Some(format!(
            "closed for another {} after a lease ran out",
            crate::duration::show(view.closed_for)
        )),
        [] if view.waiting > 0 => Some(format!("about to go to the first of {} that wait", view.waiting)),
        [] => None,
        [first] => Some(format!("held by {}", report::describe(first))),
        [first, rest @ ..] => Some(format!("held by {}, and {} more", report::describe(first), rest.len())),
    }
}
