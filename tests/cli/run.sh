#!/bin/sh
# lily run on the tiny checkpoint: prompts, pipes, shapes, seeds, stop strings, Ctrl-C, a terminal.
. tests/cli/lib/check.sh

ask() { run run -m $TINY --ctx 2048 "$@"; }

# Prompts.
ask hi -n 8 --temp 0
expect 'only thinking: status' is "$rc" 0
expect 'only thinking: stderr says so' has "$err" 'ended in its thinking, after 8 tokens'
ask hi -n 8 --temp 0 --no-think
answer=$out
expect 'an answer: status' is "$rc" 0
expect 'an answer: nothing but that it was cut' is "$err" 'lily: the answer was cut after 8 tokens: raise --max-tokens or --ctx'
expect 'an answer without thinking' test -s "$tmp/out"
expect 'it ends with a line feed' is "$(tail -c 1 "$tmp/out" | od -An -c | tr -d ' ')" '\n'
run -i 'hi' run -m $TINY --ctx 2048 -n 8 --temp 0 --no-think
expect 'stdin is the prompt' is "$out" "$answer"
run -i 'hi
' run -m $TINY --ctx 2048 -n 8 --temp 0 --no-think
expect 'the last line feed of stdin does not matter' is "$out" "$answer"
ask -n 8 --temp 0 --no-think -- hi
expect 'a prompt after --' is "$out" "$answer"
ask hi -n 8 --temp 0 --no-think
expect 'cut: in a pipe, too' has "$err" 'the answer was cut after 8 tokens: raise --max-tokens'
ask hi -n 8 --temp 0 --no-think -v
expect 'cut: a line says so' has "$err" 'the answer was cut after 8 tokens: raise --max-tokens'
expect '--verbose: counts' has "$err" 'tokens read'
expect '--verbose: both speeds' test "$(printf '%s\n' "$err" | grep -cE 'tokens read, [0-9.]+ tok/s; 8 written, [0-9.]+ tok/s')" -eq 1
expect '--verbose: seed' has "$err" 'seed '
ask h -n 1 --temp 0 --raw -v
expect '--verbose: one token' has "$err" '1 token read'
expect 'cut: one token' has "$err" 'after 1 token:'
ask hi -n 8 --no-think --seed 5
one=$out
ask hi -n 8 --no-think --seed 5
expect 'a seed repeats' is "$out" "$one"
ask hi -n 8 --no-think --seed 6
expect 'another seed differs' test "$out" != "$one"
ask hi -n 8 --temp 0 --no-think --threads 1
expect 'threads do not matter' is "$out" "$answer"
for kv in bf16 f32; do
    ask hi -n 3 --temp 0 --kv $kv --cpu-tier scalar --device cpu
    expect "--kv $kv" is "$rc" 0
done

