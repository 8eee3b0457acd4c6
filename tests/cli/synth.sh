#!/bin/sh
# lily synth: a folder that runs, the same bytes as a stream, refusals.
. tests/cli/lib/check.sh
run synth --preset tiny --out "$tmp/m" --json
expect 'synth succeeds' is "$rc" 0
if [ "$have_python" ]; then
    expect 'synth --json' json 'v["dir"].endswith("/m") and v["tensors"] == 182 and v["bytes"] > 2e6 and v["seed"] == 1 and v["ms"] == round(v["ms"], 3)'
else
    skip 'synth --json' 'no python3'
fi
run run -m "$tmp/m" --no-think --temp 0 -n 4 hello
expect 'a synthetic model answers' is "$rc" 0
first=$out
run run -m "$tmp/m" --no-think --temp 0 -n 4 --threads 1 hello
expect 'with the same words on one thread' is "$out" "$first"
run tokenize -m "$tmp/m" ab
expect 'its tokenizer knows bytes' has "$out" ' 97 '
"$LILY" synth --preset tiny --out - >"$tmp/stream" 2>"$tmp/err"
rc=$? out='' err=$(cat "$tmp/err")
expect 'the stream is the one shard' cmp -s "$tmp/stream" "$tmp/m/model.safetensors"
"$LILY" synth --preset tiny --seed 2 --out - >"$tmp/other" 2>"$tmp/err"
expect 'another seed, other bytes' test "$(cmp -l "$tmp/stream" "$tmp/other" | wc -l)" -gt 100000
expect 'others may read the model as the umask lets them' is "$(umask 022; "$LILY" synth --preset tiny --out "$tmp/s/m" 2>"$tmp/err"
    find "$tmp/s" ! -perm -044)" ''
run synth --preset tiny --out "$tmp/m"
expect 'a model is not written over' fails_with 2 'holds a model already'
run synth --preset tiny
expect 'no --out' fails_with 2 '--out is missing'
run synth --preset huge --out "$tmp/n"
expect 'no such preset' fails_with 2 'is no preset'
run synth --preset tiny --out - --json
expect 'a stream and --json' fails_with 2 '--json has no place'
run synth --preset tiny --out "$tmp/t" --tokenizer "$tmp/none.json"
expect 'no such tokenizer' fails_with 1 'none.json'
run synth --preset tiny --out "$tmp/u" --tokenizer $TINY/tokenizer.json
expect 'a given tokenizer is taken' cmp -s "$tmp/u/tokenizer.json" $TINY/tokenizer.json
if [ -w /dev/full ]; then
    "$LILY" synth --preset demo --out - >/dev/full 2>"$tmp/err"
    rc=$? out='' err=$(cat "$tmp/err")
    expect 'a full disk is named' fails_with 1 'cannot write'
else
    skip 'a full disk' 'no /dev/full'
fi
summary
