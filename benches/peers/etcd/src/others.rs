//! The peers.

use std::path::Path;
use std::process::Command;

use crate::kit::Result;

/// A peer, and the program that runs it: this one, or another.
#[derive(Clone, Debug)]
pub(crate) struct Other {
    pub(crate) label: &'static str,
    pub(crate) program: Option<String>,
}

/// Who wants to be measured.
pub(crate) const OURS: Other = Other { label: "ours", program: None };
pub(crate) const LOCK_API: &str = "etcd-client's lock API";
pub(crate) const GO: &str = "Go's concurrency package";

/// Those that are there.
pub(crate) fn all() -> Result<Vec<Other>> {
    let mut others = vec![Other { label: LOCK_API, program: None }];
    others.extend(go()?);
    Ok(others)
}

/// Builds the Go program; nothing where there is no Go.
fn go() -> Result<Option<Other>> {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("etcd-peers: there is no Go; its package is left out");
        return Ok(None);
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (from, program) = (here.join("go"), here.join("target/go-peer"));
    let built = Command::new("go")
        .args(["build", "-buildvcs=false", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(&from)
        .status()?;
    if !built.success() {
        return Err("the Go program can not be built".into());
    }
    Ok(Some(Other { label: GO, program: Some(program.display().to_string()) }))
}
