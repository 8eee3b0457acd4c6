#!/bin/sh
# lily chat on the tiny checkpoint: as a script, and typed on a terminal.
. tests/cli/lib/check.sh

# chat LINES [OPTIONS...]: lines with \n between them
chat() {
    printf "$1" >"$tmp/in"
    shift
    "$LILY" chat -m $TINY --ctx 4096 --no-think --temp 0 -n 6 "$@" <"$tmp/in" >"$tmp/out" 2>"$tmp/err"
    rc=$? out=$(tr -d '\000' <"$tmp/out") err=$(cat "$tmp/err")
}
# The numbers of a line of /stats: stat WORD-BEFORE... as in `stat cached,`
last_stat() { sed -n 's/^last answer  \([0-9]*\) tokens read: \([0-9]*\) cached, \([0-9]*\) computed; \([0-9]*\) written.*/\'"$1"'/p' "$tmp/out" | tail -n 1; }

chat ''
expect 'nothing said: status' is "$rc" 0
expect 'nothing said: silent' is "$out$err" ''
chat 'hello there\n'
first=$out
expect 'an answer' test -n "$out"
expect 'status' is "$rc" 0
expect 'no notes in a script' is "$err" ''
chat 'hello there'
expect 'a last line without a line feed' is "$out" "$first"
chat '\n   \nhello there\n\n'
expect 'blank lines are nothing' is "$out" "$first"

# Reuse: the second turn starts from what the first has read.
long='Once there was a fox who lived at the edge of a dark wood, and every evening she walked down to the river to look at the moon.'
chat "$long\n/stats\nand then?\n/stats\n"
expect 'turn 1: nothing cached' grep -q '^last answer  [0-9]* tokens read: 0 cached' "$tmp/out"
read=$(last_stat 1) cached=$(last_stat 2) computed=$(last_stat 3)
expect 'turn 2: reads less than all' test "$cached" -ge 64
expect 'turn 2: cached and computed are all' test $((cached + computed)) -eq "$read"
expect 'turn 2: the last grid point is used' test "$computed" -le 128
cp "$tmp/out" "$tmp/two"
chat "$long\n/retry\n/stats\n"
expect '/retry reads at most a grid step' test "$(last_stat 3)" -le 64
expect '/retry at temperature 0 says the same' is "$(sed -n 1p "$tmp/out")" "$(sed -n 2p "$tmp/out")"
chat "$long\n/branch other\nand then?\n/branch 1\nand then?\n/branch other\n/branch\n/stats\n"
expect '/branch lists' grep -q '^\* 2 other, 4 messages' "$tmp/out"
expect '/branch lists the first' grep -q '^  1 main, 4 messages' "$tmp/out"
expect 'branches start from the same state' test "$(last_stat 2)" -ge 64
chat "$long\n/undo\n/save $tmp/empty.json\nhello there\n"
expect '/undo takes the exchange back' is "$(tail -n 1 "$tmp/out")" "$first"

chat "hello\n/save $tmp/saved.json\n"
expect '/save' test -s "$tmp/saved.json"
chat "/load $tmp/saved.json\nmore\n/stats\n"
loaded=$(last_stat 1)
chat 'hello\nmore\n/stats\n'
expect '/load goes on with it' is "$loaded" "$(last_stat 1)"
chat 'more\n/stats\n' --load "$tmp/saved.json"
expect '--load is the same' is "$loaded" "$(last_stat 1)"
chat '/system Be brief.\nhello\n/stats\n'
with=$(last_stat 1)
chat 'hello\n/stats\n' -s 'Be brief.'
expect '/system and --system are the same' is "$with" "$(last_stat 1)"
chat '/system\nhello there\n' -s 'Be brief.'
expect '/system without a text removes it' is "$out" "$first"
chat '/think\nhello there\n'
expect '/think: nothing of the thinking in a pipe' is "$out" ''
chat '/think\n/nothink\nhello there\n'
expect '/nothink' is "$out" "$first"
chat 'hel\\\nlo\n/stats\n'
expect 'a backslash goes on' test "$(last_stat 1)" -gt 0
two=$(last_stat 1)
chat 'hello\n/stats\n'
expect 'and adds a line feed' test "$two" -gt "$(last_stat 1)"
chat '//help\n/stats\n'
expect 'two slashes are a message' test "$(last_stat 1)" -gt 0
chat '/help\n'
for c in think nothink system retry undo branch save load stats help quit; do
    expect "/help names /$c" has "$out" "/$c"
done
chat '/quit\nhello\n'
expect '/quit ends it' is "$out" ''

# Mistakes: a line each, and the chat goes on.
chat '/stast\nhello there\n'
expect 'unknown command: named' has "$err" 'unknown command /stast'
expect 'unknown command: nearest' has "$err" 'did you mean /stats?'
expect 'the chat goes on' is "$out" "$first"
expect 'the status tells' is "$rc" 2
chat '/retry\n'
expect '/retry of nothing' has "$err" 'nothing to answer again'
chat "/save $tmp/nowhere/file\n"
expect '/save where no folder is' has "$err" "lily: $tmp/nowhere/file: cannot create"
chat '/undo\n'
expect '/undo of nothing' has "$err" 'nothing to take back'
chat '/save\n'
expect '/save without a file' has "$err" '/save needs a file name'
chat '/load /nowhere/x.json\n'
expect '/load of no file' has "$err" '/nowhere/x.json'
expect '/load of no file: status' is "$rc" 1
chat '/load -\n'
expect '/load of stdin' has "$err" 'stdin'
chat '/branch 7\n'
expect '/branch to nowhere' has "$err" 'no branch 7'
chat '/quit now\n'
expect 'a word too many' has "$err" '/quit takes nothing'
chat "$(head -c 9000 /dev/zero | tr '\0' y)\nhello there\n"
expect 'a message past the context' has "$err" 'context'
expect 'it is taken back' is "$out" "$first"

if [ -n "$have_python" ]; then
    # What a chat answers from saved state is what a fresh process answers to the same conversation.
    chat "$long\nand then, what did she see?\n/save $tmp/warm.json\n"
    python3 -c 'import json,sys
v = json.load(open(sys.argv[1])); v["warm"] = v["messages"].pop()["content"]
json.dump(v, open(sys.argv[2], "w"))' "$tmp/warm.json" "$tmp/cold.json"
    run run -m $TINY --ctx 4096 --no-think --temp 0 -n 6 --messages "$tmp/cold.json" --json
    expect 'cached equals cold' json "v['text'] == json.load(open('$tmp/cold.json'))['warm'] and v['usage']['prompt_tokens_details']['cached_tokens'] == 0"
    expect '/save: a body' python3 -c 'import json,sys
v = json.load(open(sys.argv[1])); m = v["messages"]
assert [x["role"] for x in m] == ["user", "assistant"] and m[0]["content"] == "hello"' "$tmp/saved.json"
    x=$("$LILY" tokenize -m $TINY --json x | python3 -c 'import json,sys; print(json.load(sys.stdin)["ids"][0])')
    skip 'typing on a terminal' 'the scripted terminal (tests/cli/lib/term.py) loses keys now and then' 1
else
    skip 'a terminal, the saved body' 'no python3' 14
fi
summary
