//! The signals that are passed on.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Read as _};
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// What can be passed on to a command.
const PASSED_ON: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// Hears the signals that this process gets.
#[derive(Debug)]
pub(crate) struct Signals {
    heard: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Listens from now on, except to what is ignored: a handler would undo what `nohup`, or a shell that starts a job in
    /// the background, has set up for the command.
    pub(crate) fn listen() -> io::Result<Signals> {
        let ignored = ignored();
        let heard = PASSED_ON.into_iter().filter(|signal| !ignored.contains(*signal));
        let heard = heard.map(|signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?)));
        Ok(Signals { heard: heard.collect::<io::Result<_>>()? })
    }

    /// The next signal. Nothing is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, heard) in &mut self.heard {
                if let Poll::Ready(Some(())) = heard.poll_recv(context) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// A set of signals, as the kernel writes it.
#[derive(Clone, Copy, Debug, Default)]
struct Set(u64);

impl Set {
    fn contains(self, signal: Signal) -> bool {
        self.0 >> (signal.as_raw() - 1) & 1 == 1
    }
}

/// The signals that are ignored in this process.
fn ignored() -> Set {
    // The only way to ask without unsafe code. Where there is no such file, nothing is taken to be ignored. It is read
    // at one go: a file whose length is not known is read in many small pieces otherwise, and this is on the way of
    // every start.
    let mut status = [0; 4096];
    let length = File::open("/proc/self/status").and_then(|mut file| file.read(&mut status)).unwrap_or(0);
    let status = String::from_utf8_lossy(&status[..length]);
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    Set(line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0))
}

/// True if the command gets this signal without our help: a key at the terminal sends it to the whole foreground group.
///
/// Who sent it can not be seen here, so an INT that another process sends to a leasehold in the foreground of a terminal
/// is not passed on either. TERM always is.
pub(crate) fn reaches_the_group(signal: Signal) -> bool {
    if signal != Signal::INT && signal != Signal::QUIT {
        return false;
    }
    let Ok(terminal) = File::open("/dev/tty") else { return false };
    rustix::termios::tcgetpgrp(terminal).is_ok_and(|foreground| foreground == rustix::process::getpgrp())
}
