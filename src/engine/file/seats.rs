//! Seats: who lives, and how to reach them.
//!
//! A client keeps a named pipe of its own open, and locked, for as long as it lives. The kernel frees the lock and closes
//! the pipe when the process ends, however it ends. So whoever can take the lock knows that the client is dead, and
//! whoever reads from the pipe is told when it dies. No process number is trusted for that: it works across
//! containers that share the directory.
//!
//! A client can give a copy of its pipe to another program (`lifeline`), which then keeps it alive. The client's process
//! locks a second file beside the pipe, which no other program inherits. If that one is free and the pipe is not, the
//! process has ended and the other program goes on: then the claims of the client are kept without renewal.
//!
//! A client that waits listens on a datagram socket beside it. A message is a hint; losing one costs time only.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, mkfifoat};
use tokio::net::unix::pipe;

use super::dir::Dir;
use super::failure::io_failed;
use super::fork::NotInChild;
use super::store;
use super::trust::Share;
use crate::claim::{OwnerId, Seat};
use crate::engine::Hint;
use crate::error::Result;
use crate::name::{Family, Name};

/// How often a peer is looked at whose end can not be waited for.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked at all the same.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);

/// A client's proof of life.
#[derive(Debug)]
pub(super) struct SeatFile {
    path: NotInChild<PathBuf>,
    locked: File,
    /// Locked by this process alone, from when the client first gave its lifeline away.
    process: Option<File>,
}

impl SeatFile {
    /// Takes a seat. It is seen by others only once it is locked.
    pub(super) fn take(dir: &Dir, seat: Seat) -> Result<SeatFile> {
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
        Ok(SeatFile { path: NotInChild::new(path), locked, process: None })
    }

    /// A copy of the locked pipe. Whoever has it open keeps the client alive, for the lock belongs to the
    /// pipe as it was opened and not to a process. So that the others can tell when nobody renews any more, the
    /// process locks a second file, which it keeps to itself.
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

impl Drop for SeatFile {
    fn drop(&mut self) {
        if self.path.at_home() {
            remove_seat(&self.path);
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

/// Removes what shows that a client lives. The second file goes first, so that it is never left alone.
fn remove_seat(path: &Path) {
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
            remove_seat(&alive_path(dir, seat));
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
                remove_seat(&alive_path(dir, seat));
                false
            }
            // Out of file descriptors, say: nothing is known, and nobody is declared dead.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// True if the client's process has ended and its lifeline has not: its claims stand, and nobody renews
    /// them.
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

fn wake_path(boot: &Path, seat: Seat) -> PathBuf {
    boot.join("wake").join(seat.to_string())
}

/// The addresses of sockets in a directory. The name of a socket may be 107 bytes long at most; a longer one is reached
/// through the open directory.
#[derive(Debug)]
struct Addresses {
    boot: PathBuf,
    opened: Option<File>,
}

impl Addresses {
    fn new(dir: &Dir) -> Result<Addresses> {
        // Room for a slash and the longest number.
        const LONGEST: usize = 107 - 21;
        let wake = dir.boot.join("wake");
        let opened = if wake.as_os_str().len() > LONGEST {
            Some(File::open(&wake).map_err(|error| io_failed("open", &wake, error))?)
        } else {
            None
        };
        Ok(Addresses { boot: dir.boot.clone(), opened })
    }

    fn of(&self, seat: Seat) -> PathBuf {
        match &self.opened {
            Some(dir) => PathBuf::from(format!("/proc/self/fd/{}/{seat}", dir.as_raw_fd())),
            None => wake_path(&self.boot, seat),
        }
    }
}

/// Sends hints to other clients.
#[derive(Debug)]
pub(super) struct Post {
    /// Made when there is something to send.
    socket: OnceLock<UnixDatagram>,
    addresses: Addresses,
}

impl Post {
    pub(super) fn new(dir: &Dir) -> Result<Post> {
        Ok(Post { socket: OnceLock::new(), addresses: Addresses::new(dir)? })
    }

    fn socket(&self) -> io::Result<&UnixDatagram> {
        if let Some(socket) = self.socket.get() {
            return Ok(socket);
        }
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(self.socket.get_or_init(|| socket))
    }

    /// Sends a message; whoever it is for asks again in time if it is lost.
    pub(super) fn send(&self, seat: Seat, message: &[u8]) {
        const TRIES: u32 = 100;
        let address = self.addresses.of(seat);
        let Ok(socket) = self.socket() else { return };
        for _ in 0..TRIES {
            match socket.send_to(message, &address) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    // Nobody listens there any more.
                    fs::remove_file(&address).ok();
                    return;
                }
                _ => return,
            }
        }
    }

    /// Listens for what is sent to `seat`.
    pub(super) fn listen(&self, dir: &Dir, seat: Seat) -> Result<Mailbox> {
        let path = wake_path(&dir.boot, seat);
        let socket = tokio::net::UnixDatagram::bind(self.addresses.of(seat)).and_then(|socket| {
            fs::set_permissions(&path, fs::Permissions::from_mode(dir.share.file_mode()))?;
            Ok(socket)
        });
        let socket = socket.map_err(|error| io_failed("listen at", &path, error))?;
        Ok(Mailbox { socket: NotInChild::new(socket), path })
    }
}

/// Where a client hears hints.
#[derive(Debug)]
pub(super) struct Mailbox {
    socket: NotInChild<tokio::net::UnixDatagram>,
    path: PathBuf,
}

impl Mailbox {
    pub(super) async fn receive(&self) -> io::Result<Vec<Hint>> {
        let mut message = vec![0; 1 << 16];
        let length = self.socket.recv(&mut message).await?;
        Ok(decode(&message[..length]))
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if self.socket.at_home() {
            fs::remove_file(&self.path).ok();
        }
    }
}

/// A message that wakes owners.
pub(super) fn wake_message(owners: impl Iterator<Item = OwnerId>) -> Vec<u8> {
    let mut message = vec![b'w'];
    owners.for_each(|owner| message.extend_from_slice(&owner.0.to_be_bytes()));
    message
}

/// A message that tells an owner that its claim was broken.
pub(super) fn broken_message(owner: OwnerId) -> Vec<u8> {
    [b"b".as_slice(), &owner.0.to_be_bytes()].concat()
}

/// A message that an election or a cell has changed.
pub(super) fn changed_message(name: &Name) -> Vec<u8> {
    let family = super::rows::family_byte(name.family());
    [&[b'c', family], name.as_str().as_bytes()].concat()
}

/// Understands a message; what can not be understood wakes everybody.
fn decode(message: &[u8]) -> Vec<Hint> {
    let owners = |bytes: &[u8]| -> Vec<OwnerId> {
        bytes.as_chunks::<16>().0.iter().map(|owner| OwnerId(u128::from_be_bytes(*owner))).collect()
    };
    let changed = |family: u8, text: &[u8]| {
        let family = Family::ALL.into_iter().find(|known| super::rows::family_byte(*known) == family)?;
        Name::new(family, std::str::from_utf8(text).ok()?).ok()
    };
    match message {
        [b'w', rest @ ..] => owners(rest).into_iter().map(Hint::Wake).collect(),
        [b'b', rest @ ..] => owners(rest).into_iter().map(Hint::Broken).collect(),
        [b'c', family, text @ ..] => {
            changed(*family, text).map_or(vec![Hint::WakeAll], |name| vec![Hint::Changed(name)])
        }
        _ => vec![Hint::WakeAll],
    }
}
