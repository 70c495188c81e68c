//! The directory of a store: what is in it, who may use it, and whether it can be trusted.
//!
//! ```text
//! DIR/format            what this is, and whether it is shared with a group
//! DIR/floor             a number above every token that was given; the only thing that outlives a reboot
//! DIR/boot-<id>/        the store of one boot of the machine, made whole and put in place by a rename
//!     base              what to add to the time since boot
//!     gate              locked while the store is written
//!     alive/<seat>      locked for as long as the client with that seat lives
//!     alive/<seat>.process  locked by that client's process alone, if others may keep the client alive
//!     wake/<seat>       where that client listens
//!     data.mdb lock.mdb the claims
//! ```
//!
//! When the machine goes down every holder is dead, so claims need not survive it, and nothing is
//! flushed to disk when a name is taken. A store of another boot may be damaged; it is never
//! opened, only thrown away. Tokens keep rising because they start above the floor, which is
//! written through to the disk before it is used.

use std::ffi::{CStr, CString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{OFlags, RenameFlags};

use super::failure::{damaged, io_failed};
use super::trust::{self, Share, Trust};
use crate::clock::{Clock as _, SystemClock};
use crate::error::{Error, Result};
use crate::random;

/// The format of the store on disk. Another number is another format.
const FORMAT: u32 = 1;
const TITLE: &str = "leasehold file store";
/// How far ahead of the clock the floor is written.
const FLOOR_SPAN: Duration = Duration::from_secs(600);
/// When less than this is left of it, it is written anew.
const FLOOR_MARGIN: Duration = Duration::from_secs(120);

/// The store's lock file as it is before the store is first opened. It is mapped for writing, and a
/// hole in it would kill the process when the disk is full; so it is filled here, and nobody but
/// the store opens it from then on. Its size says how many processes can read at the same time:
/// about a thousand.
static LOCK_FILE: [u8; 65_664] = [0; 65_664];

/// What follows `file:` in a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) dir: PathBuf,
    pub(super) share: Share,
}

impl Place {
    pub(super) fn parse(rest: &str) -> Result<Place> {
        let (dir, options) = rest.split_once('?').unwrap_or((rest, ""));
        let dir = dir.strip_prefix("//").unwrap_or(dir);
        let mut share = Share::Private;
        for option in options.split('&').filter(|option| !option.is_empty()) {
            share = match option {
                "share=private" => Share::Private,
                "share=group" => Share::Group,
                other => {
                    return Err(Error::invalid(format!(
                        "`file:` has no option `{other}`; there are `share=private` and `share=group`"
                    )));
                }
            };
        }
        let dir = if dir.is_empty() { default_dir()? } else { PathBuf::from(dir) };
        // The process may go to another directory later.
        let dir = std::path::absolute(&dir).map_err(|error| io_failed("find", &dir, error))?;
        Ok(Place { dir: dir.components().collect(), share })
    }
}

/// The same directory for all processes of a user, whatever is in their environment: a job that
/// cron runs and one that is typed in must exclude each other.
fn default_dir() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/leasehold"));
    }
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| Error::invalid("there is no home directory; give one as `file:DIR`"))?;
    Ok(home.join(".local/state/leasehold"))
}

/// Which file something is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(found: &fs::Metadata) -> FileId {
        FileId { device: found.dev(), inode: found.ino() }
    }

    /// Which file is at a path now. Asked all the time, so it allocates nothing.
    pub(super) fn at(path: &CStr) -> rustix::io::Result<FileId> {
        let found = rustix::fs::stat(path)?;
        Ok(FileId { device: found.st_dev, inode: found.st_ino })
    }
}

/// A store that is in place for this boot of the machine.
#[derive(Debug)]
pub(super) struct Dir {
    pub(super) root: PathBuf,
    /// The part for this boot.
    pub(super) boot: PathBuf,
    /// The gate, by the path that the user gave. Others will look for the store there, wherever it
    /// is now.
    pub(super) gate: CString,
    /// When the store was last seen there, in microseconds of the system's clock.
    pub(super) seen_at: AtomicU64,
    pub(super) share: Share,
    trust: Trust,
    /// What to add to the time since boot.
    pub(super) base: u64,
}

