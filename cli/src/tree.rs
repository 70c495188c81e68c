//! All processes that a command has started, and how to end them.
//!
//! They are found by their parents and not by their process group. A group of its own would take
//! the terminal away from the others in a pipeline (`leasehold run x -- cmd | less`) and Ctrl-C
//! from the script that leasehold is part of; and `timeout`, `setsid` and shells with job control
//! leave the group of their parent, but never its tree. A process whose parent has ended becomes a
//! child of this one ([`adopt_orphans`]), so it is found as well.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal,
    set_child_subreaper, waitpid,
};

use crate::print;

/// Lets processes whose parents have ended become children of this one, instead of those of the
/// system.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Lets go of adopted children that have ended; `own` is somebody else's to wait for.
pub(crate) fn reap_orphans(own: Option<Pid>) {
    for child in children().into_iter().filter(|child| Some(*child) != own) {
        waitpid(Some(child), WaitOptions::NOHANG).ok();
    }
}

/// The children of this process, dead ones too.
fn children() -> Vec<Pid> {
    // Adopted ones are those of the first thread.
    let path = format!("/proc/self/task/{}/children", getpid());
    if let Ok(numbers) = fs::read_to_string(path) {
        return numbers.split(' ').filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw)).collect();
    }
    // A kernel can be built without this file.
    let found = Stat::all().unwrap_or_default().into_iter();
    found.filter(|stat| stat.parent == Some(getpid())).map(|stat| stat.pid).collect()
}

/// The descendants of this process.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The child that all others come from; all that is known where there is no `/proc`.
    child: Option<Pid>,
    /// A child that is not meant, while its descendants are.
    spared: Option<Pid>,
    /// Those that may not be signalled: they run as another user.
    out_of_reach: HashSet<Pid>,
}

impl Tree {
    /// All descendants.
    pub(crate) fn below_us(child: Option<Pid>) -> Tree {
        Tree { child, spared: None, out_of_reach: HashSet::new() }
    }

    /// All descendants but the child itself.
    pub(crate) fn below(child: Option<Pid>) -> Tree {
        Tree { child, spared: child, out_of_reach: HashSet::new() }
    }

    /// Asks all of them to end.
    pub(crate) fn terminate(&self) {
        // A process that starts another one between our look and our signal would leave one that
        // heard nothing. So all of them are stopped first; what is stopped starts nothing. And a
        // process that one of them starts in order to clean up, after it has heard the signal, is
        // not asked to end.
        let mut stopped: HashMap<Pid, Process> = HashMap::new();
        // More rounds than this are needed by nothing but a program that does nothing else than to
        // multiply.
        for _ in 0..100 {
            let mut new = self.members();
            new.retain(|process| !stopped.contains_key(&process.pid));
            if new.is_empty() {
                break;
            }
            for process in new {
                process.send(Signal::STOP).ok();
                stopped.insert(process.pid, process);
            }
        }
        for signal in [Signal::TERM, Signal::CONT] {
            for process in stopped.values() {
                process.send(signal).ok();
            }
        }
    }

    /// Ends all of them, and waits until they are gone.
    pub(crate) async fn kill(&mut self) {
        loop {
            let members = self.members();
            if members.is_empty() {
                return;
            }
            for process in members {
                if let Err(error) = process.send(Signal::KILL)
                    && error != Errno::SRCH
                {
                    let pid = process.pid;
                    print::complain(&format!("can not kill process {pid}, which goes on: {error}"));
                    self.out_of_reach.insert(pid);
                }
            }
            // Those that were started meanwhile are children of ours by now.
            tokio::time::sleep(Duration::from_millis(5)).await;
            reap_orphans(self.child);
        }
    }

