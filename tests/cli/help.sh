#!/bin/sh
# Help, version, and wrong usage: every command, every message.
. tests/cli/lib/check.sh

run --version
expect 'version' is "$out" "lily $(cat VERSION)"
expect 'version status' is "$rc" 0
run
expect 'no command: status' is "$rc" 2
expect 'no command: list on stderr' has "$err" 'Commands:'
expect 'no command: nothing on stdout' is "$out" ''
for word in help --help -h; do
    run $word
    expect "$word: status" is "$rc" 0
    expect "$word: lists run" has "$out" '  run '
    expect "$word: lists chat" has "$out" '  chat '
    expect "$word: exit statuses" has "$out" '130 interrupted'
done

commands=$("$LILY" help | sed -n 's/^  \([a-z]*\) .*/\1/p')
for c in $commands; do
    run help "$c"
    cp "$tmp/out" "$tmp/help"
    expect "help $c" is "$rc" 0
    expect "help $c: usage" has "$out" "Usage: lily $c"
    expect "help $c: no line is wider than 80" test "$(awk 'length($0) > 80' "$tmp/help" | wc -l)" -eq 0
    run "$c" --help
    expect "$c --help is the same" cmp -s "$tmp/out" "$tmp/help"
    run "$c" -h
    expect "$c -h is the same" cmp -s "$tmp/out" "$tmp/help"
    run "$c" --no-such-option
    expect "$c: unknown option" fails_with 2 '--no-such-option'
done

if [ -n "$have_python" ]; then
    run help --json
    expect 'help --json' json 'v["version"] and {"run","chat","info","tokenize","template","help"} <= {c["name"] for c in v["commands"]}'
    expect 'help --json: options' json 'all(set(o) == {"long","short","arg","help","group"} and o["help"] for c in v["commands"] for o in c["options"])'
    expect 'help --json: names differ within a command' json 'all(len({o["long"] for o in c["options"]}) == len(c["options"]) for c in v["commands"])'
    expect 'help --json: letters differ within a command' json 'all(len(s) == len(set(s)) for c in v["commands"] for s in [[o["short"] for o in c["options"] if o["short"]]])'
    # Every option of the list is in the help text, and the parser knows it.
    python3 -c 'import json,sys
for c in json.load(open(sys.argv[1]))["commands"]:
    for o in c["options"]: print(c["name"], o["long"], o["arg"] or "-")' "$tmp/out" >"$tmp/options"
    run help run --json
    expect 'help run --json' json 'v["name"] == "run" and any(o["long"] == "temp" and o["short"] == "t" for o in v["options"])'
    while read -r c o arg; do
        run help "$c"
        expect "help $c names --$o" has "$out" "--$o"
        if [ "$arg" = - ]; then
            run "$c" "--$o=5" --help
            expect "$c --$o takes no value" fails_with 2 "--$o takes no value"
        else
            run "$c" "--$o"
            expect "$c --$o needs a value" fails_with 2 "--$o needs a value ($arg)"
        fi
    done <"$tmp/options"
else
    skip 'help --json' 'no python3' 6
fi

