//! The command that runs while a name is held.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::unix::pipe;
use tokio::process::{ChildStderr, ChildStdout, Command};
use tokio::signal::unix::{self, SignalKind};

use crate::exit::{BY_SIGNAL, Failure, NOT_FOUND, NOT_STARTED};
use crate::print;
use crate::signals::{self, Signals};
use crate::supervise;
use crate::tree::{self, Tree};

/// A variable of the environment, and its value.
pub(crate) type Variable = (&'static str, String);

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Child {
    program: String,
    child: tokio::process::Child,
    /// Tells when a process has ended whose parent had ended before.
    orphans: unix::Signal,
    /// True if what we have started is not the command but what has started it.
    supervised: bool,
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

impl Child {
    /// Starts a command. It inherits `lifeline`, and nothing else that this program has open.
    pub(crate) fn start(
        command: &[OsString],
        environment: impl IntoIterator<Item = Variable>,
        lifeline: Option<OwnedFd>,
    ) -> Result<Child, Failure> {
        let Some((program, rest)) = command.split_first() else {
            return Err(Failure::usage("there is no command to run"));
        };
        let mut started = Command::new(program);
        started.args(rest).envs(environment);
        let program = program.display().to_string();
        Child::spawn(&mut started, lifeline, program, false)
    }

    /// Starts a command that ends if this process is killed.
    pub(crate) fn start_supervised(
        command: &[OsString],
        environment: impl IntoIterator<Item = Variable>,
        lifeline: Option<OwnedFd>,
        grace: Duration,
    ) -> Result<Child, Failure> {
        let (mut supervisor, program) = supervisor(command, grace, None);
        Child::spawn(supervisor.envs(environment), lifeline, program, true)
    }

    /// Starts a command that ends if this process is killed, and whose output is ours.
    pub(crate) fn start_piped(command: &[OsString], grace: Duration) -> Result<(Child, Output), Failure> {
        let piped =
            pipe::pipe().and_then(|(failed, told)| Ok((told, inheritable(failed.into_blocking_fd()?)?)));
        let (failure, failed) = piped.map_err(|error| {
            Failure::new(NOT_STARTED, format!("can not open a pipe to the command: {error}"))
        })?;
        let (mut supervisor, program) = supervisor(command, grace, Some(failed.as_raw_fd()));
        supervisor.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Child::spawn(&mut supervisor, Some(failed), program, true)?;
        let (stdout, stderr) = (child.child.stdout.take(), child.child.stderr.take());
        Ok((child, Output { stdout, stderr, failure }))
    }

    fn spawn(
        command: &mut Command,
        lifeline: Option<OwnedFd>,
        program: String,
        supervised: bool,
    ) -> Result<Child, Failure> {
        let prepared = tree::adopt_orphans().and_then(|()| unix::signal(SignalKind::child()));
        let orphans = prepared.map_err(|error| not_started(&program, &error))?;
        // Closed again below, before anything else is started.
        let lifeline = lifeline.map(inheritable).transpose();
        let lifeline = lifeline.map_err(|error| not_started(&program, &error))?;
        let started = command.spawn();
        drop(lifeline);
        match started {
            Ok(child) => Ok(Child { program, child, orphans, supervised }),
            Err(error) if supervised => Err(Failure::new(
                NOT_STARTED,
                format!(
                    "can not start what ends the command if leasehold is killed, so the command was not started: {error}"
                ),
            )),
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
                _ = self.orphans.recv() => {
                    tree::reap_orphans(self.pid());
                    continue;
                }
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

    /// The signal that ended what should have ended the command, if one did.
    pub(crate) fn lost_its_supervisor(&self, ended: Ended) -> Option<i32> {
        ended.0.signal().filter(|_| self.supervised)
    }

    /// Ends the command and all that it has started: asks first, and does not ask a second time.
    pub(crate) async fn stop(&mut self, grace: Duration, signals: &mut Signals) {
        let pid = self.pid();
        let mut tree = if self.supervised { Tree::below(pid) } else { Tree::below_us(pid) };
        tree.terminate();
        if tokio::time::timeout(grace, self.all_ended(&tree, signals)).await.is_err() {
            let program = print::visible(&self.program);
            let who = match self.child.id() {
                Some(_) => format!("`{program}`"),
                None => format!("what `{program}` has started"),
            };
            let grace = crate::duration::show(grace);
            print::complain(&format!("{who} did not end within {grace}; sending KILL"));
            tree.kill().await;
        }
        // What supervised it has nothing more to do, and must not start the command if it had not
        // come to that.
        Tree::below_us(self.pid()).kill().await;
        self.child.wait().await.ok();
    }

    /// Waits until all of them have ended, and passes signals on until then.
    async fn all_ended(&mut self, tree: &Tree, signals: &mut Signals) {
        const SHORTEST: Duration = Duration::from_millis(5);
        const LONGEST: Duration = Duration::from_millis(100);
        let mut pause = SHORTEST;
        while !tree.is_empty() {
            // Nobody tells us of the end of those that are not our children.
            if self.child.id().is_some() {
                tokio::time::timeout(pause, self.ended(signals)).await.ok();
            } else {
                tokio::time::sleep(pause).await;
                tree::reap_orphans(None);
            }
            pause = (pause * 2).min(LONGEST);
        }
    }

    /// The command, for messages.
    pub(crate) fn describe(&self) -> String {
        let program = print::visible(&self.program);
        match self.child.id() {
            Some(pid) if !self.supervised => format!("`{program}` (pid {pid})"),
            _ => format!("`{program}`"),
        }
    }

    /// The number of what we have started, until it has been waited for.
    fn pid(&self) -> Option<Pid> {
        self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()))
    }

    fn send(&self, signal: Signal) {
        // The number is the command's until it has been waited for, so the signal can not hit
        // another process.
        if let Some(pid) = self.pid()
            && let Err(error) = kill_process(pid, signal)
            && error != rustix::io::Errno::SRCH
        {
            print::complain(&format!("can not signal {}: {error}", self.describe()));
        }
    }
}

/// What stands between this process and a command: see [`supervise`].
fn supervisor(command: &[OsString], grace: Duration, failure: Option<RawFd>) -> (Command, String) {
    // This very program, even if the file that it came from was replaced.
    let mut supervisor = Command::new("/proc/self/exe");
    supervisor.arg0("leasehold").args(supervise::words(grace, failure)).args(command);
    let program = command.first().map(|program| program.display().to_string()).unwrap_or_default();
    (supervisor, program)
}

/// What a command prints.
#[derive(Debug)]
pub(crate) struct Output {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    failure: pipe::Receiver,
}

impl Output {
    /// All of it, once nobody is left who could print more.
    pub(crate) async fn read(&mut self) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        tokio::try_join!(read(self.stdout.take(), &mut stdout), read(self.stderr.take(), &mut stderr))?;
        Ok((stdout, stderr))
    }

    /// The code of the failure to start the command, if that failed; known when the command has
    /// ended.
    pub(crate) fn not_started(&self) -> Option<u8> {
        let mut code = [0];
        self.failure.try_read(&mut code).is_ok_and(|length| length == 1).then_some(code[0])
    }
}

async fn read(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> io::Result<()> {
    if let Some(mut from) = from {
        from.read_to_end(into).await?;
    }
    Ok(())
}

/// Lets the programs that are started next inherit a descriptor.
fn inheritable(fd: OwnedFd) -> io::Result<OwnedFd> {
    // Scripts use the numbers below this for themselves, and would close it without knowing.
    const LOWEST: RawFd = 10;
    let fd = if fd.as_raw_fd() < LOWEST { fcntl_dupfd_cloexec(&fd, LOWEST)? } else { fd };
    fcntl_setfd(&fd, FdFlags::empty())?;
    Ok(fd)
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
