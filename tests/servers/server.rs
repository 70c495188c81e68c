//! A server of any kind: a process with a port, a data directory and a log of its own.
//!
//! What is particular to one kind is a [`Program`], in a file of its own.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::port::Port;
use super::process::{User, children, find, spawn_as, state};
use super::{LIMIT, until, until_within};

/// A kind of server: how it is started, and how it shows that it is up.
pub(crate) trait Program: Send + Sync {
    /// The program that is started.
    fn name(&self) -> &'static str;
    /// Who runs it, and owns its files.
    fn user(&self) -> User {
        User::Same
    }
    /// Whether its child processes do the work. They are paused and killed with it.
    fn has_workers(&self) -> bool {
        false
    }
    /// Fills a data directory that is empty, before the server is started in it.
    fn create_data(&self, _place: &Place) {}
    /// Adds the arguments. The server runs in its data directory.
    fn arguments(&self, place: &Place, command: &mut Command);
    /// Whether the server takes requests. One that still reads its data does not.
    fn answers(&self, place: &Place) -> bool;
}

/// Where a server is, running or not.
pub(crate) struct Place {
    port: Port,
    home: TempDir,
}

impl Place {
    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where the server keeps its data, and where it runs.
    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// A directory that outlives all restarts.
    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }
}

/// A server of one's own. Dropped, it is killed.
pub(crate) struct Server<P: Program + ?Sized> {
    place: Place,
    environment: Vec<(&'static str, OsString)>,
    process: Mutex<Option<Child>>,
    // The last field, so that servers of several kinds fit in one list of `Server<dyn Program>`.
    program: P,
}

impl<P: Program> Server<P> {
    /// A server that is not running yet.
    pub(super) fn create(program: P) -> Server<P> {
        let home = TempDir::with_prefix("leasehold-server-").expect("a directory");
        let place = Place { port: Port::reserve(), home };
        let server = Server { place, environment: Vec::new(), process: Mutex::new(None), program };
        server.create_data();
        server
    }

    pub(super) fn environment(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.environment.push((name, value.into()));
    }

    pub(super) fn program(&self) -> &P {
        &self.program
    }
}

impl<P: Program + ?Sized> Server<P> {
    fn create_data(&self) {
        fs::create_dir(self.dir()).expect("a directory");
        for dir in [self.home(), &self.dir()] {
            own(dir, self.program.user());
        }
        self.program.create_data(&self.place);
    }

    #[track_caller]
    pub(super) fn run(&self) {
        self.try_run().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Starts the process and waits until it answers, or says what it logged before it ended.
    pub(super) fn try_run(&self) -> Result<(), String> {
        let mut process = self.process();
        assert!(process.is_none(), "the server is running");
        let log = File::options().create(true).append(true).open(self.log_path()).expect("a log");
        let name = self.program.name();
        let program = find(name).unwrap_or_else(|| name.into());
        let child = spawn_as(self.program.user(), program, |command| {
            self.program.arguments(&self.place, command);
            command.current_dir(self.dir()).envs(self.environment.iter().cloned());
            command.stdin(Stdio::null());
            command.stdout(log.try_clone().expect("a file")).stderr(log);
        });
        // Kept before the first wait, so that a panic below does not leave it behind.
        let child = process.insert(child.expect("setpriv starts"));
        let mut ended = None;
        // A database that starts beside five others, on a machine that compiles, takes its time.
        until_within(6 * LIMIT, "the server answers", || {
            ended = child.try_wait().expect("a child");
            ended.is_some() || self.program.answers(&self.place)
        });
        match ended {
            None => Ok(()),
            Some(status) => {
                *process = None;
                Err(format!("{name} ended with {status}:\n{}", self.log()))
            }
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.place.port()
    }

    /// Where the server keeps its data, and where it runs.
    pub(crate) fn dir(&self) -> PathBuf {
        self.place.data()
    }

    /// A directory that outlives all restarts and that the server does not know.
    pub(super) fn home(&self) -> &Path {
        self.place.home.path()
    }

    /// True unless it was killed.
    pub(crate) fn runs(&self) -> bool {
        self.process().is_some()
    }

    /// The server's own process.
    pub(crate) fn pid(&self) -> u32 {
        self.process().as_ref().expect("the server is running").id()
    }

    /// The server's own process, and those of its workers.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let pid = self.pid();
        let workers = if self.program.has_workers() { children(pid) } else { Vec::new() };
        [vec![pid], workers].concat()
    }

    /// What the server has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.home().join("log")
    }

    /// Stops the processes: connections stay open, new ones are made by the kernel, and nothing is
    /// answered.
    pub(crate) fn pause(&self) {
        let stop = |pid| {
            signal(pid, Signal::STOP);
            // The signal is only on its way when the call returns.
            until("the server is stopped", || state(pid).is_none_or(|state| matches!(state, 'T' | 'Z')));
        };
        // Once it is stopped it starts no more workers.
        stop(self.pid());
        self.pids().into_iter().for_each(stop);
    }

    /// Lets a paused server go on. It answers whatever it was asked meanwhile.
    pub(crate) fn resume(&self) {
        self.pids().into_iter().for_each(|pid| signal(pid, Signal::CONT));
    }

    /// Kills the server, paused or not; the next connection is refused. Nothing happens if it is
    /// dead.
    pub(crate) fn kill(&self) {
        if !self.runs() {
            return;
        }
        let mut workers = Vec::new();
        if self.program.has_workers() {
            self.pause();
            workers = children(self.pid());
        }
        if let Some(mut child) = self.process().take() {
            child.kill().expect("a child");
            child.wait().expect("a child");
        }
        // What they share with the server, a new one can not have before they are gone.
        for pid in workers {
            signal(pid, Signal::KILL);
            until("a worker is dead", || state(pid).is_none_or(|state| state == 'Z'));
        }
    }

    /// Asks the server to end, and waits until it has. What it does first depends on the signal.
    pub(crate) fn end(&self, how: Signal) {
        signal(self.pid(), how);
        let mut process = self.process();
        let child = process.as_mut().expect("the server is running");
        until("the server ends", || child.try_wait().expect("a child").is_some());
        *process = None;
    }

    /// Kills the server and starts it again as it was, with whatever data it has kept on disk.
    pub(crate) fn restart(&self) {
        self.kill();
        self.run();
    }

    /// Kills the server and starts it again as it was, without its data.
    pub(crate) fn restart_empty(&self) {
        self.kill();
        fs::remove_dir_all(self.dir()).expect("a directory");
        self.create_data();
        self.run();
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a signal to a process of ours, if it is still there.
fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("not zero");
    match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!("{signal:?}: {error}"),
    }
}

/// Gives a file, or a directory with all that is in it, to a user.
pub(super) fn own(path: &Path, user: User) {
    let Some(id) = user.id() else { return };
    chown(path, Some(id), Some(id)).expect("root may");
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a directory") {
            own(&entry.expect("an entry").path(), user);
        }
    }
}

impl<P: Program + ?Sized> Drop for Server<P> {
    fn drop(&mut self) {
        self.kill();
    }
}
