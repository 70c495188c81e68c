//! `leasehold once`: run a command once, and print what it printed ever after.

use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::{Output, Stdio};
use std::time::Duration;

use leasehold::Options;
use leasehold::kit::once::{IfRunning, IfUnknown, LONGEST_RESULT, Submission};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::args::Once;
use crate::child;
use crate::connect::connect;
use crate::exit::{BUSY, Failure, LOST, NOT_FOUND, NOT_STARTED, UNAVAILABLE};
use crate::signals::{self, Signals};
use crate::{duration, print};

/// The scope of keys that are typed.
const SCOPE: &str = "cli";
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
    let mut signals = Signals::listen(&signals::PASSED_ON)
        .map_err(|error| Failure::new(UNAVAILABLE, format!("can not listen for signals: {error}")))?;
    let payload: Vec<u8> = args.command.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
    let submission = once.run(&args.key, payload, |_| run(args, &mut signals)).await;
    let key = print::visible(&args.key).into_owned();
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

/// Runs the command; its result is its code and what it has printed.
async fn run(args: &Once, signals: &mut Signals) -> Result<Vec<u8>, Failure> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::usage("there is no command to run"));
    };
    let mut command = Command::new(program);
    // If the lease is lost, it must not go on.
    command.args(rest).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let shown = program.display();
    let child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::new(NOT_FOUND, format!("`{shown}` was not found")),
        _ => Failure::new(NOT_STARTED, format!("can not start `{shown}`: {error}")),
    })?;
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let mut ended = pin!(child.wait_with_output());
    let output = loop {
        tokio::select! {
            biased;
            ended = &mut ended => break ended,
            signal = signals.next() => {
                // What is typed at a terminal reaches the command without help.
                let typed = matches!(signal, Signal::INT | Signal::QUIT | Signal::WINCH);
                if let Some(pid) = pid && !(typed && io::stdin().is_terminal()) {
                    kill_process(pid, signal).ok();
                }
            }
        }
    };
    match output {
        Ok(output) => Ok(record(&output)),
        Err(error) => Err(Failure::new(NOT_STARTED, format!("can not wait for `{shown}`: {error}"))),
    }
}

/// What is kept of a command. Of too much output, the end is cut off.
fn record(output: &Output) -> Vec<u8> {
    let code = match (output.status.code(), output.status.signal()) {
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        (None, Some(signal)) => child::by_signal(signal),
        (None, None) => u8::MAX,
    };
    let stdout = &output.stdout[..output.stdout.len().min(LONGEST_RESULT - HEAD)];
    let stderr = &output.stderr[..output.stderr.len().min(LONGEST_RESULT - HEAD - stdout.len())];
    let cut = output.stdout.len() + output.stderr.len() - stdout.len() - stderr.len();
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
