//! A store in files, in a directory of its own.

use std::any::Any;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;

use leasehold::engine::{AfterDeath, Reach};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::setup::{Bench, Promises, Setup};

pub(crate) fn setups() -> Vec<Setup> {
    let promises = Promises::everything("file", Reach::Machine, AfterDeath::AtOnce);
    let start = || Directory(TempDir::with_prefix("leasehold-").expect("a directory"));
    vec![Setup { own_cases: crate::file::groups(), ..Setup::new("file", promises, start) }]
}

/// Removed at the end of the case.
pub(crate) struct Directory(TempDir);

impl Directory {
    /// Where the store is once somebody has connected.
    pub(crate) fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }
}

impl Bench for Directory {
    fn url(&self) -> String {
        format!("file:{}", self.store().display())
    }

    fn culprit(&self) -> String {
        format!("process {}", std::process::id())
    }

    /// What others see when a process is stopped in the middle of a write.
    fn pause(&self) -> Option<Box<dyn Any>> {
        let entries = fs::read_dir(self.store()).expect("a store").flatten();
        let mut boots = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("boot-"));
        let gate = boots.next().expect("one boot").path().join("gate");
        let gate = OpenOptions::new().write(true).open(gate).expect("a gate");
        flock(&gate, FlockOperation::LockExclusive).expect("the gate can be locked");
        Some(Box::new(gate))
    }
}
