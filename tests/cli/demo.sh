#!/bin/sh
# The demo model through the program: it answers, reuses state, calls a tool, and its text fits the terminal.
. tests/cli/lib/check.sh
DEMO=models/demo
if [ ! -f $DEMO/model.safetensors ]; then
    skip 'the demo model' "$DEMO is not there" 13
    summary
    exit
fi

run -i 'My locker code is 4417. What is my locker code?
' run -m $DEMO --temp 0 --no-think -n 60
expect 'it recalls a number' has "$out" 4417
run -i 'My locker code is 4417. What is my locker code?' run --temp 0 --no-think -n 60
expect 'it is found without -m' has "$out" 4417
expect 'and that is said' has "$err" 'the demo model'
run -i 'hi' run -m $DEMO --temp 0 -n 1
expect 'thinking is not in the pipe' is "$out" ''

# A longer conversation costs only what is new.
long='The harbour master keeps a grey parrot called Admiral, who knows the names of all the ships that come in, and who calls them out over the water each morning before the sun is up. Last week the ferry was late and nobody was told. Say hello.'
printf '%s\nTell me a story about a boat.\n/stats\nThank you. Say hello again.\n/stats\n' "$long" >"$tmp/in"
"$LILY" chat -m $DEMO --no-think --temp 0 -n 60 <"$tmp/in" >"$tmp/out" 2>"$tmp/err"
rc=$? out=$(cat "$tmp/out") err=$(cat "$tmp/err")
expect 'a chat: status' is "$rc" 0
reads=$(sed -n 's/^last answer  \([0-9]*\) tokens read: \([0-9]*\) cached.*/\1 \2/p' "$tmp/out")
# shellcheck disable=SC2086
set -- $reads
expect 'the second turn has the first cached' test "${2:-0}" -ge 64
expect 'the third turn has the second prompt cached' test "${4:-0}" -ge $((${1:-0} - 128))

if [ -n "$have_python" ]; then
    body='{"messages":[{"role":"user","content":"What is the weather in Oslo?"}],"tools":[{"type":"function","function":{"name":"get_weather","description":"Return the current weather for a city.","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]}'
    run -i "$body" run -m $DEMO --messages - --temp 0 -n 200 --json
    expect 'a tool call' json 'v["finish"] == "tool_calls" and v["text"] == "" and [(c["type"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in v["tool_calls"]] == [("function", "get_weather", {"city": "Oslo"})]'
    expect 'the thinking before it' json 'v["reasoning"] and "tool_call" not in v["reasoning"]'
    run -i "$body" run -m $DEMO --messages - --temp 0 -n 200
    expect 'a tool call in a pipe is a line' is "$out" 'get_weather {"city":"Oslo"}'

    fox=$("$LILY" tokenize -m $DEMO --json ' fox' | python3 -c 'import json,sys; print(json.load(sys.stdin)["ids"][0])')
    run run -m $DEMO --no-think --temp 0 --logit-bias "$fox=100" --json hi
    expect 'what repeats itself ends where generation_config.json says' json 'v["finish"] == "length" and v["usage"]["completion_tokens"] == 1024'
    run run -m $DEMO --no-think --temp 0 --logit-bias "$fox=100" -n 1100 --json hi
    expect 'and at what is asked for' json 'v["usage"]["completion_tokens"] == 1100'

    # On a terminal the story breaks between words, and is the same story.
    story='Tell me a story about a boat.'
    run run -m $DEMO --no-think --temp 0 -n 150 "$story"
    cp "$tmp/out" "$tmp/plain"
    : >"$tmp/steps"
    TERM=xterm python3 tests/cli/lib/term.py 120 "$LILY" run -m $DEMO --no-think --temp 0 -n 150 "$story" <"$tmp/steps" >"$tmp/out" 2>"$tmp/err"
    rc=$? out=$(cat "$tmp/out") err=$(cat "$tmp/err")
    expect 'a terminal: the same words, no line too wide' python3 -c '
import re, sys
shown = re.split("\x1b\\[2m\\d+ tokens read", open(sys.argv[1], newline="").read())[0]
shown = shown.rsplit("\r\x1b[K", 1)[-1].replace("\r\n", "\n")  # without progress bars
lines, line = [], ""
for part in re.split("(\x1b\\[\\d+D\x1b\\[K|\n)", shown):
    back = re.match("\x1b\\[(\\d+)D", part)
    if part == "\n": lines.append(line); line = ""
    elif back: line = line[: len(line) - int(back.group(1))]
    else: line += part
lines.append(line)
plain = open(sys.argv[2]).read()
assert max(map(len, lines)) <= 99 < max(map(len, plain.split("\n"))), "widths"
assert " ".join("\n".join(lines).split()) == " ".join(plain.split()), "words"' "$tmp/out" "$tmp/plain"
else
    skip 'tool calls, the terminal' 'no python3' 6
fi
summary
