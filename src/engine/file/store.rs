//! The store itself: one memory-mapped file, written by one process at a time.
//!
//! A write takes microseconds and happens where it is asked for, behind the [`Gate`]. A read waits
//! for no writer; threads of their own do it, in case that the store's lock for readers is held by
//! a process that was stopped.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use heed::types::Bytes;
use heed::{CommitOrAbort, Env, EnvFlags, EnvOpenOptions, WithoutTls};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::dir::{Dir, FileId, floor_suffices};
use super::failure::{failed, io_failed};
use super::fork;
use super::gate::{self, Gate, Passed};
use super::rows::Table;
use super::transaction::{End, Transaction};
use crate::clock::{Clock as _, SystemClock};
use crate::error::{Error, Result};
use crate::random;

/// The most that a store can grow to. Address space, not disk: the file is as large as what is in
/// it.
const LARGEST: usize = if cfg!(target_pointer_width = "64") { 4 << 30 } else { 256 << 20 };
/// How many reads of all processes go on at the same time, at most, and how many of one.
const MOST_READERS: u32 = 1024;
const READERS_OF_ONE: usize = 4;
/// How the names of directories start that are there only while the store is opened by other names.
pub(super) const LINKS: &str = "links-";
/// For how long, in microseconds, one look at where the store is serves the calls that grant
/// nothing.
const LOOK_EVERY: u64 = 100;
/// How often, in microseconds, dead readers are looked for at most.
const CLEAR_EVERY: u64 = 1_000_000;

/// A store that this process has opened. All clients of the process share it: it must be opened
/// only once.
#[derive(Debug)]
pub(super) struct Store {
    /// Gone when the store is closed.
    env: Option<Env<WithoutTls>>,
    table: Table,
    gate: Gate,
    /// Which store this is, wherever it lies: the identity of its gate.
    id: FileId,
    /// At most one thread waits for the gate.
    waiting: Arc<tokio::sync::Mutex<()>>,
    reading: Arc<Semaphore>,
    /// At most one thread forgets dead readers.
    clearing: Arc<Semaphore>,
    /// When that was last begun, in microseconds of the system's clock.
    cleared_at: AtomicU64,
    /// When a write of this process last passed the gate.
    passed_at: Mutex<Instant>,
    floor: AtomicU64,
    pid: u32,
}

/// The stores that are open in this process.
static STORES: LazyLock<Mutex<Stores>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Stores {
    /// Which process that is. A forked child starts anew: it must not use what its parent has
    /// opened.
    pid: u32,
    /// A store is listed until it is closed.
    open: HashMap<FileId, Weak<Store>>,
}

fn stores() -> MutexGuard<'static, Stores> {
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = fork::pid();
    if stores.pid != pid {
        *stores = Stores { pid, open: HashMap::new() };
    }
    stores
}

impl Store {
    /// Opens the store at `dir`, or joins those of this process who have it open.
    pub(super) fn open(dir: &Dir) -> Result<Arc<Store>> {
        let (gate, id) = Gate::open(dir)?;
        loop {
            let mut stores = stores();
            match stores.open.get(&id).map(Weak::upgrade) {
                Some(Some(store)) => return Ok(store),
                Some(None) => {
                    // Another thread is closing it.
                    drop(stores);
                    thread::yield_now();
                }
                None => {
                    let (env, table) = open_first(dir, &gate)?;
                    // What was opened by its path is what the gate belongs to.
                    if FileId::at(&dir.gate) != Ok(id) {
                        return Err(gone(&dir.root));
                    }
                    let floor = dir.raise_floor(dir.now())?;
                    let store = Arc::new(Store {
                        env: Some(env),
                        table,
                        gate,
                        id,
                        waiting: Arc::default(),
                        reading: Arc::new(Semaphore::new(READERS_OF_ONE)),
                        clearing: Arc::new(Semaphore::new(1)),
                        cleared_at: AtomicU64::new(0),
                        passed_at: Mutex::new(Instant::now()),
                        floor: AtomicU64::new(floor),
                        pid: fork::pid(),
                    });
                    stores.open.insert(id, Arc::downgrade(&store));
                    return Ok(store);
                }
            }
        }
    }

    fn env(&self) -> Result<&Env<WithoutTls>> {
        // Gone only when the last user is.
        self.env.as_ref().ok_or_else(Error::closed)
    }

