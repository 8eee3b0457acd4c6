#!/bin/sh
# Runs commands that end with a closing line, one after another, and sums the lines into one. The commands' own lines are
# shown as "== COMMAND: …", so that the last line is the only closing line. At the end each comes again, with its seconds.
# usage: sum.sh COMMAND...
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
closing='^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'
: >"$tmp/sums"
for c in "$@"; do
    label=$(echo "$c" | tr -d '|&\\')
    echo "== $label"
    start=$(date +%s)
    {
        $c
        echo $? >"$tmp/rc"
    } 2>&1 | tee "$tmp/out" | sed -uE "s|$closing|== $label: &|"
    line=$(grep -E "$closing" "$tmp/out" | tail -n 1 | tr -d ,)
    rc=$(cat "$tmp/rc")
    set -- $line
    p=${1:-0} f=${3:-0} s=${5:-0}
    if [ -z "$line" ] || { [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; }; then
        echo "FAIL $label: exit status $rc, ${line:-no closing line}"
        f=$((f + 1))
    fi
    echo "$p $f $s" >>"$tmp/sums"
    echo "== $label: $p passed, $f failed, $s skipped, $(($(date +%s) - start)) s" >>"$tmp/lines"
done
cat "$tmp/lines"
awk '{p += $1; f += $2; s += $3}
     END {printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0}' "$tmp/sums"
