//! A wall clock that stands still until it is told to move, for a server of any kind.
//!
//! Only the wall clock is frozen. The server's event loop and its timers run on.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use super::not_installed;
use super::preload::compile;
use super::server::{Program, Server};

/// A wall clock in a file, as `clock.c` reads it.
pub(crate) struct Clock {
    file: File,
    micros: Mutex<u64>,
}

impl Clock {
    /// What must be installed first, beside the server.
    pub(crate) fn missing() -> Option<String> {
        not_installed(&["cc"])
    }

    /// The library that freezes the clock of the program that loads it; compiled once in a process.
    fn build() -> &'static Path {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        BUILT.get_or_init(|| compile("clock", include_str!("clock.c")))
    }

    /// Gives a server that is not running yet such a clock, at this many microseconds since 1970.
    /// It survives a restart.
    pub(super) fn freeze(server: &mut Server<impl Program>, micros: u64) -> Clock {
        let path = server.home().join("clock");
        let clock = Clock { file: File::create_new(&path).expect("a file"), micros: Mutex::new(micros) };
        clock.set_micros(micros);
        server.environment("LD_PRELOAD", Clock::build());
        server.environment("LEASEHOLD_CLOCK", path);
        clock
    }

    /// What the clock says, in microseconds since 1970.
    pub(super) fn micros(&self) -> u64 {
        *self.micros.lock().expect("no panic")
    }

    pub(super) fn set_micros(&self, micros: u64) {
        let mut now = self.micros.lock().expect("no panic");
        self.write(&mut now, micros);
    }

    pub(crate) fn advance(&self, time: Duration) {
        let mut now = self.micros.lock().expect("no panic");
        let then = *now + u64::try_from(time.as_micros()).expect("some years");
        self.write(&mut now, then);
    }

    fn write(&self, now: &mut u64, then: u64) {
        assert!(then > 0, "zero is what an empty file says");
        // The second copy first: see clock.c.
        for at in [8, 0] {
            self.file.write_all_at(&then.to_ne_bytes(), at).expect("a file");
        }
        *now = then;
    }
}
