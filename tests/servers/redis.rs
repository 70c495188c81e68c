//! A Redis server.
//!
//! Nothing is kept on disk unless the arguments say so. A server that forks to save itself leaves
//! that fork to finish when it is killed.

mod disk;
mod frozen;
mod protocol;
mod tls;
mod topology;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub(crate) use self::disk::DiskRedis;
pub(crate) use self::frozen::{FrozenRedis, SetBack};
pub(crate) use self::protocol::{Connection, Reply};
pub(crate) use self::tls::TlsRedis;
pub(crate) use self::topology::{Cluster, Quorum, Sentinels};
use super::server::{Place, Program, Server};
use super::{LIMIT, not_installed};

/// A server of one's own.
pub(crate) type Redis = Server<RedisProgram>;

/// What a server is told when it starts.
pub(crate) enum RedisProgram {
    /// A server with these arguments.
    Server(Vec<String>),
    /// A sentinel with these lines in its file, where it writes what it learns.
    Sentinel(Vec<String>),
}

impl RedisProgram {
    fn sentinel_file(place: &Place) -> PathBuf {
        place.data().join("sentinel.conf")
    }

    /// A connection that has given the password, if there is one.
    fn connect(&self, port: u16, limit: Duration) -> io::Result<Connection> {
        let mut connection = Connection::open(port, limit)?;
        if let RedisProgram::Server(arguments) = self
            && let Some(password) =
                arguments.iter().skip_while(|argument| *argument != "--requirepass").nth(1)
        {
            connection.try_command(&["AUTH", password])?;
        }
        Ok(connection)
    }
}

impl Program for RedisProgram {
    fn name(&self) -> &'static str {
        "redis-server"
    }

    fn create_data(&self, place: &Place) {
        if let RedisProgram::Sentinel(lines) = self {
            let (port, dir) = (place.port(), place.data());
            let first = format!("port {port}\nbind 127.0.0.1\ndir {}\nloglevel warning\n", dir.display());
            fs::write(RedisProgram::sentinel_file(place), first + &lines.join("\n") + "\n").expect("a file");
        }
    }

    fn arguments(&self, place: &Place, command: &mut Command) {
        match self {
            RedisProgram::Sentinel(_) => {
                command.arg(RedisProgram::sentinel_file(place)).arg("--sentinel");
            }
            RedisProgram::Server(arguments) => {
                command.args(["--bind", "127.0.0.1", "--port", &place.port().to_string()]);
                command.args(["--daemonize", "no", "--loglevel", "warning"]);
                command.args(["--save", "", "--appendonly", "no"]);
                command.arg("--dir").arg(place.data()).args(arguments);
            }
        }
    }

    fn answers(&self, place: &Place) -> bool {
        let asked =
            self.connect(place.port(), LIMIT).and_then(|mut connection| connection.try_command(&["PING"]));
        match asked {
            Ok(Reply::Error(error)) => !error.starts_with("LOADING"),
            Ok(_) => true,
            Err(_) => false,
        }
    }
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

    /// A server with more arguments, which win over those that every server gets. A relative path
    /// among them is in [`dir`](Server::dir).
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
        let lines = lines.iter().map(|&line| line.to_owned()).collect();
        let sentinel = Server::create(RedisProgram::Sentinel(lines));
        sentinel.run();
        sentinel
    }

    /// A server that is not running yet.
    fn prepare(arguments: &[&str]) -> Redis {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Server::create(RedisProgram::Server(arguments))
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
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
        self.program().connect(self.port(), limit)
    }
}
