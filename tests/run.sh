#!/bin/sh
# Runs test programs, two at a time, and sums their closing lines "N passed, N failed, N skipped" into one. A program's
# output is shown only when it fails; lines that begin with "SKIP " or "FAIL " are repeated at the end. With -s, each
# group (the folder below tests/) must have run at least as many tests as tests/min_counts says. -x names a program that is
# left out, and why: it counts as a skip.
# A program that hangs is ended after TEST_SECONDS: many times what any needs, since others may want the processors, too.
# usage: run.sh [-s SUITE] [-e EMULATOR] [-j JOBS] [-x 'PROGRAM: WHY']... PROGRAM...  (-1 is internal: one program)
suite='' emulator='' jobs=2 limit=${TEST_SECONDS:-1800} one='' left=''
while getopts s:e:j:x:1 o; do
    case $o in
    s) suite=$OPTARG ;;
    e) emulator=$OPTARG ;;
    j) jobs=$OPTARG ;;
    x) left="${left}SKIP $OPTARG
" ;;
    1) one=yes ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))

# One program: its output goes to $dir/KEY.log, "passed failed skipped" to $dir/KEY.sum, what to repeat to $dir/KEY.notes.
run_one() {
    name=${1#"$BUILD/"} key=$dir/$(echo "$1" | tr / _)
    start=$(date +%s.%N)
    case $1 in
    *.py) command -v python3 >/dev/null || set -- tests/have.sh "$name" python3 ;;
    esac
    [ -x "$1" ] || [ "${1%.sh}" = "$1" ] || set -- sh "$1"
    timeout -k 10 "$limit" $emulator "$@" >"$key.log" 2>&1 </dev/null
    rc=$?
    [ "$1" != tests/have.sh ] || rc=0
    seconds=$(echo "$start $(date +%s.%N)" | awk '{printf "%.1f", $2 - $1}')
    grep -aE '^SKIP ' "$key.log" >"$key.notes"
    line=$(grep -aE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$key.log" | tail -n 1 | tr -d ,)
    set -- $line
    p=${1:-0} f=${3:-0} s=${5:-0} why=''
    if [ $rc -eq 124 ] || [ $rc -eq 137 ]; then
        why="did not finish in $limit s"
    elif [ -z "$line" ]; then
        why="no closing line, exit status $rc"
    elif [ $rc -ne 0 ] && [ "$f" -eq 0 ]; then
        why="exit status $rc although nothing failed"
    elif [ $((p + f + s)) -eq 0 ]; then
        why='it ran no test'
    elif [ "$s" -gt "$(grep -c . "$key.notes")" ]; then
        why="$s skips, but fewer lines that begin with SKIP and say why"
    fi
    if [ -n "$why" ]; then
        f=$((f + 1))
        echo "FAIL $name: $why" >>"$key.notes"
    elif [ "$f" -ne 0 ]; then
        echo "FAIL $name: $f failed" >>"$key.notes"
    fi
    echo "$p $f $s" >"$key.sum"
    {
        if [ "$f" -ne 0 ]; then tail -n 400 "$key.log" | sed 's/^/    | /'; fi
        printf '%-4s %-52s %5d ok %3d bad %3d skip %7s s\n' \
            "$(if [ "$f" -ne 0 ]; then echo FAIL; else echo ok; fi)" "$name" "$p" "$f" "$s" "$seconds"
    } >"$key.out"
    cat "$key.out"
}

if [ -n "$one" ]; then
    dir=$RUN_DIR
    run_one "$1"
    exit 0
fi

export BUILD="${BUILD:-build}"
if [ $# -eq 0 ]; then
    echo "SKIP ${suite:-run}: it has no program"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
RUN_DIR=$(mktemp -d) || exit 1
export RUN_DIR
trap 'rm -rf "$RUN_DIR"' EXIT
trap 'exit 130' INT TERM
export ASAN_OPTIONS="detect_stack_use_after_return=1:allocator_may_return_null=1:$ASAN_OPTIONS"
export UBSAN_OPTIONS="print_stacktrace=1:$UBSAN_OPTIONS" TSAN_OPTIONS="halt_on_error=1:allocator_may_return_null=1:$TSAN_OPTIONS"

printf '%s\n' "$@" | xargs -P "$jobs" -I '{}' "$0" -1 -e "$emulator" '{}'

for t in "$@"; do
    key=$RUN_DIR/$(echo "$t" | tr / _)
    group=${t#"$BUILD/"} group=${group#tests/}
    echo "${group%%/*} $(cat "$key.sum" 2>/dev/null || echo 0 1 0)"
    cat "$key.notes" >>"$RUN_DIR/notes" 2>/dev/null || echo "FAIL $t: it was not run" >>"$RUN_DIR/notes"
done >"$RUN_DIR/groups"
# Counts by group, and those that are too small.
if [ -n "$suite" ]; then
    awk -v suite="$suite" '{n[$1] += $2 + $3} END {for (g in n) print suite, g, n[g]}' "$RUN_DIR/groups" |
        sort >"$BUILD/counts-$suite"
    awk -v suite="$suite" 'NR == FNR {n[$1] += $2 + $3; skips[$1] += $4; next}
        $1 == suite && n[$2] + (skips[$2] < $4 ? skips[$2] : $4) < $3 {
        printf "FAIL %s: %d tests ran, at least %d are expected (tests/min_counts)\n", $2, n[$2], $3}' \
        "$RUN_DIR/groups" tests/min_counts >"$RUN_DIR/short"
    cat "$RUN_DIR/short" >>"$RUN_DIR/notes"
    sed 's/.*/- 0 1 0/' "$RUN_DIR/short" >>"$RUN_DIR/groups"
fi
printf '%s' "$left" >>"$RUN_DIR/notes"
printf '%s' "$left" | sed 's/.*/- 0 0 1/' >>"$RUN_DIR/groups"
sort -u "$RUN_DIR/notes"
awk '{p += $2; f += $3; s += $4}
     END {printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0}' "$RUN_DIR/groups"