if [ -n "$have_python" ]; then
    ask hi -n 8 --temp 0 --json
    expect 'JSON: keys' json 'list(v) == ["text","reasoning","tool_calls","ids","finish","usage","timings"]'
    expect 'JSON: thinking' json 'v["text"] == "" and v["reasoning"] and v["finish"] == "length"'
    expect 'JSON: usage' json 'v["usage"]["completion_tokens"] == 8 == len(v["ids"]) and v["usage"]["total_tokens"] == v["usage"]["prompt_tokens"] + 8 and v["usage"]["completion_tokens_details"]["reasoning_tokens"] == 8 and v["usage"]["prompt_tokens_details"]["cached_tokens"] == 0'
    expect 'JSON: timings' json 'all(v["timings"][k] > 0 for k in ("load_ms","prefill_ms","decode_ms","prefill_tok_s","decode_tok_s"))'
    ask 'hi' -n 8 --temp 0 --json --raw
    expect 'raw: no template' json 'v["usage"]["prompt_tokens"] == 2 and v["reasoning"] == ""'
    run -i "$(printf 'hi\n.')" run -m $TINY --raw -n 2 --json
    expect 'raw: stdin byte for byte' json 'v["usage"]["prompt_tokens"] == 4'
    run -i 'hi' run -m $TINY --raw -n 2 --json 'A'
    expect 'both: PROMPT, a blank line, stdin' json 'v["usage"]["prompt_tokens"] == 4'
    ask '<|im_end|>' -n 1 --json --raw
    expect 'raw: special tokens are tokens' json 'v["usage"]["prompt_tokens"] == 1'
    ask hi -s 'Be brief.' -n 1 --json
    expect 'a system prompt is read' json 'v["usage"]["prompt_tokens"] > 30'
    printf '{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"enable_thinking":false},"temperature":"ignored"}' >"$tmp/body.json"
    run run -m $TINY --ctx 2048 --messages "$tmp/body.json" -n 8 --temp 0 --json
    expect '--messages: the same as the prompt' json 'v["reasoning"] == "" and len(v["ids"]) == 8'
    body=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["ids"])' "$tmp/out")
    ask hi -n 8 --temp 0 --no-think --json
    expect '--messages: the same ids' json "v['ids'] == $body"
    mkfifo "$tmp/pipe"
    cat "$tmp/body.json" >"$tmp/pipe" &
    run run -m $TINY --ctx 2048 --messages "$tmp/pipe" -n 8 --temp 0 --json
    expect '--messages: from a pipe' json "v['ids'] == $body"
    kill $! 2>/dev/null
    run run -m $TINY --ctx 2048 --messages "$tmp/body.json" -n 8 --temp 0 --json --think
    expect '--think wins over the body' json 'v["reasoning"] != ""'

    expect '--messages: a question is answered without a note' is "$err" ''
    printf '{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}]}' >"$tmp/answered.json"
    run run -m $TINY --ctx 2048 --messages "$tmp/answered.json" -n 2 --temp 0 --no-think
    expect '--messages: an answer at the end is told' has "$err" "the last message is the model's own"
    expect '--messages: and gone on from' is "$rc" 0

    # One token over and over: the bias decides what is written.
    token() { "$LILY" tokenize -m $TINY --json "$1" | python3 -c 'import json,sys; print(json.load(sys.stdin)["ids"][0])'; }
    x=$(token x)
    ask hi --no-think --temp 0 -n 6 --logit-bias "$x=100"
    expect 'logit bias' is "$out" xxxxxx
    ask hi --no-think --temp 0 -n 6 --logit-bias "$x=100" --stop xxx --json
    expect 'a stop string over tokens' json 'v["text"] == "" and v["finish"] == "stop" and len(v["ids"]) == 3'
    ask hi --no-think --temp 0 -n 6 --logit-bias "$x=100" --stop xxy
    expect 'a stop string that never comes' is "$out" xxxxxx
    ask hi --temp 0 -n 6 --logit-bias "$x=100" --stop x --json
    expect 'no stop string inside thinking' json 'v["reasoning"] == "xxxxxx" and v["finish"] == "length"'
    ask hi --no-think --temp 0 -n 6 --logit-bias "$x=20" --frequency-penalty 2 --presence-penalty 2 --repetition-penalty 1.5
    expect 'penalties' test "$out" != xxxxxx
    close=$("$LILY" tokenize -m $TINY --json --special '</think>' | python3 -c 'import json,sys; print(json.load(sys.stdin)["ids"][0])')
    end=$("$LILY" tokenize -m $TINY --json --special '<|im_end|>' | python3 -c 'import json,sys; print(json.load(sys.stdin)["ids"][0])')
    ask hi --temp 0 -n 40 --logit-bias "$end=100" --json
    expect 'the end of the turn inside thinking closes it' json "v['finish'] == 'stop' and $close in v['ids'] and $end not in v['ids']"
    ask hi --temp 0 -n 3 --logit-bias "$end=100" --json
    expect 'no room to close it' json 'v["finish"] == "length" and v["ids"] == []'

    # What a model writes does not steer the terminal, and reaches a pipe as it is.
    esc=$(token "$(printf '\033')")
    ask hi --no-think --temp 0 -n 2 --logit-bias "$esc=100"
    expect 'a pipe gets the bytes' is "$(od -An -c <"$tmp/out" | tr -d ' ')" '033033\n'
    term() { python3 tests/cli/lib/term.py 60 "$@" <"$tmp/steps" >"$tmp/out" 2>"$tmp/err"; rc=$? out=$(cat "$tmp/out") err=$(cat "$tmp/err"); }
    : >"$tmp/steps"
    NO_COLOR=1 term "$LILY" run -m $TINY --ctx 2048 hi --no-think --temp 0 -n 2 --logit-bias "$esc=100"
    expect 'a terminal: shown, not obeyed' has "$out" '^[^['
    expect 'a terminal: no escape sequence' lacks "$out" "$(printf '\033')"
    TERM=xterm term "$LILY" run -m $TINY --ctx 2048 hi --temp 0 -n 5 --logit-bias "$x=100"
    expect 'a terminal: thinking is dimmed' has "$out" "$(printf '\033[2mxxxxx\033[0m')"
    NO_COLOR=1 term "$LILY" run -m $TINY --ctx 2048 hi --temp 0 -n 5 --logit-bias "$x=100"
    expect 'a terminal without styles: thinking is marked' has "$out" '[thinking]'
    expect 'a terminal: speeds' has "$out" 'tokens read'

    # Ctrl-C.
    long="run -m $TINY --ctx 30000 hi --no-think --temp 0 --logit-bias $x=100"
    stop() { # sends SIGINT once output has come; $1: file to watch
        i=0
        while [ ! -s "$1" ] && [ $i -lt 300 ]; do
            sleep 0.1
            i=$((i + 1))
        done
        kill -INT "$pid"
        wait "$pid"
        rc=$? out=$(cat "$tmp/out") err=$(cat "$tmp/err")
    }
    : >"$tmp/out" # here and not only by the program's shell: what the last one wrote would stop it before it has begun
    # shellcheck disable=SC2086
    "$LILY" $long >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    stop "$tmp/out"
    expect 'Ctrl-C: status' is "$rc" 130
    expect 'Ctrl-C: what was written stays' has "$out" xxx
    expect 'Ctrl-C: ends with a line feed' is "$(tail -c 1 "$tmp/out" | od -An -c | tr -d ' ')" '\n'
    # shellcheck disable=SC2086
    "$LILY" $long --json -v >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    sleep 3
    : >"$tmp/now" && echo now >"$tmp/now"
    stop "$tmp/now"
    expect 'Ctrl-C with --json: status' is "$rc" 130
    expect 'Ctrl-C with --json: the answer so far' json 'v["finish"] == "cancelled" and v["text"].startswith("xxx")'
    yes 'so it goes' | head -n 1500 >"$tmp/in"
    # shellcheck disable=SC2086
    "$LILY" run -m $TINY --raw --temp 0 --json -v <"$tmp/in" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    sleep 3
    stop "$tmp/now"
    expect 'Ctrl-C while a prompt is read: status' is "$rc" 130
    expect 'Ctrl-C while a prompt is read: one value' json 'v["finish"] == "cancelled" and v["ids"] == []'
    # The bar is what says that the reading has begun.
    printf 'wait reading [\nsend \\x03\n' >"$tmp/steps"
    TERM=xterm term "$LILY" run -m $TINY --ctx 30000 --no-think -s "$(python3 -c 'print("fox lamp river stone " * 800)')" hi
    expect 'Ctrl-C while a prompt is read, typed: status' is "$rc" 130
    expect 'what was read of it is told' python3 -c 'import re,sys
