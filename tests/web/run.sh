#!/bin/sh
# The page in Chromium: tests/web/test_*.mjs, one after another, with playwright-core and axe-core as locked by
# package-lock.json. What is not there is skipped aloud. The packages go to build/web, screenshots to build/screens.
# usage: run.sh [PART OF A FILE'S NAME]
dir=build/web
export CHROMIUM="${CHROMIUM:-$(command -v chromium || echo chromium)}"
tests/have.sh web node npm "$CHROMIUM" || exit 0
skip() {
    echo "SKIP web: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
version=$(node --version | tr -dc 0-9. | cut -d. -f1)
[ "$version" -ge 18 ] || skip "node 18 or later is needed, found $version"
[ -n "$MARKED" ] || skip "this build has no Markdown: libjs-marked and node-dompurify were not installed"
mkdir -p "$dir" && cp tests/web/*.mjs tests/web/package.json tests/web/package-lock.json "$dir/"
(cd "$dir" && npm ci --ignore-scripts --no-audit --no-fund) >"$dir/npm.log" 2>&1 ||
    skip "playwright-core and axe-core cannot be installed: $(tail -n 1 "$dir/npm.log")"
part=$1
set --
for t in tests/web/test_*"$part"*.mjs; do
    set -- "$@" "node $dir/$(basename "$t")"
done
exec tests/sum.sh "$@"
