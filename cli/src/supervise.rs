//! `leasehold supervise`: what stands between a run and its command where the command must not
//! outlive the run.
//!
//! Nobody types this; a `leasehold` that runs a command starts it, and it starts the command. It
//! passes on signals and the command's code, and adds nothing as long as all goes well. If the run
//! is killed, it ends the command and all that this has started. It is their ancestor, so it finds
//! them all, and it is there before the command is. If it is killed itself, the run does the same.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use tokio::signal::unix::{self, SignalKind};

use crate::child::{self, Child};
use crate::exit::{Failure, LOST, NOT_STARTED};
use crate::print;
use crate::signals::{self, Signals};

/// The word that starts it.
pub(crate) const WORD: &str = "supervise";

/// What comes before the command. `failure` is where the code is written if the command can not be
/// started: its own code may be the same.
pub(crate) fn words(grace: Duration, failure: Option<RawFd>) -> [OsString; 5] {
    let run = getpid().to_string();
    let failure = failure.map_or_else(|| NOWHERE.to_owned(), |fd| fd.to_string());
    [WORD.into(), run.into(), grace.as_millis().to_string().into(), failure.into(), "--".into()]
}

const NOWHERE: &str = "-";

pub(crate) async fn supervise(words: Vec<OsString>) -> Result<u8, Failure> {
    let Some((run, grace, failure, command)) = parse(&words) else {
        return Err(Failure::usage("`supervise` is for leasehold itself"));
    };
    let mut signals = Signals::listen(&signals::PASSED_ON)?;
    let mut run = Parent::watch(run)
        .map_err(|error| Failure::new(NOT_STARTED, format!("can not watch over leasehold: {error}")))?;
    if run.has_ended() {
        // It was killed already, and nothing was started.
        return Ok(LOST);
    }
    let mut child = match Child::start(command, [], None) {
        Ok(child) => child,
        Err(not_started) => {
            if failure != NOWHERE {
                let told = fs::write(format!("/proc/self/fd/{failure}"), [not_started.code]);
                told.unwrap_or_else(|error| print::complain(&format!("can not tell of a failure: {error}")));
            }
            return Err(not_started);
        }
    };
    tokio::select! {
        biased;
        ended = child.ended(&mut signals) => {
            ended.map(child::Ended::code).map_err(|error| {
                Failure::new(NOT_STARTED, format!("can not wait for {}: {error}", child.describe()))
            })
        }
        () = run.ended() => {
            print::complain(&format!(
                "the leasehold of {0} was killed; sending TERM to {0} and all that it started",
                child.describe()
            ));
            child.stop(grace, &mut signals).await;
            Ok(LOST)
        }
    }
}

fn parse(words: &[OsString]) -> Option<(Pid, Duration, &str, &[OsString])> {
    let [run, grace, failure, dashes, command @ ..] = words else { return None };
    let run = Pid::from_raw(run.to_str()?.parse().ok()?)?;
    let grace = Duration::from_millis(grace.to_str()?.parse().ok()?);
    (dashes == "--" && !command.is_empty()).then_some((run, grace, failure.to_str()?, command))
}

/// Tells when our parent has ended.
#[derive(Debug)]
struct Parent {
    pid: Pid,
    /// Sent by the kernel when it ends. By default, and so for the command, this signal does
    /// nothing.
    ended: unix::Signal,
}

impl Parent {
    fn watch(pid: Pid) -> io::Result<Parent> {
        let ended = unix::signal(SignalKind::from_raw(Signal::URG.as_raw()))?;
        set_parent_process_death_signal(Some(Signal::URG))?;
        Ok(Parent { pid, ended })
    }

    fn has_ended(&self) -> bool {
        getppid() != Some(self.pid)
    }

    async fn ended(&mut self) {
        // Looked at first: it may have ended before it was watched. And others can send this signal
        // too.
        while !self.has_ended() {
            self.ended.recv().await;
        }
    }
}
