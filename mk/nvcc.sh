#!/bin/sh
# Puts the CUDA compiler below build/nvcc, from Python packages, where none is installed: enough to compile the plug-in, not to
# run it. Says aloud when it cannot and ends with status 0 all the same, since nothing else needs it.
# usage: nvcc.sh
cd "$(dirname "$0")/.." || exit 1
version='13.0.*'

skip() {
    echo "SKIP nvcc: $1; the CUDA plug-in is not compiled"
    exit 0
}

for f in nvcc /usr/local/cuda/bin/nvcc build/nvcc/bin/nvcc; do
    if command -v "$f" >/dev/null 2>&1; then exit 0; fi
done
[ "$(uname -m)" = x86_64 ] || skip "no packages for $(uname -m)"
mkdir -p build
python3 -m venv build/nvcc-venv >/dev/null 2>&1 || skip 'python3 has no venv module'
packages=''
for p in nvcc crt runtime cccl; do packages="$packages nvidia-cuda-$p==$version"; done
timeout 600 build/nvcc-venv/bin/pip install -q --disable-pip-version-check $packages "nvidia-nvvm==$version" >build/nvcc.log 2>&1 ||
    skip "its packages cannot be fetched ($(tail -n 1 build/nvcc.log))"
root=$(find "$PWD"/build/nvcc-venv/lib -path '*/nvidia/cu13' -type d | head -n 1)
[ -x "$root/bin/nvcc" ] || skip 'the packages hold no nvcc'
ln -sfn "$root" build/nvcc
echo "nvcc is in build/nvcc"
