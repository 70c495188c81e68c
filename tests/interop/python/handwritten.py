"""The forms that are pasted from one program to the next. ARGV: port, key, form."""

import sys
import time
import uuid

import redis

import stranger


class Locks:
    def __init__(self, client, key):
        self.client, self.key, self.value = client, key, None

    def take(self, lease_ms):
        while not self.try_take(lease_ms):
            time.sleep(0.1)


class SetNxExpire(Locks):
    """SETNX, then EXPIRE; GET and compare, then DEL. Neither pair is one step."""

    def try_take(self, lease_ms):
        self.value = str(uuid.uuid4())
        if not self.client.setnx(self.key, self.value):
            return False
        self.client.expire(self.key, lease_ms // 1000)
        return True

    def release(self):
        if (self.client.get(self.key) or b"").decode() != self.value:
            return False
        return self.client.delete(self.key) == 1


class SetNxEx(Locks):
    """SET NX EX; a script that compares and deletes. What the documentation of Redis says."""

    SCRIPT = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end'

    def try_take(self, lease_ms):
        self.value = str(uuid.uuid4())
        return self.client.set(self.key, self.value, nx=True, ex=lease_ms // 1000)

    def release(self):
        return self.client.eval(self.SCRIPT, 1, self.key, self.value) == 1


class Watch(Locks):
    """WATCH, look, then MULTI: to take it and to give it back."""

    def try_take(self, lease_ms):
        self.value = str(uuid.uuid4())
        with self.client.pipeline() as pipe:
            try:
                pipe.watch(self.key)
                if pipe.exists(self.key):
                    return False
                pipe.multi()
                pipe.set(self.key, self.value, px=lease_ms)
                pipe.execute()
                return True
            except redis.WatchError:
                return False

    def release(self):
        with self.client.pipeline() as pipe:
            while True:
                try:
                    pipe.watch(self.key)
                    if (pipe.get(self.key) or b"").decode() != self.value:
                        return False
                    pipe.multi()
                    pipe.delete(self.key)
                    pipe.execute()
                    return True
                except redis.WatchError:
                    continue


forms = {"setnx": SetNxExpire, "set_nx_ex": SetNxEx, "watch": Watch}
client = redis.Redis(port=int(sys.argv[1]))
stranger.serve(client, forms[sys.argv[3]](client, sys.argv[2]))
