//! The gate: a lock on a file, which whoever writes to the store takes first.
//!
//! The store has a lock of its own, but that one can be waited for only without a limit. If a
//! process is stopped (SIGSTOP) in the middle of a write, the gate is where the others notice, and
//! say so, instead of hanging.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::dir::{Dir, FileId};
use super::failure::io_failed;
use crate::clock::{Clock as _, SystemClock};
use crate::error::{Error, Result};

/// How long the gate may be shut. A write takes microseconds.
pub(super) const LIMIT: Duration = Duration::from_secs(3);
/// How often a gate that is shut is tried again before a thread is sent to wait for it: at once,
/// and after a nap.
const QUICK_TRIES: u32 = 20;
const TRIES_AFTER_A_NAP: u32 = 10;
const NAP: Duration = Duration::from_micros(20);

/// The gate of a store, as this process has opened it.
#[derive(Debug)]
pub(super) struct Gate {
    file: File,
    /// The lock on the file keeps processes apart, this keeps threads apart.
    threads: Mutex<()>,
}

/// The right to write, until it is dropped.
pub(super) struct Passed<'a> {
    file: &'a File,
    _thread: MutexGuard<'a, ()>,
}

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        // Can only fail if the file was never locked.
        flock(self.file, FlockOperation::Unlock).ok();
    }
}

impl Gate {
    /// Opens the gate's file, and says which file it is.
    pub(super) fn open(dir: &Dir) -> Result<(Gate, FileId)> {
        let path = dir.boot.join("gate");
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(no_link).open(&path);
        let file = file.map_err(|error| io_failed("open", &path, error))?;
        let found = file.metadata().map_err(|error| io_failed("look at", &path, error))?;
        Ok((Gate { file, threads: Mutex::new(()) }, FileId::of(&found)))
    }

    /// The file, for those who need to know its number.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Passes if the gate is open now, or in a moment.
    pub(super) fn try_pass(&self, dir: &Dir) -> Result<Option<Passed<'_>>> {
        for attempt in 0..QUICK_TRIES + TRIES_AFTER_A_NAP {
            let thread = match self.threads.try_lock() {
                Ok(thread) => Some(thread),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(thread) = thread {
                match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => return Ok(Some(Passed { file: &self.file, _thread: thread })),
                    Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                    Err(error) => return Err(failed(dir, error)),
                }
            }
            if attempt < QUICK_TRIES {
                std::hint::spin_loop();
            } else {
                // Whoever has passed may be waiting for this very core. A nap is fairer than to
                // yield: the scheduler puts those first who slept.
                std::thread::sleep(NAP);
            }
        }
        Ok(None)
    }

    /// Waits until the gate is open, however long that takes.
    pub(super) fn pass(&self, dir: &Dir) -> Result<Passed<'_>> {
        let thread = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match flock(&self.file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Passed { file: &self.file, _thread: thread }),
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed(dir, error)),
            }
        }
    }

    /// Waits until the gate is open, and gives up after [`LIMIT`].
    pub(super) fn pass_in_time(&self, dir: &Dir) -> Result<Passed<'_>> {
        const AGAIN: Duration = Duration::from_millis(1);
        let thread = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let give_up = SystemClock.now() + LIMIT;
        loop {
            match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Passed { file: &self.file, _thread: thread }),
                Err(Errno::WOULDBLOCK | Errno::INTR) if SystemClock.now() < give_up => {
                    std::thread::sleep(AGAIN);
                }
                Err(Errno::WOULDBLOCK) => return Err(self.stuck(&dir.root)),
                Err(error) => return Err(failed(dir, error)),
            }
        }
    }

    /// Somebody has been writing for seconds: a process that is stopped, or a disk that hangs.
    pub(super) fn stuck(&self, root: &Path) -> Error {
        let who = self.holder().map_or_else(String::new, |pid| format!(" by process {pid}"));
        Error::Unavailable {
            engine: "file",
            what: format!(
                "the store `{}` has been locked for {LIMIT:?}{who}; if that process is stopped, continue or \
                 kill it",
                root.display()
            ),
            source: None,
        }
    }

    /// The process that has locked the file, as the kernel lists it.
    fn holder(&self) -> Option<u32> {
        let inode = self.file.metadata().ok()?.ino().to_string();
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (kind, pid, file) = (fields.get(1)?, fields.get(4)?, fields.get(5)?);
            (*kind == "FLOCK" && file.rsplit(':').next() == Some(&inode)).then(|| pid.parse().ok())?
        })
    }
}

fn failed(dir: &Dir, error: Errno) -> Error {
    io_failed("lock", &dir.boot.join("gate"), error.into())
}
