#!/bin/bash
# The man page and the completions say what the program says: they are made again from `lily help --json` and compared; the
# completion is tried, and every environment variable that the program reads is in the page.
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0 skipped=0
verdict() {
    if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $1"; fi
}
skip() {
    echo "SKIP $1"
    skipped=$((skipped + 1))
}

if command -v python3 >/dev/null; then
    python3 tools/gen_docs.py "${LILY:-./lily}" "$tmp"
    verdict 'the generator runs' $?
    for f in docs/lily.1 tools/completion/lily.bash tools/completion/_lily; do
        diff -u "$f" "$tmp/$f"
        verdict "$f differs from what the program says: run make docs" $?
    done
else
    skip 'docs: python3 is not installed'
fi

for name in $(grep -oE '(non_empty|getenv)\("[A-Z_]+"' src/base/env.c | grep -oE '[A-Z_]{3,}' | sort -u); do
    grep -qw "$name" docs/lily.1
    verdict "docs/lily.1 does not name the variable $name" $?
done

if command -v groff >/dev/null; then
    [ -z "$(groff -man -Tutf8 -ww docs/lily.1 2>&1 >/dev/null)" ]
    verdict 'groff warns about docs/lily.1' $?
else
    skip 'the page is not formatted: groff is not installed'
fi

. tools/completion/lily.bash
# completes WANTED WORD...: what the last word completes to, sorted.
completes() {
    local want=$1
    shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _lily
    [ "$(printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ')" = "$want " ]
    verdict "completion of: $* gives ${COMPREPLY[*]}, expected $want" $?
}
completes 'info' lily inf
completes '--threads' lily info --th
completes 'cpu cuda' lily info --device c
completes 'bf16' lily info --kv b
completes 'docs' lily info -m doc
completes 'tokenize' lily help tok
completes '' lily info --ctx ''
completes 'LICENSE' lily template LICEN

if command -v zsh >/dev/null; then
    zsh -n tools/completion/_lily
    verdict 'zsh cannot parse tools/completion/_lily' $?
else
    skip 'tools/completion/_lily is not parsed: zsh is not installed'
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
