#!/bin/sh
# Runs each fuzzer for a time over its kept corpus, tests/fuzz/corpus/NAME, two at a time. New inputs go to build/fuzz/NAME;
# what crashes, leaks or takes over ten seconds is kept there too, and its path is printed.
# usage: fuzz.sh SECONDS PROGRAM...                                                (-1 SECONDS PROGRAM is internal: one)
one=''
if [ "$1" = -1 ]; then one=yes; shift; fi
seconds=$1
shift
if [ $# -eq 0 ]; then
    echo "SKIP fuzz: there is no program"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

# One fuzzer: a line that begins with "ok" or "FAIL".
run_one() {
    name=${1##*/fuzz_} program=$1
    out=build/fuzz/$name
    mkdir -p "$out"
    set -- "$out"
    if [ -d "tests/fuzz/corpus/$name" ]; then set -- "$@" "tests/fuzz/corpus/$name"; fi
    if [ -f "tests/fuzz/$name.dict" ]; then set -- "$@" -dict="tests/fuzz/$name.dict"; fi
    if "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$out/" "$@" >"$out.log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out.log")
        echo "ok   fuzz $name: $runs inputs in $seconds s"
    else
        tail -n 60 "$out.log" | sed 's/^/    | /'
        echo "FAIL fuzz $name: see $out.log; the input is kept as $(sed -n 's/^artifact_prefix.*written to //p' "$out.log")"
    fi
}

if [ -n "$one" ]; then
    run_one "$1"
    exit 0
fi
lines=$(mktemp) || exit 1
trap 'rm -f "$lines"' EXIT
trap 'exit 130' INT TERM
printf '%s\n' "$@" | xargs -P 2 -I '{}' "$0" -1 "$seconds" '{}' | tee "$lines"
passed=$(grep -c '^ok ' "$lines") failed=$(grep -c '^FAIL ' "$lines")
least=$(awk '$1 == "fuzz" {print $3}' tests/min_counts)
if [ $((passed + failed)) -lt "${least:-0}" ]; then
    echo "FAIL fuzz: $((passed + failed)) fuzzers ran, at least $least are expected (tests/min_counts)"
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
