//! A server of any kind: a process with a port, a data directory and a log of its own.
//!
//! What is particular to one kind is a [`Program`], in a file of its own.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::port::Port;
use super::process::{spawn, state};
use super::until;

/// A kind of server: how it is started, and how it shows that it is up.
pub(crate) trait Program: Send + Sync {
    /// The program that is started.
    fn name(&self) -> &'static str;
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
        let child = spawn(self.program.name(), |command| {
            self.program.arguments(&self.place, command);
            command.current_dir(self.dir()).envs(self.environment.iter().cloned());
            command.stdin(Stdio::null());
            command.stdout(log.try_clone().expect("a file")).stderr(log);
        });
        // Kept before the first wait, so that a panic below does not leave it behind.
        let child = process.insert(child.expect("setpriv starts"));
        let mut ended = None;
        until("the server answers", || {
            ended = child.try_wait().expect("a child");
            ended.is_some() || self.program.answers(&self.place)
        });
        match ended {
            None => Ok(()),
            Some(status) => Err(format!("{} ended with {status}:\n{}", self.program.name(), self.log())),
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

    /// What the server has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.home().join("log")
    }

    /// Stops the process: connections stay open, new ones are made by the kernel, and nothing is
    /// answered.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        // The signal is only on its way when the call returns.
        until("the server is stopped", || state(self.pid()) == Some('T'));
    }

    /// Lets a paused server go on. It answers whatever it was asked meanwhile.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let process = self.process();
        let child = process.as_ref().expect("the server is running");
        kill_process(Pid::from_child(child), signal).expect("a child");
    }

    /// Kills the server, paused or not; the next connection is refused. Nothing happens if it is
    /// dead.
    pub(crate) fn kill(&self) {
        if let Some(mut child) = self.process().take() {
            child.kill().expect("a child");
            child.wait().expect("a child");
        }
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

impl<P: Program + ?Sized> Drop for Server<P> {
    fn drop(&mut self) {
        self.kill();
    }
}