out=$(./check.sh --help)
expect 'check.sh --help: what it installs and how long it takes' has "$out" minutes
run rnu hi
expect 'unknown command' fails_with 2 'unknown command "rnu"'
expect 'unknown command: nearest' has "$err" 'hint: did you mean lily run?'
run frobnicate
expect 'unknown command: no near one' has "$err" 'hint: lily help lists'
run --json run
expect 'an option before the command' fails_with 2 'a command comes first'
run help nothing
expect 'help of an unknown command' fails_with 2 'unknown command "nothing"'
run run hi --tmep 0
expect 'unknown option' fails_with 2 'run: unknown option --tmep'
expect 'unknown option: nearest' has "$err" 'hint: did you mean --temp?'
run run hi --ctx 4KB
expect 'a count of bytes: what is meant' has "$err" 'hint: --ctx is a count, not bytes: write 4K'
run run hi --ctx 4000iB
expect 'a count of bytes without a letter' has "$err" 'write 4000'
run run hi --ctx B
expect 'no count at all: no such hint' lacks "$err" 'not bytes'
run run hi --temperature 0
expect 'unknown option: one that goes on' has "$err" 'hint: did you mean --temp?'
# hints OPTION COMMAND HINT: an option of other programs is refused, and the hint leads to ours.
hints() {
    run $2 $1 5
    expect "$2 $1: refused" fails_with 2 "$2: unknown option $1"
    expect "$2 $1: the hint" has "$err" "hint: $3"
}
hints --context run 'did you mean --ctx?'
hints -c run 'did you mean --ctx?'
hints --max-model-len serve 'did you mean --ctx?'
hints --num_ctx chat 'did you mean --ctx?'
hints --n-predict run 'did you mean --max-tokens?'
hints --max_new_tokens run 'did you mean --max-tokens?'
hints --repeat-penalty run 'did you mean --repetition-penalty?'
hints --system-prompt run 'did you mean --system?'
hints -sys run 'did you mean --system?'
hints --num-threads serve 'did you mean --threads?'
hints -ngl run 'leave it out: a card'
hints --gpu-layers serve 'leave it out: a card'
hints --gpu serve 'did you mean --device?'
hints --no-mmap run 'leave it out: only a packed file is mapped'
hints -np serve 'did you mean --parallel?'
hints -hf run 'did you mean --model?'
hints --gpu-memory-utilization serve 'did you mean --memory-limit?'
hints --bind serve 'did you mean --host?'
hints --port run '--port is an option of lily serve'
hints --host run '--host is an option of lily serve'
hints --lengths run '--lengths is an option of lily bench'
hints --temp serve 'requests say that'
hints --temperature serve 'requests say that'
hints --max-tokens serve 'requests say that'
hints --threads list '--threads is an option of lily run, lily chat, lily serve, lily pack and more'
hints --prompt run 'the prompt is a word of its own'
hints -p run 'the prompt is a word of its own'
hints -f run 'a text comes on stdin'
hints --flash-attn serve 'leave it out'
hints --revision pull "it goes with the model's name: OWNER/NAME@REVISION"
hints --revision run "it goes with the model's name: OWNER/NAME@REVISION"
hints --format list 'did you mean --json?'
hints --format chat 'answers cannot be held to a form yet: ask'
hints --grammar run 'answers cannot be held to a form yet: ask'
hints --workers pull 'did you mean --connections?'
hints --workers serve 'leave it out'
hints -Z run 'lily help run lists the options'
run run hi --prompt-c "$tmp/state" -m $TINY -n 1
expect 'beginnings of our own options are taken' is "$rc" 0
for pair in ls:list rm:remove show:info download:pull convert:quantize web:serve ui:serve; do
    run "${pair%:*}"
    expect "lily ${pair%:*}" has "$err" "hint: did you mean lily ${pair#*:}?"
done
run run hi --top 1
expect 'ambiguous option' fails_with 2 'ambiguous option --top'
expect 'ambiguous option: which' has "$err" 'hint: it begins --top-k, --top-p'
run run hi -Z
expect 'unknown letter' fails_with 2 'run: unknown option -Z'
run run one two
expect 'one word too many' fails_with 2 'one word too many: "two"'
expect 'one word too many: usage' has "$err" 'lily run [options] [PROMPT]; several words go into quotes'
run help run chat
expect 'one word too many that is no text' fails_with 2 'help: one word too many: "chat"'
expect 'one word too many that is no text: usage alone' lacks "$err" 'quotes'
run info extra
expect 'a word where none belongs' fails_with 2 'one word too many'
run info models/demo
expect 'a folder where -m DIR belongs' has "$err" 'hint: did you mean -m models/demo?'
run run models/demo hello
expect 'a folder before the prompt' has "$err" 'hint: did you mean -m models/demo?'
for c in ps stop; do
    run $c
    expect "lily $c: what to do" has "$err" 'hint: lily has no background service: Ctrl-C, or kill'