out = open(sys.argv[1], newline="").read()
n, total = map(int, re.search(r"lily: reading was stopped at (\d+) of (\d+) tokens", out).groups())
told = re.search(r"(\d+) of (\d+) tokens read.*; 0 written", out)
assert n < total and (n, total) == tuple(map(int, told.groups())) and "inside token" not in out, out' "$tmp/out"
    mkfifo "$tmp/fifo"
    sleep 60 >"$tmp/fifo" &
    writer=$!
    # shellcheck disable=SC2086
    "$LILY" run -m $TINY --json <"$tmp/fifo" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    sleep 1
    stop "$tmp/now"
    kill "$writer"
    expect 'Ctrl-C before the answer: status' is "$rc" 130
    expect 'Ctrl-C before the answer: the error' json 'v == {"error": {"message": "interrupted", "hint": None}}'
    printf 'wait xxx\nsend \\x03\n' >"$tmp/steps"
    # shellcheck disable=SC2086
    term "$LILY" $long
    expect 'Ctrl-C on a terminal' is "$rc" 130

    # A reader that goes away ends the answer.
    # shellcheck disable=SC2086
    { timeout 60 "$LILY" $long 2>"$tmp/err"; echo $? >"$tmp/rc"; } | head -c 5 >"$tmp/out"
    rc=$(cat "$tmp/rc") out=$(cat "$tmp/out") err=$(cat "$tmp/err")
    expect 'a closed pipe: status' is "$rc" 0
    expect 'a closed pipe: silent' is "$err" ''
else
    skip 'shapes, bias, terminal, Ctrl-C' 'no python3' 37
fi
if [ -w /dev/full ]; then
    "$LILY" run -m $TINY --ctx 2048 hi -n 50 --no-think --temp 0 >/dev/full 2>"$tmp/err"
    rc=$? out='' err=$(cat "$tmp/err")
    expect 'a full disk' is "$rc" 1
    expect 'a full disk is named' has "$err" 'cannot write to stdout'
else
    skip 'a full disk' 'no /dev/full' 2
fi
summary
