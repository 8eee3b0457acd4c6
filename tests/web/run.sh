#!/bin/sh
# The page in Chromium: tests/web/test_*.mjs, one after another, with playwright-core and axe-core as locked by
# package-lock.json. What is not there is skipped aloud. The packages go to build/web, screenshots to build/screens.
# usage: run.sh [PART OF A FILE'S NAME]
dir=build/web
chromium=${CHROMIUM:-$(command -v chromium || echo chromium)}
version=$(node --version 2>/dev/null | tr -dc 0-9. | cut -d. -f1)
if [ "${version:-0}" -lt 18 ]; then
    exec tests/have.sh "web: node 18 or later and" node-18
fi
tests/have.sh web "$chromium" npm || exit 0
mkdir -p "$dir" && cp tests/web/*.mjs tests/web/package.json tests/web/package-lock.json "$dir/"
if ! (cd "$dir" && npm ci --ignore-scripts --no-audit --no-fund) >"$dir/npm.log" 2>&1; then
    echo "SKIP web: playwright-core and axe-core cannot be installed: $(tail -n 1 "$dir/npm.log")"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
export CHROMIUM="$chromium"
set -- $(cd tests/web && ls test_*"$1"*.mjs)
exec tests/sum.sh $(for t in "$@"; do echo "node_$t"; done)
