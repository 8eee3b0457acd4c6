#!/bin/sh
# Makes build/bundle: what a machine with a card needs to check and measure the CUDA backend when nothing can be built or
# installed there. Programs, the plug-in, the shared libraries that they need (lib/), models, test data and scripts.
# usage: bundle.sh BUILD PLUGIN
cd "$(dirname "$0")/.." || exit 1
build=$1 plugin=$2 out=build/bundle
rm -rf $out
mkdir -p $out/lib $out/tests/data $out/models || exit 1
for f in lily tests/golden/test_cuda tests/state/test_bits tests/kernels/check_kernels tests/bench/bench_cuda; do
    strip -o "$out/${f##*/}" "$build/$f" || exit 1
done
cp "$plugin" bench/peers.json $out/ || exit 1
cp -r tests/data/tiny tests/data/demo $out/tests/data/ && cp -r models/demo $out/models/ || exit 1
cp -r tests/skills tests/sum.sh $out/tests/ && cp -r tests/cuda $out/tests/ || exit 1
mkdir -p $out/tests/api && cp tests/api/lilyserve.py tests/api/test_model.py tests/api/test_cache.py $out/tests/api/ || exit 1
mkdir -p $out/tools && cp -r tools/train $out/tools/ || exit 1 # questions of the skill tests
for f in lily test_cuda; do ldd $out/$f; done | awk '$3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libc|libm|ld-linux[^/]*|libpthread|libdl)\.so' | while read -r lib; do cp -L "$lib" $out/lib/; done
du -sh $out
