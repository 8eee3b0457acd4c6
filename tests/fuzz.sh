#!/bin/sh
# Runs each fuzzer for a time over its kept corpus, tests/fuzz/corpus/NAME. New inputs go to build/fuzz/NAME; what
# crashes, leaks or takes over ten seconds is kept there too, and its path is printed.
# usage: fuzz.sh SECONDS PROGRAM...
seconds=$1 passed=0 failed=0
shift
if [ $# -eq 0 ]; then
    echo "SKIP fuzz: there is no program"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
for t in "$@"; do
    name=${t##*/fuzz_}
    out=build/fuzz/$name
    mkdir -p "$out"
    set -- "$out"
    if [ -d "tests/fuzz/corpus/$name" ]; then set -- "$@" "tests/fuzz/corpus/$name"; fi
    if [ -f "tests/fuzz/$name.dict" ]; then set -- "$@" -dict="tests/fuzz/$name.dict"; fi
    if "$t" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$out/" "$@" >"$out.log" 2>&1; then
        passed=$((passed + 1))
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out.log")
        echo "ok   fuzz $name: $runs inputs in $seconds s"
    else
        failed=$((failed + 1))
        tail -n 60 "$out.log" | sed 's/^/    | /'
        echo "FAIL fuzz $name: see $out.log; the input is kept as $(sed -n 's/^artifact_prefix.*written to //p' "$out.log")"
    fi
done
least=$(awk '$1 == "fuzz" {print $3}' tests/min_counts)
if [ $((passed + failed)) -lt "${least:-0}" ]; then
    echo "FAIL fuzz: $((passed + failed)) fuzzers ran, at least $least are expected (tests/min_counts)"
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
