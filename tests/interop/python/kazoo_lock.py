"""kazoo's Lock. Arguments: HOST:PORT, the path, and patterns that it is to know beside its own.

It says "ready", and answers each line with one line: see ../zookeeper/src/main/java/Curator.java.
"""

import logging
import sys
import time

from kazoo.client import KazooClient

logging.disable(logging.CRITICAL)
client = KazooClient(hosts=sys.argv[1], timeout=4.0)
client.start()
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
