//! A program in Java that uses ShedLock: `tests/interop/java`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// What must be installed first.
pub(super) fn missing() -> Option<String> {
    let done = installed().join("java.done");
    (!done.is_file()).then(|| "ShedLock (tests/interop/install.sh, java)".to_owned())
}

fn installed() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory").join("interop")
}

/// Whose clock it uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// `usingDbTime()`.
    Database,
    /// Its own, in UTC.
    Own,
}

/// A process. Dropped, it is killed.
pub(super) struct Stranger {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Stranger {
    pub(super) async fn start(jdbc: &str, clock: Clock) -> Stranger {
        let target = installed().join("java/target");
        let path =
            format!("{}:{}/*", target.join("stranger.jar").display(), target.join("classpath").display());
        let clock = match clock {
            Clock::Database => "database",
            Clock::Own => "own",
        };
        let mut command = Command::new("java");
        // Made to start fast, on few cores.
        command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx64m", "-cp", &path, "Stranger"]);
        command.args([jdbc, "shedlock", clock]).kill_on_drop(true);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Java is installed");
        let stdin = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut stranger = Stranger { child, stdin, lines };
        assert_eq!(stranger.answer().await, "ready");
        stranger
    }

    pub(super) async fn tell(&mut self, line: &str) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.expect("it listens");
    }

    pub(super) async fn answer(&mut self) -> String {
        self.lines.next_line().await.expect("a line").expect("it said why it ended")
    }

    pub(super) async fn ask(&mut self, line: &str) -> String {
        self.tell(line).await;
        self.answer().await
    }

    /// Ends it as `kill -9` does.
    pub(super) async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }
}