impl Dir {
    /// Finds the store, or makes it.
    pub(super) fn prepare(place: &Place) -> Result<Dir> {
        let root = make_root(place)?;
        refuse_network(&root)?;
        let (share, trust) = read_format(&root, place.share)?;
        let boot = root.join(format!("boot-{}", boot_id()?));
        trust.check_boot(&boot)?;
        let path = boot.join("base");
        let base = match trust.open(&path)? {
            Some(file) => {
                let text = read_at_once(&file).map_err(|error| io_failed("read", &path, error))?;
                let base = parse_number(&text, &path)?;
                if !agrees_with_the_wall_clock(base) {
                    refuse_foreign_time()?;
                }
                base
            }
            None => {
                refuse_foreign_time()?;
                make_boot(&root, &boot, share, trust)?
            }
        };
        let gate = place.dir.join(boot.file_name().unwrap_or_default()).join("gate");
        let gate = CString::new(gate.into_os_string().into_vec())
            .map_err(|_| Error::invalid("a directory has no NUL in its name"))?;
        Ok(Dir { root, boot, gate, seen_at: AtomicU64::new(0), share, trust, base })
    }

    /// The store's time now, in microseconds.
    pub(super) fn now(&self) -> u64 {
        self.base + SystemClock.now().as_micros()
    }

    /// Makes sure that the floor on disk is above `token`, and says where it is.
    pub(super) fn raise_floor(&self, token: u64) -> Result<u64> {
        let written = read_floor(&self.root, self.trust)?;
        let margin = micros(FLOOR_MARGIN);
        if written > token + margin {
            return Ok(written);
        }
        let floor = token + micros(FLOOR_SPAN);
        write_floor(&self.root, self.share, floor)?;
        Ok(floor)
    }
}

/// True if `floor` is high enough for `token` with time to spare.
pub(super) fn floor_suffices(floor: u64, token: u64) -> bool {
    floor > token + micros(FLOOR_MARGIN) / 2
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Reads a file of a line or three with one read: every command that starts reads four of them.
fn read_at_once(mut file: &File) -> io::Result<String> {
    let mut bytes = [0; 256];
    let length = file.read(&mut bytes)?;
    let text = std::str::from_utf8(&bytes[..length]);
    text.map(str::to_owned).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Finds the directory, or makes it with its mode.
fn make_root(place: &Place) -> Result<PathBuf> {
    let (Some(parent), Some(name)) = (place.dir.parent(), place.dir.file_name()) else {
        return Err(Error::invalid(format!("`{}` can not be a store", place.dir.display())));
    };
    let parent = match fs::canonicalize(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = DirBuilder::new().recursive(true).mode(0o755).create(parent);
            made.map_err(|error| io_failed("create", parent, error))?;
            fs::canonicalize(parent)
        }
        found => found,
    };
    let parent = parent.map_err(|error| io_failed("look at", &place.dir, error))?;
    let root = parent.join(name);
    trust::check_parents(&parent)?;
    let found = match fs::symlink_metadata(&root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_dir(&root, place.share).map_err(|error| io_failed("create", &root, error))?;
            fs::symlink_metadata(&root)
        }
        found => found,
    };
    let found = found.map_err(|error| io_failed("look at", &root, error))?;
    if !found.is_dir() && !found.is_symlink() {
        return Err(Error::invalid(format!("`{}` is not a directory", root.display())));
    }
    trust::check_root(&root, &found, place.share)?;
    Ok(root)
}

