//! What only a store in files must survive.

mod boot;
mod crash;
mod format;
mod gate;
mod path;
mod permission;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use leasehold::Error;

use crate::Group;
use crate::bench::Ground;
use crate::engines::file::Directory;

pub(crate) fn groups() -> Vec<Group> {
    let cases =
        [boot::cases(), format::cases(), gate::cases(), path::cases(), permission::cases(), crash::cases()];
    vec![Group { name: "store", missing: missing(), cases: cases.concat() }]
}

/// The tools that hurt a process from outside.
fn missing() -> Option<String> {
    let works = |program: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new(program);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let tools =
        [("strace", &["-V"] as &[&str]), ("unshare", &["--user", "--map-root-user", "--mount", "true"])];
    tools
        .iter()
        .find(|(program, arguments)| !works(program, arguments))
        .map(|(program, _)| (*program).to_owned())
}

fn dir(ground: &Ground) -> PathBuf {
    ground.bench_of::<Directory>().store()
}

fn boot_dir(store: &Path) -> PathBuf {
    let found = fs::read_dir(store).expect("a store").flatten().map(|entry| entry.path());
    let mut boots =
        found.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("boot-")));
    boots.next().expect("one boot")
}

async fn refused(ground: &Ground) -> Error {
    let error = leasehold::connect(ground.url()).await.expect_err("it must be refused");
    crate::client::says_each_cause_once(&error);
    error
}
