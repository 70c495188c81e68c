//! A program in Java that uses ShedLock: `tests/interop/java`.

use tokio::process::Command;

use crate::stranger::{Stranger, installed};

/// What must be installed first.
pub(super) fn missing() -> Option<String> {
    let done = installed("java.done");
    (!done.is_file()).then(|| "ShedLock (tests/interop/install.sh, java)".to_owned())
}

/// Whose clock it uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// `usingDbTime()`.
    Database,
    /// Its own, in UTC.
    Own,
}

pub(super) async fn start(jdbc: &str, clock: Clock) -> Stranger {
    let target = installed("java/target");
    let path = format!("{}:{}/*", target.join("stranger.jar").display(), target.join("classpath").display());
    let clock = match clock {
        Clock::Database => "database",
        Clock::Own => "own",
    };
    let mut command = Command::new("java");
    // Made to start fast, on few cores.
    command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx64m", "-cp", &path, "Stranger"]);
    command.args([jdbc, "shedlock", clock]);
    Stranger::start(command).await
}
