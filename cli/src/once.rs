//! `leasehold once`: run a command once, and print what it printed ever after.

use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use leasehold::Options;
use leasehold::kit::once::{Ending, IfRunning, IfUnknown, LONGEST_RESULT, Submission};

use crate::args::Once;
use crate::child::Child;
use crate::connect::connect;
use crate::exit::{BUSY, Failure, LOST, UNAVAILABLE};
use crate::signals::{self, Signals};
use crate::{duration, print};

/// The scope of keys that are typed.
pub(crate) const SCOPE: &str = "cli";
/// Bytes of a result before the output: the code, and the length of what went to stdout.
const HEAD: usize = 5;

pub(crate) async fn once(args: &Once) -> Result<u8, Failure> {
    let client = connect(&args.on, Options::new().lease(args.lease)).await?;
    let mut once = client.once(SCOPE)?.kept_for(args.keep).lease(args.lease);
    if let Some(limit) = args.wait {
        once = once.if_running(IfRunning::Wait(limit));
    }
    if args.run_again {
        once = once.if_unknown(IfUnknown::RunAgain);
    }
    let mut signals = Signals::listen(&signals::PASSED_ON)?;
    let payload: Vec<u8> = args.command.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
    let mut running = None;
    let submission = once.run_to_ending(&args.key, payload, |_| run(args, &mut signals, &mut running)).await;
    let key = print::visible(&args.key).into_owned();
    if let Some(mut child) = running {
        let command = child.describe();
        print::complain(&format!("sending TERM to {command} and all that it started"));
        child.stop(args.grace, &mut signals).await;
    }
    let ended = match submission? {
        Submission::Done { result, recorded, .. } => {
            if !recorded {
                print::complain(&format!(
                    "`{key}` has run, and that could not be recorded; others are told that it is unknown"
                ));
            }
            replay(&result)
        }
        Submission::Failed(failure) => Err(failure),
        Submission::InProgress { retry_after } => Err(Failure::new(
            BUSY,
            format!("`{key}` is running; ask again in {} at the latest", duration::show(retry_after)),
        )),
        Submission::Unknown { since } => Err(Failure::new(
            LOST,
            format!(
                "`{key}` was started and fell silent {} ago; it has run to its end or not. If it does no harm \
                 to run it twice, say --run-again",
                duration::show(Duration::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
            ),
        )),
        Submission::Mismatch => {
            Err(Failure::usage(format!("`{key}` was used for another command; choose another key")))
        }
    };
    client.close().await.ok();
    ended
}

/// The command, while it runs. It outlives the future that runs it: if that is dropped because the
/// lease is lost, the command must be ended.
type Running = Option<Child>;

/// Runs the command; its result is its code and what it has printed.
async fn run(args: &Once, signals: &mut Signals, running: &mut Running) -> Ending<Failure> {
    let (child, mut output) = match Child::start_piped(&args.command, args.grace) {
        Ok(started) => started,
        Err(failure) => return Ending::Forget(failure),
    };
    let child = running.insert(child);
    let supervised = async {
        let ended = match child.ended(signals).await {
            Ok(ended) => ended,
            Err(error) => return Err(format!("can not wait for {}: {error}", child.describe())),
        };
        match child.lost_its_supervisor(ended) {
            // The command may go on, and nothing would end it if we were killed as well.
            Some(signal) => Err(format!("what supervises {} was ended by signal {signal}", child.describe())),
            None => Ok(ended),
        }
    };
    let read = async { output.read().await.map_err(|error| format!("can not read what it prints: {error}")) };
    let (ended, (stdout, stderr)) = match tokio::try_join!(supervised, read) {
        Ok(waited) => waited,
        Err(why) => return Ending::Unknown(Failure::new(LOST, why)),
    };
    *running = None;
    match output.not_started() {
        Some(code) => {
            io::stderr().write_all(&stderr).ok();
            Ending::Forget(Failure { code, message: None })
        }
        None => Ending::Keep(record(ended.code(), &stdout, &stderr)),
    }
}

/// What is kept of a command. Of too much output, the end is cut off.
fn record(code: u8, stdout: &[u8], stderr: &[u8]) -> Vec<u8> {
    let all = stdout.len() + stderr.len();
    let stdout = &stdout[..stdout.len().min(LONGEST_RESULT - HEAD)];
    let stderr = &stderr[..stderr.len().min(LONGEST_RESULT - HEAD - stdout.len())];
    let cut = all - stdout.len() - stderr.len();
    if cut > 0 {
        print::complain(&format!(
            "the last {cut} bytes of the output are too much to be kept, and are cut off"
        ));
    }
    let length = u32::try_from(stdout.len()).unwrap_or(u32::MAX);
    [&[code], length.to_be_bytes().as_slice(), stdout, stderr].concat()
}

/// Prints what a command has printed; its code.
fn replay(result: &[u8]) -> Result<u8, Failure> {
    let parts = || {
        let (code, rest) = result.split_first()?;
        let (length, output) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        Some((*code, output.split_at_checked(length)?))
    };
    let Some((code, (stdout, stderr))) = parts() else {
        return Err(Failure::new(UNAVAILABLE, "what is recorded is not the output of a command"));
    };
    // Nobody is left to tell if stderr is closed.
    io::stderr().write_all(stderr).ok();
    let mut out = io::stdout().lock();
    out.write_all(stdout)?;
    out.flush()?;
    Ok(code)
}
