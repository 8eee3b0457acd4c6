#!/bin/sh
# From a fresh clone to a first story: installs what the build needs (Debian, Ubuntu), builds lily, runs the small model
# that comes with it. No network but the package mirror, no model download.
set -e
cd "$(dirname "$0")"
mk/packages.sh build
make -j"$(nproc)"
exec make demo
