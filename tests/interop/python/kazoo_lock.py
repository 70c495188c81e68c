"""kazoo's Lock, and its Election. Arguments: HOST:PORT, the path, and patterns that a lock is to know beside its own; or
"election".

It says "ready", and answers each line with one line: see ../zookeeper/src/main/java/Curator.java.
"""

import logging
import sys
import threading
import time

from kazoo.client import KazooClient

logging.disable(logging.CRITICAL)
client = KazooClient(hosts=sys.argv[1], timeout=4.0)
client.start()


class Leading:
    """An election that is held as a lock is."""

    def acquire(self, blocking=True):
        self.leads, self.over = threading.Event(), threading.Event()
        self.election = client.Election(sys.argv[2], "kazoo")
        self.thread = threading.Thread(target=self.election.run, args=[self.lead])
        self.thread.start()
        if not self.leads.wait(None if blocking else 0.7):
            self.election.cancel()
            self.thread.join()
            return False
        return True

    def lead(self):
        self.leads.set()
        self.over.wait()

    def release(self):
        self.over.set()
        self.thread.join()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()


if sys.argv[3:] == ["election"]:
    lock = Leading()
else:
    lock = client.Lock(sys.argv[2], "kazoo", extra_lock_patterns=sys.argv[3:])
print("ready", flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "take":
        lock.acquire()
        answer = "held"
    elif word == "try":
        answer = "held" if lock.acquire(blocking=False) else "busy"
    elif word == "release":
        lock.release()
        answer = "released"
    elif word == "leader":
        answer = client.Election(sys.argv[2]).contenders()[0]
    elif word == "work":
        for _ in range(int(rest[1])):
            with lock:
                with open(rest[0]) as file:
                    number = int(file.read())
                time.sleep(0.005)
                with open(rest[0], "w") as file:
                    file.write(f"{number + 1}\n")
        answer = "worked"
    elif word == "cycle":
        end, cycles = time.monotonic() + int(rest[0]) / 1000, 0
        while time.monotonic() < end:
            lock.acquire()
            lock.release()
            cycles += 1
        answer = f"cycled {cycles}"
    print(answer, flush=True)
client.stop()
