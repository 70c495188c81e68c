//! The command that runs while a name is held.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::Guard;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::exit::{BY_SIGNAL, Failure, NOT_FOUND, NOT_STARTED};
use crate::print;
use crate::signals::{self, Signals};

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Child {
    program: String,
    child: tokio::process::Child,
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended(ExitStatus);

impl Ended {
    /// The command's own code, or what a shell would say of a signal.
    pub(crate) fn code(self) -> u8 {
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
            (None, Some(signal)) => by_signal(signal),
            (None, None) => u8::MAX,
        }
    }
}

pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(u8::MAX, |signal| BY_SIGNAL.saturating_add(signal))
}

/// What a command is called.
pub(crate) fn program_name(command: &[OsString]) -> String {
    let program = command.first().map(Path::new);
    program.and_then(Path::file_name).map(OsStr::to_string_lossy).unwrap_or_default().into_owned()
}

impl Child {
    /// Starts a command under a name that is held.
    pub(crate) fn start(command: &[OsString], guard: &Guard) -> Result<Child, Failure> {
        let Some((program, rest)) = command.split_first() else {
            return Err(Failure::usage("there is no command to run"));
        };
        let started = Command::new(program)
            .args(rest)
            .env("LEASEHOLD_NAME", guard.name())
            .env("LEASEHOLD_TOKEN", guard.token().to_string())
            .env("LEASEHOLD_DEADLINE", deadline(guard.remaining()))
            .spawn();
        let program = program.display().to_string();
        match started {
            Ok(child) => Ok(Child { program, child }),
            Err(error) => Err(not_started(&program, &error)),
        }
    }

    /// Waits until the command has ended, and passes signals on until then.
    ///
    /// Nothing is lost if the future is dropped.
    pub(crate) async fn ended(&mut self, signals: &mut Signals) -> io::Result<Ended> {
        loop {
            let signal = tokio::select! {
                biased;
                ended = self.child.wait() => return ended.map(Ended),
                signal = signals.next() => signal,
            };
            if !signals::reaches_the_group(signal) {
                self.send(signal);
            }
        }
    }

    /// How the command ended, if it has.
    pub(crate) fn has_ended(&mut self) -> Option<Ended> {
        self.child.try_wait().ok().flatten().map(Ended)
    }

    /// Ends the command: asks first, and does not ask a second time.
    pub(crate) async fn stop(&mut self, grace: Duration, signals: &mut Signals) -> io::Result<Ended> {
        self.send(Signal::TERM);
        // A command that is stopped would hear of it only when it goes on.
        self.send(Signal::CONT);
        if let Ok(ended) = tokio::time::timeout(grace, self.ended(signals)).await {
            return ended;
        }
        print::complain(&format!(
            "`{}` did not end within {}; sending KILL",
            print::visible(&self.program),
            crate::duration::show(grace)
        ));
        self.send(Signal::KILL);
        self.child.wait().await.map(Ended)
    }

    /// The command, for messages.
    pub(crate) fn describe(&self) -> String {
        let program = print::visible(&self.program);
        self.child.id().map_or_else(|| format!("`{program}`"), |pid| format!("`{program}` (pid {pid})"))
    }

    fn send(&self, signal: Signal) {
        // The number is the command's until it has been waited for, so the signal can not hit another process.
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid
            && let Err(error) = kill_process(pid, signal)
            && error != rustix::io::Errno::SRCH
        {
            print::complain(&format!("can not signal {}: {error}", self.describe()));
        }
    }
}

/// When a lease ends, in milliseconds of Unix time.
fn deadline(remaining: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now + remaining).as_millis().to_string()
}

fn not_started(program: &str, error: &io::Error) -> Failure {
    let shown = print::visible(program);
    match error.kind() {
        io::ErrorKind::NotFound if program.contains('/') => {
            Failure::new(NOT_FOUND, format!("can not start `{shown}`: it, or what runs it, does not exist"))
        }
        io::ErrorKind::NotFound => {
            Failure::new(NOT_FOUND, format!("can not start `{shown}`: there is no such command in PATH"))
        }
        io::ErrorKind::PermissionDenied => {
            Failure::new(NOT_STARTED, format!("can not start `{shown}`: it is not executable"))
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => Failure::new(
            NOT_STARTED,
            format!(
                "can not start `{shown}`: it is not a program; a script needs a first line like `#!/bin/sh`"
            ),
        ),
        _ => Failure::new(NOT_STARTED, format!("can not start `{shown}`: {error}")),
    }
}