/// Makes a directory that is at no time open to more than it is meant for. The umask narrows it,
/// and `mkdir` does not set the group for new files; that is put right afterwards.
fn make_dir(path: &Path, share: Share) -> io::Result<()> {
    let wanted = share.dir_mode();
    match DirBuilder::new().mode(wanted & 0o777).create(path) {
        // Another process is making it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    }
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let made = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if made.metadata()?.mode() & 0o7777 != wanted {
        made.set_permissions(fs::Permissions::from_mode(wanted))?;
    }
    Ok(())
}

/// Makes a file that is at no time open to more than it is meant for.
fn make_file(path: &Path, share: Share, bytes: &[u8]) -> io::Result<File> {
    let wanted = share.file_mode();
    let mut file = OpenOptions::new().write(true).create_new(true).mode(wanted).open(path)?;
    if file.metadata()?.mode() & 0o777 != wanted {
        file.set_permissions(fs::Permissions::from_mode(wanted))?;
    }
    file.write_all(bytes)?;
    Ok(file)
}

/// The kind of a network file system, by the number that the kernel gives it.
fn network_kind(magic: u32) -> Option<&'static str> {
    const NETWORK: [(u32, &str); 14] = [
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x0102_1997, "9P"),
        (0x00c3_6400, "Ceph"),
        (0x6573_5546, "FUSE"),
        (0x5346_414f, "AFS"),
        (0x0bd0_0bd0, "Lustre"),
        (0x4750_4653, "GPFS"),
        (0x7461_636f, "OCFS2"),
        (0x0116_1970, "GFS2"),
        (0x7375_7245, "Coda"),
        (0x564c, "NCP"),
    ];
    NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, kind)| *kind)
}

/// Shared memory and file locks do not work across machines, and on many network file systems not
/// on one either.
fn refuse_network(root: &Path) -> Result<()> {
    let found = rustix::fs::statfs(root).map_err(|error| io_failed("look at", root, error.into()))?;
    #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "a magic number of 32 bits")]
    let magic = found.f_type as u32;
    if let Some(kind) = network_kind(magic) {
        return Err(Error::Unsupported {
            engine: "file",
            what: format!(
                "`{}` is on a network file system ({kind}), where locks of several machines can not be trusted; \
                 choose a directory on a local disk, or another engine to lock across machines",
                root.display()
            ),
        });
    }
    const SMALLEST: u64 = 1 << 20;
    let free = found.f_bavail.saturating_mul(u64::try_from(found.f_bsize).unwrap_or(1));
    if free < SMALLEST {
        return Err(Error::Unavailable {
            engine: "file",
            what: format!(
                "the disk of `{}` is full ({free} bytes are free, and {SMALLEST} are needed); make room",
                root.display()
            ),
            source: None,
        });
    }
    Ok(())
}

/// True if the time since boot is surely the one that the store was made with.
///
/// The wall clock runs beside it at the same speed. If it still does, nothing was shifted, and that
/// is seen without a look into /proc, which a command that starts would feel. If not, the wall
/// clock may have been set, or the time since boot is another one here: then it is worth the look.
fn agrees_with_the_wall_clock(base: u64) -> bool {
    const CLOSE: u64 = 100;
    (base + SystemClock.now().as_micros()).abs_diff(wall_clock()) < CLOSE
}

fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros)
}

/// Leases are counted on the time since boot, which must be the same for all.
fn refuse_foreign_time() -> Result<()> {
    // The number that the kernel gives to the time namespace that everybody starts in: nothing is
    // shifted there.
    const FIRST: u64 = 0xefff_fffa;
    if fs::metadata("/proc/self/ns/time").is_ok_and(|namespace| namespace.ino() == FIRST) {
        return Ok(());
    }
    let Ok(offsets) = fs::read_to_string("/proc/self/timens_offsets") else { return Ok(()) };
    let shifted = offsets.lines().any(|line| {
        line.starts_with("boottime") && line.split_whitespace().skip(1).any(|number| number != "0")
    });
    if shifted {
        return Err(Error::Unsupported {
            engine: "file",
            what: "this process is in a time namespace with a clock of its own, so its leases can not be compared \
                   with those of others; run it outside"
                .into(),
        });
    }
    Ok(())
}

fn boot_id() -> Result<String> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let id = File::open(path)
        .and_then(|file| read_at_once(&file))
        .map_err(|error| io_failed("read", path, error))?;
    Ok(id.trim().to_owned())
}

