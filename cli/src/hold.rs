//! `leasehold hold`: hold a name without a command.

use std::io::{self, Write as _};
use std::time::Duration;

use leasehold::{Error, Standing};
use serde::Serialize;

use crate::args::Hold;
use crate::exit::{Failure, LOST};
use crate::print::{self, STRONG, visible};
use crate::signals::{self, Signals};
use crate::take::{self, Held};
use crate::{child, nested};

pub(crate) async fn hold(args: &Hold) -> Result<u8, Failure> {
    let around = nested::around_us();
    let client = take::connect_for(&args.take, "hold".into()).await?;
    let mut signals = Signals::listen(&signals::ENDING)?;
    let held = tokio::select! {
        biased;
        signal = signals.next() => {
            // The wait was dropped, and with it the place in the queue.
            take::leave(&client).await;
            return Ok(child::by_signal(signal.as_raw()));
        }
        held = take::acquire(&client, &args.take, &around) => held,
    };
    let ended = match held {
        Ok(held) => until_told(args, held, &mut signals).await,
        Err(failure) => Err(failure),
    };
    take::leave(&client).await;
    ended
}

/// Holds it until a signal comes, the time is over, or it is lost.
async fn until_told(args: &Hold, held: Held, signals: &mut Signals) -> Result<u8, Failure> {
    let said = say(args, &held);
    if said.is_ok() {
        let over = async {
            match args.for_ {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            lost = held.lost() => return Err(Failure::new(LOST, lost)),
            // To end it is what a signal is for here.
            _ = signals.next() => {}
            () = over => {}
        }
    }
    let standing = held.standing();
    let released = held.release().await;
    // Whoever was to read that it is held has gone; it was held for nobody.
    said?;
    match released {
        Ok(()) => Ok(0),
        Err(Error::Lost { name, token, why }) => Err(Failure::new(LOST, take::lost(&name, token, why))),
        // Only that we leave was not heard; it was held to the end.
        Err(error) if standing == Standing::Held && error.is_retryable() => {
            take::tell_not_given_back(&args.take, &error);
            Ok(0)
        }
        // The store was removed or moved, or the last renewal had failed and the engine can not be
        // asked: others may have held the name meanwhile.
        Err(error) => {
            let names = take::shown_names(&args.take);
            Err(Failure::new(LOST, format!("{names} may have been lost before the end: {error}")))
        }
    }
}

/// What is held, as JSON.
#[derive(Debug, Serialize)]
struct HeldReport<'a> {
    family: &'static str,
    name: &'a str,
    token: u64,
    lease_ends_in_ms: u128,
}

/// Says on stdout that it is held, so that a script that reads it knows.
fn say(args: &Hold, held: &Held) -> io::Result<()> {
    let family = args.take.family();
    let remaining: Duration = held.remaining();
    for (name, token) in held.tokens(&args.take) {
        if args.json {
            print::json(&HeldReport {
                family: family.word(),
                name: &name,
                token,
                lease_ends_in_ms: remaining.as_millis(),
            })?;
        } else {
            let mut out = anstream::stdout().lock();
            writeln!(out, "held {family} {STRONG}{}{STRONG:#}, token {token}", visible(&name))?;
            out.flush()?;
        }
    }
    Ok(())
}
