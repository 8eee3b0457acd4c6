#!/bin/sh
# The NEON tier on any machine: the kernel checker and the golden runners for aarch64, linked statically without a library,
# emulated. Large shapes, long prompts and all else are left to `make qemu`.
cross=${CROSS_CC:-aarch64-linux-gnu-gcc} qemu=${QEMU:-qemu-aarch64}
tests/have.sh neon "$cross" "$qemu" || exit 0
export BUILD="build/${cross##*/}-release-static"
if ! ${MAKE:-make} CC="$cross" MODE=release SAN= STATIC=1 T= static-programs >"$BUILD.log" 2>&1; then
    cat "$BUILD.log"
    echo '0 passed, 1 failed, 0 skipped'
    exit 1
fi
exec tests/run.sh -e "$qemu" "$BUILD/tests/kernels/check_kernels" "$BUILD/tests/golden/test_tiny" "$BUILD/tests/golden/test_tiny_mlx"
