"""Cuts a shard short while lily maps it. Usage: shrink.py FOLDER SHARD PROGRAM ARGS...; output and status are the program's."""
import os
import subprocess
import sys

shard = os.path.join(sys.argv[1], sys.argv[2])
with subprocess.Popen(sys.argv[3:], stdin=subprocess.DEVNULL) as child:
    while child.poll() is None:
        with open("/proc/%d/maps" % child.pid, encoding="utf-8", errors="replace") as maps:
            if os.path.realpath(shard) in maps.read():
                break
    os.truncate(shard, 200000)
sys.exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)
