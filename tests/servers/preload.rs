//! Small libraries that change what the system says to a server.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Compiles one, for `LD_PRELOAD`.
pub(super) fn compile(name: &str, source: &str) -> PathBuf {
    // Not a temporary directory, which nobody would remove at the end of the process.
    let place = Path::new(option_env!("CARGO_TARGET_TMPDIR").unwrap_or("/tmp"));
    let dir = TempDir::new_in(place).expect("a directory");
    let fresh = dir.path().join("fresh.so");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-x", "c", "-", "-o"]).arg(&fresh);
    let mut cc = command.stdin(Stdio::piped()).spawn().expect("cc starts");
    cc.stdin.take().expect("piped").write_all(source.as_bytes()).expect("cc reads");
    assert!(cc.wait().expect("cc ends").success(), "{name}.c does not compile");
    // Another process may do the same, or have a server that uses the one before.
    let library = place.join(format!("{name}.so"));
    fs::rename(&fresh, &library).expect("a file");
    library
}
