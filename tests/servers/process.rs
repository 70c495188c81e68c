//! Processes that end with the test that started them.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Who runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// Whoever runs the tests.
    Same,
    /// `nobody` if that is root, for programs that refuse to run as root.
    NotRoot,
}

impl User {
    /// The id of user and group that must own the files of the program, if not those of whoever
    /// runs the tests.
    pub(super) fn id(self) -> Option<u32> {
        const NOBODY: u32 = 65534;
        (self == User::NotRoot && rustix::process::geteuid().is_root()).then_some(NOBODY)
    }

    /// What `setpriv` is told.
    fn arguments(self) -> Vec<String> {
        let id = self.id();
        id.map_or_else(Vec::new, |id| {
            vec![format!("--reuid={id}"), format!("--regid={id}"), "--clear-groups".to_owned()]
        })
    }

    /// A command that this user runs.
    pub(super) fn command(self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(self.arguments()).arg(find(program).unwrap_or_else(|| program.into()));
        command
    }
}

/// Starts a program that the kernel kills when this process ends. The id of the child is the
/// program's own.
pub(crate) fn spawn(program: impl AsRef<OsStr>, prepare: impl FnOnce(&mut Command)) -> io::Result<Child> {
    spawn_as(User::Same, program, prepare)
}

/// The same, as another user.
pub(super) fn spawn_as(
    user: User,
    program: impl AsRef<OsStr>,
    prepare: impl FnOnce(&mut Command),
) -> io::Result<Child> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    // The kernel looks at the thread that started the child, so that must live as long as the
    // process: neither the thread of a test nor a worker of a runtime does.
    static STARTER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        let run =
            move || queue.iter().for_each(|(mut command, done)| done.send(command.spawn()).unwrap_or(()));
        thread::Builder::new().name("starter".to_owned()).spawn(run).expect("a thread");
        jobs
    });
    let mut command = Command::new("setpriv");
    command.args(user.arguments()).args(["--pdeathsig", "KILL"]);
    // Had this process ended before `setpriv` asked for the signal, none would come.
    command.args(["sh", "-c", r#"[ "$PPID" = "$0" ] && exec "$@""#]).arg(std::process::id().to_string());
    command.arg(program);
    prepare(&mut command);
    let (done, child) = mpsc::channel();
    starter.send((command, done)).expect("the thread never ends");
    child.recv().expect("the thread never ends")
}

/// The first of some programs that is not installed. [`spawn`] needs `setpriv`.
pub(crate) fn not_installed(programs: &[&str]) -> Option<String> {
    programs.iter().find(|program| find(program).is_none()).map(|program| (*program).to_owned())
}

/// Where a program is: in the directories of `LEASEHOLD_PROGRAMS` (to run the tests on another
/// version of a server), where `tests/interop/install.sh` builds servers, in those of `PATH`, or
/// where Debian puts servers.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let paths = ["LEASEHOLD_PROGRAMS", "PATH"].map(|name| env::var_os(name).unwrap_or_default());
    let mut postgres: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .collect();
    // The newest first.
    postgres.sort_by(|a, b| b.cmp(a));
    let debian = [PathBuf::from("/usr/sbin")].into_iter().chain(postgres);
    let [chosen, usual] = &paths;
    let all = env::split_paths(chosen).chain(built()).chain(env::split_paths(usual)).chain(debian);
    all.map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Where servers are that were built for the tests.
fn built() -> Option<PathBuf> {
    // target/debug/deps/TEST, or target/debug/BENCH.
    let program = env::current_exe().ok()?;
    let target = program.ancestors().find(|dir| dir.join("interop").is_dir())?;
    Some(target.join("interop/etcd"))
}

/// What a program printed, or what it complained of; an error if it takes longer than the limit.
pub(super) fn output(mut command: Command, limit: Duration) -> Result<String, String> {
    let end = Instant::now() + limit;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let read = |mut from: Box<dyn io::Read + Send>| {
        thread::spawn(move || {
            let mut text = String::new();
            from.read_to_string(&mut text).map(|_| text).unwrap_or_default()
        })
    };
    let said = read(Box::new(child.stdout.take().expect("piped")));
    let complained = read(Box::new(child.stderr.take().expect("piped")));
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if Instant::now() >= end {
            child.kill().and_then(|()| child.wait()).expect("a child");
            return Err(format!("{command:?} took longer than {limit:?}"));
        }
        thread::sleep(Duration::from_millis(1));
    };
    let (said, complained) = (said.join().expect("no panic"), complained.join().expect("no panic"));
    if status.success() { Ok(said.trim_end().to_owned()) } else { Err(complained.trim_end().to_owned()) }
}

/// The children of a process that runs one thread.
pub(super) fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// The letter by which the kernel tells what a process is doing: `T` if it is stopped, `Z` if it is
/// dead and not yet waited for. `None` if there is no such process.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in brackets before it, and may contain anything.
    stat.rsplit_once(") ")?.1.chars().next()
}
