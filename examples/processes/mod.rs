//! What the scenarios share: a program that starts itself several times, and kills some of it.

#![allow(dead_code, reason = "each scenario uses a part of it")]

use std::hash::{BuildHasher as _, RandomState};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

pub(crate) type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// What was typed.
pub(crate) struct Arguments(Vec<String>);

impl Arguments {
    pub(crate) fn read() -> Arguments {
        Arguments(std::env::args().skip(1).collect())
    }

    /// What a worker is started with, if this is one.
    pub(crate) fn of_worker(&self) -> Option<&[String]> {
        self.0.split_first().filter(|(first, _)| *first == "worker").map(|(_, rest)| rest)
    }

    /// Whether `flag` was typed.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.0.iter().any(|argument| argument == flag)
    }

    /// The value after `flag`.
    pub(crate) fn text(&self, flag: &str) -> Option<&str> {
        let place = self.0.iter().position(|argument| argument == flag)?;
        self.0.get(place + 1).map(String::as_str).filter(|value| !value.starts_with("--"))
    }

    pub(crate) fn number(&self, flag: &str, default: u32) -> Result<u32> {
        self.text(flag).map_or(Ok(default), |text| Ok(text.parse()?))
    }

    /// The engine of `--on`; without it, a directory of this machine.
    pub(crate) fn url(&self, dir: &tempfile::TempDir) -> String {
        let embedded = || format!("file:{}", dir.path().join("store").display());
        self.text("--on").map_or_else(embedded, str::to_owned)
    }
}

/// This program once more, in another process. It is killed when it is dropped.
pub(crate) struct Worker {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts a worker and waits until it says that it is ready.
    pub(crate) async fn start(arguments: &[&str]) -> Result<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("worker").args(arguments).kill_on_drop(true);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take().ok_or("no input")?;
        let output = BufReader::new(process.stdout.take().ok_or("no output")?).lines();
        let mut worker = Worker { process, input, output };
        match worker.line().await?.as_deref() {
            Some("ready") => Ok(worker),
            other => Err(format!("a worker did not start: {other:?}").into()),
        }
    }

    /// The number of the process, unless it was killed.
    pub(crate) fn id(&self) -> Option<u32> {
        self.process.id()
    }

    pub(crate) async fn say(&mut self, line: &str) -> Result<()> {
        Ok(self.input.write_all(format!("{line}\n").as_bytes()).await?)
    }

    /// The next line; `None` if it has ended.
    pub(crate) async fn line(&mut self) -> Result<Option<String>> {
        Ok(self.output.next_line().await?)
    }

    /// kill -9, and what it had said before.
    pub(crate) async fn kill_and_hear(&mut self) -> Result<Vec<String>> {
        self.kill().await?;
        let mut lines = Vec::new();
        while let Some(line) = self.line().await? {
            lines.push(line);
        }
        Ok(lines)
    }

    /// kill -9.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}

/// A number below `end`, another one each time.
pub(crate) fn random(end: u64) -> u64 {
    RandomState::new().hash_one(0) % end.max(1)
}

/// A time of up to so many milliseconds.
pub(crate) fn random_time(most: u64) -> Duration {
    Duration::from_micros(random(most * 1000))
}

/// A microsecond of a clock that all processes of this machine share.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1000
}
