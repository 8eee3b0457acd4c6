#!/usr/bin/env python3
"""Starts two servers for sdk.mjs, on the fake engine and with the demo model, and runs it in the folder given: sdk_node.py FOLDER."""
import os
import shutil
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "api"))
from lilyserve import Server

srv, demo = Server({}), Server(None, ["--ctx", "4096"])
shutil.copy(os.path.join(here, "sdk.mjs"), sys.argv[1])
code = subprocess.run(["node", "sdk.mjs", str(srv.port), str(demo.port)], cwd=sys.argv[1]).returncode
sys.exit(code or srv.stop() or demo.stop())
