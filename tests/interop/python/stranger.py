"""What every stranger in Python does: one line in, one line out. See ../strangers.rs for the lines."""

import sys
import time


def serve(redis, locks):
    """`locks` has take(ms), try_take(ms) and release(); the last two say whether it worked."""
    print("ready", flush=True)
    for line in sys.stdin:
        word, *numbers = line.split()
        numbers = [int(number) for number in numbers]
        if word == "take":
            locks.take(*numbers)
            answer = "held"
        elif word == "try":
            answer = "held" if locks.try_take(*numbers) else "busy"
        elif word == "release":
            answer = "released" if locks.release() else "gone"
        elif word == "work":
            answer = work(redis, locks, *numbers)
        elif word == "cycle":
            answer = cycle(locks, *numbers)
        print(answer, flush=True)


def work(redis, locks, time_ms, lease_ms):
    """Adds one to a counter that nothing else protects, again and again."""
    end = time.monotonic() + time_ms / 1000
    sections, longest = 0, 0.0
    while time.monotonic() < end:
        asked = time.monotonic()
        locks.take(lease_ms)
        longest = max(longest, time.monotonic() - asked)
        count = int(redis.get("counter") or 0)
        time.sleep(0.002)
        redis.set("counter", count + 1)
        assert locks.release(), "lost the lock while it was held"
        sections += 1
    return f"worked {sections} {longest * 1000:.0f}"


def cycle(locks, time_ms, lease_ms):
    """Takes and releases, and nothing else."""
    end = time.monotonic() + time_ms / 1000
    cycles, longest = 0, 0.0
    while time.monotonic() < end:
        asked = time.monotonic()
        locks.take(lease_ms)
        longest = max(longest, time.monotonic() - asked)
        locks.release()
        cycles += 1
    return f"cycled {cycles} {longest * 1000:.0f}"
