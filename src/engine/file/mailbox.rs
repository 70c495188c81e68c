//! The wake-up path: how a client sends a hint to another one.
//!
//! A client that waits listens on a datagram socket in the directory of the store. A message is a
//! hint; losing one costs time only.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::dir::Dir;
use super::failure::io_failed;
use super::fork::NotInChild;
use super::rows::family_byte;
use crate::claim::{OwnerId, Seat};
use crate::engine::Hint;
use crate::engine::table::Notice;
use crate::error::Result;
use crate::name::{Family, Name};

/// Where a client listens.
pub(super) fn wake_path(boot: &Path, seat: Seat) -> PathBuf {
    boot.join("wake").join(seat.to_string())
}

/// The addresses of sockets in a directory. The name of a socket may be 107 bytes long at most; a
/// longer one is reached through the open directory.
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

/// Sends hints to the mailboxes of other clients.
#[derive(Debug)]
pub(super) struct Sender {
    /// Made when there is something to send.
    socket: OnceLock<UnixDatagram>,
    addresses: Addresses,
}

impl Sender {
    pub(super) fn new(dir: &Dir) -> Result<Sender> {
        Ok(Sender { socket: OnceLock::new(), addresses: Addresses::new(dir)? })
    }

    fn socket(&self) -> io::Result<&UnixDatagram> {
        if let Some(socket) = self.socket.get() {
            return Ok(socket);
        }
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(self.socket.get_or_init(|| socket))
    }

    /// Sends hints. Whoever does not hear one asks again in time.
    pub(super) fn send(&self, notices: Vec<Notice>) {
        // Those who wait for a name and live in the same process are woken with one message.
        let mut wakes: BTreeMap<Seat, Vec<u8>> = BTreeMap::new();
        for Notice { seat, hint } in notices {
            match hint {
                Hint::Wake(owner) => {
                    let message = wakes.entry(seat).or_insert_with(|| vec![WAKE]);
                    message.extend_from_slice(&owner.0.to_be_bytes());
                }
                hint => self.send_message(seat, &encode(&hint)),
            }
        }
        for (seat, message) in wakes {
            self.send_message(seat, &message);
        }
    }

    fn send_message(&self, seat: Seat, message: &[u8]) {
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

const WAKE: u8 = b'w';
const BROKEN: u8 = b'b';
const CHANGED: u8 = b'c';
/// Everybody looks for themselves.
const OTHER: u8 = b'a';

/// The message for a hint.
fn encode(hint: &Hint) -> Vec<u8> {
    match hint {
        Hint::Wake(owner) => [&[WAKE], owner.0.to_be_bytes().as_slice()].concat(),
        Hint::Broken(owner) => [&[BROKEN], owner.0.to_be_bytes().as_slice()].concat(),
        Hint::Changed(name) => [&[CHANGED, family_byte(name.family())], name.as_str().as_bytes()].concat(),
        // Not sent by this engine.
        _ => vec![OTHER],
    }
}

/// Understands a message; what can not be understood wakes everybody.
fn decode(message: &[u8]) -> Vec<Hint> {
    let owners = |bytes: &[u8]| -> Vec<OwnerId> {
        bytes.as_chunks::<16>().0.iter().map(|owner| OwnerId(u128::from_be_bytes(*owner))).collect()
    };
    let changed = |family: u8, text: &[u8]| {
        let family = Family::ALL.into_iter().find(|known| family_byte(*known) == family)?;
        Name::new(family, std::str::from_utf8(text).ok()?).ok()
    };
    match message {
        [WAKE, rest @ ..] => owners(rest).into_iter().map(Hint::Wake).collect(),
        [BROKEN, rest @ ..] => owners(rest).into_iter().map(Hint::Broken).collect(),
        [CHANGED, family, text @ ..] => {
            changed(*family, text).map_or(vec![Hint::WakeAll], |name| vec![Hint::Changed(name)])
        }
        _ => vec![Hint::WakeAll],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_understood() {
        let owner = OwnerId(0xab << 64);
        let name = Name::new(Family::Election, "x/é").expect("a name");
        for hint in [Hint::Wake(owner), Hint::Broken(owner), Hint::Changed(name), Hint::WakeAll] {
            assert_eq!(decode(&encode(&hint)), [hint]);
        }
        let both = [&[WAKE], 1u128.to_be_bytes().as_slice(), &2u128.to_be_bytes()].concat();
        assert_eq!(decode(&both), [1, 2].map(|owner| Hint::Wake(OwnerId(owner))));
        assert_eq!(decode(b"something newer"), [Hint::WakeAll]);
        assert_eq!(decode(&[CHANGED, b'?', b'x']), [Hint::WakeAll]);
    }
}
