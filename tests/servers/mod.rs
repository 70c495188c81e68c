//! Real servers for the tests, and a line to them that can be cut.
//!
//! A server runs on a port of its own and ends with the process that started it, however that ends. Whatever is
//! temporary is removed at the end, unless the process is killed.
//!
//! A test binary takes this in with `#[path = "../servers/mod.rs"] mod servers;`. Every call here blocks, for
//! milliseconds, and none needs the runtime of the test to run.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

mod clock;
mod preload;
mod proxy;
mod redis;
mod tls;

use std::env;
use std::io;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::TcpSocket;

pub(crate) use self::clock::{Clock, FrozenRedis, SetBack};
pub(crate) use self::proxy::Proxy;
pub(crate) use self::redis::{Cluster, Connection, DiskRedis, Quorum, Redis, Reply, Sentinels};
pub(crate) use self::tls::{Certificates, TlsRedis};

/// Nothing here takes longer than this.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// A free port of 127.0.0.1, kept for one server even while that is down.
///
/// A socket that is bound and does not listen holds the number: nobody else is given it, and who connects is refused.
/// A server that asks for the number with SO_REUSEADDR, as servers do, gets it nevertheless.
pub(crate) struct Port {
    number: u16,
    _held: TcpSocket,
}

impl Port {
    fn reserve() -> Port {
        let held = bind(0).expect("a free port");
        Port { number: held.local_addr().expect("bound").port(), _held: held }
    }
}

/// A socket of 127.0.0.1 that shares its port with those that do not listen.
fn bind(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(([127, 0, 0, 1], port).into())?;
    Ok(socket)
}

/// Starts a program that the kernel kills when this process ends. The id of the child is the program's own.
pub(crate) fn spawn(program: &str, prepare: impl FnOnce(&mut Command)) -> io::Result<Child> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    // The kernel looks at the thread that started the child, so that must live as long as the process: neither the
    // thread of a test nor a worker of a runtime does.
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

/// The first of some programs that is not installed.
pub(crate) fn not_installed(programs: &[&str]) -> Option<String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = |program: &str| env::split_paths(&path).any(|dir| dir.join(program).is_file());
    programs.iter().find(|program| !found(program)).map(|program| (*program).to_owned())
}

/// Waits until something is so, and fails after ten seconds.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !so() {
        assert!(Instant::now() < limit, "waited too long until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The letter by which the kernel tells what a process is doing: `T` if it is stopped, `Z` if it is dead and not yet
/// waited for. `None` if there is no such process.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in brackets before it, and may contain anything.
    stat.rsplit_once(") ")?.1.chars().next()
}
