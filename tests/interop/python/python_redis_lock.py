"""python-redis-lock. Its waiters sleep until one of their own kind releases, or until a lease has passed."""

import sys

import redis
import redis_lock

import stranger


class Locks:
    def __init__(self, client, name):
        self.client, self.name, self.lock = client, name, None

    def fresh(self, lease_ms):
        # It counts in whole seconds.
        assert lease_ms % 1000 == 0
        self.lock = redis_lock.Lock(self.client, self.name, expire=lease_ms // 1000)

    def take(self, lease_ms):
        self.fresh(lease_ms)
        assert self.lock.acquire()

    def try_take(self, lease_ms):
        self.fresh(lease_ms)
        return self.lock.acquire(blocking=False)

    def release(self):
        try:
            self.lock.release()
            return True
        except redis_lock.NotAcquired:
            return False


client = redis.StrictRedis(port=int(sys.argv[1]))
stranger.serve(client, Locks(client, sys.argv[2]))
