//! Whose directory may be used as a store.
//!
//! Who can write to a store can hold beside others, declare them dead, and cut a file that they
//! have mapped, which ends their process. So a store is used only if nobody can write to it whom
//! its user has not chosen to trust:
//!
//! * The directory belongs to this user or to root. One that belongs to somebody else is used only
//!   if sharing with a group was asked for (`share=group`) and its group is one of this process's.
//! * Nobody else can write to it. Its group can, if it is shared with a group: its mark says so,
//!   and was made by this user or by root, or sharing was asked for.
//! * What is in it belongs to its owner, if it is private, and can not be written by everybody.
//! * Neither it nor what is in it is a symbolic link. Directories above it may be.
//! * Nobody can put another directory in its place: everybody may write to a directory above it
//!   only if that one is sticky, as the one for temporary files is. A group may; its members are
//!   told apart only by the system.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};

use super::failure::io_failed;
use crate::error::{Error, Result};

const ROOT: u32 = 0;
const EVERYBODY_WRITES: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;
const STICKY: u32 = 0o1000;

/// Who may use a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Its owner.
    Private,
    /// The members of the directory's group.
    Group,
}

impl Share {
    pub(super) fn word(self) -> &'static str {
        match self {
            Share::Private => "private",
            Share::Group => "group",
        }
    }

    pub(super) fn dir_mode(self) -> u32 {
        match self {
            Share::Private => 0o700,
            // New files belong to the directory's group.
            Share::Group => 0o2770,
        }
    }

    pub(super) fn file_mode(self) -> u32 {
        match self {
            Share::Private => 0o600,
            Share::Group => 0o660,
        }
    }
}

/// Who may have made what is in a store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trust {
    /// This user and root, and members of the process's groups if that was asked for.
    Mark(Share),
    /// The user with that number, and root.
    Owner(u32),
    /// The members of the store's group.
    Group,
}

impl Trust {
    /// For the mark of a store, which says how it is shared.
    pub(super) fn of_mark(asked: Share) -> Trust {
        Trust::Mark(asked)
    }

    /// For what is in a store that is shared in that way.
    pub(super) fn inside(root: &Path, found: &Metadata, share: Share) -> Result<Trust> {
        match share {
            Share::Group => Ok(Trust::Group),
            Share::Private if found.mode() & GROUP_WRITES != 0 => Err(refused(
                root,
                "can be written by its group; take that away (`chmod go-w`), or share it with `?share=group`",
            )),
            Share::Private => Ok(Trust::Owner(found.uid())),
        }
    }

    fn check(self, path: &Path, found: &Metadata) -> Result<()> {
        if found.is_symlink() {
            return Err(link(path));
        }
        if found.mode() & EVERYBODY_WRITES != 0 {
            return Err(refused(path, "can be written by everybody; remove the store and make it anew"));
        }
        let trusted = match self {
            Trust::Mark(asked) => is_own(found) || (asked == Share::Group && is_member(found.gid())),
            Trust::Owner(owner) => found.uid() == owner && found.mode() & GROUP_WRITES == 0,
            Trust::Group => true,
        };
        if trusted { Ok(()) } else { Err(others(path, found)) }
    }

    /// Opens a small file of the store to read it, if it is there.
    pub(super) fn open(self, path: &Path) -> Result<Option<File>> {
        // Neither through a link, nor waiting for somebody to write to a pipe.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => return Err(link(path)),
            Err(error) => return Err(io_failed("read", path, error)),
        };
        let found = file.metadata().map_err(|error| io_failed("look at", path, error))?;
        self.check(path, &found)?;
        Ok(Some(file))
    }

    /// Checks what is there of the part for this boot.
    pub(super) fn check_boot(self, boot: &Path) -> Result<()> {
        let parts = ["alive", "wake", "gate", "lock.mdb", "data.mdb"].map(|part| boot.join(part));
        for path in std::iter::once(boot.to_owned()).chain(parts) {
            match fs::symlink_metadata(&path) {
                Ok(found) => self.check(&path, &found)?,
                // Not made yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io_failed("look at", &path, error)),
            }
        }
        Ok(())
    }
}

/// Checks the directory itself, before anything in it is read.
pub(super) fn check_root(root: &Path, found: &Metadata, asked: Share) -> Result<()> {
    if found.is_symlink() {
        return Err(link(root));
    }
    if found.mode() & EVERYBODY_WRITES != 0 {
        return Err(refused(
            root,
            "can be written by everybody; choose a directory that belongs to you alone",
        ));
    }
    let shared = asked == Share::Group && is_member(found.gid());
    if is_own(found) || shared { Ok(()) } else { Err(others(root, found)) }
}

/// Checks the directories above.
pub(super) fn check_parents(parent: &Path) -> Result<()> {
    for above in parent.ancestors() {
        let found = fs::metadata(above).map_err(|error| io_failed("look at", above, error))?;
        if found.mode() & EVERYBODY_WRITES != 0 && found.mode() & STICKY == 0 {
            return Err(refused(
                above,
                "can be written by everybody, who could put another store in place of yours; choose \
                 another directory, or make that one sticky (`chmod +t`)",
            ));
        }
    }
    Ok(())
}

fn is_own(found: &Metadata) -> bool {
    found.uid() == ROOT || found.uid() == geteuid().as_raw()
}

fn is_member(group: u32) -> bool {
    getegid().as_raw() == group
        || getgroups().is_ok_and(|groups| groups.iter().any(|member| member.as_raw() == group))
}

fn others(path: &Path, found: &Metadata) -> Error {
    refused(
        path,
        &format!(
            "belongs to user {} and group {}, who could stop this process and hold beside it; choose a \
             directory of your own, or, if you are in that group and trust it, say `?share=group`",
            found.uid(),
            found.gid()
        ),
    )
}

fn link(path: &Path) -> Error {
    refused(path, "is a symbolic link, which is not followed; give the path that it leads to")
}

fn refused(path: &Path, why: &str) -> Error {
    Error::Engine { engine: "file", what: format!("`{}` {why}", path.display()), source: None }
}
