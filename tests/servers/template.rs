//! Data directories that take long to make: made once, then copied.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use tempfile::TempDir;

use super::LIMIT;
use super::process::{User, find, output};
use super::server::own;

/// Held while a template is made, so that cases that start together make one.
static MAKING: Mutex<()> = Mutex::new(());

/// Fills the empty directory `data`, which belongs to `user`, with a copy of the template `name`.
///
/// If there is none yet for this version of `program`, `make` fills an empty directory of that
/// user. A change of what is made needs another name.
pub(super) fn fill(data: &Path, user: User, program: &str, name: &str, make: impl FnOnce(&Path)) {
    let template = template(user, program, name, make);
    let mut copy = Command::new("cp");
    copy.args(["-r", "--preserve=mode", "--reflink=auto", "-T"]).arg(template).arg(data);
    output(copy, 6 * LIMIT).expect("copied");
    own(data, user);
}

fn template(user: User, program: &str, name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let _making = MAKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut version = Command::new(find(program).unwrap_or_else(|| program.into()));
    version.arg("--version");
    let version = output(version, LIMIT).expect("it tells its version");
    let version: String = version.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    // Not a temporary directory, which nobody would remove at the end of the process.
    let place = Path::new(option_env!("CARGO_TARGET_TMPDIR").unwrap_or("/tmp"));
    let template = place.join(format!("{name}-{version}"));
    if !template.exists() {
        // Where the user can reach it.
        let made = TempDir::with_prefix("leasehold-template-").expect("a directory");
        let data = made.path().join("data");
        fs::create_dir(&data).expect("a directory");
        own(made.path(), user);
        make(&data);
        let fresh = TempDir::new_in(place).expect("a directory");
        let mut copy = Command::new("cp");
        copy.args(["-r", "--preserve=mode", "-T"]).arg(&data).arg(fresh.path());
        output(copy, 6 * LIMIT).expect("copied");
        // Whole or not at all. Another process may have been faster.
        if fs::rename(fresh.path(), &template).is_ok() {
            drop(fresh.keep());
        }
    }
    template
}
