"""redis-py's own Lock, with its own defaults: it asks every 100 ms."""

import sys

import redis
from redis.exceptions import LockNotOwnedError

import stranger


class Locks:
    def __init__(self, client, name):
        self.client, self.name, self.lock = client, name, None

    def take(self, lease_ms):
        self.lock = self.client.lock(self.name, timeout=lease_ms / 1000)
        assert self.lock.acquire()

    def try_take(self, lease_ms):
        self.lock = self.client.lock(self.name, timeout=lease_ms / 1000)
        return self.lock.acquire(blocking=False)

    def release(self):
        try:
            self.lock.release()
            return True
        except LockNotOwnedError:
            return False


client = redis.Redis(port=int(sys.argv[1]))
stranger.serve(client, Locks(client, sys.argv[2]))