    /// Reads, without waiting for those who write.
    pub(super) async fn read<T, F>(self: &Arc<Store>, dir: &Arc<Dir>, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&heed::RoTxn<'_, WithoutTls>, Table) -> Result<T> + Send + 'static,
    {
        self.check(dir)?;
        let read = async {
            let reading = Arc::clone(&self.reading).acquire_owned().await.map_err(|_| Error::closed())?;
            let store = Arc::clone(self);
            on_thread(move || {
                let _reading = reading;
                let txn = store.env()?.read_txn().map_err(failed)?;
                work(&txn, store.table)
            })
            .await
        };
        tokio::time::timeout(gate::LIMIT, read).await.unwrap_or_else(|_| {
            Err(Error::Unavailable {
                engine: "file",
                what: format!(
                    "the store `{}` can not be read since {:?}; if a process that uses it is stopped, continue \
                     or kill it",
                    dir.root.display(),
                    gate::LIMIT
                ),
                source: None,
            })
        })
    }

    /// Clears away what processes left that were killed while they read. Until then no space is
    /// used again that was freed after they began.
    ///
    /// In the background, on a thread of its own: where a reader is dead, LMDB waits for the
    /// store's lock for readers. The process that holds it may be stopped, so nobody else may wait
    /// for it.
    pub(super) fn forget_dead_readers(self: &Arc<Store>) {
        let now = SystemClock.now().as_micros();
        if now.saturating_sub(self.cleared_at.load(Ordering::Relaxed)) < CLEAR_EVERY {
            return;
        }
        let Ok(clearing) = Arc::clone(&self.clearing).try_acquire_owned() else { return };
        self.cleared_at.store(now, Ordering::Relaxed);
        let store = Arc::clone(self);
        let started = thread::Builder::new().name("leasehold".to_owned()).spawn(move || {
            let _clearing = clearing;
            let cleared = store.env().and_then(|env| env.clear_stale_readers().map_err(failed));
            if let Err(error) = cleared {
                tracing::debug!(target: "leasehold", %error, "dead readers are not forgotten");
            }
        });
        if let Err(error) = started {
            tracing::debug!(target: "leasehold", %error, "no thread to forget dead readers");
        }
    }

    /// Writes: all of it or nothing. If the future is dropped, either the write is done already or
    /// it never happens.
    pub(super) async fn write<T, F>(self: &Arc<Store>, dir: &Arc<Dir>, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        if let Some(passed) = self.gate.try_pass(dir)? {
            return self.write_behind(passed, dir, work);
        }
        let mut write = pin!(self.write_on_thread(dir, work));
        let mut moved_at = Instant::now();
        loop {
            if let Ok(written) = tokio::time::timeout_at(moved_at + gate::LIMIT, write.as_mut()).await {
                return written;
            }
            let passed_at = *self.passed_at();
            if passed_at <= moved_at {
                return Err(self.gate.stuck(&dir.root));
            }
            // The line is long, but the gate is not shut. The client limits the wait.
            moved_at = passed_at;
        }
    }

    /// Sends a thread to wait for the gate.
    async fn write_on_thread<T, F>(self: &Arc<Store>, dir: &Arc<Dir>, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        let waiting = Arc::clone(&self.waiting).lock_owned().await;
        let wanted = Wanted::default();
        let (store, dir, still_wanted) = (Arc::clone(self), Arc::clone(dir), Arc::clone(&wanted.0));
        let written = on_thread(move || {
            let _waiting = waiting;
            let passed = store.gate.pass(&dir)?;
            // The caller may have gone while the gate was shut. Once past this line the write is
            // finished before anybody else passes the gate, so a caller that goes later finds it
            // done.
            if !still_wanted.load(Ordering::Acquire) {
                return Err(gone(&dir.root));
            }
            store.write_behind(passed, &dir, work)
        });
        let written = written.await;
        drop(wanted);
        written
    }

    fn passed_at(&self) -> MutexGuard<'_, Instant> {
        self.passed_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_behind<T>(
        &self,
        passed: Passed<'_>,
        dir: &Dir,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        *self.passed_at() = Instant::now();
        // Read behind the gate, so that no write is dated before the one that went through it
        // first.
        let now = dir.base + self.check(dir)?;
        let txn = self.env()?.write_txn().map_err(failed)?;
        let mut transaction = Transaction { txn, table: self.table, now, end: End::Commit };
        let done = work(&mut transaction)?;
        if transaction.end == End::Commit {
            transaction.txn.commit().map_err(failed)?;
        } else {
            transaction.txn.abort();
        }
        drop(passed);
        Ok(done)
    }

    /// Makes sure that this is the process that opened the store.
    pub(super) fn check_process(&self) -> Result<()> {
        if self.pid != fork::pid() {
            return Err(Error::invalid(
                "this client was made before a fork; a child process must connect for itself",
            ));
        }
        Ok(())
    }

    /// Makes sure that the store can be used, and says what time it is on the system's clock.
    pub(super) fn check(&self, dir: &Dir) -> Result<u64> {
        self.check_process()?;
        let now = SystemClock.now().as_micros();
        // A look costs a quarter of a write. Whoever is granted a name looks once more, when that
        // is written.
        if now.saturating_sub(dir.seen_at.load(Ordering::Relaxed)) >= LOOK_EVERY {
            self.check_place(dir, now)?;
        }
        Ok(now)
    }

    /// Makes sure that what was just written was written to the store that others find.
    pub(super) fn check_written(&self, dir: &Dir) -> Result<()> {
        self.check_place(dir, SystemClock.now().as_micros())
    }

    fn check_place(&self, dir: &Dir, now: u64) -> Result<()> {
        if !self.in_place(dir)? {
            return Err(gone(&dir.root));
        }
        dir.seen_at.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// False if the store is no longer where others would look for it: it was removed, moved, or
    /// the path leads elsewhere now.
    pub(super) fn in_place(&self, dir: &Dir) -> Result<bool> {
        match FileId::at(&dir.gate) {
            Ok(there) => Ok(there == self.id),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(false),
            Err(error) => Err(io_failed("look at", &dir.root, error.into())),
        }
    }

    /// Makes sure that a token can be given out and will never be given again, whatever happens to
    /// the machine.
    pub(super) fn reserve(&self, dir: &Dir, last_token: u64) -> Result<()> {
        if !floor_suffices(self.floor.load(Ordering::Acquire), last_token) {
            let floor = dir.raise_floor(last_token)?;
            self.floor.store(floor, Ordering::Release);
        }
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let Some(env) = self.env.take() else { return };
        if self.pid != fork::pid() {
            // The child of a fork. To close the parent's copy would also drop the lock that the
            // child has on the same file if it has opened the store for itself: see `finish_files`.
            std::mem::forget(env);
            return;
        }
        let mut stores = stores();
        drop(env);
        stores.open.remove(&self.id);
    }
}

pub(super) fn gone(root: &Path) -> Error {
    Error::Engine {
        engine: "file",
        what: format!(
            "the store `{}` was removed or moved while in use; stop all users, then connect again",
            root.display()
        ),
        source: None,
    }
}

fn open_first(dir: &Dir, gate: &Gate) -> Result<(Env<WithoutTls>, Table)> {
    // One process at a time, so that the first finishes the files before others see them.
    let _passed = gate.pass_in_time(dir)?;
    open_env(dir, gate.file())
}

fn open_env(dir: &Dir, gate: &File) -> Result<(Env<WithoutTls>, Table)> {
    let env = match open_env_at(&dir.boot, gate) {
        // The driver has a table of its own, by path, and opens nothing twice. It is not the store
        // that `stores` would have given us: either it was inherited by a fork, or it was here
        // before and has been moved away.
        Err(heed::Error::EnvAlreadyOpened) => open_env_by_links(dir, gate)?,
        opened => opened.map_err(failed)?,
    };
    finish_files(dir)?;
    env.clear_stale_readers().map_err(failed)?;
    let txn = env.write_txn().map_err(failed)?;
    let table = env
        .create_databases_and_commit(txn, |opener, txn| {
            opener.create_database::<Bytes, Bytes>(txn, None).map(CommitOrAbort::<_, ()>::Commit)
        })
        .map_err(failed)?
        .unwrap_commit();
    Ok((env, table))
}

/// Opens the store's files where the driver has not seen them before. They are opened once and for
/// all, so nobody needs the other names afterwards.
fn open_env_by_links(dir: &Dir, gate: &File) -> Result<Env<WithoutTls>> {
    let links = dir.boot.join(format!("{LINKS}{}", random::number()?));
    let linked = (|| {
        DirBuilder::new().mode(0o700).create(&links)?;
        let mut options = OpenOptions::new();
        // A store that was made a moment ago has no data yet.
        options.create(true).append(true).mode(dir.share.file_mode()).open(dir.boot.join("data.mdb"))?;
        for name in ["data.mdb", "lock.mdb"] {
            std::fs::hard_link(dir.boot.join(name), links.join(name))?;
        }
        Ok(())
    })();
    let opened = linked
        .map_err(|error| io_failed("write to", &links, error))
        .and_then(|()| open_env_at(&links, gate).map_err(failed));
    std::fs::remove_dir_all(&links).ok();
    opened
}

fn open_env_at(path: &Path, gate: &File) -> Result<Env<WithoutTls>, heed::Error> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(LARGEST).max_readers(MOST_READERS);
    // SAFETY: the flags and the mapping are sound as long as nobody else truncates the file or
    // writes to it past the store's own locking. The directory is ours alone: it is private or of
    // one group, it was checked to be on a local disk and to carry our mark, and its files were
    // made in this boot of the machine, so they were never cut by a crash. `Store::open` opens it
    // once per process; a copy that a forked child inherited is neither used nor closed. NO_SYNC
    // gives up durability over a crash of the machine, after which these files are not read again.
    // The descriptors are borrowed while the store that was just opened has them open.
    #[expect(unsafe_code, reason = "a memory-mapped store can not be opened otherwise")]
    unsafe {
        options.flags(EnvFlags::NO_SYNC);
        let env = options.open(path)?;
        // The store leaves its file open for the programs that this process starts, who may run as
        // another user.
        for number in descriptors_of(&path.join("data.mdb"), gate) {
            let descriptor = BorrowedFd::borrow_raw(number);
            if fcntl_getfd(descriptor).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
                fcntl_setfd(descriptor, FdFlags::CLOEXEC).ok();
                // It opens it a second time, but with care.
                break;
            }
        }
        Ok(env)
    }
}

