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
expect 'speeds have the unit that they have everywhere' grep -q '^speed  *[0-9.]* tok/s read, [0-9.]* written' "$tmp/out"
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

chat "$long\nand then?\n/undo\nwhat did she see?\n/stats\n"
expect '/undo goes on from the state before' test "$(last_stat 3)" -le 128

chat "hello\n/save $tmp/saved.json\n"
expect '/save' test -s "$tmp/saved.json"
cp README.md "$tmp/precious"
chat "hello\n/save $tmp/precious\n"
expect '/save spares what is no conversation' has "$err" 'is there, and no conversation'
expect 'and leaves it as it is' cmp -s README.md "$tmp/precious"
chat "hello\n/save $tmp/saved.json\n"
expect 'a conversation is replaced' lacks "$err" 'is there'
chat "/load $tmp/saved.json\nmore\n/stats\n"
loaded=$(last_stat 1)
chat 'hello\nmore\n/stats\n'
expect 'nothing cached in a short chat: why' has "$out" 'kept in steps of 64 tokens'
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
chat 'hello\n/new\nhello there\n/branch\n/branch 1\n/new\n/stats\n' -s 'Be brief.'
expect '/new: a branch with the system prompt' has "$out" '* 2 new 2, 3 messages'
expect '/new: what was said stays' has "$out" '  1 main, 3 messages'
chat 'hello\n/new\nhello there\n'
expect '/new: answers as a chat that begins' is "$(tail -n 1 "$tmp/out")" "$first"
chat '/branch new 3\n/new\n/branch\n'
expect '/new: a name that no branch has' has "$out" '* 3 new 4, 0 messages'
chat '/help\n'
for c in think nothink system retry undo new branch save load stats help quit; do
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
chat '/temp 0.5\n'
expect 'an option of the command line: where it belongs' has "$err" '--temp is an option: it is given when the chat is started'
for pair in clear:new reset:new exit:quit bye:quit '?:help' regen:retry; do
    chat "/${pair%:*}\n"
    expect "/${pair%:*}: its name here" has "$err" "did you mean /${pair#*:}?"
done
chat '/tmep\n'
expect 'a command that is like none: no guess' lacks "$err" 'did you mean'
chat '/retry\n'
expect '/retry of nothing' has "$err" 'nothing to answer again'
mkfifo "$tmp/fifo"
ln -s saved.json "$tmp/link"
cat "$tmp/fifo" >"$tmp/through" &
chat "hello\n/save $tmp/fifo\n/save $tmp/link\n"
wait $!
expect '/save goes through a pipe, which stays one' test -p "$tmp/fifo" -a -s "$tmp/through"
expect 'and through a link' test -h "$tmp/link"
expect 'to its file' cmp -s "$tmp/saved.json" "$tmp/through"
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
expect 'how a chat gets more room' has "$err" 'hint: a shorter message may fit; /save FILE, then lily chat --ctx N --load FILE'
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
    chat 'hello\n/stats\n' --ctx 100 -n 200 --logit-bias "$x=100"
    expect 'a full context is not more than full' grep -q '^context  *100 of 100 tokens' "$tmp/out"
    # term STEPS [OPTIONS...]; the model says x for ever, until its limit of tokens
    term() {
        printf '%s\n' "$1" >"$tmp/steps"
        shift
        TERM=xterm python3 tests/cli/lib/term.py 60 "$LILY" chat -m $TINY --ctx 30000 --no-think --temp 0 --logit-bias "$x=100" "$@" <"$tmp/steps" >"$tmp/out" 2>"$tmp/err"
        rc=$? out=$(tr -d '\r\000' <"$tmp/out") err=$(cat "$tmp/err")
    }
    term 'wait /help
wait > 
send hello\r
wait xxx
wait > 
send \x04' -n 5
    expect 'typed: a limit of tokens' has "$out" 'limit of tokens: --max-tokens sets it'
    expect 'typed: Ctrl-D ends with status' is "$rc" 0
    expect 'typed: an answer' has "$out" xxxxx
    expect 'the history belongs to its owner' is "$(stat -c %a "$tmp/state/lily/chat_history")" 600
    expect 'the history has the line' grep -q hello "$tmp/state/lily/chat_history"
    term 'wait > 
send hello\r
wait the context is full: /save FILE
wait > 
send \x04' --ctx 100
    expect 'typed: a full context' is "$rc" 0
    term 'wait > 
send hello\r
wait xxxx
send \x03
wait stopped
wait > 
send /stats\r
wait written
send /quit\r'
    expect 'Ctrl-C stops the answer' has "$out" '(stopped)'
    expect 'and only the answer' has "$out" 'last answer'
    expect 'typed: /quit' is "$rc" 0
    term 'wait > hello
wait > 
send \x04' --load "$tmp/saved.json"
    expect '--load shows where the conversation is' is "$rc" 0
    term 'wait > 
send hel\x03
wait > 
send \x03
wait Ctrl-D
wait > 
send hel\x03hello\r
wait xxx
wait > 
send /save '"$tmp"'/cleared.json\r
wait Saved
send /quit\r' -n 3
    expect 'Ctrl-C at the prompt goes on' is "$rc" 0
    expect 'Ctrl-C at the prompt clears what was typed before it, and nothing after' grep -q '"content": *"hello"' "$tmp/cleared.json"
    expect 'twice tells how to leave' has "$out" 'Ctrl-D or /quit'
    term 'wait > 
send one\ntwo\nthree\r
wait xxx
wait > 
send /branch\r
wait messages
send \x04' -n 3
    expect 'lines that come at once are one message' has "$out" '2 messages'
    term 'wait > 
