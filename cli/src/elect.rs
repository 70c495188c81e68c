//! `leasehold elect`: run a command while this machine leads.

use std::time::Duration;

use leasehold::Client;

use crate::args::{Elect, Take};
use crate::child;
use crate::exit::{Failure, LOST, UNAVAILABLE};
use crate::job::{self, Ran};
use crate::nested::{self, HeldName};
use crate::print;
use crate::signals::{self, Signals};
use crate::take::{self, Held, leave};

/// The pauses after which it stands again while the engine is away.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub(crate) async fn elect(args: &Elect) -> Result<u8, Failure> {
    let around = nested::around_us();
    let take = args.take();
    let client = take::connect_for(&take, args.job.default_label()).await?;
    // Two listeners: who was told to end while the command ran, or was being stopped, does not
    // stand again.
    let (mut passed_on, mut ending) =
        (Signals::listen(&signals::PASSED_ON)?, Signals::listen(&signals::ENDING)?);
    let mut first = true;
    let ended = loop {
        let lifeline = match job::lifeline(&client, &args.job) {
            Ok(lifeline) => lifeline,
            Err(failure) => break Err(failure),
        };
        let elected = tokio::select! {
            // Nothing is started any more once a signal is here.
            biased;
            signal = passed_on.next_that_ends() => break Ok(child::by_signal(signal.as_raw())),
            signal = ending.next() => break Ok(child::by_signal(signal.as_raw())),
            elected = campaign(&client, &take, &around, first) => elected,
        };
        let held = match elected {
            Ok(held) => held,
            Err(failure) => break Err(failure),
        };
        first = false;
        match job::run(&client, &take, &args.job, held, around.clone(), lifeline, &mut passed_on).await {
            Ran::Ended(ended) => break ended,
            Ran::Stopped if args.one_term => break Err(Failure { code: LOST, message: None }),
            Ran::Stopped => {}
        }
    };
    leave(&client).await;
    ended
}

/// Waits until it leads. Outages are waited for, but for one at the very beginning: that may be a
/// wrong address.
async fn campaign(client: &Client, take: &Take, around: &[HeldName], first: bool) -> Result<Held, Failure> {
    let mut pause = FIRST_PAUSE;
    loop {
        match take::acquire(client, take, around).await {
            Err(Failure { code: UNAVAILABLE, message }) if !first => {
                if pause == FIRST_PAUSE
                    && let Some(message) = message
                {
                    print::complain(&format!("{message}; it is tried again"));
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            elected => return elected,
        }
    }
}
