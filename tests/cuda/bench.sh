#!/bin/sh
# Speed of the CUDA backend on synthetic weights of the full size, made on the card, over ten lengths: what a user sees (lily bench:
# JSON with its manifest, a plot beside the peers), and the passes alone. Runs in a folder made by `make bundle`.
# usage: tests/cuda/bench.sh [FOLDER for results]
cd "$(dirname "$0")/../.." || exit 1
export LD_LIBRARY_PATH="$PWD/lib" LILY_CUDA_PLUGIN="$PWD/liblily-cuda.so"
out=${1:-.}
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader
timeout 200 ./bench_cuda 35b 3 256 512 1024 2048 4096 8192 16384 32768 65536 131072 | tee "$out/passes.txt"
timeout 200 ./lily bench --synthetic 35b --device cuda --peers peers.json --svg "$out/lily-bench.svg" --json >"$out/lily-bench.json"
