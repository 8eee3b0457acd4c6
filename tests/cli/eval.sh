#!/bin/sh
# lily eval: perplexity, recording and comparing, multiple choice, the quick check; and that its numbers can be wrong.
. tests/cli/lib/check.sh
demo="-m models/demo"

run eval
expect 'nothing to measure' fails_with 2 'a text file is needed'
run eval record "$tmp/in" -m $TINY
expect 'record without --out' fails_with 2 '--out'
run eval compare README.md -m $TINY
expect 'a reference that is none' fails_with 1 'README.md'
expect 'a reference that is none: what makes one' has "$err" 'hint: a reference is what lily eval record'
run eval choice README.md -m $TINY
expect 'questions that are none' fails_with 1 'README.md, line 1'
expect 'questions that are none: their form' has "$err" 'hint: a line is {"ctx", '
run eval forget it
expect 'a word that is none' fails_with 2 'neither record, compare nor choice'
run eval "$tmp/nowhere" -m $TINY
expect 'no file' fails_with 1 'nowhere'
run -i 'a' eval - -m $TINY
expect 'one token' fails_with 2 ': 1 token; at least 2'
run eval --quick README.md
expect '--quick takes no file' fails_with 2 'takes no file'
run eval README.md -m $TINY --window 10 --stride 10
expect 'a stride past the window' fails_with 2 '--stride'

head -c 700 README.md >"$tmp/text"
run eval "$tmp/text" $demo
expect 'perplexity' has "$out" 'perplexity '
if [ -z "$have_python" ]; then
    skip 'numbers of eval' 'no python3' 20
    summary
    exit
fi

# A token is predicted once, whatever the windows; one window or overlapping ones of the same text differ only in context.
run eval "$tmp/text" $demo --json
expect 'one window' json 'v["windows"] == 1 and v["predicted"] == v["tokens"] - 1 and abs(v["perplexity"] - __import__("math").exp(v["nll"])) < 1e-6'
tokens=$(sed 's/.*"tokens":\([0-9]*\).*/\1/' "$tmp/out")
for window in "100 99" "100 37" "64 20" "$tokens 5"; do
    set -- $window
    run eval "$tmp/text" $demo --json --window "$1" --stride "$2" --max-tokens 150
    expect "windows of $1, stride $2" json 'v["predicted"] == 149 and v["windows"] >= 1'
done
run eval "$tmp/text" $demo --json --window 100 --stride 99 --max-tokens 200
cp "$tmp/out" "$tmp/strides"
run eval "$tmp/text" $demo --json --window 100 --stride 50 --max-tokens 200
expect 'more context, another number' lacks "$out" "$(sed 's/.*"nll":\([0-9.]*\).*/\1/' "$tmp/strides")"

# A model against itself: exactly nothing, on any number of threads.
cp "$tmp/text" "$tmp/kept"
run eval record "$tmp/text" $demo -o "$tmp/text" --max-tokens 20 --threads 1
expect 'record does not replace what is no record' fails_with 2 'is not replaced'
run eval record "$tmp/text" $demo -o "$tmp" --max-tokens 20 --threads 1
expect 'record does not replace a folder, and says that it is one' fails_with 2 "$tmp: not a regular file"
expect 'and the text is as it was' cmp -s "$tmp/kept" "$tmp/text"
run eval record "$tmp/text" $demo -o "$tmp/ref" --window 150 --max-tokens 250 --top 8 --threads 1 --json
expect 'record' json 'v["sequences"] == (v["tokens"] + 149) // 150 and v["top"] == 8'
run eval compare "$tmp/ref" $demo --threads 2 --json
expect 'compared with itself' json 'v["difference_percent"] == 0 and v["kl"] == 0 and v["kl_p99"] == 0 and v["same_top"] == 1 and v["perplexity"] == v["reference_perplexity"]'
expect 'by position' json '[b["from"] for b in v["by_position"]] == [0, 64, 128] and sum(b["rows"] for b in v["by_position"]) == v["rows"]'
# With one weight changed.
cp -r models/demo "$tmp/changed" && chmod -R u+w "$tmp/changed"
printf '\360' | dd of="$tmp/changed/model.safetensors" bs=1 conv=notrunc status=none seek=6000000
run eval compare "$tmp/ref" -m "$tmp/changed" --json
expect 'with one weight changed' json 'v["kl"] > 0 and v["difference_percent"] != 0'
run eval compare "$tmp/ref" -m $TINY
expect 'a reference of another model' fails_with 1 'past the vocabulary'
run eval compare "$tmp/text" $demo
expect 'a reference that is none' fails_with 1 'text'

# Multiple choice: with greedy text of the model itself as the right ending, it must find it.
run run $demo --raw --temp 0 -n 12 "Once upon a time"
ending=$(printf '%s' "$out" | tr -d '\n"\\' | sed 's/^ *//')
printf '{"ctx": "Once upon a time", "endings": ["xq zzv 7&&", "%s", "((((("], "label": "1"}\n\n{"question": "Which?", "choices": ["a", "b"], "answer": "B"}\n' "$ending" >"$tmp/choice"
run eval choice "$tmp/choice" $demo --json
expect 'choice: both shapes' json 'v["questions"] == 2 and v["right"] >= 1'
run eval choice "$tmp/choice" $demo --limit 1 --json
expect 'choice: the right ending' json 'v["questions"] == 1 and v["right"] == 1 and v["accuracy"] == 1'
sed 's/"label": "1"/"label": 0/' "$tmp/choice" >"$tmp/wrong"
run eval choice "$tmp/wrong" $demo --limit 1 --json
expect 'choice: another label' json 'v["right"] == 0'
for bad in '{' '[]' '{"ctx": "a", "endings": ["b"], "label": 0}' '{"ctx": "a", "endings": ["b", "c"], "label": 2}' \
    '{"ctx": "a", "endings": ["b", 1], "label": 0}' '{"ctx": "a", "endings": ["b", ""], "label": 0}' '{"question": "a"}'; do
    run -i "$bad" eval choice - -m $TINY
    expect "choice: $bad" fails_with 1 '-, line 1'
done
run -i '' eval choice - -m $TINY
expect 'choice: no question' fails_with 1 'no question'

# The demo model and what transformers computed for it.
run eval --quick --kv f32 --json
expect 'quick, with the exact cache' json 'v["pass"] and abs(v["difference_percent"]) < 0.04 and v["same_top"] >= 0.995 and v["kl"] < 1e-4'
cat >"$tmp/golden.py" <<'END'
import json, math, struct, sys
raw = open("tests/data/demo/golden.safetensors", "rb").read()
n, = struct.unpack("<Q", raw[:8])
lo, hi = json.loads(raw[8:8 + n])["hf.logprob"]["data_offsets"]
logprobs = struct.unpack("<%df" % ((hi - lo) // 4), raw[8 + n + lo:8 + n + hi])
print(math.exp(-sum(logprobs) / len(logprobs)))
END
golden=$(python3 "$tmp/golden.py")
expect 'quick: the perplexity of the goldens' json "abs(v['reference_perplexity'] / $golden - 1) < 1e-5 and v['rows'] == 2000"
cp "$tmp/ref" "$tmp/changed/reference.safetensors"
dd if=/dev/zero of="$tmp/changed/model.safetensors" bs=1000 count=3000 conv=notrunc status=none seek=1000
run eval --quick -m "$tmp/changed"
expect 'quick on a damaged model' fails_with 1 'too far'
expect 'quick on a damaged model: the line' has "$out" 'FAIL'
summary