send \x1b[200~one\r\ttwo\x1b[201~\r
wait xxx
wait > 
send /save '"$tmp"'/pasted.json\r
wait Saved
send \x04' -n 3
    expect 'a paste is text until Enter' grep -q '"one.n.ttwo"' "$tmp/pasted.json"
    term 'wait > 
send hello\r
wait xxx
send /undo\r/branch\r
wait messages
send \x04' -n 20
    expect 'lines typed ahead stay apart' has "$out" '1 main, 0 messages'
    term 'wait > 
send \x1b[A and more\r
wait A new branch
wait > 
send \x04' -n 3
    expect 'an earlier line comes back' is "$rc" 0
    term 'wait > 
send /branch side\r
wait A new branch
wait > 
send /branch main\r
wait There are no messages here yet
wait > 
send \x04' -n 3
    expect 'going to an empty branch says so' is "$rc" 0
    # Ctrl-C while the prompt is read: the bar goes, what was read stays, and the message comes again.
    words=$(python3 -c 'print("fox lamp river stone " * 800)')
    term 'wait > 
send hello\r
wait reading [
send \x03
wait reading was stopped at
wait > 
send hello\r
wait xxx
wait > 
send /save '"$tmp"'/again.json\r
wait Saved
send /stats\r
wait written
send \x04' -n 3 -s "$words"
    expect 'Ctrl-C while it reads: the same message goes on' is "$rc" 0
    expect 'the message is there once' python3 -c 'import json,sys
assert [m["role"] for m in json.load(open(sys.argv[1]))["messages"]] == ["system", "user", "assistant"]' "$tmp/again.json"
    expect 'a stopped reading is no answer' has "$out" 'whole chat   1 answer:'
    cp "$tmp/out" "$tmp/bars"
    term 'wait > 
send first\r
wait xxx
wait > 
send '"$words"'\r
wait reading [
send \x03
wait /retry goes on from there
wait > 
send /retry\r
wait xxx
wait > 
send /save '"$tmp"'/retried.json\r
wait Saved
send \x04' -n 3
    expect '/retry after a stopped reading' is "$rc" 0
    expect '/retry sends the stopped message' python3 -c 'import json,sys
m = json.load(open(sys.argv[1]))["messages"]
assert [x["role"] for x in m] == ["user", "assistant"] * 2 and m[0]["content"] == "first" and len(m[2]["content"]) > 10000' "$tmp/retried.json"
    term 'wait > 
send first\r
wait xxx
wait > 
send '"$words"'\r
wait reading [
send \x03
wait reading was stopped at
wait > 
send /undo\r
wait reading was stopped is gone
wait > 
send /branch\r
wait 2 messages
send /undo\r
wait its answer are gone
send \x04' -n 3
    expect '/undo after a stopped reading takes that message' is "$rc" 0
    cp "$tmp/bars" "$tmp/out"
    expect 'the bar is wiped' python3 -c 'import re,sys
before = open(sys.argv[1], newline="").read().split("(reading was stopped")[0]
assert before.rstrip("\0").endswith("\r\033[K"), before[-200:]' "$tmp/out"
    term 'wait > 
send hello\r
wait reading [
signal 15' -n 3 -s "$words"
    expect 'a signal that ends it while it reads' is "$rc" 143
    expect 'wipes the bar, too' python3 -c 'import sys
out = open(sys.argv[1], newline="").read().rstrip("\0")
assert out.endswith("\r\033[K"), out' "$tmp/out"
    # More of them before the first has stopped anything.
    for said in 'reading [' xxx; do
        system=$words
        [ "$said" = xxx ] && system='Be brief.'
        term 'wait > 
send hello\r
wait '"$said"'
send \x03
send \x03
signal 2
wait stopped
wait > 
send /quit\r' -s "$system"
        expect "Ctrl-C twice after $said: the chat goes on" is "$rc" 0
    done
    rm -rf "$tmp/state"
    term 'wait > 
send kept\r
wait xxx
signal 15' -n 3
    expect 'a signal that ends it: status' is "$rc" 143
    expect 'a signal that ends it: the history has the line' grep -q kept "$tmp/state/lily/chat_history"
    expect 'and belongs to its owner' is "$(stat -c %a "$tmp/state/lily/chat_history")" 600
    # Every key that is typed while the weights are read or an answer is written: editing keys and the end, too.
    term 'send first\r
wait xxx
send econd\x01s\x05!\r
send /save '"$tmp"'/ahead.json\r\x04
send \x03
wait stopped
wait xxx
send \x03'
    expect 'keys typed ahead: none is lost' is "$rc" 0
    expect 'keys typed ahead: what they say' python3 -c 'import json,sys
assert [m["content"] for m in json.load(open(sys.argv[1]))["messages"]][::2] == ["first", "second!"]' "$tmp/ahead.json"
    term 'wait > 
send hello\r
wait xxx
send \x1a
stopped
wait xxx
send \x03
wait stopped
wait > 
send \x1a
stopped
send \x04'
    expect 'Ctrl-Z stops it in the modes that the terminal had, and it goes on' is "$rc" 0
    term 'wait > 
signal 15'
    expect 'the modes come back after a signal, too' is "$rc" 143
    rm -rf "$tmp/state"
    term 'wait > 
send secret\r
wait xxx
wait > 
send \x04' -n 3 --no-history
    expect '--no-history' test ! -e "$tmp/state/lily/chat_history"
else
    skip 'a terminal, the saved body' 'no python3' 33
fi
summary
