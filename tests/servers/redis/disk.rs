//! A server whose disk can be slow, or fail.

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use super::super::preload::compile;
use super::Redis;

/// A server on such a disk. It is a good one at first.
pub(crate) struct DiskRedis {
    redis: Redis,
    control: PathBuf,
}

impl Redis {
    pub(crate) fn start_on_disk(arguments: &[&str]) -> DiskRedis {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        let library = BUILT.get_or_init(|| compile("disk", include_str!("../disk.c")));
        let mut redis = Redis::prepare(arguments);
        let control = redis.home().join("disk");
        redis.environment("LD_PRELOAD", library);
        redis.environment("LEASEHOLD_DISK", &control);
        redis.run();
        DiskRedis { redis, control }
    }
}

impl DiskRedis {
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

    pub(crate) fn mend(&self) {
        self.say("0");
    }
}

impl Deref for DiskRedis {
    type Target = Redis;

    fn deref(&self) -> &Redis {
        &self.redis
    }
}
