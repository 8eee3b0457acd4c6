#!/bin/sh
# lily quantize: usage, what is refused, and the comparison of two checkpoints. The conversion itself: tests/unit/load.
. tests/cli/lib/check.sh

run quantize
expect 'no folder' fails_with 2 'two folders are needed'
run quantize --check a
expect 'one folder' fails_with 2 'lily quantize --check A B'
run quantize --rounding up a b
expect 'a rounding that is none' fails_with 2 '"up" is no rounding'
run quantize $TINY "$tmp/out4"
expect 'quantized already' fails_with 2 'quantized already'
expect 'quantized already: nothing is made' [ ! -e "$tmp/out4" ]
run quantize "$tmp/nowhere" "$tmp/out4"
expect 'no source' fails_with 1 'nowhere'

run quantize --check $TINY $TINY
expect 'the same' is "$rc" 0
expect 'the same is said' has "$out" 'the same: '
cp -r $TINY "$tmp/one" && chmod -R u+w "$tmp/one"
# The last byte of the file is one of a tensor.
printf '\125' | dd of="$tmp/one/model-00002-of-00002.safetensors" bs=1 conv=notrunc status=none \
    seek=$(($(wc -c <"$tmp/one/model-00002-of-00002.safetensors") - 1))
run quantize --check $TINY "$tmp/one"
expect 'one byte differs' fails_with 1 '1 of '
expect 'one byte differs: which' has "$out" '1 of'
cp -r $TINY "$tmp/rules" && chmod -R u+w "$tmp/rules"
sed -i 's/"bits": 8/"bits": 4/' "$tmp/rules/config.json"
run quantize --check $TINY "$tmp/rules"
expect 'other rules' fails_with 1 'bits'
run quantize --check $TINY models/demo
expect 'another model' fails_with 1 'differ'
if [ -n "$have_python" ]; then
    run quantize --check $TINY $TINY --json
    expect 'the same, as JSON' json 'v["equal"] is True and v["tensors"] > 50'
    run quantize --check $TINY "$tmp/one" --json
    expect 'different, as JSON' json 'set(v) == {"error"} and "1 of" in v["error"]["message"]'
else
    skip 'quantize as JSON' 'no python3' 2
fi
summary
