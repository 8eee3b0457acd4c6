#!/bin/sh
# Runs test programs one after another and sums their closing lines "N passed, N failed, N skipped".
# Lines that begin with "SKIP " or "FAIL " are collected and printed again at the end.
# usage: run.sh PROGRAM...
passed=0 failed=0 skipped=0
log=$(mktemp) notes=$(mktemp)
trap 'rm -f "$log" "$notes"' EXIT
for t in "$@"; do
    "$t" >"$log" 2>&1
    rc=$?
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
    grep -E '^SKIP ' "$log" >>"$notes"
    if [ -z "$line" ]; then
        cat "$log"
        echo "FAIL $t: exit $rc without a closing line" | tee -a "$notes"
        failed=$((failed + 1))
        continue
    fi
    set -- $line
    f=$3
    if [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
    passed=$((passed + $1)) failed=$((failed + f)) skipped=$((skipped + $5))
    echo "${t##*/}: $line"
    if [ "$f" -ne 0 ]; then
        cat "$log"
        echo "FAIL $t" >>"$notes"
    fi
done
sort -u "$notes"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
