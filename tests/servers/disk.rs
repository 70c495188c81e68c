//! A disk that can be slow, fail or be full, under a server of any kind.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use super::preload::compile;
use super::server::{Program, Server};

/// The disk of one server. It is a good one at first.
pub(crate) struct Disk {
    control: PathBuf,
}

impl Disk {
    /// Puts such a disk under a server that is not running yet.
    pub(super) fn put_under(server: &mut Server<impl Program>) -> Disk {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        let library = BUILT.get_or_init(|| compile("disk", include_str!("disk.c")));
        let control = server.home().join("disk");
        server.environment("LD_PRELOAD", library);
        server.environment("LEASEHOLD_DISK", &control);
        Disk { control }
    }

    fn say(&self, word: &str) {
        // Whole or not at all.
        let fresh = self.control.with_extension("new");
        fs::write(&fresh, word).and_then(|()| fs::rename(&fresh, &self.control)).expect("a file");
    }

    /// Every wait for the disk takes this much longer.
    pub(crate) fn slow(&self, by: Duration) {
        self.say(&by.as_millis().to_string());
    }

    /// Nothing reaches the disk any more, and it says so.
    pub(crate) fn fail(&self) {
        self.say("-1");
    }

    /// No table of a PostgreSQL or MariaDB server can grow any more.
    pub(crate) fn fill(&self) {
        self.say("-2");
    }

    pub(crate) fn mend(&self) {
        self.say("0");
    }
}
