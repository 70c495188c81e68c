//! A Redis server that is killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::processes::Result;

/// What a server has when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// All that it has acknowledged.
    Kept,
    /// Nothing.
    Lost,
    /// What it had a moment before it was killed, as a replica that is promoted.
    Older,
}

/// The server of this run. It ends with this value.
pub(crate) struct RedisServer {
    program: String,
    dir: PathBuf,
    port: u16,
    process: Child,
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl RedisServer {
    pub(crate) async fn start(program: &str, dir: &Path) -> Result<RedisServer> {
        // A free port, which nobody takes in the next moment.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let dir = dir.join("redis");
        std::fs::create_dir(&dir)?;
        let process = spawn(program, &dir, port)?;
        let mut server = RedisServer { program: program.to_owned(), dir, port, process };
        server.answers().await?;
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// kill -9, and it comes back. What it has acknowledged it has written. `moment` is how much
    /// older its data are, if they are.
    pub(crate) async fn kill_and_restart(&mut self, data: Data, moment: Duration) -> Result<()> {
        let older = self.dir.with_extension("older");
        if data == Data::Older {
            copy(&self.dir, &older)?;
            tokio::time::sleep(moment).await;
        }
        self.process.kill()?;
        self.process.wait()?;
        if data != Data::Kept {
            std::fs::remove_dir_all(&self.dir)?;
        }
        match data {
            Data::Kept => {}
            Data::Lost => std::fs::create_dir(&self.dir)?,
            Data::Older => std::fs::rename(&older, &self.dir)?,
        }
        self.process = spawn(&self.program, &self.dir, self.port)?;
        self.answers().await
    }

    async fn answers(&mut self) -> Result<()> {
        let started = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            if started.elapsed() > Duration::from_secs(10) || self.process.try_wait()?.is_some() {
                return Err(format!("`{}` does not start", self.program).into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

/// The server writes on while it is copied: at its start it leaves out what was not written whole.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            std::fs::copy(from, to)?;
        }
    }
    Ok(())
}

fn spawn(program: &str, dir: &Path, port: u16) -> Result<Child> {
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]);
    command.arg("--dir").arg(dir).stdout(Stdio::null());
    command.spawn().map_err(|error| format!("`{program}` can not be started: {error}").into())
}
