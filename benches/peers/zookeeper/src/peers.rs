//! The peers that are programs of their own: they are told what to do line by line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::kit::Result;
use crate::servers::class_path;

pub(crate) const CRATE: &str = "zookeeper-client's lock";
pub(crate) const CURATOR: &str = "Curator";
pub(crate) const KAZOO: &str = "kazoo";

/// A running peer.
pub(crate) struct Peer {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts Curator or kazoo for the lock at a path.
    pub(crate) fn start(label: &str, address: &str, path: &str) -> Result<Peer> {
        let mut command = match label {
            CURATOR => {
                let mut command = Command::new("java");
                command.args(["-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp"]);
                command
                    .arg(class_path().ok_or("Curator is missing")?)
                    .args(["Curator", address, path, "mutex"]);
                command
            }
            _ => {
                let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
                let mut command = Command::new(root.join("target/interop/python/bin/python"));
                command.arg(root.join("tests/interop/python/kazoo_lock.py")).args([address, path]);
                command
            }
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("a child has its output")?);
        let mut peer = Peer { child, lines };
        if peer.line()? != "ready" {
            return Err(format!("{label} did not get ready").into());
        }
        Ok(peer)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().ok_or("a child has its input")?;
        Ok(writeln!(input, "{line}")?)
    }

    /// How many cycles it has made.
    pub(crate) fn cycles(&mut self) -> Result<f64> {
        let line = self.line()?;
        let count = line.strip_prefix("cycled ").ok_or_else(|| format!("a peer said `{line}`"))?;
        Ok(count.parse()?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