/// The descriptors of a file that was opened just after the gate, the likely ones first.
fn descriptors_of(file: &Path, gate: &File) -> impl Iterator<Item = RawFd> {
    /// Numbers are given out from below, so they are near or lower; the whole list would take
    /// longer to walk.
    const NEAR: RawFd = 16;
    // After the gate comes the store's lock, and then the file, if no other thread opens anything.
    let first = gate.as_raw_fd() + 2;
    let all = std::iter::once_with(|| std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten());
    let all = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    (first..first + NEAR).chain(0..first).chain(all).filter(move |number| {
        std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|target| target == file)
    })
}

/// Sets the permissions of the store's files, by their names: the store keeps a lock of its own on
/// `lock.mdb`, of the kind that a process loses when it closes *any* descriptor of the file.
/// Without it the next process to open the store would take itself for the first and wind it back.
fn finish_files(dir: &Dir) -> Result<()> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let wanted = dir.share.file_mode();
    for name in ["data.mdb", "lock.mdb"] {
        let path = dir.boot.join(name);
        let found = std::fs::metadata(&path).map_err(|error| io_failed("look at", &path, error))?;
        if found.mode() & 0o777 != wanted {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(wanted))
                .map_err(|error| io_failed("set the permissions of", &path, error))?;
        }
    }
    Ok(())
}

