#!/bin/sh
# From a fresh clone to a first story: installs what the build needs (Debian, Ubuntu), builds lily, runs the small model
# that comes with it. No network but the package mirror, no model download.
# usage: ./demo.sh [QUESTION]: what the model is asked in place of the story.
set -e
cd "$(dirname "$0")"
mk/packages.sh build
make -j"$(nproc)"
if [ $# -gt 0 ]; then
    ./lily run -m models/demo -- "$*"
else
    make demo
fi
cat >&2 <<'END'

Next:
  ./lily chat      talk with it, here in the terminal
  ./lily serve     the same in a browser, at http://127.0.0.1:8080/
END
