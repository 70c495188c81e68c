//! The clients of others, each a small program that is told what to do.
//!
//! A program is started with a port (or several, with commas, if it asks a majority), a key or
//! name, and sometimes a variant. It says `ready`, and then answers each line with one line:
//!
//! | line | answer |
//! | --- | --- |
//! | `take LEASE` | `held`, after whatever wait |
//! | `try LEASE` | `held` or `busy` |
//! | `release` | `released`, or `gone` if it knows that it had nothing to release |
//! | `work TIME LEASE` | `worked SECTIONS LONGEST-WAIT`: it added one to the key `counter` so many times |
//! | `cycle TIME LEASE` | `cycled CYCLES LONGEST-WAIT`: those in Python and Node, for `benches/peers` |
//!
//! All times are in milliseconds.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use leasehold::{Client, Mutex};
use tokio::sync::mpsc;

use crate::servers::{self, Redis};

/// A client that is not ours, and how we share a lock with it.
pub(crate) struct Foreign {
    pub(crate) word: &'static str,
    runs: Runs,
    /// What it calls the lock, and what we call it.
    theirs: &'static str,
    pub(crate) ours: &'static str,
    /// The options in our URL by which the two are the same.
    pub(crate) options: &'static str,
    /// Where the lock is in the server.
    pub(crate) key: &'static str,
    /// How long it may take a waiter of theirs to find that the lock is free.
    pub(crate) looks_within: Duration,
}

