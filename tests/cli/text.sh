#!/bin/sh
# tokenize, template and info: what they print, for people and for programs.
. tests/cli/lib/check.sh

run tokenize -m $TINY 'he <|im_end|>'
expect 'tokenize: status' is "$rc" 0
expect 'tokenize: one token a line' has "$out" '261  "he"'
expect 'tokenize: special text is text' lacks "$out" '"<|im_end|>"'
run tokenize -m $TINY --special 'he <|im_end|>'
expect 'tokenize --special' has "$out" '"<|im_end|>"'
run -i 'he' tokenize -m $TINY
from_stdin=$out
expect 'tokenize: one token' is "$err" '1 token'
run tokenize -m $TINY he
expect 'tokenize: stdin is the same' is "$out" "$from_stdin"
run tokenize -m $TINY "$(printf 'a\033[31m\nb\\"')"
expect 'tokenize: no control characters' lacks "$out" "$(printf '\033')"
printf 'x\033y' | "$LILY" tokenize -m $TINY >"$tmp/out" 2>"$tmp/err"
expect 'tokenize: ESC is shown' grep -q 'u001b' "$tmp/out"
run tokenize -m $TINY ''
expect 'tokenize: nothing' is "$rc" 0

run -i '{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi <|im_end|>"}]}' template -m $TINY
want='<|im_start|>system
Be brief.<|im_end|>
<|im_start|>user
Hi <|im_end|><|im_end|>
<|im_start|>assistant
<think>'
expect 'template' is "$out" "$want"
run -i '[{"role":"user","content":"Hi"}]' template -m $TINY --no-think
expect 'template: an array; --no-think' is "$out" '<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant
<think>

</think>'
run -i '{"messages":[{"role":"user","content":"Hi"}],"chat_template_kwargs":{"enable_thinking":false}}' template -m $TINY
expect 'template: kwargs' has "$out" '</think>'
run -i '{"messages":[]}' template -m $TINY
expect 'template: no messages' fails_with 1 'No messages provided.'
run -i '{"messages":{}}' template -m $TINY
expect 'template: messages of another kind' fails_with 1 'messages'
run -i '{"messages":[' template -m $TINY
expect 'template: broken JSON' fails_with 1 'stdin'
run template -m $TINY "$tmp/missing.json"
expect 'template: no file' fails_with 1 'missing.json'

run info -m $TINY
expect 'info: status' is "$rc" 0
for word in Model Machine 'Memory plan' weights limit processor; do
    expect "info: $word" has "$out" "$word"
done
run info -m $TINY --ctx 1024 --kv f32
expect 'info: the plan follows the options' has "$out" '1024 tokens of context'
run info -m $TINY --ctx 1M
expect 'info: context past the model' fails_with 2 'context'
run info -m $TINY --memory-limit 24G
expect 'info: a limit is shown in the unit it was given in' has "$out" '24.00 GiB'
for limit in 24GiB '24 GiB' 24g 24576M 25769803776; do
    run info -m $TINY --memory-limit "$limit"
    expect "info: --memory-limit $limit" has "$out" '24.00 GiB'
done
run info -m $TINY --memory-limit 20GB
expect 'info: GB are powers of 1000' has "$out" '18.63 GiB'
run info -m $TINY --memory-limit 1M
expect 'info: shows a plan that does not fit' is "$rc" 0
expect 'info: says so' has "$out" 'does not fit'

if [ -n "$have_python" ]; then
    run tokenize -m $TINY --json 'Hé 🌷!'
    expect 'tokenize --json' json 'set(v) == {"ids","tokens"} and len(v["ids"]) == len(v["tokens"]) > 0 and all(type(i) is int for i in v["ids"])'
    expect 'tokenize --json: parts of characters' json '"".join(v["tokens"]).startswith("Hé ") and "\ufffd" in "".join(v["tokens"])'
    run tokenize -m $TINY --json ''
    expect 'tokenize --json: nothing' json 'v == {"ids": [], "tokens": []}'
    run -i '[{"role":"system","content":"S"},{"role":"user","content":"Hi"}]' template -m $TINY --json
    expect 'template --json' json 'set(v) == {"text","ids","marks"} and v["text"].endswith("<think>\n")'
    expect 'template --json: marks' json '[m["kind"] for m in v["marks"]] == ["system_end","message_end","last_user_end"] and all(0 < m["at"] <= len(v["ids"]) for m in v["marks"])'
    text=$out
    run info -m $TINY --json
    expect 'info --json' json 'set(v) == {"model","plan","machine"}'
    expect 'info --json: plan' json '{"weights","kv","borders","scratch","total","limit"} <= set(v["plan"]) and v["plan"]["total"] == sum(v["plan"][k] for k in ("weights","kv","borders","scratch"))'
    expect 'info --json: model' json 'v["model"]["experts"] == 16 and v["model"]["layers"] == 4 and v["model"]["weights"] > v["model"]["weights_per_token"] > 0'
    expect 'info --json: machine' json 'v["machine"]["processors"] >= 1 and v["machine"]["tier"] in v["machine"]["tiers"] and v["machine"]["memory"] > 0'
    run -i '{"messages":[]}' template -m $TINY --json
    expect 'an error as JSON: status' is "$rc" 1
    expect 'an error as JSON' json '"No messages" in v["error"]["message"]'
else
    skip 'JSON shapes' 'no python3' 11
fi

# stdin that does not come: what is waited for is said, and the text is taken all the same.
mkfifo "$tmp/fifo"
"$LILY" tokenize -m $TINY <"$tmp/fifo" >"$tmp/out" 2>"$tmp/err" &
exec 9>"$tmp/fifo"
for i in $(seq 600); do grep -q 'waiting for stdin' "$tmp/err" && break || sleep 0.1; done
printf 'a b' >&9
exec 9>&-
wait $!
rc=$? out=$(cat "$tmp/out") err=$(cat "$tmp/err")
expect 'waiting for stdin is told' has "$err" 'lily: waiting for stdin'
expect 'and it is read when it comes' has "$out" '"a"'
if [ -n "$have_python" ]; then
    printf 'wait lily: reading what is typed\nsend a b\\r\nsend \\x04\n' | python3 tests/cli/lib/term.py 60 "$LILY" tokenize -m $TINY >"$tmp/out" 2>"$tmp/err"
    rc=$? out=$(cat "$tmp/out") err=$(cat "$tmp/err")
    expect 'on a terminal, too' is "$rc" 0
    expect 'and what is typed is read' has "$out" '"a"'
else
    skip 'stdin that is a terminal' 'no python3' 2
fi

# A full disk, a closed pipe.
if [ -w /dev/full ]; then
    for words in "tokenize -m $TINY hello" --help 'help run' 'run --help' 'help --json'; do # shorter and longer than the buffer
        "$LILY" $words >/dev/full 2>"$tmp/err"
        rc=$? out='' err=$(cat "$tmp/err")
        expect "$words: a full disk" is "$rc" 1
        expect "$words: a full disk is named" has "$err" 'lily: cannot write to stdout: No space left on device'
    done
else
    skip 'a full disk' 'no /dev/full' 10
fi
{ "$LILY" help run; echo $? >"$tmp/rc"; } 2>"$tmp/err" | true
rc=$(cat "$tmp/rc") out='' err=$(cat "$tmp/err")
expect 'a closed pipe is no failure' is "$rc" 0
expect 'a closed pipe is silent' is "$err" ''
summary
