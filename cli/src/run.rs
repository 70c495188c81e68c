//! `leasehold run`: hold a name while a command runs.

use crate::args::Run;
use crate::child;
use crate::exit::{Failure, LOST};
use crate::job::{self, Ran};
use crate::nested;
use crate::signals::{self, Signals};
use crate::take::{self, leave};

pub(crate) async fn run(args: &Run) -> Result<u8, Failure> {
    let around = nested::around_us();
    let client = take::connect_for(&args.take, args.job.default_label()).await?;
    let lifeline = job::lifeline(&client, &args.job)?;
    // Only now: until here a signal finds nothing to undo and may end the process as it always
    // does.
    let mut signals = Signals::listen(&signals::PASSED_ON)?;
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
        Ok(held) => {
            match job::run(&client, &args.take, &args.job, held, around, lifeline, &mut signals).await {
                Ran::Ended(ended) => ended,
                Ran::Stopped => Err(Failure { code: LOST, message: None }),
            }
        }
        Err(failure) => Err(failure),
    };
    leave(&client).await;
    // The process ends now, and the kernel takes the store's memory back faster than we would.
    std::mem::forget(client);
    ended
}