/// Checks what the directory is; marks an empty one as ours. Says how it is shared, and so who may
/// have made what is in it.
fn read_format(root: &Path, asked: Share) -> Result<(Share, Trust)> {
    let path = root.join("format");
    let found = fs::symlink_metadata(root).map_err(|error| io_failed("look at", root, error))?;
    for _ in 0..2 {
        if let Some(file) = Trust::of_mark(asked).open(&path)? {
            let text = read_at_once(&file).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => foreign(root),
                _ => io_failed("read", &path, error),
            })?;
            let share = parse_format(&text, root)?;
            return Ok((share, Trust::inside(root, &found, share)?));
        }
        Trust::inside(root, &found, asked)?;
        make_format(root, &path, asked)?;
    }
    Err(foreign(root))
}

fn parse_format(text: &str, root: &Path) -> Result<Share> {
    let mut lines = text.lines();
    if lines.next() != Some(TITLE) {
        return Err(foreign(root));
    }
    let format = lines.next().and_then(|line| line.strip_prefix("format ")?.parse::<u32>().ok());
    match format {
        Some(FORMAT) => {}
        Some(other) => {
            return Err(Error::Engine {
                engine: "file",
                what: format!(
                    "`{}` has format {other}, and this version knows format {FORMAT}; use the version of leasehold \
                     that made it, or another directory",
                    root.display()
                ),
                source: None,
            });
        }
        None => return Err(foreign(root)),
    }
    match lines.next() {
        Some("share private") => Ok(Share::Private),
        Some("share group") => Ok(Share::Group),
        _ => Err(foreign(root)),
    }
}

fn foreign(root: &Path) -> Error {
    Error::Engine {
        engine: "file",
        what: format!(
            "`{}` is not a store of leasehold, and nothing in it was touched; choose a new or an empty directory",
            root.display()
        ),
        source: None,
    }
}

fn make_format(root: &Path, path: &Path, share: Share) -> Result<()> {
    let entries = fs::read_dir(root).map_err(|error| io_failed("read", root, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| io_failed("read", root, error))?;
        // Another process may be making the same store at this moment.
        let ours = entry.file_name().to_string_lossy().starts_with(".new-")
            || entry.file_name() == "floor"
            || entry.file_name() == "format";
        if !ours {
            // What else is in a store is made after its mark: then somebody was faster.
            return if fs::symlink_metadata(path).is_ok() { Ok(()) } else { Err(foreign(root)) };
        }
    }
    let floor = root.join("floor");
    if fs::symlink_metadata(&floor).is_err() {
        // Never in place of one that somebody has raised meanwhile.
        put_in_place(&write_new(root, share, b"0\n")?, &floor)?;
    }
    let text = format!("{TITLE}\nformat {FORMAT}\nshare {}\n", share.word());
    let new = write_new(root, share, text.as_bytes())?;
    put_in_place(&new, path)
}

/// Writes a file under a name that nobody looks for, through to the disk.
fn write_new(root: &Path, share: Share, bytes: &[u8]) -> Result<PathBuf> {
    let path = new_path(root)?;
    let written = make_file(&path, share, bytes).and_then(|file| file.sync_all());
    written.map_err(|error| {
        fs::remove_file(&path).ok();
        io_failed("write to", root, error)
    })?;
    Ok(path)
}

/// A path that nobody else writes to. The number of the process would not do: in containers that
/// share the directory, several may have the same.
fn new_path(root: &Path) -> Result<PathBuf> {
    Ok(root.join(format!(".new-{}", random::number()?)))
}

/// Gives a new file or directory its name, unless somebody was faster.
fn put_in_place(new: &Path, path: &Path) -> Result<()> {
    let renamed =
        rustix::fs::renameat_with(rustix::fs::CWD, new, rustix::fs::CWD, path, RenameFlags::NOREPLACE);
    match renamed {
        Ok(()) => sync_parent(path),
        Err(rustix::io::Errno::EXIST | rustix::io::Errno::NOTEMPTY) => {
            fs::remove_dir_all(new).or_else(|_| fs::remove_file(new)).ok();
            Ok(())
        }
        Err(error) => Err(io_failed("create", path, error.into())),
    }
}

fn sync_parent(path: &Path) -> Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(|error| io_failed("write to", parent, error))
}

fn read_floor(root: &Path, trust: Trust) -> Result<u64> {
    read_number(&root.join("floor"), trust)
}

