//! A Redis server, and the few lines of its protocol that the tests speak themselves.
//!
//! Nothing is kept on disk unless the arguments say so. A server that forks to save itself leaves that fork to finish
//! when it is killed.

mod disk;
mod topology;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{LIMIT, Port, not_installed, spawn, state, until};

pub(crate) use self::disk::DiskRedis;
pub(crate) use self::topology::{Cluster, Quorum, Sentinels};

/// A server of one's own. Dropped, it is killed.
pub(crate) struct Redis {
    port: Port,
    home: TempDir,
    arguments: Vec<String>,
    environment: Vec<(&'static str, OsString)>,
    /// What a sentinel was told; it writes there what it learns.
    sentinel: Option<PathBuf>,
    process: Mutex<Option<Child>>,
}

impl Redis {
    /// What must be installed first.
    pub(crate) fn missing() -> Option<String> {
        not_installed(&["redis-server", "setpriv"])
    }

    /// A server that answers.
    pub(crate) fn start() -> Redis {
        Redis::start_with(&[])
    }

    /// A server with more arguments, which win over those that every server gets. A relative path among them is in
    /// [`dir`](Redis::dir).
    #[track_caller]
    pub(crate) fn start_with(arguments: &[&str]) -> Redis {
        Redis::try_start_with(arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A server with more arguments, or what it said before it ended.
    pub(crate) fn try_start_with(arguments: &[&str]) -> Result<Redis, String> {
        let redis = Redis::prepare(arguments);
        redis.try_run().map(|()| redis)
    }

    /// A sentinel that is told these things.
    pub(crate) fn start_sentinel(lines: &[&str]) -> Redis {
        let mut redis = Redis::prepare(&[]);
        let port = redis.port.number;
        let first = format!("port {port}\nbind 127.0.0.1\ndir {}\nloglevel warning\n", redis.dir().display());
        let config = redis.dir().join("sentinel.conf");
        fs::write(&config, first + &lines.join("\n") + "\n").expect("a file");
        redis.sentinel = Some(config);
        redis.run();
        redis
    }

    /// A server that is not running yet.
    pub(super) fn prepare(arguments: &[&str]) -> Redis {
        let home = TempDir::with_prefix("leasehold-redis-").expect("a directory");
        fs::create_dir(home.path().join("data")).expect("a directory");
        Redis {
            port: Port::reserve(),
            home,
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            environment: Vec::new(),
            sentinel: None,
            process: Mutex::new(None),
        }
    }

    pub(super) fn environment(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.environment.push((name, value.into()));
    }

    /// A directory that outlives all restarts and that the server does not know.
    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    #[track_caller]
    pub(super) fn run(&self) {
        self.try_run().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Starts the process and waits until it answers.
    fn try_run(&self) -> Result<(), String> {
        let mut process = self.process();
        assert!(process.is_none(), "the server is running");
        let log = File::options().create(true).append(true).open(self.log_path()).expect("a log");
        let child = spawn("redis-server", |command| {
            if let Some(config) = &self.sentinel {
                command.arg(config).arg("--sentinel");
            } else {
                command.args(["--bind", "127.0.0.1", "--port", &self.port.number.to_string()]);
                command.args(["--daemonize", "no", "--loglevel", "warning"]);
                command.args(["--save", "", "--appendonly", "no"]);
                command.arg("--dir").arg(self.dir()).args(&self.arguments);
            }
            command.current_dir(self.dir()).envs(self.environment.iter().cloned());
            command.stdin(Stdio::null());
            command.stdout(log.try_clone().expect("a file")).stderr(log);
        });
        // Kept before the first wait, so that a panic below does not leave it behind.
        let child = process.insert(child.expect("setpriv starts"));
        let mut ended = None;
        until("the server answers", || {
            ended = child.try_wait().expect("a child");
            ended.is_some() || self.answers()
        });
        match ended {
            None => Ok(()),
            Some(status) => Err(format!("redis-server ended with {status}:\n{}", self.log())),
        }
    }

    /// Whether the server takes commands. One that reads its data answers, and does not.
    fn answers(&self) -> bool {
        let asked = self.try_connect(LIMIT).and_then(|mut connection| connection.try_command(&["PING"]));
        match asked {
            Ok(Reply::Error(error)) => !error.starts_with("LOADING"),
            Ok(_) => true,
            Err(_) => false,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port.number)
    }

    /// Where the server keeps its data, and where it runs.
    pub(crate) fn dir(&self) -> PathBuf {
        self.home.path().join("data")
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
        self.home.path().join("log")
    }

    /// Stops the process: connections stay open, new ones are made by the kernel, and nothing is answered.
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

    /// Kills the server, paused or not; the next connection is refused. Nothing happens if it is dead.
    pub(crate) fn kill(&self) {
        if let Some(mut child) = self.process().take() {
            child.kill().expect("a child");
            child.wait().expect("a child");
        }
    }

    /// Kills the server and starts it again as it was, with whatever data it has kept on disk: none, by default.
    pub(crate) fn restart(&self) {
        self.kill();
        self.run();
    }

    /// Kills the server and starts it again as it was, without its data.
    pub(crate) fn restart_empty(&self) {
        self.kill();
        fs::remove_dir_all(self.dir()).expect("a directory");
        fs::create_dir(self.dir()).expect("a directory");
        self.run();
    }

    /// The reply to one command, on a connection of its own.
    #[track_caller]
    pub(crate) fn command(&self, words: &[&str]) -> Reply {
        self.connect().command(words)
    }

    /// The reply to one command if it comes in time.
    pub(crate) fn try_command(&self, words: &[&str], limit: Duration) -> io::Result<Reply> {
        self.try_connect(limit)?.try_command(words)
    }

    /// What users were denied. That the driver may not tell its name does not count.
    pub(crate) fn denied(&self) -> Vec<String> {
        let log = self.command(&["ACL", "LOG"]);
        let objects = log.array().iter().map(|entry| entry.field("object"));
        objects.filter(|object| object != "client|setinfo").collect()
    }

    /// The commands that were used since the statistics were last reset.
    pub(crate) fn used(&self) -> BTreeSet<String> {
        let stats = self.command(&["INFO", "commandstats"]).text();
        let used = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'));
        used.map(|(command, _)| command.to_owned()).collect()
    }

    /// A connection for many commands, or for those that go together.
    #[track_caller]
    pub(crate) fn connect(&self) -> Connection {
        self.try_connect(LIMIT).expect("the server is there")
    }

    fn try_connect(&self, limit: Duration) -> io::Result<Connection> {
        let mut connection = Connection::open(self.port.number, limit)?;
        let password = self.arguments.iter().skip_while(|argument| *argument != "--requirepass").nth(1);
        if let Some(password) = password {
            connection.try_command(&["AUTH", password])?;
        }
        Ok(connection)
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A connection to a server, or to a proxy before it.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// A connection on which nothing is waited for longer than `limit`.
    pub(crate) fn open(port: u16, limit: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// The reply to a command.
    #[track_caller]
    pub(crate) fn command(&mut self, words: &[&str]) -> Reply {
        self.try_command(words).unwrap_or_else(|error| panic!("no reply to {words:?}: {error}"))
    }

    /// The reply to a command, if it comes in time; after a failure the connection is of no more use.
    pub(crate) fn try_command(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// Sends a command and leaves the reply for [`receive`](Connection::receive).
    pub(crate) fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())
    }

    /// Waits until a reply is on its way in, and leaves it where it is.
    pub(crate) fn peek(&self) -> io::Result<()> {
        match self.stream.get_ref().peek(&mut [0])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// The next reply.
    pub(crate) fn receive(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let Some(line) = line.strip_suffix("\r\n").filter(|line| !line.is_empty()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let strange = || io::Error::other(format!("no reply that is known here: {line}"));
        let (kind, rest) = line.split_at_checked(1).ok_or_else(strange)?;
        let number = || rest.parse::<i64>().map_err(|_| strange());
        Ok(match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Bulk(None),
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Bulk(Some(bytes))
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Reply::Bulk(None),
                Ok(length) => Reply::Array((0..length).map(|_| self.receive()).collect::<io::Result<_>>()?),
            },
            _ => return Err(strange()),
        })
    }
}

/// What a server answers. An array that is not there reads as a value that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Option<Vec<u8>>),
    Array(Vec<Reply>),
}

impl Reply {
    #[track_caller]
    pub(crate) fn ok(&self) {
        assert_eq!(*self, Reply::Simple("OK".to_owned()));
    }

    #[track_caller]
    pub(crate) fn int(&self) -> i64 {
        let Reply::Int(number) = self else { panic!("not a number: {self:?}") };
        *number
    }

    #[track_caller]
    pub(crate) fn text(&self) -> String {
        match self {
            Reply::Simple(text) => text.clone(),
            Reply::Bulk(Some(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            _ => panic!("not a text: {self:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn error(&self) -> &str {
        let Reply::Error(error) = self else { panic!("not an error: {self:?}") };
        error
    }

    #[track_caller]
    pub(crate) fn array(&self) -> &[Reply] {
        let Reply::Array(replies) = self else { panic!("not an array: {self:?}") };
        replies
    }

    /// The texts of an array.
    #[track_caller]
    pub(crate) fn texts(&self) -> Vec<String> {
        self.array().iter().map(Reply::text).collect()
    }

    /// One of the fields of a reply that lists names and values.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> String {
        let of = |pair: &[Reply]| (pair[0].text() == name).then(|| pair[1].text());
        self.array().chunks_exact(2).find_map(of).expect("the field")
    }

    pub(crate) fn is_nil(&self) -> bool {
        *self == Reply::Bulk(None)
    }
}
