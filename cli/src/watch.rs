//! `leasehold watch`: changes, as they are seen.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::claim::{Holder, OwnerId};
use leasehold::engine::View;
use leasehold::{Client, Name, Options};
use serde::Serialize;
use tokio::time::MissedTickBehavior;

use crate::args::Watch;
use crate::connect::connect;
use crate::exit::Failure;
use crate::print::{self, FAINT, STRONG, visible};
use crate::report::{self, Share, WhoReport};
use crate::signals::{self, Signals};

/// How often what is in use is compared.
const EVERY: Duration = Duration::from_millis(100);

pub(crate) async fn watch(args: &Watch) -> Result<u8, Failure> {
    let client = connect(&args.on, Options::new()).await?;
    let mut signals = Signals::listen(&signals::ENDING)?;
    let ended = tokio::select! {
        failed = follow(&client, args) => failed.map(|never| match never {}),
        _ = signals.next() => Ok(0),
    };
    client.close().await.ok();
    ended
}

async fn follow(client: &Client, args: &Watch) -> Result<std::convert::Infallible, Failure> {
    let mut ticks = tokio::time::interval(EVERY);
    // After a pause there is one state to compare, not many.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = People::new();
    // What is there at the first look was there before.
    let mut newly_held = What::Held;
    loop {
        ticks.tick().await;
        let mut found = report::in_use(client, args.name.as_deref().unwrap_or("")).await?;
        found.retain(|(name, _)| args.name.as_deref().is_none_or(|wanted| name.as_str() == wanted));
        let now = people(&found);
        let changes = compare(&before, &now, newly_held);
        if args.json {
            print_json(&changes)?;
        } else {
            print_lines(&changes)?;
        }
        before = now;
        newly_held = What::Granted;
    }
}

/// Somebody who holds a name or waits for it.
#[derive(Clone, Debug)]
struct Person {
    holder: Arc<Holder>,
    share: Share,
    /// The token of one who holds.
    token: Option<u64>,
}

type People = BTreeMap<(Name, OwnerId), Person>;

fn people(found: &[(Name, View)]) -> People {
    let mut people = People::new();
    for (name, view) in found {
        let family = name.family();
        for waiting in &view.waiters {
            let (waiter, share) = (&waiting.waiter, Share::new(family, waiting.waiter.weight));
            let person = Person { holder: Arc::clone(&waiter.holder), share, token: None };
            people.insert((name.clone(), waiter.owner), person);
        }
        for held in &view.claims {
            let (claim, share) = (&held.claim, Share::new(family, held.claim.weight));
            let person = Person { holder: Arc::clone(&claim.holder), share, token: Some(claim.token) };
            people.insert((name.clone(), claim.owner), person);
        }
    }
    people
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum What {
    /// Held it no longer, for whatever reason.
    Released,
    /// Waited, and does so no longer, without a grant.
    Left,
    /// Held it when the watch began.
    Held,
    Granted,
    Waiting,
}

/// A change, and whom it concerns.
#[derive(Debug)]
struct Change<'a> {
    what: What,
    name: &'a Name,
    person: &'a Person,
}

/// What happened between two looks. An end comes before the grant that it made possible.
fn compare<'a>(before: &'a People, now: &'a People, newly_held: What) -> Vec<Change<'a>> {
    let mut changes = Vec::new();
    for (key, was) in before {
        let holds_on = now.get(key).is_some_and(|is| is.token == was.token);
        let what = match was.token {
            Some(_) if !holds_on => What::Released,
            None if !now.contains_key(key) => What::Left,
            _ => continue,
        };
        changes.push(Change { what, name: &key.0, person: was });
    }
    for (key, is) in now {
        let what = match (is.token, before.get(key)) {
            (token, Some(was)) if token == was.token => continue,
            (Some(_), _) => newly_held,
            (None, _) => What::Waiting,
        };
        changes.push(Change { what, name: &key.0, person: is });
    }
    changes.sort_by(|a, b| (a.name, a.what).cmp(&(b.name, b.what)));
    changes
}

fn print_lines(changes: &[Change<'_>]) -> io::Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let time = clock();
    let mut out = anstream::stdout().lock();
    for Change { what, name, person } in changes {
        let (family, text) = (name.family(), visible(name.as_str()));
        let who = report::who(&person.holder);
        let (word, link) = match what {
            What::Released => ("released", "by"),
            What::Left => ("left", "by"),
            What::Held => ("held", "by"),
            What::Granted => ("granted", "to"),
            What::Waiting => ("waiting", "by"),
        };
        let token = person.token.map_or_else(String::new, |token| format!(", token {token}"));
        let share = person.share.remark();
        writeln!(
            out,
            "{FAINT}{time}{FAINT:#} {word:<8} {family} {STRONG}{text}{STRONG:#} {link} {who}{token}{share}"
        )?;
    }
    out.flush()
}

/// The time of day, as logs have it.
fn clock() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = now.as_secs() % (24 * 60 * 60);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}Z", seconds % 60, now.subsec_millis())
}

/// A change, as JSON.
#[derive(Debug, Serialize)]
struct ChangeReport<'a> {
    event: What,
    at_ms: u128,
    family: &'static str,
    name: &'a str,
    #[serde(flatten)]
    who: WhoReport<'a>,
    #[serde(flatten)]
    share: Share,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
}

fn print_json(changes: &[Change<'_>]) -> io::Result<()> {
    let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    for Change { what, name, person } in changes {
        print::json(&ChangeReport {
            event: *what,
            at_ms,
            family: name.family().word(),
            name: name.as_str(),
            who: WhoReport::new(&person.holder),
            share: person.share,
            token: person.token,
        })?;
    }
    Ok(())
}