fn read_number(path: &Path, trust: Trust) -> Result<u64> {
    let missing = || io_failed("read", path, io::ErrorKind::NotFound.into());
    let file = trust.open(path)?.ok_or_else(missing)?;
    let text = read_at_once(&file).map_err(|error| io_failed("read", path, error))?;
    parse_number(&text, path)
}

fn parse_number(text: &str, path: &Path) -> Result<u64> {
    let number = text.strip_suffix('\n').and_then(|number| number.parse().ok());
    number.ok_or_else(|| damaged(&format!("`{}` holds no number", path.display()), None))
}

fn write_floor(root: &Path, share: Share, floor: u64) -> Result<()> {
    let new = write_new(root, share, format!("{floor}\n").as_bytes())?;
    let path = root.join("floor");
    fs::rename(&new, &path).map_err(|error| io_failed("write to", &path, error))?;
    sync_parent(&path)
}

/// Makes the part of the store for this boot, and throws those of other boots away.
fn make_boot(root: &Path, boot: &Path, share: Share, trust: Trust) -> Result<u64> {
    let since_boot = SystemClock.now().as_micros();
    // Above every token of earlier boots, even if the wall clock was set back since.
    let now = wall_clock().max(read_floor(root, trust)? + 1).max(since_boot);
    let base = now - since_boot;
    write_floor(root, share, now + micros(FLOOR_SPAN))?;

    let new = new_path(root)?;
    let made = (|| -> io::Result<()> {
        for dir in [new.clone(), new.join("alive"), new.join("wake")] {
            make_dir(&dir, share)?;
        }
        let base = format!("{base}\n");
        for (name, bytes) in [("base", base.as_bytes()), ("gate", &[]), ("lock.mdb", &LOCK_FILE)] {
            make_file(&new.join(name), share, bytes)?;
        }
        Ok(())
    })();
    made.map_err(|error| {
        fs::remove_dir_all(&new).ok();
        io_failed("write to", root, error)
    })?;
    put_in_place(&new, boot)?;
    remove_other_boots(root, boot);
    trust.check_boot(boot)?;
    read_number(&boot.join("base"), trust)
}

/// What is left of other boots is of no use; if it can not be removed it does no harm.
fn remove_other_boots(root: &Path, boot: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let other = entry.file_name().to_string_lossy().starts_with("boot-") && entry.path() != boot;
        if other {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_late_finds_a_store_that_others_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("format");
        fs::create_dir(dir.path().join("boot-of-others")).expect("a directory");
        // Somebody else's, or the mark would be there.
        assert!(make_format(dir.path(), &path, Share::Private).is_err());
        fs::write(&path, "made by others").expect("a mark");
        make_format(dir.path(), &path, Share::Private).expect("nothing is left to be made");
        assert_eq!(fs::read_to_string(&path).expect("a mark"), "made by others");
    }

    #[test]
    fn network_file_systems_are_told_from_local_ones() {
        for (magic, kind) in
            [(0x6969, "NFS"), (0xfe53_4d42, "SMB2"), (0x6573_5546, "FUSE"), (0x0102_1997, "9P")]
        {
            assert_eq!(network_kind(magic), Some(kind));
        }
        // ext4, tmpfs, overlay, btrfs, xfs.
        for magic in [0xef53, 0x0102_1994, 0x794c_7630, 0x9123_683e, 0x5846_5342] {
            assert_eq!(network_kind(magic), None);
        }
    }

    #[test]
    fn a_place_is_read_from_a_url() {
        let place = |rest: &str| Place::parse(rest).expect("a place");
        assert_eq!(place("/a/b"), Place { dir: "/a/b".into(), share: Share::Private });
        assert_eq!(place("///a/b"), Place { dir: "/a/b".into(), share: Share::Private });
        let here = std::env::current_dir().expect("a directory");
        assert_eq!(place("rel?share=group"), Place { dir: here.join("rel"), share: Share::Group });
        // A slash at the end would lead through a link.
        assert_eq!(place("/a/./b/").dir.as_os_str(), "/a/b");
        assert!(place("").dir.is_absolute(), "the default does not depend on where one stands");
        assert!(Place::parse("/a?size=9").is_err());
    }
}
