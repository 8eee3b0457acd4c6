#!/usr/bin/env python3
"""Starts a server on the fake engine for sdk.mjs and runs it in the folder given: sdk_node.py FOLDER."""
import os
import shutil
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "api"))
from lilyserve import Server

srv = Server({})
shutil.copy(os.path.join(here, "sdk.mjs"), sys.argv[1])
code = subprocess.run(["node", "sdk.mjs", str(srv.port)], cwd=sys.argv[1]).returncode
sys.exit(code or srv.stop())
