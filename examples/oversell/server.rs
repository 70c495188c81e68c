//! A Redis server that is killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::processes::Result;

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

    /// kill -9. What it has acknowledged it has written, so it comes back with it; or with nothing.
    pub(crate) async fn kill_and_restart(&mut self, keeps: bool) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        if !keeps {
            std::fs::remove_dir_all(&self.dir)?;
            std::fs::create_dir(&self.dir)?;
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

fn spawn(program: &str, dir: &Path, port: u16) -> Result<Child> {
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]);
    command.arg("--dir").arg(dir).stdout(Stdio::null());
    command.spawn().map_err(|error| format!("`{program}` can not be started: {error}").into())
}
