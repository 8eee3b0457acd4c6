#!/bin/sh
# --device cuda where something is missing: the plug-in, its right build, the driver, the card. The linked plug-in is loaded
# where it was built, whether or not a card answers.
. tests/cli/lib/check.sh
with_plugin() {
    LILY_CUDA_PLUGIN=$1
    export LILY_CUDA_PLUGIN
    run run -m $TINY hi --device cuda --max-tokens 1
}
with_plugin "$tmp/none.so"
expect 'no plug-in' fails_with 1 'no CUDA backend'
expect 'and what to do' has "$err" 'hint: build the plug-in'
echo x >"$tmp/text.so"
with_plugin "$tmp/text.so"
expect 'a file that is no library' fails_with 1 'no CUDA backend'
printf 'int nothing;\n' >"$tmp/other.c"
${CC:-cc} -shared -fPIC -o "$tmp/other.so" "$tmp/other.c"
with_plugin "$tmp/other.so"
expect 'a library that is no plug-in' fails_with 1 'of another build'
plugin=
for f in "$(dirname "$LILY")/liblily-cuda.so" build/cuda/liblily-cuda.so; do [ -z "$plugin" ] && [ -r "$f" ] && plugin=$f; done
if [ "$plugin" ]; then
    with_plugin "$plugin"
    card=$(printf '%s' "$err" | grep -E 'no NVIDIA driver is loaded|the NVIDIA driver knows CUDA|no CUDA card: |compute capability|shared memory for a block')
    expect 'the plug-in that was built is loaded' lacks "$err" 'no CUDA backend'
    if [ "$rc" -eq 0 ]; then
        expect 'and answers' test -s "$tmp/out"
    else
        expect 'and says what is missing' fails_with 1 "$card"
        expect 'in its own words' test "$card"
    fi
    with_plugin "$plugin"
    expect 'it needs no library of CUDA' test "$(ldd "$plugin" | grep -cE 'cuda|not found')" -eq 0
    expect 'and shows one function' test "$(nm -D --defined-only "$plugin" | awk '{print $3}')" = lily_cuda_plugin
else
    skip 'the linked plug-in' 'it was not built: no nvcc'
fi
summary
