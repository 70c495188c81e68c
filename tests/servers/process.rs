//! Processes that end with the test that started them.

use std::env;
use std::fs;
use std::io;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};
use std::thread;

/// Starts a program that the kernel kills when this process ends. The id of the child is the
/// program's own.
pub(crate) fn spawn(program: &str, prepare: impl FnOnce(&mut Command)) -> io::Result<Child> {
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
    command.args(["--pdeathsig", "KILL"]);
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
    let path = env::var_os("PATH").unwrap_or_default();
    let found = |program: &str| env::split_paths(&path).any(|dir| dir.join(program).is_file());
    programs.iter().find(|program| !found(program)).map(|program| (*program).to_owned())
}

/// The letter by which the kernel tells what a process is doing: `T` if it is stopped, `Z` if it is
/// dead and not yet waited for. `None` if there is no such process.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in brackets before it, and may contain anything.
    stat.rsplit_once(") ")?.1.chars().next()
}