done
run list
expect 'no models: what else there is' has "$err" 'lily pull fetches one (20 GB), and -m DIR takes any model folder'
run version
expect 'a command that is an option' fails_with 2 'unknown command "version"'
expect 'a command that is an option: which' has "$err" 'hint: lily --version'

# The two scripts: what is asked about them is answered before anything is installed or built.
script() {
    sh "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    rc=$? out=$(cat "$tmp/out") err=$(cat "$tmp/err")
}
for s in demo check; do
    for word in --help -h; do
        script ./$s.sh $word
        expect "$s.sh $word: status" is "$rc" 0
        expect "$s.sh $word: usage" has "$out" "usage: ./$s.sh"
        expect "$s.sh $word: that alone" lacks "$out" passed
    done
    script ./$s.sh --hlep
    expect "$s.sh: an unknown option" is "$rc" 2
    expect "$s.sh: an unknown option is named" has "$err" --hlep
    expect "$s.sh: an unknown option: usage" has "$err" "usage: ./$s.sh"
    expect "$s.sh: an unknown option: nothing on stdout" is "$out" ''
done

# Values: each is refused with the option's name and what was expected.
bad() {
    run run hi -m $TINY "$1" "$2"
    expect "$1 $2" fails_with 2 "run: $3: \"$2\" is no"
}
bad --temp warm --temp
bad -t -1 --temp
bad --temp nan --temp
bad --top-p 1.5 --top-p
bad --top-k 3.5 --top-k
bad --top-k -1 --top-k
bad --min-p 2 --min-p
bad --max-tokens 0 --max-tokens
bad -n ten --max-tokens
bad --seed -3 --seed
bad --seed 1e3 --seed
bad --seed 99999999999999999999 --seed
bad --repetition-penalty 0 --repetition-penalty
bad --presence-penalty 3 --presence-penalty
bad --frequency-penalty -3 --frequency-penalty
bad --logit-bias 5 --logit-bias
bad --logit-bias x=1 --logit-bias
bad --logit-bias 5=101 --logit-bias
bad --logit-bias -5=1 --logit-bias
bad --ctx 10 --ctx
bad --threads 0 --threads
bad --device tpu --device
bad --device cuda:x --device
bad --cpu-tier mmx --cpu-tier
bad --kv int8 --kv
bad --memory-limit lots --memory-limit
bad --memory-limit 5X --memory-limit
bad --memory-limit -5G --memory-limit
bad --memory-limit 1.G --memory-limit
bad --memory-limit 9999999999G --memory-limit
bad --ctx 4KB --ctx
for o in memory-limit max-body cache-ram cache-disk; do
    run serve --$o 20
    expect "--$o 20 means no 20 bytes" fails_with 2 "serve: --$o: \"20\" has no unit and would be bytes; write 20G for GiB"
done
run run hi --memory-limit 0
expect 'no memory at all' fails_with 2 '--memory-limit: "0" is too little'
run run hi --stop ''
expect 'empty stop string' fails_with 2 'run: --stop: stop string 1 is empty'
run run hi -m $TINY --logit-bias 100000=1
expect 'bias on no token' fails_with 2 'logit_bias names token 100000'
run run hi --raw -s x
expect '--raw with --system' fails_with 2 '--raw'
run run hi --raw --no-think
expect '--raw with --no-think' fails_with 2 '--raw'
run run hi --messages x.json
expect '--messages with a prompt' fails_with 2 '--messages'
run run -m $TINY
expect 'no prompt' fails_with 2 'run: no prompt'
run -i '' run -m $TINY --json
expect 'no prompt, as JSON: status' is "$rc" 2
if [ -n "$have_python" ]; then
    expect 'no prompt, as JSON' json 'v["error"]["message"] == "run: no prompt: stdin was empty" and v["error"]["hint"]'
    run run --json --temp x
    expect 'an error in the options, as JSON' json '"--temp" in v["error"]["message"] and v["error"]["hint"] is None'
    run run --tempp x --json
    expect 'an unknown option, as JSON' json '"--temp" in v["error"]["hint"]'
else
    skip 'errors as JSON' 'no python3' 3
fi
summary
