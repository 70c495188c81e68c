//! The signals that are passed on.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Read as _};
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::exit::{Failure, UNAVAILABLE};

/// What an operator, a shell or a terminal sends to end a program.
pub(crate) const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// What is passed on to a command: whatever others send to a program to tell it something.
///
/// Not here, because they are about leasehold itself: the faults of this process (SEGV, BUS, ABRT,
/// ...), its children (CHLD), its own writes (PIPE), and what stops and continues it (TSTP, TTIN,
/// TTOU, CONT), which a shell sends to the whole process group and so to the command as well.
/// Real-time signals can not be sent without unsafe code.
pub(crate) const PASSED_ON: [Signal; 14] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::WINCH,
    Signal::XCPU,
    Signal::XFSZ,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::POWER,
];

/// Hears the signals that this process gets.
#[derive(Debug)]
pub(crate) struct Signals {
    heard: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Listens from now on, except to what is ignored: a handler would undo what `nohup`, or a
    /// shell that starts a job in the background, has set up for the command.
    pub(crate) fn listen(to: &[Signal]) -> Result<Signals, Failure> {
        let ignored = ignored();
        let heard = to.iter().copied().filter(|signal| !ignored.contains(*signal));
        let heard = heard.map(|signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?)));
        let heard: io::Result<_> = heard.collect();
        let heard = heard
            .map_err(|error| Failure::new(UNAVAILABLE, format!("can not listen for signals: {error}")))?;
        Ok(Signals { heard })
    }

    /// The next signal that ends a process unless it is handled.
    ///
    /// Nothing is lost if the future is dropped.
    pub(crate) async fn next_that_ends(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            // A window that changes its size is the only one that does not.
            if signal != Signal::WINCH {
                return signal;
            }
        }
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
    // The only way to ask without unsafe code. Where there is no such file, nothing is taken to be
    // ignored. It is read at one go: a file whose length is not known is read in many small pieces
    // otherwise, and this is on the way of every start.
    let mut status = [0; 4096];
    let length = File::open("/proc/self/status").and_then(|mut file| file.read(&mut status)).unwrap_or(0);
    let status = String::from_utf8_lossy(&status[..length]);
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    Set(line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0))
}

/// True if the command gets this signal without our help: a key at the terminal, or a window that
/// changes its size, sends it to the whole foreground group.
///
/// Who sent it can not be seen here, so an INT that another process sends to a leasehold in the
/// foreground of a terminal is not passed on either. TERM always is.
pub(crate) fn reaches_the_group(signal: Signal) -> bool {
    if ![Signal::INT, Signal::QUIT, Signal::WINCH].contains(&signal) {
        return false;
    }
    let Ok(terminal) = File::open("/dev/tty") else { return false };
    rustix::termios::tcgetpgrp(terminal).is_ok_and(|foreground| foreground == rustix::process::getpgrp())
}