/// What runs a program, and its variant.
enum Runs {
    Python(&'static str, &'static str),
    Node(&'static str),
    Go(&'static str),
    Rust,
    Nothing,
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Every client, each with another way to agree on a key.
pub(crate) const ALL: &[Foreign] = &[
    Foreign { word: "redis_py", runs: Runs::Python("redis_py.py", ""), ..raw("jobs:nightly", 250) },
    Foreign {
        word: "python_redis_lock",
        runs: Runs::Python("python_redis_lock.py", ""),
        theirs: "nightly",
        // Its waiters are woken by their own kind only; otherwise they look once in a lease, which
        // is a second here.
        ..default_prefix(1250)
    },
    Foreign { word: "redlock_5", runs: Runs::Node("5"), ..raw("{jobs}:nightly", 500) },
    Foreign {
        word: "redlock_4",
        runs: Runs::Node("4"),
        theirs: "locks/nightly",
        ours: "nightly",
        options: "?prefix=locks/&strangers",
        key: "locks/nightly",
        looks_within: ms(500),
    },
    Foreign { word: "rslock", runs: Runs::Rust, ..raw("jobs nightly", 400) },
    Foreign { word: "redsync", runs: Runs::Go("redsync"), ..raw("mutex-nightly", 450) },
    Foreign { word: "redislock", runs: Runs::Go("redislock"), ..raw("nightly", 300) },
    Foreign { word: "setnx", runs: Runs::Python("handwritten.py", "setnx"), ..default_prefix(300) },
    Foreign { word: "set_nx_ex", runs: Runs::Python("handwritten.py", "set_nx_ex"), ..default_prefix(300) },
    Foreign { word: "watch", runs: Runs::Python("handwritten.py", "watch"), ..default_prefix(300) },
];

/// For cases that talk to the server themselves.
pub(crate) const ANYBODY: Foreign = Foreign { word: "anybody", options: "", ..default_prefix(300) };

/// A key that we take as it is.
const fn raw(key: &'static str, looks_within: u64) -> Foreign {
    Foreign {
        word: "",
        runs: Runs::Nothing,
        theirs: key,
        ours: key,
        options: "?raw",
        key,
        looks_within: ms(looks_within),
    }
}

/// A key as we make it from a name.
const fn default_prefix(looks_within: u64) -> Foreign {
    Foreign { ours: "nightly", options: "?strangers", ..raw("lock:nightly", looks_within) }
}

impl Foreign {
    /// What must be installed first.
    pub(crate) fn missing(&self) -> Option<String> {
        let what = match self.runs {
            Runs::Python(..) => "python",
            Runs::Node(_) => "node",
            Runs::Go(_) => "go",
            Runs::Rust => "rust",
            Runs::Nothing => return None,
        };
        let done = installed(&format!("{what}.done"));
        (!done.is_file()).then(|| format!("{} (tests/interop/install.sh, {what})", self.word))
    }

    /// A process of this client, at these ports.
    pub(crate) async fn stranger(&self, ports: &str) -> Stranger {
        let mut stranger = Stranger::new(self.start(ports));
        assert_eq!(stranger.answer().await, "ready");
        stranger
    }

    fn start(&self, ports: &str) -> Child {
        let source = |file: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop").join(file);
        let (program, variant) = match self.runs {
            Runs::Python(_, form) => (installed("python/bin/python"), form),
            Runs::Node(version) => (PathBuf::from("node"), version),
            Runs::Go(which) => (installed("go/strangers"), which),
            Runs::Rust => (installed("rust/debug/stranger"), ""),
            Runs::Nothing => panic!("nothing to start"),
        };
        let prepare = |command: &mut Command| {
            match self.runs {
                Runs::Python(file, _) => {
                    // Nothing is written beside the sources.
                    command.arg("-B").arg(source("python").join(file));
                }
                Runs::Node(_) => {
                    command.arg(source("node/redlock.mjs")).current_dir(installed("node"));
                }
                Runs::Go(_) | Runs::Rust | Runs::Nothing => {}
            }
            command.arg(ports).arg(self.theirs).arg(variant);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        };
        servers::spawn(program.to_str().expect("a path"), prepare).expect("setpriv starts")
    }
}

/// Where `install.sh` has put something.
pub(crate) fn installed(what: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory").join("interop").join(what)
}

/// A server, and the client that shares it with us.
pub(crate) struct Ground {
    pub(crate) redis: Redis,
    pub(crate) foreign: &'static Foreign,
}

impl Ground {
    /// A client of ours, on connections of its own.
    pub(crate) async fn client(&self) -> Client {
        self.client_at(self.redis.port()).await
    }

    pub(crate) async fn client_at(&self, port: u16) -> Client {
        let url = format!("redis://127.0.0.1:{port}/{}", self.foreign.options);
        leasehold::connect(&url).await.expect("a client")
    }

    /// The lock that we share.
    pub(crate) fn mutex(&self, client: &Client) -> Mutex {
        client.mutex(self.foreign.ours).expect("a mutex")
    }

    /// A process of the other client.
    pub(crate) async fn stranger(&self) -> Stranger {
        self.foreign.stranger(&self.redis.port().to_string()).await
    }

    /// What stands at the key of the lock.
    pub(crate) fn value(&self) -> Option<String> {
        let found = self.redis.command(&["GET", self.foreign.key]);
        (!found.is_nil()).then(|| found.text())
    }

    /// Waits until so many of ours stand in the queue.
    pub(crate) async fn until_waiting(&self, client: &Client, waiting: u32) {
        let look = || client.look(leasehold::Family::Lock, self.foreign.ours);
        while look().await.expect("a look").waiting != waiting {
            tokio::time::sleep(ms(2)).await;
        }
    }
}

/// A process of another client. Dropped, it is killed.
pub(crate) struct Stranger {
    child: Child,
    stdin: ChildStdin,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Stranger {
    /// A process whose input and output are pipes.
    pub(crate) fn new(mut child: Child) -> Stranger {
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (line, lines) = mpsc::unbounded_channel();
        thread::spawn(move || {
            stdout.lines().map_while(Result::ok).for_each(|said| line.send(said).unwrap_or(()));
        });
        Stranger { child, stdin, lines }
    }

    #[cfg(feature = "etcd")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line, and leaves the answer for [`answer`](Stranger::answer).
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the stranger listens");
    }

    pub(crate) async fn answer(&mut self) -> String {
        self.lines.recv().await.expect("the stranger said why it ended")
    }

    pub(crate) async fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer().await
    }

    /// Whether it has answered.
    pub(crate) fn is_silent(&self) -> bool {
        self.lines.is_empty()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
