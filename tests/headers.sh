#!/bin/sh
# Every header compiles alone, as the first line of a file, twice; public ones also as C++. Guards are named by path.
# Environment: CC and CFLAGS_ALL as the build uses them.
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0 skipped=0
CC=${CC:-gcc} cross=${CROSS_CC:-aarch64-linux-gnu-gcc}
eval "set -- ${CFLAGS_ALL:--std=c17 -D_GNU_SOURCE -Isrc -Iinclude}"

# compile LANGUAGE-COMMAND... : $tmp/one.* must pass the compiler; counts.
check() {
    if "$@" >"$tmp/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        sed 's/^/    /' "$tmp/log"
        echo "FAIL $name: does not compile alone ($1)"
    fi
}

# Flags of a header that uses intrinsics, by its suffix, as for .c files.
isa() {
    case $1 in
    *_avx2.h) echo -mavx2 -mfma -mf16c ;;
    *_avx512.h) echo -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx2 -mfma -mf16c ;;
    esac
}

machine=$($CC -dumpmachine)
for f in $(find src include -name '*.h' | sort); do
    name=$f
    case $machine:$f in
    x86_64*:*_neon.h)
        if command -v "$cross" >/dev/null; then
            printf '#include "%s"\n#include "%s"\nextern int not_empty;\n' "${f#*/}" "${f#*/}" >"$tmp/one.c"
            check "$cross" -std=c17 -D_GNU_SOURCE -Isrc -march=armv8.2-a+dotprod -fsyntax-only "$tmp/one.c"
        else
            echo "SKIP $f: $cross is not installed"
            skipped=$((skipped + 1))
        fi
        continue
        ;;
    aarch64*:*_avx2.h | aarch64*:*_avx512.h)
        echo "SKIP $f: of another architecture"
        skipped=$((skipped + 1))
        continue
        ;;
    esac
    printf '#include "%s"\n#include "%s"\nextern int not_empty;\n' "${f#*/}" "${f#*/}" >"$tmp/one.c"
    check $CC "$@" $(isa "$f") -fsyntax-only "$tmp/one.c"
    guard=LILY_$(echo "${f#*/}" | sed 's/^lily\///' | tr a-z/.- A-Z___)
    if grep -q "^#ifndef $guard\$" "$f"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $f: expected the guard $guard"
    fi
done

for f in $(find include -name '*.h' | sort); do
    name=$f
    if ! command -v g++ >/dev/null; then
        echo "SKIP $f as C++: g++ is not installed"
        skipped=$((skipped + 1))
        continue
    fi
    printf '#include "%s"\n' "${f#*/}" >"$tmp/one.cc"
    check g++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only "$tmp/one.cc"
    check $CC -std=c99 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c "$tmp/one.cc"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