/// Does work that may have to wait on a thread of its own.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Unavailable {
        engine: "file",
        what: "the runtime is shutting down".into(),
        source: Some(error.into()),
    })?
}

/// Says no once it is dropped.
struct Wanted(Arc<AtomicBool>);

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted(Arc::new(AtomicBool::new(true)))
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::fs::{FlockOperation, flock};

    use super::*;
    use crate::engine::file::dir::Place;

    #[tokio::test]
    async fn a_write_whose_caller_has_gone_never_happens() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = Place::parse(dir.path().join("store").to_str().expect("a plain path")).expect("a place");
        let dir = Arc::new(Dir::prepare(&place).expect("a directory"));
        let store = Store::open(&dir).expect("a store");
        let other = OpenOptions::new().write(true).open(dir.boot.join("gate")).expect("the gate");
        flock(&other, FlockOperation::LockExclusive).expect("shut");

        let written = Arc::new(AtomicBool::new(false));
        let mark = Arc::clone(&written);
        let write = store.write(&dir, move |_| {
            mark.store(true, Ordering::Release);
            Ok(())
        });
        let waited = tokio::time::timeout(Duration::from_millis(50), write).await;
        assert!(waited.is_err(), "the gate is shut");
        flock(&other, FlockOperation::Unlock).expect("open");
        // The thread that waited goes through, and the next write after it.
        store.write(&dir, |_| Ok(())).await.expect("the store is fine");
        drop(store.waiting.lock().await);
        assert!(!written.load(Ordering::Acquire));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_long_line_is_not_taken_for_a_gate_that_is_shut() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = Place::parse(dir.path().join("store").to_str().expect("a plain path")).expect("a place");
        let dir = Arc::new(Dir::prepare(&place).expect("a directory"));
        let store = Store::open(&dir).expect("a store");
        // Together they take longer than a gate may be shut.
        const EACH: Duration = Duration::from_millis(250);
        let mut writes = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let (store, dir) = (Arc::clone(&store), Arc::clone(&dir));
            writes.spawn(async move {
                let work = |_: &mut Transaction<'_>| {
                    std::thread::sleep(EACH);
                    Ok(())
                };
                store.write(&dir, work).await
            });
        }
        assert!(EACH * 16 > gate::LIMIT);
        for written in writes.join_all().await {
            written.expect("it comes to its turn");
        }
    }
}