    /// True if none of them is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.members().is_empty()
    }

    /// All of them that live now.
    fn members(&self) -> Vec<Process> {
        let Ok(found) = Stat::all() else {
            let child = self.child.filter(|child| Some(*child) != self.spared).and_then(Process::open);
            return child
                .into_iter()
                .filter(|child| Stat::of(child.pid).is_ok_and(|stat| stat.lives))
                .collect();
        };
        let mut children: HashMap<Pid, Vec<&Stat>> = HashMap::new();
        for stat in &found {
            if let Some(parent) = stat.parent {
                children.entry(parent).or_default().push(stat);
            }
        }
        let mut members = Vec::new();
        let mut seen = HashSet::new();
        let mut parents = vec![getpid()];
        while let Some(parent) = parents.pop() {
            for stat in children.get(&parent).into_iter().flatten() {
                // What was read at different moments may go round in a circle.
                if !seen.insert(stat.pid) {
                    continue;
                }
                parents.push(stat.pid);
                if stat.lives && Some(stat.pid) != self.spared && !self.out_of_reach.contains(&stat.pid) {
                    members.extend(Process::open_as(stat));
                }
            }
        }
        members
    }
}

/// A process that can be signalled without hitting another one that got its number.
#[derive(Debug)]
struct Process {
    pid: Pid,
    /// `None` where the kernel can not give one.
    fd: Option<OwnedFd>,
}

impl Process {
    fn open(pid: Pid) -> Option<Process> {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Some(Process { pid, fd: Some(fd) }),
            Err(Errno::SRCH) => None,
            Err(_) => Some(Process { pid, fd: None }),
        }
    }

    /// `None` if it has ended since, whoever has its number now.
    fn open_as(stat: &Stat) -> Option<Process> {
        let process = Process::open(stat.pid)?;
        let now = Stat::of(stat.pid).ok()?;
        (now.started == stat.started && now.lives).then_some(process)
    }

    fn send(&self, signal: Signal) -> rustix::io::Result<()> {
        match &self.fd {
            Some(fd) => pidfd_send_signal(fd, signal),
            None => kill_process(self.pid, signal),
        }
    }
}

/// What `/proc` says of a process.
#[derive(Debug)]
struct Stat {
    pid: Pid,
    parent: Option<Pid>,
    /// In ticks since boot; with the number it is unique.
    started: u64,
    /// False once it only waits for its parent to look.
    lives: bool,
}

impl Stat {
    fn all() -> io::Result<Vec<Stat>> {
        let numbers = fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
        // Who is not there any more when we look has ended.
        let found: Vec<Stat> = numbers.filter_map(|pid| Stat::of(pid).ok()).collect();
        // This process is there, if what we look at is the right `/proc`.
        if found.iter().any(|stat| stat.pid == getpid()) {
            Ok(found)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn of(pid: Pid) -> io::Result<Stat> {
        // The name of the program is in it, which need not be text.
        let line = fs::read(format!("/proc/{pid}/stat"))?;
        Stat::parse(pid, &String::from_utf8_lossy(&line)).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(pid: Pid, line: &str) -> Option<Stat> {
        // The name is in brackets, and may contain some.
        let (_, rest) = line.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
        let parent = fields.get(1)?.parse().ok().and_then(Pid::from_raw);
        let (threads, started) = (number(17)?, number(19)?);
        // The first thread of a process may have ended before the others.
        let lives = !matches!(*fields.first()?, "Z" | "X") || threads > 1;
        Some(Stat { pid, parent, started, lives })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_be_called_anything() {
        let pid = Pid::from_raw(42).unwrap();
        let rest = "7 42 42 0 -1 4194560 99 0 0 0 0 0 0 0 20 0 1 0 8123 2310144 128 0";
        let stat = Stat::parse(pid, &format!("42 (a) S 1 (b) R {rest}")).unwrap();
        assert_eq!((stat.parent, stat.started, stat.lives), (Pid::from_raw(7), 8123, true));
        assert!(!Stat::parse(pid, &format!("42 (x) Z {rest}")).unwrap().lives);
        assert!(Stat::parse(pid, "42 (x").is_none());
    }

    #[test]
    fn this_process_is_found() {
        let all = Stat::all().unwrap();
        assert!(all.iter().any(|stat| stat.pid == getpid() && stat.lives));
    }
}
