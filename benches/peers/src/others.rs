//! Peers in other languages: the programs of tests/interop, which `tests/interop/install.sh`
//! installs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::kit::Result;

/// The one that asks several servers.
pub(crate) const REDLOCK: &str = "redlock (npm)";
/// What they are called here.
pub(crate) const ALL: [&str; 3] = ["redis-py", "python-redis-lock", REDLOCK];

/// One process of a peer. Dropped, it ends.
pub(crate) struct Other {
    child: Child,
    told: ChildStdin,
    says: BufReader<ChildStdout>,
}

/// What it did: cycles, and the longest wait in milliseconds.
pub(crate) struct Cycled {
    pub(crate) cycles: f64,
    pub(crate) longest: f64,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Installs the peers, unless that was done.
pub(crate) fn install() -> Result<()> {
    let done =
        Command::new(root().join("tests/interop/install.sh")).env_remove("CARGO_TARGET_DIR").status()?;
    if done.success() { Ok(()) } else { Err("tests/interop/install.sh failed".into()) }
}

impl Other {
    /// On the server at a port, or at several with commas between them.
    pub(crate) fn start(word: &str, ports: &str, name: &str) -> Result<Other> {
        let (sources, installed) = (root().join("tests/interop"), root().join("target/interop"));
        let mut command = if word == REDLOCK {
            let mut node = Command::new("node");
            node.current_dir(installed.join("node")).arg(sources.join("node/redlock.mjs"));
            node
        } else {
            let mut python = Command::new(installed.join("python/bin/python"));
            python.arg(sources.join("python").join(word.replace('-', "_") + ".py"));
            python
        };
        command.args([ports, name, "5"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{word}: {error}"))?;
        let told = child.stdin.take().ok_or("no input")?;
        let says = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut other = Other { child, told, says };
        if other.line()? != "ready" {
            return Err(format!("{word} did not start").into());
        }
        Ok(other)
    }

    pub(crate) fn tell(&mut self, slice: Duration) -> Result<()> {
        Ok(writeln!(self.told, "cycle {} 30000", slice.as_millis())?)
    }

    pub(crate) fn cycled(&mut self) -> Result<Cycled> {
        let line = self.line()?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["cycled", cycles, longest] => Ok(Cycled { cycles: cycles.parse()?, longest: longest.parse()? }),
            _ => Err(format!("a peer said `{line}`").into()),
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
