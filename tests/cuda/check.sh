#!/bin/sh
# Everything that needs a card, in a few minutes: kernels, goldens and bits of the CUDA backend, cached = cold on it, the demo model's
# skills, the server with it, memory and race checks. Runs in a folder made by `make bundle`. Closing line as everywhere.
# usage: tests/cuda/check.sh
cd "$(dirname "$0")/../.." || exit 1
export LD_LIBRARY_PATH="$PWD/lib" LILY_CUDA_PLUGIN="$PWD/liblily-cuda.so"

# The tool's verdict over a short answer of the tiny model, prefill and decode.
sanitize() {
    if ! command -v compute-sanitizer >/dev/null; then
        echo "SKIP $1: no compute-sanitizer"
        echo "0 passed, 0 failed, 1 skipped"
        return 0
    fi
    timeout 240 compute-sanitizer --tool "$1" --error-exitcode 9 ./lily run -m tests/data/tiny --device cuda --temp 0 --no-think --max-tokens 4 hi >out.txt 2>&1
    rc=$?
    tail -n 3 out.txt
    if [ $rc -ne 9 ] && grep -qE 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' out.txt; then
        echo "1 passed, 0 failed, 0 skipped"
    else
        head -n 40 out.txt
        echo "0 passed, 1 failed, 0 skipped"
        return 1
    fi
}

case $1 in
memcheck | racecheck) sanitize "$1" ;;
skills) LILY="$PWD/lily" python3 tests/skills/skills.py ;;
server) LILY="$PWD/lily" LILY_TEST_DEVICE=cuda python3 tests/api/test_model.py ;;
cache) LILY="$PWD/lily" LILY_TEST_DEVICE=cuda python3 tests/api/test_cache.py ;;
*)
    exec tests/sum.sh "./check_kernels --tier cuda" ./test_cuda "env LILY_TEST_DEVICE=cuda ./test_bits" "$0 memcheck" "$0 racecheck" "$0 skills" "$0 server" "$0 cache"
    ;;
esac
