#!/bin/sh
# From a fresh clone to a tested build: installs what the tests need (Debian, Ubuntu), then runs `make check`. The last line
# is "N passed, N failed, N skipped".
set -e
cd "$(dirname "$0")"
mk/packages.sh build check
exec make -j"$(nproc)" check
