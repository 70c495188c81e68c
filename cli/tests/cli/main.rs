//! The command line tool as its users meet it: processes, exit codes, signals and what is printed.

mod as_with_flock;
mod breaking;
mod documents;
mod electing;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
mod gone;
mod holding;
mod killed;
mod limiting;
mod looking;
mod losing;
#[cfg(feature = "mysql")]
mod mysql;
mod nested;
mod once;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod scheduling;
#[cfg(any(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
#[path = "../../../tests/servers/mod.rs"]
mod servers;
mod several;
mod terminal;
mod the_command;
mod waiting;
mod watching;
mod what_is_refused;
#[cfg(any(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
mod working_day;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, test_kill_process, waitid,
};
use serde_json::Value;

/// Longer than anything here takes on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(20);

/// A directory with a store, and the processes that a test started; all of it goes when the test
/// ends, however it ends.
struct Bench {
    dir: tempfile::TempDir,
    url: String,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file:{}", dir.path().join("store").display());
        Bench { dir, url }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self) -> String {
        self.url.clone()
    }

    fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command
            .args(args)
            .env("LEASEHOLD_ON", self.url())
            .env_remove("NO_COLOR")
            .env_remove("LEASEHOLD_HELD");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs to the end.
    fn leasehold<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        self.start(args).ended()
    }

    fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        Running::new(self.command(args))
    }

    /// Starts `run` with these words before the `--`, and a shell script that says when it runs.
    fn start_run(&self, before: &[&str], script: &str) -> Running {
        let running = self.start_queued(before, script);
        assert_eq!(running.line(), "running", "the command did not start");
        running
    }

    /// The same, without waiting for it to run.
    fn start_queued(&self, before: &[&str], script: &str) -> Running {
        let script = format!("echo running; {script}");
        let args = ["run"].iter().chain(before).chain(&["--", "sh", "-c"]).map(ToString::to_string);
        self.start(args.chain([script]))
    }

    fn json(&self, args: &[&str]) -> Value {
        let ran = self.leasehold(args);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }

    /// Waits until that many wait for a name.
    fn until_waiting(&self, name: &str, count: usize) {
        until("the queue to be as long as it should", || {
            self.json(&["show", "--json", name])
                .as_array()
                .unwrap()
                .iter()
                .any(|name| name["waiters"].as_array().unwrap().len() == count)
        });
    }
}

/// Waits for something, with a limit.
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(started.elapsed() < LIMIT, "waited for {what} in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The state, the parent and the group of a process, and more.
fn stat(pid: Pid) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split(' ').map(ToOwned::to_owned).collect())
}

/// True until a process has ended.
fn lives(pid: Pid) -> bool {
    stat(pid).is_some_and(|stat| stat[0] != "Z" && stat[0] != "X")
}

/// True if no process of a group lives.
fn group_is_empty(leader: Pid) -> bool {
    let numbers = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    let pids = numbers.filter_map(|number| number.to_str()?.parse().ok()).filter_map(Pid::from_raw);
    let leader = leader.to_string();
    !pids.filter(|pid| lives(*pid)).any(|pid| stat(pid).is_some_and(|stat| stat[2] == leader))
}

/// Starts five processes in the ways that scripts do, and says their numbers: in the background,
/// left by a parent that has ended, in a session of its own, in a group of its own, and one that
/// ignores TERM.
const FAMILY: &str = "\
    sleep 60 & echo $!; \
    sh -c 'sleep 60 & echo $!'; \
    setsid sh -c 'echo $$; exec sleep 60' & \
    timeout 60 sh -c 'echo $$; exec sleep 60' & \
    (trap '' TERM; exec sh -c 'echo $$; exec sleep 60') &";

/// The processes of [`FAMILY`].
fn numbers(running: &Running) -> Vec<Pid> {
    let said = (0..5).map(|_| Pid::from_raw(running.line().parse().unwrap()).unwrap());
    said.collect()
}

/// What a process left.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    signal: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    #[track_caller]
    fn gives(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    #[track_caller]
    fn says(self, words: &str) -> Ran {
        assert!(self.stderr.contains(words), "no `{words}` in {self:?}");
        assert!(self.stderr.starts_with("leasehold: "), "{self:?}");
        self
    }
}

/// A process that is killed, with those that it started, when the test is over.
struct Running {
    child: Child,
    /// What it prints, line by line, read by another thread: a test that waits for a line in vain
    /// must end.
    lines: Receiver<Vec<u8>>,
}

impl Running {
    fn new(mut command: Command) -> Running {
        // A group of its own, so that what it started can be found when it is gone itself.
        let mut child = command.process_group(0).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            stdout.split(b'\n').map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Running { child, lines }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed()).unwrap()
    }

    fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The next line that it prints.
    #[track_caller]
    fn line(&self) -> String {
        let line = self.lines.recv_timeout(LIMIT).expect("waited for a line in vain");
        String::from_utf8(line).unwrap()
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills it and all that it has started in its group.
    fn kill_all(&self) {
        kill_process_group(self.pid(), Signal::KILL).unwrap();
    }

    /// Waits for its end; those that it has started may go on.
    fn left(&self) -> Option<i32> {
        let mut signal = None;
        until("the process to end", || {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            let ended = waitid(WaitId::Pid(self.pid()), look).unwrap();
            signal = ended.as_ref().and_then(rustix::process::WaitIdStatus::terminating_signal);
            ended.is_some()
        });
        signal
    }

    fn ended(mut self) -> Ran {
        let mut status = None;
        until("the process to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        // What it left behind would keep the pipes open.
        kill_process_group(self.pid(), Signal::KILL).ok();
        let stdout = self.lines.iter().map(|line| String::from_utf8(line).unwrap() + "\n").collect();
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Ran { code: status.code(), signal: status.signal(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        kill_process_group(self.pid(), Signal::KILL).ok();
        self.child.wait().ok();
    }
}
