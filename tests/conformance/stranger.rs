//! Programs of others, or of ours with what others made, which `tests/interop/install.sh` builds.
//! They answer each line with a line.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Where `install.sh` has put something.
pub(crate) fn installed(what: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory").join("interop").join(what)
}

/// A process. Dropped, it is killed.
pub(crate) struct Stranger {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Stranger {
    /// A process that has said that it is ready.
    pub(crate) async fn start(mut command: Command) -> Stranger {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("it is installed");
        let stdin = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut stranger = Stranger { child, stdin, lines };
        assert_eq!(stranger.answer().await, "ready");
        stranger
    }

    pub(crate) async fn tell(&mut self, line: &str) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.expect("it listens");
    }

    pub(crate) async fn answer(&mut self) -> String {
        self.lines.next_line().await.expect("a line").expect("it said why it ended")
    }

    pub(crate) async fn ask(&mut self, line: &str) -> String {
        self.tell(line).await;
        self.answer().await
    }

    /// Stops it, or lets it go on: `Signal::STOP`, `Signal::CONT`.
    #[allow(dead_code, reason = "used by cases of some features")]
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        kill_process(pid.expect("it runs"), signal).expect("a child");
    }

    /// Ends it as `kill -9` does.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }
}
