//! The liveness of clients: how a client shows that it lives, and how others see that it died.
//!
//! A client keeps a named pipe of its own open, and locked, for as long as it lives. The kernel
//! frees the lock and closes the pipe when the process ends, however it ends. So whoever can take
//! the lock knows that the client is dead, and whoever reads from the pipe is told when it dies.
//! No process number is trusted for that: it works across containers that share the directory.
//!
//! A client can give a copy of its pipe to another program (`lifeline`), which then keeps it alive.
//! The client's process locks a second file beside the pipe, which no other program inherits. If
//! that one is free and the pipe is not, the process has ended and the other program goes on: then
//! the claims of the client are kept without renewal.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, mkfifoat};
use tokio::net::unix::pipe;

use super::dir::Dir;
use super::failure::io_failed;
use super::fork::NotInChild;
use super::mailbox::wake_path;
use super::store;
use super::trust::Share;
use crate::claim::Seat;
use crate::error::Result;

/// How often a peer is looked at whose end can not be waited for.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked at all the same.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);

/// A client's proof of life.
#[derive(Debug)]
pub(super) struct LifeFile {
    path: NotInChild<PathBuf>,
    locked: File,
    /// Locked by this process alone, from when the client first gave its lifeline away.
    process: Option<File>,
}

impl LifeFile {
    /// Makes the pipe of a client. It is seen by others only once it is locked.
    pub(super) fn create(dir: &Dir, seat: Seat) -> Result<LifeFile> {
        let path = alive_path(dir, seat);
        let new = path.with_extension("new");
        let made = (|| {
            mkfifoat(CWD, &new, Mode::from_raw_mode(dir.share.file_mode()))?;
            // Opened for both, so that neither the open nor anything later waits for a reader.
            let pipe = OpenOptions::new().read(true).write(true).open(&new)?;
            lock_and_show(&pipe, &new, &path, dir.share)?;
            Ok(pipe)
        })();
        let locked = made.map_err(|error: io::Error| io_failed("write to", &new, error))?;
        Ok(LifeFile { path: NotInChild::new(path), locked, process: None })
    }

    /// A copy of the locked pipe. Whoever has it open keeps the client alive, for the lock belongs
    /// to the pipe as it was opened and not to a process. So that the others can tell when nobody
    /// renews any more, the process locks a second file, which it keeps to itself.
    pub(super) fn lifeline(&mut self, dir: &Dir) -> Result<OwnedFd> {
        if self.process.is_none() {
            let path = process_path(&self.path);
            let new = path.with_extension("process.new");
            let made = (|| {
                let mut options = OpenOptions::new();
                let options = options.write(true).create_new(true).mode(dir.share.file_mode());
                let file = options.open(&new)?;
                lock_and_show(&file, &new, &path, dir.share)?;
                Ok(file)
            })();
            let made = made.map_err(|error: io::Error| {
                fs::remove_file(&new).ok();
                io_failed("write to", &new, error)
            });
            self.process = Some(made?);
        }
        let copy = self.locked.try_clone().map_err(|error| io_failed("copy", &self.path, error))?;
        Ok(copy.into())
    }
}

impl Drop for LifeFile {
    fn drop(&mut self) {
        if self.path.at_home() {
            remove_files(&self.path);
        }
    }
}

/// Locks a new file before others see it under its name.
fn lock_and_show(file: &File, new: &Path, path: &Path, share: Share) -> io::Result<()> {
    flock(file, FlockOperation::NonBlockingLockExclusive)?;
    if share == Share::Group {
        // The umask took the group's right to write.
        fs::set_permissions(new, fs::Permissions::from_mode(share.file_mode()))?;
    }
    fs::rename(new, path)
}

/// Removes what shows that a client lives. The second file goes first, so that it is never left
/// alone.
fn remove_files(path: &Path) {
    fs::remove_file(process_path(path)).ok();
    fs::remove_file(path).ok();
}

fn process_path(seat: &Path) -> PathBuf {
    seat.with_extension("process")
}

fn alive_path(dir: &Dir, seat: Seat) -> PathBuf {
    dir.boot.join("alive").join(seat.to_string())
}

/// Opens the pipe of another client, to look or to listen.
fn open_peer(dir: &Dir, seat: Seat) -> io::Result<File> {
    // Without the flag the open would wait for a writer, who may be dead.
    let no_wait = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(no_wait).open(alive_path(dir, seat))
}

/// What is known of other clients.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// The files of those that were alive when last looked at.
    open: Mutex<HashMap<Seat, File>>,
}

impl Peers {
    /// False only if the client is known to be dead.
    pub(super) fn alive(&self, dir: &Dir, seat: Seat) -> bool {
        const MOST_OPEN: usize = 64;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(&seat) {
            if locked_by_other(file) {
                return true;
            }
            open.remove(&seat);
            remove_files(&alive_path(dir, seat));
            return false;
        }
        match open_peer(dir, seat) {
            Ok(file) if locked_by_other(&file) => {
                if open.len() >= MOST_OPEN {
                    open.clear();
                }
                open.insert(seat, file);
                true
            }
            Ok(_) => {
                remove_files(&alive_path(dir, seat));
                false
            }
            // Out of file descriptors, say: nothing is known, and nobody is declared dead.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// True if the client's process has ended and its lifeline has not: its claims stand, and
    /// nobody renews them.
    pub(super) fn kept(&self, dir: &Dir, seat: Seat) -> bool {
        let ended = match File::open(process_path(&alive_path(dir, seat))) {
            Ok(file) => !locked_by_other(&file),
            // As above: what is not known ends nobody's claim.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        ended && self.alive(dir, seat)
    }
}

fn locked_by_other(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            flock(file, FlockOperation::Unlock).ok();
            false
        }
        Err(_) => true,
    }
}

/// Waits until a client is dead.
pub(super) async fn death(dir: &Dir, peers: &Peers, seat: Seat) {
    let pipe = open_peer(dir, seat).and_then(pipe::Receiver::from_file).map(NotInChild::new).ok();
    while peers.alive(dir, seat) {
        let Some(pipe) = &pipe else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        // Nobody ever writes: the pipe can be read when its other end is closed.
        tokio::time::timeout(LOOK_ANYWAY, pipe.readable()).await.ok();
        if pipe.try_read(&mut [0]).is_ok() && peers.alive(dir, seat) {
            // Closed and still locked: the instant before the end.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Removes what dead clients left behind.
pub(super) fn tidy(dir: &Dir, peers: &Peers) {
    remove_old_links(dir);
    for entry in fs::read_dir(dir.boot.join("alive")).into_iter().flatten().flatten() {
        let name = entry.file_name();
        // `<seat>`, or `<seat>.process` beside it. A `<seat>.new` is on its way to its name.
        let Some((seat, kind)) = name.to_str().map(|name| name.split_once('.').unwrap_or((name, ""))) else {
            continue;
        };
        if let Ok(seat) = seat.parse()
            && kind != "new"
            && !peers.alive(dir, seat)
        {
            fs::remove_file(entry.path()).ok();
            fs::remove_file(wake_path(&dir.boot, seat)).ok();
        }
    }
}

/// Removes the links of clients that died while they opened the store, which takes milliseconds.
fn remove_old_links(dir: &Dir) {
    const OLD: Duration = Duration::from_secs(60);
    for entry in fs::read_dir(&dir.boot).into_iter().flatten().flatten() {
        let links = entry.file_name().to_string_lossy().starts_with(store::LINKS);
        let made = entry.metadata().and_then(|found| found.modified());
        if links && made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > OLD)) {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}
