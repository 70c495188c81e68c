//! A Redis server whose disk can be slow, or fail.

use std::ops::Deref;

use super::super::disk::Disk;
use super::Redis;

pub(crate) struct DiskRedis {
    redis: Redis,
    pub(crate) disk: Disk,
}

impl Redis {
    pub(crate) fn start_on_disk(arguments: &[&str]) -> DiskRedis {
        let mut redis = Redis::prepare(arguments);
        let disk = Disk::put_under(&mut redis);
        redis.run();
        DiskRedis { redis, disk }
    }
}

impl Deref for DiskRedis {
    type Target = Redis;

    fn deref(&self) -> &Redis {
        &self.redis
    }
}
