#!/bin/sh
# Succeeds when the commands of a suite are installed; else names the skip, prints the closing line and fails.
# usage: have.sh SUITE COMMAND...
suite=$1
shift
for c in "$@"; do
    command -v "$c" >/dev/null && continue
    echo "SKIP $suite: $c is not installed"
    echo "0 passed, 0 failed, 1 skipped"
    exit 1
done
