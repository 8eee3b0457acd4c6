#!/usr/bin/env python3
"""lily pull over time: the share of a throttled server's rate, checking included, and kill -9 at 20 random moments. Prints what was
measured.

usage: test_pull.py [rate|kills]; needs 5 GB of memory and, in PULL_DIR (the system's temporary folder), 3 GB of disk
"""
import os
import random
import signal
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from test_pull import LILY, MIB, Hub, Place, model_files  # noqa: E402

RATE = 200e6
NAME = "model-00001-of-00002.safetensors"


def big_hub(mib, **options):
    files = model_files()
    block = os.urandom(64 * MIB)
    data = files[NAME] = bytearray(mib * MIB)
    for i in range(mib // 64):
        data[64 * MIB * i:64 * MIB * (i + 1)] = i.to_bytes(8, "little") + block[8:]
    return Hub(files, **options)


def test_rate():
    """At least 95% of 200 MB/s, from the start of the program to the printed folder."""
    hub = big_hub(3072, rate=RATE, piece=MIB)  # the seconds at both ends are few of a checkpoint's, so they may be few here
    hub.listing()
    best = 0
    for attempt in range(4):
        place = Place(hub)
        started = time.monotonic()
        code, _, err = place.run("pull", hub.repo)
        seconds = time.monotonic() - started
        assert code == 0, err
        place.check()
        place.folder.cleanup()
        total = sum(len(d) for n, d in hub.files.items() if "-of-" in n)
        print("rate: %.1f MB/s of %.0f MB/s, %.2f GB in %.2f s" % (total / seconds / 1e6, RATE / 1e6, total / 1e9, seconds), flush=True)
        best = max(best, total / seconds)
        if best >= 0.95 * RATE:
            break
    hub.close()
    load = os.getloadavg()[0]
    if best < 0.95 * RATE and load > os.cpu_count():  # server and program want a core together
        print("SKIP rate: the machine is busy (load %.1f on %d processors); %.1f%% of the rate" % (load, os.cpu_count(), 100 * best / RATE))
        return "skipped"
    assert best >= 0.95 * RATE, "%.1f%% of the rate" % (100 * best / RATE)


def test_kills():
    """20 kills: the right bytes in the end, and no kill costs 64 MiB."""
    seed = random.randrange(1 << 30)
    moments = random.Random(seed)
    hub = big_hub(1536, rate=RATE, piece=MIB)
    hub.listing()
    place = Place(hub)
    total = len(hub.files[NAME])
    kills = 0
    for k in range(20):
        until = hub.sent(NAME) + moments.uniform(0.005, 0.045) * total
        p = subprocess.Popen([LILY, "pull", hub.repo], env=place.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while hub.sent(NAME) < until and p.poll() is None:
            time.sleep(0.001)
        if p.poll() is None:
            p.send_signal(signal.SIGKILL)
            kills += 1
        p.wait()
    place.pulled()
    time.sleep(0.2)
    again = hub.sent(NAME) - total
    print("kills: %d (seed %d), %.1f MiB fetched again, %.2f MiB a kill" % (kills, seed, again / MIB, again / MIB / kills), flush=True)
    hub.close()
    place.folder.cleanup()
    assert kills == 20 and 0 <= again < 64 * MIB * kills and again / kills < 32 * MIB


def main():
    failed = ran = skipped = 0
    for test in (test_rate, test_kills):
        if len(sys.argv) > 1 and not test.__name__.endswith(sys.argv[1]):
            continue
        ran += 1
        try:
            skipped += test() == "skipped"
        except Exception:
            failed += 1
            traceback.print_exc()
            print("FAIL", test.__name__, flush=True)
    print(f"{ran - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
