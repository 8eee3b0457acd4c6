#!/bin/sh
# The AVX-512 and AMX tiers on any x86-64 machine with AVX2: the kernel checker and the golden runners, with the instructions
# that the processor lacks played in C (tests/emulated). Large shapes and long prompts are left to a processor that has them.
if [ "$(uname -m)" != x86_64 ] || ! grep -qw avx2 /proc/cpuinfo; then
    echo 'SKIP avx512: this processor has no AVX2'
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi
export BUILD=build/x86-gcc-release-static
if ! ${MAKE:-make} CC=tests/emulated/x86-gcc MODE=release SAN= STATIC=1 T= static-programs >"$BUILD.log" 2>&1; then
    cat "$BUILD.log"
    echo '0 passed, 1 failed, 0 skipped'
    exit 1
fi
cat >"$BUILD/kernels" <<END
#!/bin/sh
exec "$BUILD/tests/kernels/check_kernels" --tier \${0##*-}
END
chmod +x "$BUILD/kernels"
for tier in avx512 amx; do ln -sf kernels "$BUILD/kernels-$tier"; done
exec tests/run.sh "$BUILD/kernels-avx512" "$BUILD/kernels-amx" "$BUILD/tests/golden/test_tiny" "$BUILD/tests/golden/test_tiny_mlx"
