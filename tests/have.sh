#!/bin/sh
# Succeeds when what a suite needs is there: commands, or (with a space) command lines that succeed. Else names the skip,
# prints the closing line and fails.
# usage: have.sh SUITE COMMAND...
suite=$1
shift
for c in "$@"; do
    case $c in
    *' '*) $c && continue; echo "SKIP $suite: this failed: $c" ;;
    *) command -v "$c" >/dev/null && continue; echo "SKIP $suite: $c is not installed" ;;
    esac
    echo "0 passed, 0 failed, 1 skipped"
    exit 1
done
